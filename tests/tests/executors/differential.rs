//! The fast executor, with every kernel of this CPU, is the oracle on random legal programs.

use proptest::prelude::*;
use vta_isa::{AluOp, Extensions, MemType, Opcode, check};
use vta_sim::{Executor, Functional, GemmKernel, Oracle, Planning};
use vta_tests::extended;
use vta_tests::programs::generate;

const CONFIGS: [&str; 7] = [
    "{}",
    r#"{"LOG_BATCH": 1, "LOG_ACC_BUFF_SIZE": 17}"#,
    r#"{"LOG_BLOCK": 5}"#,
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 6, "LOG_ACC_BUFF_SIZE": 15}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_UOP_BUFF_SIZE": 7, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 13, "LOG_ACC_BUFF_SIZE": 11}"#,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn fast_is_the_oracle_on_random_programs(seed in any::<u64>(), config in 0usize..7, rounds in 1usize..7) {
        let config = extended(CONFIGS[config], seed);
        let program = generate(&config, seed, rounds);
        prop_assert_eq!(check::check(&config, &program.insns), vec![], "a generated program is legal");
        let mut memory = program.memory();
        let report = Oracle::new(config.clone()).run(&program.insns, &[], &mut memory);
        prop_assert_eq!(report.map(|r| r.leftover_tokens), Ok([0; 4]));
        let expected = program.contents(&memory);
        let kernels = GemmKernel::ALL.into_iter().filter(|k| k.supported());
        for (kernel, planning) in kernels.flat_map(|k| [(k, Planning::AtOnce), (k, Planning::Never)]) {
            let mut memory = program.memory();
            let mut executor = Functional::with_kernel(config.clone(), kernel).with_planning(planning);
            let run = executor.run(&program.insns, &[], &mut memory);
            prop_assert_eq!(run.map(|r| r.leftover_tokens), Ok([0; 4]));
            prop_assert!(program.contents(&memory) == expected, "{:?}, {:?} differs", kernel, planning);
        }
    }
}

#[test]
fn random_programs_change_memory_and_use_every_instruction() {
    let config = extended("{}", u64::MAX);
    let mut kinds = std::collections::BTreeSet::new();
    let mut needed = Extensions::NONE;
    for seed in 0..40 {
        let program = generate(&config, seed, 4);
        needed = needed.or(Extensions::needed(&program.insns));
        kinds.extend(
            program
                .insns
                .iter()
                .map(|i| i.to_string().split(' ').next().unwrap().to_owned()),
        );
        let mut memory = program.memory();
        let before = program.contents(&memory);
        Oracle::new(config.clone())
            .run(&program.insns, &[], &mut memory)
            .unwrap();
        assert_ne!(
            before,
            program.contents(&memory),
            "seed {seed} stores nothing"
        );
    }
    assert_eq!(needed, Extensions::ALL);
    let all = Opcode::ALL.into_iter().flat_map(|opcode| match opcode {
        Opcode::Load => {
            let loaded = MemType::ALL.into_iter().filter(|m| *m != MemType::Out);
            loaded.map(|mem| format!("{opcode}.{mem}")).collect()
        }
        Opcode::Alu => AluOp::ALL.map(|op| format!("{opcode}.{op}")).to_vec(),
        Opcode::Store | Opcode::Gemm | Opcode::Depthwise | Opcode::Finish => {
            vec![opcode.to_string()]
        }
    });
    assert_eq!(kinds, all.collect());
}
