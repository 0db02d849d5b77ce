//! The hazard checker on hand-written programs, random ones, and the compiler's output.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use vta_compiler::qgraph::QGraph;
use vta_compiler::{layer, lower, onnx, passes, zoo};
use vta_driver::{DeviceMemory, Program, QueueLimits, replay};
use vta_isa::{Config, Insn, MemType, Module, Uop, asm};
use vta_sim::hazards::{
    self, BatchReport, Hazard, MAX_HAZARDS, Report, SharedMemory, Unchecked, UopSource,
};
use vta_tests::programs::generate;

/// Where the hand-written programs' micro-ops lie; `dram_base` of their LOAD UOP.
const UOP_ADDR: u32 = 0x1000;

fn memory(uops: &[(u16, u16, u16)]) -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    memory.map(UOP_ADDR, 4096).unwrap();
    for (i, &(dst, src, wgt)) in uops.iter().enumerate() {
        let word = Uop { dst, src, wgt }.encode().unwrap();
        let bytes = memory.write(u64::from(UOP_ADDR) + 4 * i as u64, 4).unwrap();
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    memory
}

fn check(text: &str, uops: &[(u16, u16, u16)]) -> Report {
    let insns = asm::parse(text).unwrap();
    hazards::check(&Config::default(), &insns, UopSource::Memory(&memory(uops))).unwrap()
}

fn texts(report: &Report) -> Vec<String> {
    report.hazards.iter().map(ToString::to_string).collect()
}

/// Loads the first four micro-ops into entries 0..4 of the scratchpad.
const UOPS: &str = "load.uop dram_base=0x400 y_size=1 x_size=4 x_stride=4\n";

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

const ALL_UOPS: [(u16, u16, u16); 2] = [(0, 0, 0), (0, 2, 3)];

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

fn races(report: &Report) -> Vec<String> {
    let races = report
        .hazards
        .iter()
        .filter(|h| matches!(h, Hazard::Race(_)));
    races.map(ToString::to_string).collect()
}

/// A random program's report.
fn random(config: &Config, seed: u64, rounds: usize, change: impl Fn(&mut Insn)) -> Report {
    let mut program = generate(config, seed, rounds);
    program.insns.iter_mut().for_each(change);
    let memory = program.memory();
    hazards::check(config, &program.insns, UopSource::Memory(&memory)).unwrap()
}

/// A brute-force checker: every access of every step, ordered by reachability over the graph of
/// program order and tokens; whether any race exists.
fn races_by_brute_force(config: &Config, insns: &[Insn], uops: &DeviceMemory) -> bool {
    let accesses = brute::accesses(config, insns, uops);
    let before = brute::reachability(insns);
    let n = insns.len();
    (0..n).any(|a| {
        (a + 1..n).any(|b| {
            insns[a].module() != insns[b].module()
                && !before[a][b]
                && !before[b][a]
                && accesses[a].iter().any(|(place, write)| {
                    accesses[b].get(place).is_some_and(|other| *write || *other)
                })
        })
    })
}

mod brute {
    use std::collections::BTreeMap;

    use vta_isa::AluOperand;

    use super::*;

    /// Memory name and tile, or DRAM and byte.
    type Place = (&'static str, u64);

    /// What each instruction touches, and whether it writes there.
    pub fn accesses(
        config: &Config,
        insns: &[Insn],
        memory: &DeviceMemory,
    ) -> Vec<BTreeMap<Place, bool>> {
        let mut pad = vec![Uop::default(); config.depth(MemType::Uop)];
        insns
            .iter()
            .map(|insn| {
                let mut touched = BTreeMap::new();
                let mut touch = |place: &'static str, index: u64, write: bool| {
                    *touched.entry((place, index)).or_insert(false) |= write;
                };
                match insn {
                    Insn::Load(l) if !l.is_sync() => {
                        let elem = config.elem_bytes(l.mem) as u64;
                        for y in 0..u64::from(l.y_size) {
                            let first = u64::from(l.dram_base) + y * u64::from(l.x_stride);
                            for byte in first * elem..(first + u64::from(l.x_size)) * elem {
                                touch("dram", byte, false);
                            }
                        }
                        let name = match l.mem {
                            MemType::Acc8 => "acc",
                            other => other.name(),
                        };
                        for tile in 0..l.sram_tiles() {
                            touch(name, u64::from(l.sram_base) + tile, true);
                        }
                        if l.mem == MemType::Uop {
                            // The generator loads one row without padding.
                            let bytes = memory
                                .read(u64::from(l.dram_base) * 4, u64::from(l.x_size) * 4)
                                .unwrap();
                            for (i, word) in bytes.chunks(4).enumerate() {
                                let word = u32::from_le_bytes(word.try_into().unwrap());
                                pad[usize::from(l.sram_base) + i] = Uop::decode(word);
                            }
                        }
                    }
                    Insn::Store(s) if !s.is_sync() => {
                        let elem = config.elem_bytes(MemType::Out) as u64;
                        for y in 0..u64::from(s.y_size) {
                            let first = u64::from(s.dram_base) + y * u64::from(s.x_stride);
                            for byte in first * elem..(first + u64::from(s.x_size)) * elem {
                                touch("dram", byte, true);
                            }
                        }
                        for tile in 0..s.tiles() {
                            touch("acc", u64::from(s.sram_base) + tile, false);
                        }
                    }
                    Insn::Gemm(g) => {
                        for i in 0..g.iter_out {
                            for j in 0..g.iter_in {
                                for uop in &pad[usize::from(g.uop_bgn)..usize::from(g.uop_end)] {
                                    let at =
                                        |start, out, inner| u64::from(start + i * out + j * inner);
                                    touch(
                                        "acc",
                                        at(uop.dst, g.dst_factor_out, g.dst_factor_in),
                                        true,
                                    );
                                    if !g.reset {
                                        touch(
                                            "inp",
                                            at(uop.src, g.src_factor_out, g.src_factor_in),
                                            false,
                                        );
                                        touch(
                                            "wgt",
                                            at(uop.wgt, g.wgt_factor_out, g.wgt_factor_in),
                                            false,
                                        );
                                    }
                                }
                            }
                        }
                    }
                    Insn::Alu(a) => {
                        for i in 0..a.iter_out {
                            for j in 0..a.iter_in {
                                for uop in &pad[usize::from(a.uop_bgn)..usize::from(a.uop_end)] {
                                    let at =
                                        |start, out, inner| u64::from(start + i * out + j * inner);
                                    touch(
                                        "acc",
                                        at(uop.dst, a.dst_factor_out, a.dst_factor_in),
                                        true,
                                    );
                                    if a.operand == AluOperand::Acc {
                                        touch(
                                            "acc",
                                            at(uop.src, a.src_factor_out, a.src_factor_in),
                                            false,
                                        );
                                    }
                                }
                            }
                        }
                    }
                    Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {}
                }
                touched
            })
            .collect()
    }

    /// `[a][b]`: a is done before b starts.
    pub fn reachability(insns: &[Insn]) -> Vec<Vec<bool>> {
        let n = insns.len();
        let mut before = vec![vec![false; n]; n];
        for module in Module::ALL {
            let own: Vec<_> = (0..n).filter(|i| insns[*i].module() == module).collect();
            own.windows(2)
                .for_each(|pair| before[pair[0]][pair[1]] = true);
        }
        // The n-th push of a queue with its n-th pop.
        let (load, compute, store) = (Module::Load, Module::Compute, Module::Store);
        for (from, to) in [
            (load, compute),
            (compute, load),
            (compute, store),
            (store, compute),
        ] {
            let right = from < to;
            let pushes = (0..n).filter(|i| {
                let deps = insns[*i].deps();
                insns[*i].module() == from
                    && if right {
                        deps.push_next
                    } else {
                        deps.push_prev
                    }
            });
            let pops = (0..n).filter(|i| {
                let deps = insns[*i].deps();
                insns[*i].module() == to && if right { deps.pop_prev } else { deps.pop_next }
            });
            pushes.zip(pops).for_each(|(a, b)| before[a][b] = true);
        }
        for k in 0..n {
            for a in 0..n {
                if before[a][k] {
                    let row = before[k].clone();
                    before[a].iter_mut().zip(row).for_each(|(x, y)| *x |= y);
                }
            }
        }
        before
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_legal_programs_have_no_races(seed in any::<u64>(), rounds in 1usize..12) {
        let report = random(&Config::default(), seed, rounds, |_| ());
        prop_assert_eq!(races(&report), Vec::<String>::new());
        prop_assert!(report.notes.is_empty(), "{:?}", report.notes);
    }

    #[test]
    fn a_program_without_its_tokens_races_where_brute_force_says_so(
        seed in any::<u64>(),
        rounds in 1usize..6,
        // Which queues lose their tokens: load-compute, compute-load, compute-store, store-compute.
        lost in any::<[bool; 4]>(),
    ) {
        let config = Config::default();
        let change = |insn: &mut Insn| {
            let module = insn.module();
            let deps = insn.deps_mut();
            let keep = lost.map(|l| !l);
            match module {
                Module::Load => {
                    deps.push_next &= keep[0];
                    deps.pop_next &= keep[1];
                }
                Module::Compute => {
                    deps.pop_prev &= keep[0];
                    deps.push_prev &= keep[1];
                    deps.push_next &= keep[2];
                    deps.pop_next &= keep[3];
                }
                Module::Store => {
                    deps.pop_prev &= keep[2];
                    deps.push_prev &= keep[3];
                }
            }
        };
        let mut program = generate(&config, seed, rounds);
        program.insns.iter_mut().for_each(change);
        let memory = program.memory();
        let report = random(&config, seed, rounds, change);
        let found = report.hazards.iter().any(|h| match h {
            // The host's reads aren't in the brute-force graph.
            Hazard::Race(race) => race.second.at.index + 1 < program.insns.len(),
            _ => false,
        });
        prop_assert_eq!(found, races_by_brute_force(&config, &program.insns, &memory), "{:#?}", texts(&report));
    }

    #[test]
    fn no_pattern_panics(words in prop::collection::vec(any::<u128>(), 0..30)) {
        let mut insns: Vec<_> = words.iter().filter_map(|w| Insn::decode(*w).ok()).collect();
        insns.retain(|i| !matches!(i, Insn::Finish(_)));
        for insn in &mut insns {
            *insn.deps_mut() = vta_isa::Deps::NONE;
        }
        insns.push(vta_isa::Finish::default().into());
        let memory = memory(&ALL_UOPS);
        for uops in [UopSource::Unknown, UopSource::Memory(&memory)] {
            prop_assert!(hazards::check(&Config::default(), &insns, uops).is_ok());
        }
    }
}

#[test]
fn a_pipelined_program_without_tokens_is_found() {
    for seed in 0..20 {
        let config = Config::default();
        assert!(races(&random(&config, seed, 6, |_| ())).is_empty());
        let bare = random(&config, seed, 6, |insn| {
            *insn.deps_mut() = vta_isa::Deps::NONE
        });
        assert!(!races(&bare).is_empty(), "seed {seed}");
    }
}

fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

/// Everything that was found, with its layer.
fn findings(batches: &[BatchReport]) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        let report = &batch.report;
        let text = |h: &Hazard| format!("{}: {h}", batch.layer(h.insn()).unwrap_or("?"));
        all.extend(report.hazards.iter().map(text));
        all.extend(report.notes.iter().map(ToString::to_string));
    }
    all
}

fn assert_clean(name: &str, program: &Arc<Program>, limits: QueueLimits) -> usize {
    let start = Instant::now();
    let batches = hazards::check_program(program, limits).unwrap();
    let insns: usize = batches.iter().map(|b| b.report.insns).sum();
    let found: u64 = batches.iter().map(|b| b.report.found).sum();
    let findings = findings(&batches);
    println!(
        "{name}: {} batch(es), {insns} instructions, {found} hazard(s), {:.0} ms",
        batches.len(),
        start.elapsed().as_secs_f64() * 1e3
    );
    findings.iter().take(5).for_each(|f| println!("    {f}"));
    assert!(
        findings.is_empty(),
        "{name}: {found} hazard(s): {:#?}",
        &findings[..1]
    );
    assert!(insns > program.layers.iter().map(|l| l.commands.len()).sum());
    batches.len()
}

#[test]
fn compiled_layers_are_clean() {
    let specs = layer::RESNET18.map(|(name, _)| format!("resnet18.{name}"));
    let more = ["gemm:1,512,1000", "gemm:64,100,33", "conv:1,3,9,11,5,3,2,1"].map(str::to_owned);
    for spec in specs.iter().chain(&more) {
        let parsed = layer::parse(spec).unwrap();
        let graph = layer::build(&parsed, 1).unwrap();
        for text in ["{}", r#"{"LOG_BLOCK": 5}"#] {
            let program = compile(&graph, &Config::from_json(text).unwrap());
            assert_clean(&format!("{spec} {text}"), &program, QueueLimits::default());
        }
    }
}

#[test]
fn a_compiled_layer_that_loses_the_tokens_of_one_queue_is_found() {
    let graph = layer::build(&layer::parse("resnet18.C5").unwrap(), 1).unwrap();
    let program = compile(&graph, &Config::default());
    // From and to each neighbour; `true` is a token that goes right.
    let queues = [
        (Module::Load, true),
        (Module::Load, false),
        (Module::Store, true),
        (Module::Store, false),
    ];
    for (neighbour, right) in queues {
        let mut broken = Program::clone(&program);
        for command in &mut broken.layers[0].commands {
            let module = command.insn.module();
            let deps = command.insn.deps_mut();
            match (module, neighbour, right) {
                (Module::Load, Module::Load, true) => deps.push_next = false,
                (Module::Load, Module::Load, false) => deps.pop_next = false,
                (Module::Compute, Module::Load, true) => deps.pop_prev = false,
                (Module::Compute, Module::Load, false) => deps.push_prev = false,
                (Module::Compute, Module::Store, true) => deps.push_next = false,
                (Module::Compute, Module::Store, false) => deps.pop_next = false,
                (Module::Store, Module::Store, true) => deps.pop_prev = false,
                (Module::Store, Module::Store, false) => deps.push_prev = false,
                _ => {}
            }
        }
        let batches = hazards::check_program(&Arc::new(broken), QueueLimits::default()).unwrap();
        let found = findings(&batches);
        assert!(
            found.iter().any(|f| f.contains("no chain of tokens")),
            "{neighbour} {right}: {found:?}"
        );
        let name = &program.layers[0].name;
        assert!(found[0].starts_with(&format!("{name}: ")), "{}", found[0]);
    }
}

#[test]
fn the_compiled_demo_is_clean_in_one_batch_and_in_many() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    let graph = onnx::load(&std::fs::read(path).unwrap()).unwrap();
    let program = compile(&passes::quantized(&graph).unwrap(), &Config::default());
    assert_eq!(assert_clean("demo", &program, QueueLimits::default()), 1);
    let limits = QueueLimits {
        insns: 800,
        ..QueueLimits::default()
    };
    assert!(assert_clean("demo, cut", &program, limits) > 1);
}

#[test]
fn compiled_networks_of_the_zoo_are_clean() {
    for name in ["resnet18", "resnet50", "resnext50", "mobilenet-v1"] {
        let graph = passes::quantized(&zoo::graph(name).unwrap()).unwrap();
        let program = compile(&graph, &Config::default());
        assert_clean(&format!("zoo:{name}"), &program, QueueLimits::default());
    }
}

#[test]
fn recorded_runs_are_checked_with_their_micro_ops() {
    let Some(shared) = vta_tests::shared("conformance") else {
        return;
    };
    let folders = ["tvm", "standalone-vta"].map(|f| shared.join("conformance").join(f));
    let entries = folders.iter().flat_map(|f| std::fs::read_dir(f).unwrap());
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    let cases = paths
        .iter()
        .filter(|p| p.is_dir() || p.extension().is_some_and(|e| e == "gz"));
    let mut total = 0;
    for case in cases.flat_map(|p| replay::load(p).unwrap()) {
        let report = hazards::check_case(&case).unwrap();
        println!(
            "{}: {} instructions, {} hazard(s)",
            case.name, report.insns, report.found
        );
        for text in texts(&report).iter().take(2) {
            println!("    {text}");
        }
        assert!(report.notes.is_empty(), "{}: {:?}", case.name, report.notes);
        total += 1;
    }
    assert!(total >= 34, "{total}");
}
