//! The fast executor, with every kernel of this CPU, is the oracle on random legal programs.

use proptest::prelude::*;
use vta_driver::DeviceMemory;
use vta_isa::{AluOp, Config, Extension, Extensions, MemType, Opcode, check};
use vta_sim::{Executor, Functional, GemmKernel, Oracle, Planning};
use vta_tests::extended;
use vta_tests::programs::{RandomProgram, generate};

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Numbers that int8 holds give the sums of int8, whatever their width is: of those, the fast executor of int8 knows
    /// nothing.
    #[test]
    fn machines_of_any_widths_are_those_of_int8(
        seed in any::<u64>(), config in 0usize..7, widths in [3u32..6, 3u32..6, 3u32..6], rounds in 1usize..7,
    ) {
        let int8 = extended(CONFIGS[config], seed);
        // It clamps to what an output holds.
        let others = int8.extensions().iter().filter(|e| *e != Extension::Saturate).collect();
        let int8 = int8.with_extensions(others);
        let [inp, wgt, out] = widths;
        let keys = format!(r#"{{"LOG_INP_WIDTH": {inp}, "LOG_WGT_WIDTH": {wgt}, "LOG_OUT_WIDTH": {out}}}"#);
        let wide = Config::from_json_over(&int8, &keys).unwrap();
        let [program, narrow] = generate(&wide, seed, rounds).like_int8(&wide, &int8);
        let mut expected = narrow.memory();
        Functional::new(int8.clone()).run(&narrow.insns, &[], &mut expected).unwrap();
        let region = |memory: &DeviceMemory, config: &Config| -> Vec<i32> {
            let bytes = memory.read(RandomProgram::region(MemType::Out), 1 << 18).unwrap();
            config.numbers(MemType::Out, bytes).collect()
        };
        let mut memory = program.memory();
        Functional::new(wide.clone()).run(&program.insns, &[], &mut memory).unwrap();
        // The lower byte of each output; STOREs that requantise give int8.
        let found = region(&memory, &wide);
        let differs = found.iter().zip(region(&expected, &int8)).position(|(wide, int8)| *wide as i8 != int8 as i8);
        prop_assert_eq!(differs, None);
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
