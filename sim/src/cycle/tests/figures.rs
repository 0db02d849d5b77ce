//! The engine against measured figures of the RTL.

use vta_isa::{Alu, AluOp, AluOperand, Config, Deps, Gemm, Insn, Load, MemType, Module, asm};

use super::super::*;
use super::{Log, alone, both, finish, load, run, store};

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
            (MemType::Wgt4, 1, 1, 1, NONE, 39),
            (MemType::Wgt4, 1, 16, 16, NONE, 279),
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
            if let Some(insn) = preloaded(insn) {
                assert_eq!(alone(&timing, insn), cycles, "{insn} with {timing:?}");
            }
        }
    }
}

/// A LOAD of accumulators as one of the load module.
fn preloaded(insn: Insn) -> Option<Insn> {
    match insn {
        Insn::Load(load) if matches!(load.mem, MemType::Acc | MemType::Acc8) => {
            let preload = true;
            Some(Load { preload, ..load }.into())
        }
        _ => None,
    }
}

#[test]
fn compute_multiplies_while_the_load_module_fills_accumulators() {
    let gemm = Gemm {
        reset: true,
        uop_end: 1,
        iter_out: 1,
        iter_in: 400,
        ..Gemm::default()
    };
    let pop_prev = Deps {
        pop_prev: true,
        ..Deps::NONE
    };
    let plain = load(MemType::Acc, 1, 40, 40, [0; 4]);
    let mut ahead = preloaded(plain).unwrap();
    ahead.deps_mut().push_next = true;
    for timing in both() {
        let cycles = |insns: &[Insn]| run(&timing, insns).0.cycles;
        let behind = cycles(&[plain, gemm.into(), finish(Deps::NONE)]);
        let beside = cycles(&[ahead, gemm.into(), finish(pop_prev)]);
        let alone = cycles(&[gemm.into(), finish(Deps::NONE)]);
        assert!(
            behind > alone + 300 && beside < alone + 5,
            "{behind} {beside} {alone}"
        );
        // Both at once have loaders of their own.
        let (report, _) = run(&timing, &[ahead, plain, finish(pop_prev)]);
        let beats = |client| report.read_beats_by_client[client as usize];
        assert_eq!(beats(Client::Preload), beats(Client::Acc));
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
            (alu(AluOp::Clip, AluOperand::Acc, 16, 4, 4), 512 + 7),
            (alu(AluOp::Mov, AluOperand::Acc, 16, 4, 4), 256 + 7),
            (alu(AluOp::Mov, AluOperand::Imm(4), 16, 4, 4), 256 + 7),
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
