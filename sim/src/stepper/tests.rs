use vta_driver::PhysAddr;
use vta_isa::{MemType, Uop, asm};
use vta_replay::DramBytes;

use super::*;
use crate::Executor;

/// A product and its store.
fn product() -> Case {
    let text = "load.uop y_size=1 x_size=1 x_stride=1
        load.inp dram_base=0x100 y_size=1 x_size=1 x_stride=1
        load.wgt dram_base=0x20 y_size=1 x_size=1 x_stride=1 push_next
        gemm reset uop_end=1 iter_out=1 iter_in=1
        gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
        alu.shr imm=2 uop_end=1 iter_out=1 iter_in=1 push_next
        store dram_base=0x300 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
        finish pop_next";
    let config = Config::default();
    let uop = Uop::default().encode().unwrap().to_le_bytes().to_vec();
    let region = |addr, bytes| DramBytes {
        addr: PhysAddr(addr),
        bytes,
    };
    let case = Case {
        name: "product".to_owned(),
        config,
        words: Vec::new(),
        insns: asm::parse(text).unwrap(),
        insn_addr: PhysAddr(0x10_0000),
        allocations: vec![(PhysAddr(0), 0x8000)],
        before: vec![
            region(0, uop),
            region(0x1000, (1..17).collect()),
            region(0x2000, vec![1; 256]),
        ],
        after: Vec::new(),
        complete: false,
    };
    Case {
        words: case.insns.iter().map(|i| i.encode().unwrap()).collect(),
        ..case
    }
}

fn stepper(case: &Case) -> Stepper {
    Stepper::new(case.clone(), &TimingConfig::pynq(), &Budget::default()).unwrap()
}

#[test]
fn values_appear_in_the_cycle_in_which_an_instruction_is_done() {
    let mut stepper = stepper(&product());
    let cycles = stepper.report().as_ref().map(|r| r.cycles);
    assert_eq!(cycles, Ok(stepper.last_cycle() + 1));
    let spans = stepper.spans().to_vec();
    let [inp, gemm] = [1, 4].map(|insn: usize| spans[insn].done.unwrap());
    for (cycle, first) in [
        (None, 0),
        (Some(inp - 1), 0),
        (Some(inp), 1),
        (Some(gemm), 1),
    ] {
        stepper.go_to(cycle).unwrap();
        assert_eq!(stepper.pads().inp[0], first, "behind cycle {cycle:?}");
    }
    assert_eq!(stepper.pads().acc[..16], [136; 16]);
    stepper.go_to(Some(gemm - 1)).unwrap();
    assert_eq!(stepper.pads().acc[..16], [0; 16], "back before the product");
    assert_eq!(stepper.done().count(), 4);
}

#[test]
fn the_end_is_the_oracles() {
    let case = product();
    let mut memory = case.memory().unwrap();
    Oracle::new(case.config.clone())
        .run(&case.insns, &[], &mut memory)
        .unwrap();
    let mut stepper = stepper(&case);
    stepper.go_to(Some(stepper.last_cycle())).unwrap();
    let stored = |memory: &DeviceMemory| memory.read(0x3000, 16).unwrap().to_vec();
    assert_eq!(stored(stepper.memory()), stored(&memory));
    assert_eq!(stored(&memory), [34; 16]);
}

#[test]
fn a_race_is_seen_in_the_values() {
    let mut case = product();
    for insn in [2, 4] {
        case.insns[insn].deps_mut().push_next = false;
        case.insns[insn].deps_mut().pop_prev = false;
    }
    let mut stepper = stepper(&case);
    stepper.go_to(Some(stepper.last_cycle())).unwrap();
    assert_eq!(
        stepper.pads().acc[..16],
        [0; 16],
        "the weights came too late"
    );
}

#[test]
fn a_deadlock_can_be_stepped_to_its_end() {
    let case = product();
    let case = Case {
        insns: asm::parse("load.inp y_size=1 x_size=1 x_stride=1\nfinish pop_prev").unwrap(),
        ..case
    };
    let mut stepper = stepper(&case);
    assert!(matches!(stepper.report(), Err(CycleError::Deadlock { .. })));
    let end = stepper.last_cycle();
    stepper.go_to(Some(end)).unwrap();
    let state = stepper.state(Some(end));
    assert_eq!(state.queues, [vec![], vec![1], vec![]]);
    let edge = vta_isa::tokens::Edge::LoadToCompute;
    assert_eq!(state.stalls[2], Some(StallReason::Token(edge)));
}

#[test]
fn what_the_oracle_refuses_ends_the_steps() {
    let mut case = product();
    case.allocations[0].1 = 0x1800;
    case.before.truncate(2);
    let mut stepper = stepper(&case);
    let end = stepper.last_cycle();
    assert!(matches!(
        stepper.go_to(Some(end)),
        Err(SimError::Dram { .. })
    ));
    assert_eq!(stepper.done().count(), 3);
    assert!(stepper.go_to(None).is_ok());
}

#[test]
fn tiles_are_those_of_the_micro_ops_that_are_there() {
    let mut stepper = stepper(&product());
    stepper.go_to(Some(stepper.last_cycle())).unwrap();
    let touched = stepper.touched(4);
    let named: Vec<MemType> = touched.reads.iter().map(|(mem, _)| *mem).collect();
    assert_eq!(named, [MemType::Inp, MemType::Wgt, MemType::Uop]);
    assert!(
        touched
            .writes
            .iter()
            .all(|(mem, tiles)| *mem == MemType::Acc && tiles.len() == 1)
    );
}
