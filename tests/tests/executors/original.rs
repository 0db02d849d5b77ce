//! Runs that were recorded in the original's layout of their configuration.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use vta_driver::{Device, MemoryError};
use vta_isa::original::Layout;
use vta_isa::{Config, FieldError, Insn, MemType, Uop, asm};
use vta_replay::Case;
use vta_sim::{Executor, Oracle, SimDevice};
use vta_tests::programs::{RandomProgram, generate};

const CONFIGS: [&str; 5] = [
    "{}",
    r#"{"LOG_UOP_BUFF_SIZE": 10}"#,
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_UOP_BUFF_SIZE": 7, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 13, "LOG_ACC_BUFF_SIZE": 11}"#,
];

/// Bytes of memory, by their address.
type Regions = Vec<(u32, Vec<u8>)>;

/// Writes a run as it would be recorded: words, memory before it, bytes that it changes.
fn record(
    folder: &Path,
    config: &str,
    words: &[u128],
    before: &[(u32, Vec<u8>)],
    after: &[(u32, Vec<u8>)],
    more: Value,
) {
    let regions = |all: &[(u32, Vec<u8>)]| {
        let mut offset = 0;
        let regions = all.iter().map(|(addr, bytes)| {
            let first = offset;
            offset += bytes.len();
            json!({"phys_addr": addr, "size": bytes.len(), "offset": first})
        });
        let regions: Vec<Value> = regions.collect();
        (
            regions,
            all.iter()
                .flat_map(|(_, bytes)| bytes)
                .copied()
                .collect::<Vec<u8>>(),
        )
    };
    let ((first, before_bytes), (changed, after_bytes)) = (regions(before), regions(after));
    let sizes = before
        .iter()
        .map(|(addr, bytes)| json!([addr, bytes.len()]));
    let mut map = json!({
        "insn_phys_addr": 0x1000_0000, "insn_count": words.len(), "before": first,
        "after_changed": changed, "allocations": sizes.collect::<Vec<_>>(),
    });
    let more = more.as_object().unwrap().clone();
    map.as_object_mut().unwrap().extend(more);
    let insns: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (name, bytes) in [
        ("insns.bin", insns),
        ("dram_map.json", map.to_string().into_bytes()),
        ("dram_before.bin", before_bytes),
        ("dram_after.bin", after_bytes),
        ("config.json", config.as_bytes().to_vec()),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// A program's words and memory as the original has them.
fn packed(layout: &Layout, program: &RandomProgram) -> Result<(Vec<u128>, Regions), FieldError> {
    let words = program
        .insns
        .iter()
        .map(|insn| layout.of_ours(insn.encode()?));
    let uops = RandomProgram::region(MemType::Uop);
    let regions = program.regions().iter().map(|(addr, bytes)| {
        let mut bytes = bytes.clone();
        if u64::from(*addr) == uops {
            for word in bytes.as_chunks_mut::<4>().0 {
                let uop = Uop::decode(u32::from_le_bytes(*word));
                // An index that its instruction doesn't read may be beyond the scratchpad.
                let [dst, src, wgt] = [0, 1, 2].map(|at| layout.uop_fields()[at].max() as u16);
                let uop = Uop {
                    dst: uop.dst & dst,
                    src: uop.src & src,
                    wgt: uop.wgt & wgt,
                };
                *word = layout.uop_of_ours(uop.encode()?)?.to_le_bytes();
            }
        }
        Ok((*addr, bytes))
    });
    Ok((
        words.collect::<Result<_, _>>()?,
        regions.collect::<Result<_, _>>()?,
    ))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn recorded_in_the_original_s_layout_they_are_the_oracle_s_runs(seed in any::<u64>(), config in 0usize..5) {
        let text = CONFIGS[config];
        let config = Config::from_json(text).unwrap();
        let layout = Layout::of(&config).unwrap();
        let program = generate(&config, seed, 3);
        let mut memory = program.memory();
        Oracle::new(config.clone()).run(&program.insns, &[], &mut memory).unwrap();
        let (words, before) = packed(&layout, &program).unwrap();
        let region = |(addr, bytes): &(u32, Vec<u8>)| Ok((*addr, memory.read((*addr).into(), bytes.len() as u64)?.to_vec()));
        let after: Result<Regions, MemoryError> = before.iter().map(region).collect();
        let uops = |(addr, _): &(u32, Vec<u8>)| u64::from(*addr) != RandomProgram::region(MemType::Uop);
        let after: Vec<_> = after.unwrap().into_iter().filter(uops).collect();
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), text, &words, &before, &after, json!({}));
        let cases = vta_replay::load(folder.path()).unwrap();
        for device in [SimDevice::oracle(config.clone()), SimDevice::functional(config.clone())] {
            let report = vta_replay::run_case(&cases[0], &device as &dyn Device).unwrap();
            prop_assert_eq!(report.bytes_different, 0, "{:?}", report.mismatches);
        }
        // The same words as ours are another program, or none, but for one whose fields lie alike in both.
        let ours: Vec<u128> = program.insns.iter().map(|insn| insn.encode().unwrap()).collect();
        let alike = words.iter().zip(&ours).all(|(theirs, ours)| Insn::same_word(*theirs, *ours));
        if !layout.is_ours() && !alike {
            record(folder.path(), text, &words, &before, &after, json!({"layout": "vta"}));
            let insns = |cases: Vec<Case>| cases[0].insns.clone();
            prop_assert_ne!(vta_replay::load(folder.path()).map(insns).ok(), Some(program.insns.clone()));
            record(folder.path(), text, &ours, program.regions(), &after, json!({"layout": "vta"}));
            let case = &vta_replay::load(folder.path()).unwrap()[0];
            prop_assert_eq!(&case.insns, &program.insns);
        }
    }
}

#[test]
fn micro_ops_that_cannot_be_translated_are_refused() {
    let small = CONFIGS[1];
    let layout = Layout::of(&Config::from_json(small).unwrap()).unwrap();
    let words = |text: &str| -> Vec<u128> {
        let insns = asm::parse(text).unwrap();
        insns
            .iter()
            .map(|insn: &Insn| layout.of_ours(insn.encode().unwrap()).unwrap())
            .collect()
    };
    let load = words("load.uop dram_base=1024 y_size=1 x_size=4\nfinish");
    let onto = words(
        "load.uop dram_base=1024 y_size=1 x_size=4\nstore dram_base=256 y_size=1 x_size=1\nfinish",
    );
    let beyond = words("load.uop dram_base=2047 y_size=1 x_size=4\nfinish");
    let page = |addr| (addr, vec![0u8; 4096]);
    let cases = [
        (small, &load, vec![page(4096)], json!({}), None),
        (
            small,
            &onto,
            vec![page(4096)],
            json!({}),
            Some("it stores to micro-ops"),
        ),
        ("{}", &onto, vec![page(4096)], json!({}), None),
        (
            small,
            &beyond,
            vec![page(4096)],
            json!({}),
            Some("instruction 0: micro-ops at 0x1ffc..0x200c are in no allocation"),
        ),
        (
            small,
            &load,
            vec![page(4096), page(6000)],
            json!({}),
            Some("two regions overlap"),
        ),
        (
            small,
            &load,
            vec![page(4096), page(0xffff_e000)],
            json!({}),
            Some("no room for 16 bytes of micro-ops"),
        ),
        (
            small,
            &load,
            vec![page(4096)],
            json!({"layout": "hls"}),
            Some("unknown variant `hls`"),
        ),
        (
            r#"{"LOG_UOP_BUFF_SIZE": 2}"#,
            &load,
            vec![page(4096)],
            json!({}),
            Some("LOG_UOP_BUFF_SIZE"),
        ),
    ];
    for (config, words, before, more, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), config, words, &before, &[], more);
        let error = vta_replay::load(folder.path())
            .err()
            .map(|error| error.to_string());
        match expected {
            None => assert_eq!(error, None, "{config}"),
            Some(expected) => assert!(
                error.is_some_and(|error| error.contains(expected)),
                "{expected}"
            ),
        }
    }
}
