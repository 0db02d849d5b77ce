//! Hand-written programs: each race, each ALU hazard, and what stays unchecked.

use vta_isa::{Config, asm};
use vta_sim::hazards::{self, Hazard, MAX_HAZARDS, SharedMemory, Unchecked, UopSource};

use crate::kit::{ALL_UOPS, UOPS, check, texts};

struct Case {
    name: &'static str,
    /// With the missing tokens in brackets: `[pop_prev]`.
    text: &'static str,
    memory: SharedMemory,
    /// Of the only hazard.
    expected: &'static [&'static str],
}

/// Each program is clean with what stands in brackets and has one race without.
const CASES: &[Case] = &[
    Case {
        name: "gemm reads inp before its load is done",
        text: "load.inp sram_base=4 dram_base=0x1000 y_size=1 x_size=8 x_stride=8 [push_next]\n\
               gemm uop_end=1 iter_out=1 iter_in=8 src_factor_in=1 [pop_prev]\nfinish",
        memory: SharedMemory::Inp,
        expected: &[
            "inp tiles 4..8: instruction 1 (load.inp",
            "in load writes, instruction 2 (gemm",
            "in compute reads, and no chain of tokens",
        ],
    },
    Case {
        name: "load overwrites inp that a gemm may still read",
        text: "load.inp dram_base=0x1000 y_size=1 x_size=2 x_stride=2 push_next\n\
               gemm uop_end=1 iter_out=1 iter_in=2 src_factor_in=1 pop_prev [push_prev]\n\
               load.inp sram_base=1 dram_base=0x1000 y_size=1 x_size=3 x_stride=3 [pop_next]\nfinish",
        memory: SharedMemory::Inp,
        expected: &[
            "inp tiles 1..2: instruction 2 (gemm",
            "instruction 3 (load.inp",
        ],
    },
    Case {
        name: "load overwrites wgt that a gemm may still read",
        text: "load.wgt dram_base=0x100 y_size=1 x_size=2 x_stride=2 push_next\n\
               gemm uop_bgn=1 uop_end=2 iter_out=1 iter_in=1 pop_prev [push_prev]\n\
               load.wgt sram_base=0 dram_base=0x100 y_size=2 x_size=2 x_stride=2 [pop_next]\nfinish",
        memory: SharedMemory::Wgt,
        expected: &[
            "wgt tiles 3..4: instruction 2 (gemm",
            "instruction 3 (load.wgt",
        ],
    },
    Case {
        name: "padding writes tiles too",
        text: "gemm uop_bgn=1 uop_end=2 iter_out=1 iter_in=1 [push_prev]\n\
               load.inp dram_base=0x1000 y_size=1 x_size=1 x_pad_1=3 [pop_next]\nfinish",
        memory: SharedMemory::Inp,
        expected: &["inp tiles 2..3: instruction 1 (gemm"],
    },
    Case {
        name: "store reads acc before the alu is done",
        text: "alu.add imm=1 uop_end=1 iter_out=3 iter_in=1 dst_factor_out=2 [push_next]\n\
               store sram_base=1 dram_base=0x2000 y_size=1 x_size=8 x_stride=8 [pop_prev] push_prev\n\
               finish pop_next",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 2..3, 4..5: instruction 1 (alu.add",
            "in compute writes, instruction 2 (store",
            "in store reads",
        ],
    },
    Case {
        name: "gemm reset overwrites acc that a store may still read",
        text: "store sram_base=5 dram_base=0x2000 y_size=1 x_size=1 x_stride=1 [push_prev]\n\
               gemm reset uop_end=1 iter_out=1 iter_in=6 dst_factor_in=1 [pop_next]\n\
               store push_prev\nfinish pop_next",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 5..6: instruction 1 (store",
            "instruction 2 (gemm reset",
        ],
    },
    Case {
        name: "load.acc8 overwrites acc that a store may still read",
        text: "store sram_base=5 dram_base=0x2000 y_size=1 x_size=1 x_stride=1 [push_prev]\n\
               load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=3 [pop_next]\n\
               store push_prev\nfinish pop_next",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 5..6: instruction 1 (store",
            "instruction 2 (load.acc8",
        ],
    },
    Case {
        name: "preload fills acc that the alu may still read",
        text: "alu.add uop_bgn=1 uop_end=2 iter_out=1 iter_in=1 [push_prev]\n\
               load.acc preload sram_base=1 dram_base=0x1000 y_size=1 x_size=3 [pop_next]\nfinish",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 2..3: instruction 1 (alu.add",
            "in compute reads, instruction 2 (load.acc preload",
            "in load writes",
        ],
    },
    Case {
        name: "gemm reset clears acc that a preload may still fill",
        text: "load.acc8 preload dram_base=0x100 y_size=1 x_size=2 [push_next]\n\
               gemm reset uop_end=1 iter_out=1 iter_in=1 [pop_prev]\nfinish",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 0..1: instruction 1 (load.acc8 preload",
            "in load writes, instruction 2 (gemm reset",
            "in compute writes",
        ],
    },
    Case {
        name: "store reads a table that a preload may still fill",
        text: "load.acc preload sram_base=8 dram_base=0x1000 y_size=1 x_size=3 [push_next]\n\
               alu.add imm=1 uop_end=1 iter_out=1 iter_in=1 [pop_prev] push_next\n\
               store dram_base=0x2000 y_size=1 x_size=1 requantize table=8 pop_prev push_prev\n\
               finish pop_next",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 8..11: instruction 1 (load.acc preload",
            "in load writes, instruction 3 (store",
            "in store reads",
        ],
    },
    Case {
        name: "preload changes a residual that a store may still read",
        text: "store dram_base=0x2000 y_size=1 x_size=1 requantize table=8 residual=1 [push_prev]\n\
               load.acc [pop_next] push_prev\n\
               load.acc8 preload sram_base=32 dram_base=0x100 y_size=1 x_size=1 pop_next\n\
               store push_prev\nfinish pop_next",
        memory: SharedMemory::Acc,
        expected: &[
            "acc tiles 32..33: instruction 1 (store",
            "in store reads, instruction 3 (load.acc8 preload",
            "in load writes",
        ],
    },
    Case {
        name: "load reads dram that a store may not have written",
        text: "store dram_base=0x2000 y_size=2 x_size=1 x_stride=4 push_prev\n\
               load.acc8 sram_base=8 pop_next [push_prev]\n\
               load.inp dram_base=0x2003 y_size=1 x_size=2 x_stride=2 [pop_next]\nfinish",
        memory: SharedMemory::Dram,
        expected: &[
            "dram bytes 0x20040..0x20050: instruction 1 (store",
            "in store writes, instruction 3 (load.inp",
            "in load reads",
        ],
    },
    Case {
        name: "store overwrites dram that a load of biases may still read",
        text: "load.acc sram_base=9 dram_base=0x1000 y_size=1 x_size=1 [push_next]\n\
               store dram_base=0x4003 y_size=1 x_size=9 [pop_prev] push_prev\nfinish pop_next",
        memory: SharedMemory::Dram,
        expected: &[
            "dram bytes 0x40030..0x40040: instruction 1 (load.acc",
            "in compute reads, instruction 2 (store",
        ],
    },
    Case {
        name: "store overwrites micro-ops that a load may still read",
        text: "load.uop sram_base=8 dram_base=0x420 y_size=1 x_size=4 [push_next]\n\
               store dram_base=0x108 y_size=1 x_size=1 [pop_prev] push_prev\nfinish pop_next",
        memory: SharedMemory::Dram,
        expected: &["dram bytes 0x1080..0x1090: instruction 1 (load.uop"],
    },
    Case {
        name: "finish lets the host read what a store may not have written",
        text: "store dram_base=0x2000 y_size=1 x_size=2 x_stride=2 [push_prev]\nfinish [pop_next]",
        memory: SharedMemory::Dram,
        expected: &[
            "dram bytes 0x20000..0x20020: instruction 1 (store",
            "instruction 2 (finish) in compute hands over",
        ],
    },
];

#[test]
fn each_race_is_found_and_its_tokens_make_it_clean() {
    for case in CASES {
        let clean = UOPS.to_owned() + &case.text.replace(['[', ']'], "");
        let report = check(&clean, &ALL_UOPS);
        assert!(report.is_clean(), "{}: {:?}", case.name, texts(&report));
        assert!(report.notes.is_empty(), "{}: {:?}", case.name, report.notes);
        let report = check(&without_brackets(case.text), &ALL_UOPS);
        let found = texts(&report);
        assert_eq!(found.len(), 1, "{}: {found:?}", case.name);
        for part in case.expected {
            assert!(found[0].contains(part), "{}: {}", case.name, found[0]);
        }
        let Hazard::Race(race) = &report.hazards[0] else {
            panic!("{}: {}", case.name, found[0]);
        };
        assert_eq!(race.memory, case.memory, "{}", case.name);
        assert!(race.first.at.index < race.second.at.index);
    }
}

fn without_brackets(text: &str) -> String {
    let mut out = UOPS.to_owned();
    for (i, part) in text.split('[').enumerate() {
        out.push_str(if i == 0 {
            part
        } else {
            part.split_once(']').map_or(part, |(_, rest)| rest)
        });
    }
    out
}

#[test]
fn the_token_of_an_earlier_instruction_says_nothing_of_a_later_one() {
    let text = "load.inp sram_base=8 dram_base=0x1000 y_size=1 x_size=1 push_next\n\
                load.inp dram_base=0x1000 y_size=1 x_size=1 push_next\n";
    let late = "gemm uop_end=1 iter_out=1 iter_in=1 pop_prev\nload.acc8 pop_prev\nfinish";
    let found = texts(&check(&format!("{UOPS}{text}{late}"), &ALL_UOPS));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("inp tiles 0..1: instruction 2 "),
        "{found:?}"
    );
    let both = "load.acc8 pop_prev\ngemm uop_end=1 iter_out=1 iter_in=1 pop_prev\nfinish";
    assert!(check(&format!("{UOPS}{text}{both}"), &ALL_UOPS).is_clean());
}

#[test]
fn alu_steps_that_read_what_the_step_before_wrote_are_found() {
    // Two micro-ops with one destination; a chain through src; a loop of length two.
    let uops = [(7, 0, 0), (7, 1, 0), (3, 9, 0), (4, 3, 0)];
    let cases = [
        (
            "alu.add imm=1 uop_end=2 iter_out=1 iter_in=1",
            Some((0, 7, "dst")),
        ),
        (
            "alu.add imm=1 uop_end=1 iter_out=1 iter_in=2",
            Some((0, 7, "dst")),
        ),
        (
            "alu.max imm=1 uop_end=1 iter_out=2 iter_in=1 dst_factor_in=1",
            Some((0, 7, "dst")),
        ),
        (
            "alu.max imm=1 uop_end=1 iter_out=2 iter_in=3 dst_factor_in=1 dst_factor_out=2",
            Some((2, 9, "dst")),
        ),
        (
            "alu.max imm=1 uop_end=1 iter_out=2 iter_in=3 dst_factor_in=1 dst_factor_out=3",
            None,
        ),
        ("alu.add uop_end=2 iter_out=1 iter_in=4", None),
        (
            "alu.add uop_bgn=2 uop_end=4 iter_out=1 iter_in=1",
            Some((0, 3, "src")),
        ),
        (
            "alu.add uop_bgn=2 uop_end=4 iter_out=1 iter_in=1 dst_factor_in=1",
            Some((0, 3, "src")),
        ),
        (
            "alu.add uop_bgn=2 uop_end=3 iter_out=1 iter_in=9 src_factor_in=1 dst_factor_in=2",
            Some((7, 17, "src")),
        ),
        ("alu.add uop_bgn=2 uop_end=4 iter_out=1 iter_in=0", None),
        ("gemm uop_end=2 iter_out=1 iter_in=4", None),
    ];
    for (text, expected) in cases {
        let report = check(&format!("{UOPS}{text}\nfinish"), &uops);
        let found = report.hazards.first().map(|hazard| match hazard {
            Hazard::Alu(alu) => (alu.step, alu.tile, alu.index),
            other => panic!("{text}: {other}"),
        });
        assert_eq!(found, expected, "{text}");
        assert_eq!(report.found, u64::from(expected.is_some()), "{text}");
    }
    let report = check(&format!("{UOPS}{}\nfinish", cases[0].0), &uops);
    assert_eq!(
        texts(&report),
        [
            "acc tile 7: instruction 1 (alu.add imm=1 uop_bgn=0 uop_end=2 iter_out=1 iter_in=1): dst of step 1 is dst of step 0, which isn't written back yet"
        ]
    );
}

#[test]
fn what_is_not_checked_is_noted() {
    let text = "load.inp dram_base=0x1000 y_size=1 x_size=1\n\
                gemm uop_end=1 iter_out=1 iter_in=1\nalu.add uop_end=1 iter_out=1 iter_in=1\n\
                load.acc sram_base=2047 y_size=2 x_size=1\ngemm uop_bgn=2 uop_end=1\nfinish";
    let insns = asm::parse(text).unwrap();
    let report = hazards::check(&Config::default(), &insns, UopSource::Unknown).unwrap();
    assert!(report.is_clean());
    let notes: Vec<_> = report
        .notes
        .iter()
        .map(|n| (n.what, n.first.index, n.count))
        .collect();
    assert_eq!(
        notes,
        [
            (Unchecked::UnknownUops, 1, 2),
            (Unchecked::OutOfRange, 3, 2)
        ]
    );
    assert!(
        report.notes[0]
            .to_string()
            .contains("2 GEMM or ALU instruction(s)")
    );
    // A store into the micro-ops makes them unknown for what is loaded later.
    let text = "store dram_base=0x100 y_size=1 x_size=1 push_prev\n\
                load.uop dram_base=0x400 y_size=1 x_size=1 pop_next\n\
                gemm uop_end=1 iter_out=1 iter_in=1\nfinish";
    let report = check(text, &ALL_UOPS);
    assert!(
        report.is_clean() && report.notes.len() == 1,
        "{:?}",
        texts(&report)
    );
}

#[test]
fn programs_without_an_order_are_refused() {
    for (text, expected) in [
        ("gemm pop_prev\nfinish", "deadlock"),
        ("gemm", "does not end in FINISH"),
        ("load.inp pop_prev\nfinish", "no neighbour"),
    ] {
        let insns = asm::parse(text).unwrap();
        let error = hazards::check(&Config::default(), &insns, UopSource::Unknown).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn many_hazards_are_counted_and_the_first_kept() {
    let pair = "load.inp dram_base=0x1000 y_size=1 x_size=1\ngemm uop_end=1 iter_out=1 iter_in=1\n";
    let report = check(&format!("{UOPS}{}finish", pair.repeat(400)), &ALL_UOPS);
    assert_eq!(report.hazards.len(), MAX_HAZARDS);
    assert!(report.found >= 400, "{}", report.found);
    assert!(report.hazards.is_sorted_by_key(Hazard::insn));
}
