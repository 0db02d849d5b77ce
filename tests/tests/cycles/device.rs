//! The cycle device computes what the functional one computes, and refuses what the RTL can't run.

use std::sync::Arc;

use proptest::prelude::*;
use vta_driver::{Batch, Device, PhysAddr, Work, WorkDone, WorkerDevice};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;
use vta_sim::hazards::{self, UopSource};
use vta_sim::{CycleLog, Execution, SimDevice};
use vta_tests::programs::{RandomProgram, generate};

/// Where nothing of a random program lies.
const INSN_ADDR: u32 = 0x8000_0000;

/// Memory after the program has run on a device, or why it didn't.
fn run(program: &RandomProgram, device: &WorkerDevice) -> Result<(Vec<u8>, Option<u64>), String> {
    for (addr, bytes) in program.regions() {
        let addr = PhysAddr(*addr);
        device.alloc_at(addr, bytes.len() as u64).unwrap();
        let data = bytes[..].into();
        device.submit(Work::Write { addr, data }).unwrap();
    }
    let batch = Batch {
        words: program.insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: program.insns.clone(),
        insn_addr: PhysAddr(INSN_ADDR),
        marks: Vec::new(),
    };
    let ticket = device.submit(Work::Run(Arc::new(batch))).unwrap();
    let WorkDone::Ran(report) = ticket.wait().map_err(|e| e.to_string())? else {
        unreachable!("a run ends in a report");
    };
    let mut all = Vec::new();
    for (addr, bytes) in program.regions() {
        let (addr, size_bytes) = (PhysAddr(*addr), bytes.len() as u64);
        let read = device.submit(Work::Read { addr, size_bytes }).unwrap();
        let WorkDone::Data(data) = read.wait().unwrap() else {
            unreachable!("a read ends in data");
        };
        all.extend(data);
    }
    Ok((all, report.cycles))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn cycle_is_functional_on_random_programs(
        seed in any::<u64>(),
        rounds in 1usize..6,
        config in prop::sample::select(vec!["{}", r#"{"LOG_BLOCK": 5}"#, r#"{"LOG_BATCH": 1, "LOG_ACC_BUFF_SIZE": 17}"#]),
        preset in prop::sample::select(TimingConfig::PRESETS.to_vec()),
    ) {
        let config = Config::from_json(config).unwrap();
        let timing = TimingConfig::preset(preset).unwrap();
        let program = generate(&config, seed, rounds);
        let cycle = SimDevice::cycle(config.clone(), timing, Execution::Full, CycleLog::default());
        let timed = run(&program, &cycle);
        let memory = program.memory();
        match hazards::first_alu_hazard(&config, &program.insns, UopSource::Memory(&memory)) {
            Some(hazard) => {
                let error = timed.unwrap_err();
                prop_assert!(error.contains(&hazard.to_string()), "{}", error);
            }
            None => {
                let (bytes, cycles) = timed.unwrap();
                prop_assert!(cycles.is_some_and(|c| c > 0));
                let (expected, none) = run(&program, &SimDevice::functional(config)).unwrap();
                prop_assert!(bytes == expected && none.is_none());
            }
        }
    }
}

#[test]
fn most_random_programs_have_no_alu_hazard_and_some_have() {
    let config = Config::default();
    let clean = (0..200).filter(|&seed| {
        let program = generate(&config, seed, 2);
        let memory = program.memory();
        hazards::first_alu_hazard(&config, &program.insns, UopSource::Memory(&memory)).is_none()
    });
    let clean = clean.count();
    assert!((100..200).contains(&clean), "{clean} of 200 are clean");
}
