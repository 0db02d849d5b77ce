//! The engine against measured figures of the RTL, and its errors.

use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Finish, Gemm, Insn, Load, MemType, Store, asm,
};
use vta_isa::{Module, tokens};

use super::*;

/// Remembers everything, in text that sorts.
#[derive(Default)]
pub(super) struct Log {
    pub spans: Vec<(Option<u64>, Option<u64>)>,
    pub stalls: Vec<StallEvent>,
    pub bursts: Vec<BurstEvent>,
    pub lines: Vec<String>,
}

impl Log {
    pub(super) fn span(&mut self, insn: usize) -> &mut (Option<u64>, Option<u64>) {
        if self.spans.len() <= insn {
            self.spans.resize(insn + 1, (None, None));
        }
        &mut self.spans[insn]
    }
}

impl Listener for Log {
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {
        self.lines.push(format!("{cycle:>9} dispatch {insn}"));
    }
    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        self.span(insn).0 = Some(cycle);
        self.lines.push(format!("{cycle:>9} start {module} {insn}"));
    }
    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {
        self.span(insn).1 = Some(cycle);
        self.lines.push(format!("{cycle:>9} done {module} {insn}"));
    }
    fn token_pop(&mut self, event: &TokenEvent) {
        self.lines.push(format!("{:>9} pop {event:?}", event.cycle));
    }
    fn token_push(&mut self, event: &TokenEvent) {
        self.lines
            .push(format!("{:>9} push {event:?}", event.cycle));
    }
    fn burst(&mut self, event: &BurstEvent) {
        self.bursts.push(*event);
        self.lines
            .push(format!("{:>9} burst {event:?}", event.first_cycle));
    }
    fn stall(&mut self, event: &StallEvent) {
        self.stalls.push(*event);
        self.lines
            .push(format!("{:>9} stall {event:?}", event.from));
    }
}

fn run(timing: &TimingConfig, insns: &[Insn]) -> (CycleReport, Log) {
    let mut log = Log::default();
    let report = simulate(timing, &Config::default(), insns, 0x1_0000, &mut log).unwrap();
    (report, log)
}

/// Cycles from an instruction's start to the earliest start of the next, alone in the machine.
fn alone(timing: &TimingConfig, insn: Insn) -> u64 {
    // The wait lets fetch get out of the way.
    let wait = Insn::from(Load {
        mem: MemType::Acc,
        ..Load::default()
    });
    let (_, log) = run(timing, &[wait, insn, finish(Deps::NONE)]);
    match log.spans[1] {
        (Some(start), Some(done)) => done + 1 - start,
        // Compute ends the run; load and store may be cut off, so let FINISH wait for them.
        _ => {
            let (mut insn, mut tail) = (insn, Vec::new());
            let pop = |pop_prev, pop_next| Deps {
                pop_prev,
                pop_next,
                ..Deps::NONE
            };
            let load = insn.module() == Module::Load;
            insn.deps_mut().push_next = load;
            insn.deps_mut().push_prev = !load;
            tail.extend([wait, insn, finish(pop(load, !load))]);
            let (_, log) = run(timing, &tail);
            log.spans[1].1.unwrap() + 1 - log.spans[1].0.unwrap()
        }
    }
}

pub(super) fn finish(deps: Deps) -> Insn {
    Finish { deps }.into()
}

fn both() -> [TimingConfig; 2] {
    [TimingConfig::pynq(), TimingConfig::de10()]
}

pub(super) fn load(mem: MemType, y: u16, x: u16, stride: u16, pads: [u8; 4]) -> Insn {
    let load = Load {
        mem,
        y_size: y,
        x_size: x,
        x_stride: stride,
        y_pad_0: pads[0],
        y_pad_1: pads[1],
        x_pad_0: pads[2],
        x_pad_1: pads[3],
        ..Load::default()
    };
    load.into()
}

pub(super) fn store(y: u16, x: u16, stride: u16) -> Insn {
    let store = Store {
        y_size: y,
        x_size: x,
        x_stride: stride,
        ..Store::default()
    };
    store.into()
}

#[test]
fn loads_take_what_the_rtl_takes() {
    const NONE: [u8; 4] = [0; 4];
    for timing in both() {
        for (mem, y, x, stride, pads, cycles) in [
            (MemType::Inp, 0, 0, 0, NONE, 2),
            (MemType::Uop, 0, 0, 0, NONE, 2),
            (MemType::Inp, 1, 1, 1, NONE, 25),
            (MemType::Inp, 1, 16, 16, NONE, 55),
            (MemType::Inp, 1, 128, 128, NONE, 279),
            (MemType::Wgt, 1, 1, 1, NONE, 55),
            (MemType::Wgt, 1, 16, 16, NONE, 535),
            (MemType::Acc, 1, 1, 1, NONE, 31),
            (MemType::Acc, 1, 16, 16, NONE, 151),
            (MemType::Acc8, 1, 16, 16, NONE, 55),
            (MemType::Uop, 1, 1, 1, NONE, 23),
            (MemType::Uop, 1, 2, 2, NONE, 23),
            (MemType::Uop, 1, 16, 16, NONE, 30),
            (MemType::Uop, 1, 2048, 2048, NONE, 1046),
            (MemType::Inp, 14, 14, 14, [1; 4], 455),
            (MemType::Inp, 14, 14, 56, NONE, 415),
            (MemType::Inp, 16, 1, 1, NONE, 55),
            // Padding alone: one row of data, then more padding than the latency hides.
            (MemType::Inp, 1, 4, 4, [0, 10, 0, 0], 23 + 8 + 40 + 1 - 20),
        ] {
            let insn = load(mem, y, x, stride, pads);
            assert_eq!(alone(&timing, insn), cycles, "{insn} with {timing:?}");
        }
    }
}

#[test]
fn one_beat_rows_wait_for_request_slots() {
    // Uops of one beat a row: every beat is a last beat, in which no request goes out.
    let rows = load(MemType::Uop, 64, 1, 2, [0; 4]);
    let (report, _) = run(&TimingConfig::pynq(), &[rows, finish(Deps::NONE)]);
    let lost = report.stall(Unit::Compute, StallReason::RequestSlot);
    assert!(lost > 20, "{report:?}");
}

#[test]
fn stores_take_what_the_rtl_takes() {
    for (y, x, stride, cycles) in [
        (0, 0, 0, [2, 2]),
        (1, 1, 1, [7, 7]),
        (1, 16, 16, [52, 55]),
        (1, 128, 128, [388, 433]),
        (16, 16, 56, [820, 865]),
    ] {
        for (timing, cycles) in both().iter().zip(cycles) {
            let insn = store(y, x, stride);
            assert_eq!(alone(timing, insn), cycles, "{insn}");
        }
    }
}

#[test]
fn gemm_and_alu_take_their_steps_and_a_pipeline() {
    let gemm = |reset, end, out, inner| {
        Insn::from(Gemm {
            reset,
            uop_end: end,
            iter_out: out,
            iter_in: inner,
            ..Gemm::default()
        })
    };
    let alu = |op, operand, end, out, inner| {
        Insn::from(Alu {
            deps: Deps::NONE,
            op,
            operand,
            uop_bgn: 0,
            uop_end: end,
            iter_out: out,
            iter_in: inner,
            dst_factor_out: 0,
            dst_factor_in: 0,
            src_factor_out: 0,
            src_factor_in: 0,
        })
    };
    for timing in both() {
        for (insn, cycles) in [
            (gemm(false, 1, 1, 1), 8),
            (gemm(true, 16, 16, 1), 256 + 7),
            (gemm(false, 8192, 1000, 1000), 8_192_000_000 + 7),
            (alu(AluOp::Shr, AluOperand::Imm(4), 16, 4, 4), 256 + 7),
            (alu(AluOp::Mul, AluOperand::Imm(4), 1, 1, 1), 8),
            (alu(AluOp::Add, AluOperand::Acc, 16, 4, 4), 512 + 7),
            (alu(AluOp::Shl, AluOperand::Acc, 1, 1, 1), 9),
        ] {
            assert_eq!(alone(&timing, insn), cycles, "{insn}");
        }
    }
}

/// The program of the worked example.
fn worked_example() -> Vec<Insn> {
    asm::parse(
        "load.uop y_size=1 x_size=32 x_stride=32
         load.inp y_size=1 x_size=16 x_stride=16
         load.wgt y_size=1 x_size=16 x_stride=16 push_next
         gemm reset uop_bgn=0 uop_end=16 iter_out=16 iter_in=1
         gemm uop_bgn=16 uop_end=32 iter_out=16 iter_in=1 pop_prev
         alu.shr imm=4 uop_bgn=0 uop_end=16 iter_out=16 iter_in=1
         alu.min imm=127 uop_bgn=0 uop_end=16 iter_out=16 iter_in=1
         alu.max imm=-127 uop_bgn=0 uop_end=16 iter_out=16 iter_in=1 push_next
         store y_size=1 x_size=256 x_stride=256 pop_prev push_prev
         finish pop_next",
    )
    .unwrap()
}

#[test]
fn the_worked_example_matches_event_by_event() {
    // Start and done cycle of each instruction, as far as they were measured.
    let pynq = [
        (42, Some(79)),
        (43, Some(112)),
        (113, Some(647)),
        (80, Some(342)),
        (648, Some(910)),
        (911, None),
        (1174, None),
        (1437, None),
        (1700, Some(2474)),
        (2475, None),
    ];
    let later = |&(start, done): &(u64, Option<u64>)| (start - 4, done.map(|d| d - 4));
    let mut de10: Vec<_> = pynq.iter().map(later).collect();
    de10[8].1 = Some(2560);
    de10[9].0 = 2561;
    for (timing, expected, first, cycles) in [
        (TimingConfig::pynq(), pynq.to_vec(), 41, 2476),
        (TimingConfig::de10(), de10, 37, 2562),
    ] {
        let (report, log) = run(&timing, &worked_example());
        assert!(
            log.lines.contains(&format!("{first:>9} dispatch 0")),
            "{:?}",
            log.lines
        );
        for (insn, (start, done)) in expected.iter().enumerate() {
            let span = log.spans[insn];
            assert_eq!(span.0, Some(*start), "start of {insn}");
            if done.is_some() {
                assert_eq!(span.1, *done, "done of {insn}");
            }
        }
        assert_eq!(report.cycles, cycles);
        assert_eq!(
            (report.gemm_uops, report.alu_uops, report.acc_writes),
            (512, 768, 1280)
        );
        assert_eq!(report.read_beats, 20 + 16 + 32 + 512);
        assert_eq!(report.write_beats, 512);
        // Weights queue behind inputs of the same module; the product waits for them.
        let wait = report.stall(Unit::Compute, StallReason::Token(Edge::LoadToCompute));
        let reset_done = expected[3].1.unwrap();
        assert_eq!(wait, expected[4].0 - (reset_done + 1));
    }
}

#[test]
fn two_listeners_hear_the_same_and_change_nothing() {
    let (timing, config) = (TimingConfig::de10(), Config::default());
    let insns = worked_example();
    let silent = simulate(&timing, &config, &insns, 0x1_0000, &mut Silent).unwrap();
    let (mut first, mut second) = (Log::default(), Log::default());
    let boxed: &mut dyn Listener = &mut second;
    let report = simulate(&timing, &config, &insns, 0x1_0000, &mut (&mut first, boxed)).unwrap();
    assert_eq!(report, silent);
    assert!(first.lines.len() > 50);
    assert_eq!(first.lines, second.lines);
}

#[test]
fn wider_buses_take_what_the_patched_rtl_takes() {
    for (bus_bytes, first_start, cycles) in [(8, 42, 2476), (16, 35, 1674), (64, 28, 1437)] {
        let timing = TimingConfig {
            bus_bytes,
            ..TimingConfig::pynq()
        };
        let (report, log) = run(&timing, &worked_example());
        assert_eq!(log.spans[0].0, Some(first_start), "{bus_bytes} bytes");
        assert_eq!(report.cycles, cycles, "{bus_bytes} bytes");
    }
}

#[test]
fn full_fetch_chunks_cost_what_the_rtl_takes() {
    for (timing, chunk, cycles) in [
        (TimingConfig::pynq(), 128, 405),
        (TimingConfig::de10(), 8, 45),
    ] {
        let nop = load(MemType::Acc, 0, 0, 0, [0; 4]);
        let wait_free = vec![nop; 4 * chunk];
        let insns: Vec<_> = wait_free.into_iter().chain([finish(Deps::NONE)]).collect();
        let (_, log) = run(&timing, &insns);
        let first_of = |c: usize| {
            let line = log
                .lines
                .iter()
                .find(|l| l.ends_with(&format!(" dispatch {}", c * chunk)));
            line.unwrap()[..9].trim().parse::<u64>().unwrap()
        };
        assert_eq!(first_of(2) - first_of(1), cycles);
        assert_eq!(first_of(3) - first_of(2), cycles);
    }
}

#[test]
fn a_full_queue_holds_up_fetch_and_all_behind() {
    let timing = TimingConfig {
        queue_depth: 2,
        ..TimingConfig::pynq()
    };
    let mut insns = vec![load(MemType::Wgt, 1, 16, 16, [0; 4]); 4];
    insns.push(finish(Deps::NONE));
    let (report, log) = run(&timing, &insns);
    let lost = report.stall(Unit::Fetch, StallReason::QueueFull(Module::Load));
    assert!(lost > 500, "{report:?}");
    let full = |s: &&StallEvent| s.reason == StallReason::QueueFull(Module::Load);
    let first = log.stalls.iter().find(full).unwrap();
    // The third load enters in the cycle after the first is done.
    assert_eq!(
        (first.insn, first.to),
        (Some(2), log.spans[0].1.unwrap() + 1)
    );
}

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
    // The default ends it early, and says how to go on.
    let error = simulate(&timing, &config, &insns, 0, &mut Silent).unwrap_err();
    assert!(
        error.to_string().contains("--limit-cycles raises it"),
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
    assert!(text.contains("--limit-bytes raises it"), "{text}");
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
fn a_load_behind_another_clients_beats_says_whose() {
    // Both loads come at about the same time; the weights keep the bus for long.
    let insns = [
        load(MemType::Wgt, 1, 16, 16, [0; 4]),
        load(MemType::Acc, 1, 1, 1, [0; 4]),
        finish(Deps::NONE),
    ];
    let (report, log) = run(&TimingConfig::pynq(), &insns);
    let lost = report.stall(Unit::Compute, StallReason::MemoryBusy(Client::Wgt));
    // The first burst of weights is of 256 beats, and one cycle ahead.
    assert!(lost >= 254, "{report:?}");
    let stall = log
        .stalls
        .iter()
        .find(|s| s.reason == StallReason::MemoryBusy(Client::Wgt));
    assert_eq!(stall.unwrap().insn, Some(1));
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
