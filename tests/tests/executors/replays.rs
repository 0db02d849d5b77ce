//! Batches that are submitted again: an executor that keeps what it has worked out of them is
//! the oracle all the same, whatever is written to memory and run in between.

use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::zoo::Rng;
use vta_driver::{Batch, DeviceMemory, PhysAddr};
use vta_isa::MemType;
use vta_sim::{Executor, Functional, GemmKernel, Oracle, Planning};
use vta_tests::extended;
use vta_tests::programs::{RandomProgram, generate};

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 5}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
];

fn batch(program: &RandomProgram) -> Arc<Batch> {
    Arc::new(Batch {
        words: program.insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: program.insns.clone(),
        insn_addr: PhysAddr(0),
        marks: Vec::new(),
    })
}

/// Writes a few bytes anywhere in a region.
fn scribble(mem: MemType, seed: u64, memory: &mut DeviceMemory) {
    let mut rng = Rng::new(seed);
    for _ in 0..64 {
        let bits = rng.next_u64();
        let at = RandomProgram::region(mem) + bits % 4096;
        memory.write(at, 1).unwrap()[0] = (bits >> 32) as u8;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replays_are_the_oracle_after_anything_was_written(
        seed in any::<u64>(),
        config in 0usize..4,
        steps in prop::collection::vec((0usize..2, 0usize..7), 2..10),
    ) {
        let config = extended(CONFIGS[config], seed);
        let programs = [generate(&config, seed, 3), generate(&config, seed ^ 1, 2)];
        let batches = [batch(&programs[0]), batch(&programs[1])];
        let kernels = GemmKernel::ALL.into_iter().filter(|k| k.supported());
        let mut runs: Vec<(Box<dyn Executor>, DeviceMemory)> = kernels
            .flat_map(|k| [(k, Planning::AtOnce), (k, Planning::Again)])
            .map(|(kernel, planning)| -> Box<dyn Executor> {
                let executor = Functional::with_kernel(config.clone(), kernel);
                Box::new(executor.with_planning(planning))
            })
            .chain([Box::new(Oracle::new(config.clone())) as Box<dyn Executor>])
            .map(|executor| (executor, programs[0].memory()))
            .collect();
        for (step, &(which, written)) in steps.iter().enumerate() {
            let mut outcomes = Vec::new();
            for (executor, memory) in &mut runs {
                match written {
                    0 => scribble(MemType::Wgt, step as u64, memory),
                    1 => scribble(MemType::Uop, step as u64, memory),
                    2 => scribble(MemType::Acc, step as u64, memory),
                    3 => scribble(MemType::Inp, step as u64, memory),
                    4 => programs[which].fill(memory),
                    // The second program's micro-ops aren't there unless they were written.
                    _ => {}
                }
                let outcome = executor.run_batch(&batches[which], memory);
                outcomes.push((
                    outcome.map(|r| r.leftover_tokens),
                    programs[0].contents(memory),
                ));
            }
            let oracle = outcomes.pop().unwrap();
            for outcome in &outcomes {
                prop_assert_eq!(&outcome.0, &oracle.0);
                prop_assert!(outcome.1 == oracle.1, "step {} differs", step);
            }
        }
    }
}
