//! Kernels that pass instructions through channels are the oracle, on FPGAs and their emulators.
//!
//! They run at the same time and wait for each other: an emulator needs its threads for them alone,
//! so that this is a process of its own with one test.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use vta_driver::{Batch, Device, PhysAddr, Work, WorkDone};
use vta_hw_opencl::{OpenClDevice, Structure};
use vta_isa::Config;
use vta_sim::{Executor, Oracle};
use vta_tests::opencl::{Backend, backends};
use vta_tests::programs::{RandomProgram, generate};

fn done(device: &OpenClDevice, work: Work) -> WorkDone {
    device.submit(work).unwrap().wait().unwrap()
}

/// All bytes of the program's regions after a run on fresh memory.
fn contents(device: &OpenClDevice, program: &RandomProgram) -> Vec<u8> {
    for (addr, bytes) in program.regions() {
        let (addr, data) = (PhysAddr(*addr), bytes[..].into());
        device.alloc_at(addr, bytes.len() as u64).unwrap();
        done(device, Work::Write { addr, data });
    }
    let insns = program.insns.clone();
    let batch = Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![],
    };
    done(device, Work::Run(Arc::new(batch)));
    let mut all = Vec::new();
    for (addr, bytes) in program.regions() {
        let (addr, size_bytes) = (PhysAddr(*addr), bytes.len() as u64);
        match done(device, Work::Read { addr, size_bytes }) {
            WorkDone::Data(bytes) => all.extend(bytes),
            other => panic!("{other:?}"),
        }
        device.free(addr).unwrap();
    }
    all
}

#[test]
fn kernels_joined_by_channels_are_the_oracle() {
    let small = r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#;
    let fpgas = backends("channels").into_iter();
    for Backend { entry, .. } in fpgas.filter(|b| b.entry.fpga && b.structure == Structure::Core) {
        let structure = Structure::Channels;
        let backend = Backend { entry, structure };
        for (json, seeds) in [("{}", 0..3), (small, 0..6)] {
            let config = Config::from_json(json).unwrap();
            let device = backend.open(&config);
            for seed in seeds {
                let program = generate(&config, seed, 1 + seed as usize % 6);
                let mut memory = program.memory();
                let mut oracle = Oracle::new(config.clone());
                oracle.run(&program.insns, &[], &mut memory).unwrap();
                let same = contents(&device, &program) == program.contents(&memory);
                assert!(same, "{} seed {seed}, {json}", backend.name());
            }
        }
    }
}
