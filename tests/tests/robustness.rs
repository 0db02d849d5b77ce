//! Bad input gets an error: no panic, no hang, whatever the bytes are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use proptest::prelude::*;
use vta_compiler::{layer, lower, onnx, passes};
use vta_driver::{DeviceMemory, Program, QueueLimits, Session};
use vta_isa::{Config, Finish, Insn};
use vta_sim::{Executor, Functional, Oracle, SimDevice};

fn demo() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo/resnet20.onnx");
    std::fs::read(path).unwrap()
}

fn bundle() -> Vec<u8> {
    let graph = layer::build(&layer::parse("conv:1,20,9,9,33,3,2,1").unwrap(), 7).unwrap();
    let options = lower::LowerOptions::default();
    lower::compile(&graph, &Config::default(), &options)
        .unwrap()
        .to_bytes()
        .unwrap()
}

/// Runs a bundle that passed its checks; tokens and scratchpads are the device's to refuse.
fn run_if_sound(program: Program) {
    let device = SimDevice::with_executor(
        "sim",
        program.config.clone(),
        Functional::new(program.config.clone()).with_max_steps(1 << 22),
    );
    let Ok(mut session) = Session::new(Arc::new(program), Arc::new(device), QueueLimits::default())
    else {
        return;
    };
    let input = session.program().inputs.first().copied();
    let Some(len) = input
        .and_then(|i| session.program().tensor(i).ok())
        .map(|t| t.image_len())
    else {
        return;
    };
    if len < 1 << 20 {
        let _ = session.run(&[&vec![1i16; len]]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_words_run_or_err(words in prop::collection::vec(any::<u128>(), 1..30)) {
        let mut insns: Vec<Insn> = words.iter().filter_map(|w| Insn::decode(*w).ok()).collect();
        insns.retain(|i| !matches!(i, Insn::Finish(_)));
        insns.push(Finish::default().into());
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 1 << 20).unwrap();
        let config = Config::default();
        let _ = Oracle::new(config.clone()).with_max_steps(1 << 12).run(&insns, &[], &mut memory);
        let _ = Functional::new(config).with_max_steps(1 << 12).run(&insns, &[], &mut memory);
    }

    #[test]
    fn corrupted_onnx_is_read_or_refused(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>(), truncate in any::<bool>()) {
        let mut bytes = demo();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(graph) = onnx::load(&bytes) {
            let _ = passes::quantized(&graph);
        }
    }

    #[test]
    fn corrupted_bundles_are_refused(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()) {
        let good = bundle();
        let mut bytes = good.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        match Program::from_bytes(&bytes) {
            // A flip in the padding between sections changes nothing.
            Ok(program) => prop_assert_eq!(program.to_bytes().unwrap(), good.clone()),
            Err(error) => prop_assert!(error.to_string().starts_with("bundle")),
        }
        prop_assert!(Program::from_bytes(&good[..cut.index(good.len())]).is_err());
    }

    #[test]
    fn bundles_with_right_checksums_and_wrong_contents_are_safe(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = bundle();
        // Corrupt one section and repair its checksum and the table's.
        let section = at.index(4);
        let entry = 24 + section * 24;
        let word = |b: &[u8], i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]) as usize;
        let (start, len) = (word(&bytes, entry + 8), word(&bytes, entry + 16));
        let target = start + at.index(len.max(1)).min(len.saturating_sub(1));
        bytes[target] = value;
        let crc = crc(&bytes[start..start + len]);
        bytes[entry + 4..entry + 8].copy_from_slice(&crc.to_le_bytes());
        let table = self::crc(&bytes[24..24 + 96]);
        bytes[16..20].copy_from_slice(&table.to_le_bytes());
        if let Ok(program) = Program::from_bytes(&bytes) {
            run_if_sound(program);
        }
    }

    #[test]
    fn any_configuration_text_is_read_or_refused(key in "(LOG_BATCH|LOG_BLOCK|LOG_BLOCK_IN|LOG_OUT_BUFF_SIZE|LOG_ACC_BUFF_SIZE|LOG_UOP_BUFF_SIZE|LOG_INP_WIDTH|NEW)", value in any::<i64>(), junk in "\\PC{0,30}") {
        let _ = Config::from_json(&junk);
        if let Ok(config) = Config::from_json(&format!("{{\"{key}\": {value}}}")) {
            prop_assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        }
        let small = value.rem_euclid(45);
        if let Ok(config) = Config::from_json(&format!("{{\"{key}\": {small}}}")) {
            prop_assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
        }
    }

    #[test]
    fn any_layer_text_is_read_or_refused(text in "(conv:|dw:|gemm:|resnet18\\.)?[-0-9,. a-zC]{0,30}") {
        let _ = layer::parse(&text);
    }
}

/// CRC-32 as the bundle has it.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| {
            (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())
        })
    })
}

#[test]
fn deadlocks_are_reported_with_every_stuck_module() {
    let text = "load.inp pop_next\ngemm pop_prev\nstore pop_prev\nfinish";
    let insns = vta_isa::asm::parse(text).unwrap();
    let mut memory = DeviceMemory::new();
    for executor in [
        &mut Oracle::new(Config::default()) as &mut dyn Executor,
        &mut Functional::new(Config::default()),
    ] {
        let error = executor
            .run(&insns, &[], &mut memory)
            .unwrap_err()
            .to_string();
        for part in [
            "deadlock: load waits at instruction 0",
            "compute waits at instruction 1 (gemm",
            "store waits at instruction 2",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn tokens_never_reach_the_next_run() {
    let push = vta_isa::asm::parse("load.inp push_next\nfinish").unwrap();
    let pop = vta_isa::asm::parse("gemm pop_prev\nfinish").unwrap();
    let mut memory = DeviceMemory::new();
    let mut executor = Functional::new(Config::default());
    assert_eq!(
        executor
            .run(&push, &[], &mut memory)
            .unwrap()
            .leftover_tokens,
        [1, 0, 0, 0]
    );
    assert!(executor.run(&pop, &[], &mut memory).is_err());
}
