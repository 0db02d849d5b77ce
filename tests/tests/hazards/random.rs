//! Random programs: clean as they are, and racing without tokens where brute force says so.

use proptest::prelude::*;
use vta_driver::DeviceMemory;
use vta_isa::{Config, Insn, Module};
use vta_sim::hazards::{self, Hazard, Report, UopSource};
use vta_tests::extended;
use vta_tests::programs::generate;

use crate::brute;
use crate::kit::{ALL_UOPS, memory, texts};

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_legal_programs_have_no_races(seed in any::<u64>(), rounds in 1usize..12) {
        let report = random(&extended("{}", seed), seed, rounds, |_| ());
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
        let config = extended("{}", u64::MAX);
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
