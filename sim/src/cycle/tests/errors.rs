//! What the engine refuses, and what it says of programs that wait for ever.

use vta_isa::{Config, Deps, Gemm, Insn, Load, MemType, asm, tokens};

use super::super::*;
use super::finish;

#[test]
fn a_deadlock_names_what_each_module_waits_for() {
    let insns = asm::parse(
        "load.inp pop_next
         load.acc pop_prev pop_next
         store pop_prev
         finish",
    )
    .unwrap();
    let error = simulate(
        &TimingConfig::pynq(),
        &Config::default(),
        &insns,
        0,
        &mut Silent,
    );
    let error = error.unwrap_err();
    let CycleError::Deadlock { stuck, fetch, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(stuck.len(), 3);
    assert_eq!(*fetch, None);
    let text = error.to_string();
    for part in [
        "deadlock in cycle",
        "load waits at instruction 0",
        "for a token from compute to load",
        "compute waits at instruction 1",
        "for a token from load to compute and a token from store to compute",
        "store waits at instruction 2",
        "for a token from compute to store",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let stuck_fetch = TimingConfig {
        queue_depth: 1,
        ..TimingConfig::pynq()
    };
    let mut insns = insns;
    insns.insert(1, insns[0]);
    let error = simulate(&stuck_fetch, &Config::default(), &insns, 0, &mut Silent).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("fetch waits at instruction 1"), "{text}");
    assert!(text.contains("room in the queue of load"), "{text}");
}

#[test]
fn a_deadlock_behind_finish_is_named() {
    let run = |text: &str| {
        let insns = asm::parse(text).unwrap();
        let timing = TimingConfig::pynq();
        simulate(&timing, &Config::default(), &insns, 0, &mut Silent).unwrap()
    };
    // The token comes while FINISH runs, or after the run: nothing is stuck.
    for text in [
        "load.inp x_size=16 y_size=1 push_next\nstore\nfinish",
        "load.acc push_prev\nload.inp pop_next x_size=9 y_size=1\nload.inp\nfinish",
    ] {
        assert_eq!(run(text).stuck, [], "{text}");
    }
    let report = run("load.inp pop_next\nload.inp\nstore pop_prev\nfinish");
    let without = run("finish");
    assert!(report.cycles >= without.cycles);
    let stuck: Vec<String> = report.stuck.iter().map(ToString::to_string).collect();
    assert_eq!(stuck.len(), 2, "{stuck:?}");
    assert!(
        stuck[0].contains("load waits at instruction 0"),
        "{stuck:?}"
    );
    assert!(stuck[0].contains("for a token from compute to load"));
    assert!(
        stuck[1].contains("store waits at instruction 2"),
        "{stuck:?}"
    );
}

#[test]
fn a_push_into_a_full_counter_is_an_error() {
    let push = Deps {
        push_next: true,
        ..Deps::NONE
    };
    let nop = Insn::from(Load {
        deps: push,
        ..Load::default()
    });
    let slow = Insn::from(Gemm {
        uop_end: 100,
        iter_out: 100,
        iter_in: 1,
        ..Gemm::default()
    });
    for (pushes, fits) in [(255, true), (256, false)] {
        let mut insns = vec![slow];
        insns.extend(vec![nop; pushes]);
        insns.push(finish(Deps::NONE));
        let result = simulate(
            &TimingConfig::pynq(),
            &Config::default(),
            &insns,
            0,
            &mut Silent,
        );
        match result {
            Ok(report) => {
                assert!(fits);
                assert_eq!(report.leftover_tokens, [255, 0, 0, 0]);
            }
            Err(error) => {
                assert!(!fits, "{error}");
                let CycleError::LostPush {
                    at, edge, limit, ..
                } = &error
                else {
                    panic!("{error}");
                };
                assert_eq!((at.index, *edge, *limit), (256, Edge::LoadToCompute, 255));
                assert!(error.to_string().contains("full at 255"), "{error}");
            }
        }
    }
}

#[test]
fn a_run_of_too_many_cycles_is_an_error() {
    let long = Insn::from(Gemm {
        uop_end: u16::MAX,
        iter_out: u16::MAX,
        iter_in: u16::MAX,
        ..Gemm::default()
    });
    let mut insns = vec![long; 1 << 14];
    insns.push(finish(Deps::NONE));
    let (timing, config) = (TimingConfig::pynq(), Config::default());
    let within = |budget: Budget, insns: &[Insn]| {
        let run = Run {
            insns,
            insn_addr: 0,
        };
        simulate_within(&budget, &timing, &config, run, &mut Silent)
    };
    let fits = within(Budget::UNLIMITED, &insns).unwrap();
    assert!(fits.cycles > 4_600_000_000_000_000_000, "{}", fits.cycles);
    // The default ends it early.
    let error = simulate(&timing, &config, &insns, 0, &mut Silent).unwrap_err();
    assert!(
        error.to_string().contains("more than its budget of"),
        "{error}"
    );
    insns.splice(0..0, vec![long; 2]);
    let error = within(Budget::UNLIMITED, &insns).unwrap_err();
    let CycleError::Budget(over) = &error else {
        panic!("{error}");
    };
    assert_eq!((over.at.index, over.limit), (1 << 14, MAX_CYCLES));
}

#[test]
fn a_transfer_beyond_the_budget_is_refused_before_the_first_cycle() {
    let huge = Insn::from(Load {
        mem: MemType::Inp,
        y_size: u16::MAX,
        x_size: u16::MAX,
        x_stride: u16::MAX,
        ..Load::default()
    });
    let insns = [huge, finish(Deps::NONE)];
    let (timing, config) = (TimingConfig::pynq(), Config::default());
    let error = simulate(&timing, &config, &insns, 0, &mut Silent).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("instruction 0 (load.inp"), "{text}");
    assert!(
        text.contains("more than its budget of 17179869184 bytes"),
        "{text}"
    );
}

#[test]
fn programs_that_cannot_run_are_refused() {
    let deps = Deps {
        pop_prev: true,
        ..Deps::NONE
    };
    let stray = Insn::from(Load {
        deps,
        ..Load::default()
    });
    let long = Insn::from(Gemm {
        uop_end: Gemm::FIELDS.uop_end.max() as u16,
        iter_out: Gemm::FIELDS.iter_out.max() as u16,
        iter_in: Gemm::FIELDS.iter_in.max() as u16,
        ..Gemm::default()
    });
    let end = finish(Deps::NONE);
    for (insns, parts) in [
        (vec![], &["0 instructions does not end in FINISH"][..]),
        (
            vec![stray, end],
            &["instruction 0", "pop_prev in the load module"],
        ),
        (vec![end, end], &["instruction 0", "last of the 2"]),
        (vec![long], &["1 instructions does not end in FINISH"]),
    ] {
        let timing = TimingConfig::pynq();
        let error = simulate(&timing, &Config::default(), &insns, 0, &mut Silent).unwrap_err();
        for part in parts {
            assert!(
                error.to_string().contains(part),
                "`{part}` is not in: {error}"
            );
        }
    }
    let bad = TimingConfig {
        tags: 0,
        ..TimingConfig::pynq()
    };
    let error = simulate(&bad, &Config::default(), &[end], 0, &mut Silent).unwrap_err();
    assert!(error.to_string().contains("tags is 0"), "{error}");
}

#[test]
fn token_words_are_those_of_the_functional_executors() {
    let insns =
        asm::parse("load.inp pop_next\n load.acc pop_prev pop_next\n store pop_prev\n finish");
    let insns = insns.unwrap();
    let functional: Result<_, tokens::TokenError> =
        tokens::run_in_token_order(&insns, |_, _| Ok(()));
    let Err(tokens::TokenError::Deadlock { stuck: theirs }) = functional else {
        panic!("{functional:?}");
    };
    let ours = simulate(
        &TimingConfig::pynq(),
        &Config::default(),
        &insns,
        0,
        &mut Silent,
    );
    let Err(CycleError::Deadlock { stuck, .. }) = ours else {
        panic!("{ours:?}");
    };
    assert_eq!(stuck, theirs);
}
