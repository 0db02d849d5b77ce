//! Fusions do what the oracle does, at the edges of their conditions.
//!
//! The programs are in `cases`, each for one condition of a fusion: with the fusion but without its
//! condition their results are others than the oracle's. A case is its name, its micro-ops
//! (destination, source and weight tile of each), which are loaded first, all of them, and lines
//! that run one after the other. Words are short for fields: `uop=a..b` for `uop_bgn` and
//! `uop_end`, `n` for `iter_in` (and one outer trip), `d`, `s` and `w` for the inner factors, `x=n`
//! for one row of `n` tiles, `to` for `sram_base` and `at` for `dram_base`. Inputs lie at 0x2000,
//! weights at 0x80 (diagonal ones from 0x88), int32 at 0xc00, results at 0x4000; with two batch
//! rows at 0x1000, 0x80, 0x600 and 0x2000.

use vta_isa::{Module, Uop, asm};

use super::super::*;
use crate::Oracle;

/// DRAM regions: micro-ops, weights (the second eight tiles are diagonal), inputs, accumulators,
/// outputs. As `dram_base`: 0x400, 0x80, 0x2000, 0xc00, 0x4000.
const REGIONS: [(u32, u64); 5] = [
    (0x1000, 256),
    (0x8000, 16 * 256),
    (0x2_0000, 4096),
    (0x3_0000, 4096),
    (0x4_0000, 4096),
];

struct Case {
    name: &'static str,
    uops: Vec<Uop>,
    lines: Vec<&'static str>,
}

fn cases(text: &'static str) -> Vec<Case> {
    let tile = |uop: &str| -> Vec<u16> { uop.split(',').map(|t| t.parse().unwrap()).collect() };
    let uop = |text: &str| {
        let [dst, src, wgt] = tile(text)[..] else {
            panic!("{text} isn't a destination, a source and a weight");
        };
        Uop { dst, src, wgt }
    };
    let case = |text: &'static str| {
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let (name, uops) = (lines.next().unwrap(), lines.next().unwrap());
        let uops = uops.strip_prefix("uops ").expect(name);
        Case {
            name,
            uops: uops.split(' ').map(uop).collect(),
            lines: lines.collect(),
        }
    };
    let cases = text.split("== ").filter(|text| !text.is_empty());
    cases.map(case).collect()
}

fn memory(case: &Case) -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    let mut state = 1u64;
    for (addr, size) in REGIONS {
        memory.map(addr, size).unwrap();
        for byte in memory.write(addr.into(), size).unwrap() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            *byte = (state >> 40) as u8;
        }
    }
    let diagonal = memory.write(0x8800, 8 * 256).unwrap();
    for (i, byte) in diagonal.iter_mut().enumerate() {
        if i % 256 / 16 != i % 16 {
            *byte = 0;
        }
    }
    for (i, uop) in case.uops.iter().enumerate() {
        let word = uop.encode().unwrap();
        let at = 0x1000 + 4 * i as u64;
        let bytes = memory.write(at, 4).unwrap();
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    memory
}

/// A line of a case as assembly text.
fn spelled(line: &str) -> String {
    let word = |word: &str| match word.split_once('=') {
        Some(("uop", range)) => {
            let (bgn, end) = range.split_once("..").unwrap();
            format!("uop_bgn={bgn} uop_end={end}")
        }
        Some(("n", n)) if line.contains("iter_out") => format!("iter_in={n}"),
        Some(("n", n)) => format!("iter_out=1 iter_in={n}"),
        Some(("x", x)) => format!("y_size=1 x_size={x} x_stride={x}"),
        Some(("d", factor)) => format!("dst_factor_in={factor}"),
        Some(("s", factor)) => format!("src_factor_in={factor}"),
        Some(("w", factor)) => format!("wgt_factor_in={factor}"),
        Some(("to", tile)) => format!("sram_base={tile}"),
        Some(("at", base)) => format!("dram_base={base}"),
        _ => word.to_owned(),
    };
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    words.join(" ")
}

/// The instructions, with tokens that make them run as they are listed.
fn program(case: &Case) -> Vec<Insn> {
    let uops = format!("load.uop at=0x400 x={}", case.uops.len());
    let lines = [&uops[..]].into_iter().chain(case.lines.iter().copied());
    let lines: Vec<String> = lines.map(spelled).collect();
    let mut insns = asm::parse(&(lines.join("\n") + "\nfinish")).unwrap();
    let place = |insn: &Insn| match insn.module() {
        Module::Load => 0,
        Module::Compute => 1,
        Module::Store => 2,
    };
    for index in 1..insns.len() {
        let (from, to) = (place(&insns[index - 1]), place(&insns[index]));
        assert!(i32::abs(from - to) < 2, "{}: line {index}", case.name);
        if to == from + 1 {
            insns[index - 1].deps_mut().push_next = true;
            insns[index].deps_mut().pop_prev = true;
        } else if to + 1 == from {
            insns[index - 1].deps_mut().push_prev = true;
            insns[index].deps_mut().pop_next = true;
        }
    }
    insns
}

fn bytes(memory: &DeviceMemory) -> Vec<u8> {
    let region = |&(addr, size): &(u32, u64)| memory.read(addr.into(), size).unwrap();
    REGIONS.iter().flat_map(region).copied().collect()
}

/// The plan's DRAM is the oracle's, and its scratchpads those of one instruction at a time.
fn compare(config: &Config, case: &Case) {
    let insns = program(case);
    let mut expected = memory(case);
    let mut oracle = Oracle::new(config.clone());
    oracle.run(&insns, &[], &mut expected).unwrap();
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let mut directly = memory(case);
        let mut one_by_one = Functional::with_kernel(config.clone(), kernel);
        one_by_one.run(&insns, &[], &mut directly).unwrap();
        assert!(
            bytes(&directly) == bytes(&expected),
            "{}, {kernel:?}",
            case.name
        );
        for (threads, staged) in [(1, false), (3, true), (1, true), (3, false)] {
            let name = format!("{}, {kernel:?}, {threads} threads, {staged}", case.name);
            let planned =
                Functional::with_kernel(config.clone(), kernel).with_planning(Planning::AtOnce);
            let planned = planned.with_staged_inputs(staged);
            let mut planned = planned.with_threads(threads).with_least_cost_ns(0);
            let mut memory = memory(case);
            let plan = planned.plan(&insns, &[], &memory, true).unwrap();
            let plan = PlanListing::new(&plan, &insns, &[], &planned.pads);
            let name = format!("{name}:\n{plan}");
            planned.run(&insns, &[], &mut memory).unwrap();
            planned.settle();
            assert!(bytes(&memory) == bytes(&expected), "{name}DRAM differs");
            let (a, b) = (&planned.pads, &one_by_one.pads);
            assert!(a.acc == b.acc && a.inp == b.inp, "{name}tiles differ");
            assert!(a.uop == b.uop && a.wgt == b.wgt, "{name}constants differ");
        }
    }
}

#[test]
fn every_condition_of_a_fusion_is_needed() {
    let cases = cases(include_str!("cases/one_row.txt"));
    assert!(cases.len() >= 144, "{}", cases.len());
    for case in &cases {
        compare(&Config::default(), case);
    }
}

/// Stores that saturate tiles which nobody reads later are the product's or the map's, and so is an end behind biases of
/// some of a product's tiles.
#[test]
fn what_follows_joins_what_it_follows() {
    let cases = cases(include_str!("cases/one_row.txt"));
    for (name, what) in [
        (
            "tiles that a store saturates are overwritten",
            "max -100 min 127, stored",
        ),
        ("tiles that a store saturates are read later", ", saturated"),
        ("one of two stores saturates", ", saturated"),
        ("bytes that are saturated on their way", "min 127 max -128"),
        (
            "biases of a border that ALU steps add",
            "then end shr 2, stored",
        ),
    ] {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let mut planned = Functional::new(Config::default()).with_planning(Planning::AtOnce);
        let insns = program(case);
        let plan = planned.plan(&insns, &[], &memory(case), true).unwrap();
        let plan = PlanListing::new(&plan, &insns, &[], &planned.pads).to_string();
        assert!(plan.contains(what), "{name}:\n{plan}");
    }
}

#[test]
fn conditions_on_batch_rows_are_needed() {
    let config = Config::from_json(r#"{"LOG_BATCH": 1}"#).unwrap();
    let cases = cases(include_str!("cases/two_rows.txt"));
    assert!(cases.len() >= 3, "{}", cases.len());
    for case in &cases {
        compare(&config, case);
    }
}
