#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use vta_driver::{DeviceInfo, DriverError, Ticket};
use vta_isa::{Uop, asm};
use vta_sim::{Functional, Oracle, Planning, SimDevice};

use super::*;

/// A device that keeps its memory to itself.
struct Apart(Arc<dyn Device>);

impl Device for Apart {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn fetches(&self) -> bool {
        self.0.fetches()
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        self.0.alloc(size_bytes)
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.0.alloc_at(addr, size_bytes)
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        self.0.free(addr)
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        self.0.submit(work)
    }
}

fn devices() -> [Arc<dyn Device>; 5] {
    let functional = |planning| -> Arc<dyn Device> {
        let config = Config::default();
        let executor = Functional::new(config.clone()).with_planning(planning);
        Arc::new(SimDevice::with_executor("sim", config, executor))
    };
    let oracle = Oracle::new(Config::default());
    [
        functional(Planning::AtOnce),
        functional(Planning::Again),
        functional(Planning::Never),
        Arc::new(SimDevice::with_executor(
            "oracle",
            Config::default(),
            oracle,
        )),
        Arc::new(Apart(functional(Planning::AtOnce))),
    ]
}

/// Adds two tiles of a buffer each, of which a micro-op says which, and stores the sum.
fn sum([uops, first, second, out]: [u32; 4]) -> Vec<Insn> {
    let text = format!(
        "load.uop dram_base={} y_size=1 x_size=1
         load.acc dram_base={} y_size=1 x_size=1
         load.acc sram_base=1 dram_base={} y_size=1 x_size=1
         alu.add uop_end=1 iter_out=1 iter_in=1 push_next
         store dram_base={} y_size=1 x_size=1 pop_prev push_prev
         finish pop_next",
        uops / 4,
        first / 64,
        second / 64,
        out / 16
    );
    asm::parse(&text).unwrap()
}

#[test]
fn runs_see_what_the_host_wrote_since_the_last_and_nothing_else() {
    for (which, device) in devices().into_iter().enumerate() {
        let apart = which == 4;
        let mut machine = Machine::new(device);
        let buffers = [(); 5].map(|()| machine.alloc(100).unwrap().addr());
        let [uops, first, second, out, words] = buffers;
        let phys = buffers.map(|at| machine.memory.phys(at).unwrap());
        let insns = sum([phys[0], phys[1], phys[2], phys[3]]);
        let encoded = insns.iter().flat_map(|i| i.encode().unwrap().to_le_bytes());
        machine
            .memory
            .write(words, &encoded.collect::<Vec<_>>())
            .unwrap();
        assert_eq!(machine.memory.copies(), apart);
        let tile = |value: i32| [value; 16].map(i32::to_le_bytes).concat();
        let (mut values, mut src) = ([1, 2], 1);
        for round in 0..90 {
            // Each stays for some runs, so that it may be taken for a constant, and changes.
            match round % 9 {
                0 => values[0] = round % 31,
                3 => values[1] = round % 37 + 5,
                6 => src = 1 - src,
                _ => {}
            }
            let uop = Uop {
                dst: 0,
                src,
                wgt: 0,
            }
            .encode()
            .unwrap();
            machine.memory.write(uops, &uop.to_le_bytes()).unwrap();
            machine.memory.write(first, &tile(values[0])).unwrap();
            machine.memory.write(second, &tile(values[1])).unwrap();
            // What the run doesn't store is the host's.
            machine.memory.write(out, &[round as u8; 100]).unwrap();
            machine.run(phys[4], insns.len() as u32).unwrap();
            let mut expected = [round as u8; 100];
            expected[..16].fill((values[0] + values[usize::from(src)]) as u8);
            let found = machine.memory.bytes(out, 100).unwrap();
            assert_eq!(found, expected, "device {which}, round {round}");
        }
        machine.memory.free(first).unwrap();
        assert!(machine.run(phys[4], insns.len() as u32).is_err());
    }
}

#[test]
fn a_long_stream_is_kept_when_one_like_it_comes_again() {
    const ADDS: usize = KEPT_AT_ONCE;
    let mut machine = Machine::new(Arc::new(SimDevice::functional(Config::default())));
    let buffers = [100, 100, 16 * (ADDS + 3)].map(|size| machine.alloc(size).unwrap().addr());
    let phys = buffers.map(|at| machine.memory.phys(at).unwrap());
    // Micro-op 0 is there, and the accumulators are zero but for what runs before added.
    let add = |imm: i32| format!("alu.add imm={imm} uop_end=1 iter_out=1 iter_in=1\n");
    let adds = |imm: i32| add(imm) + &add(1).repeat(ADDS - 1);
    let program = |imm: i32| {
        let load = format!("load.acc dram_base={} y_size=1 x_size=1\n", phys[0] / 64);
        let end = format!(
            "alu.add imm=0 uop_end=1 iter_out=1 iter_in=1 push_next
             store dram_base={} y_size=1 x_size=1 pop_prev push_prev
             finish pop_next",
            phys[1] / 16
        );
        asm::parse(&(load + &adds(imm) + &end)).unwrap()
    };
    let mut kept = Vec::new();
    for imm in [1, 2, 1, 1, 2, 2] {
        let insns = program(imm);
        let words = insns.iter().map(|i| i.encode().unwrap().to_le_bytes());
        let words: Vec<u8> = words.flatten().collect();
        machine.memory.write(buffers[2], &words).unwrap();
        machine.run(phys[2], insns.len() as u32).unwrap();
        let found = machine.memory.bytes(buffers[1], 16).unwrap();
        assert_eq!(found, [(ADDS as i32 - 1 + imm) as u8; 16]);
        kept.push((machine.streams.len(), machine.once.len()));
    }
    // The second is as long as the first and lies where it did.
    assert_eq!(kept, [(0, 1), (1, 1), (2, 1), (2, 1), (2, 1), (2, 1)]);
    for imm in [3, 4, 3, 4, 3] {
        let mut insns = program(imm);
        let room = insns.len();
        machine.run_insns(&mut insns).unwrap();
        let found = machine.memory.bytes(buffers[1], 16).unwrap();
        assert_eq!(found, [(ADDS as i32 - 1 + imm) as u8; 16]);
        assert!(insns.capacity() >= room);
    }
    assert_eq!((machine.streams.len(), machine.once.len()), (4, 2));
}
