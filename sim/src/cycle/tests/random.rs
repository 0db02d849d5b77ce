//! Random programs on random boards: the engine against the stepper, and against itself.

use proptest::prelude::*;
use vta_driver::PhysAddr;
use vta_isa::tokens::{pops, pushes, stray_flag};
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Depthwise, Gemm, Insn, Load, MemType, Requantize, Store,
};

use vta_replay::Case;

use super::super::engine::Engine;
use super::super::*;
use super::stepper::{self, End, Stepper};
use super::{Log, finish, load, store};

/// Random instructions of small shapes.
fn any_insn() -> impl Strategy<Value = Insn> {
    let mems = [
        MemType::Uop,
        MemType::Wgt,
        MemType::Wgt4,
        MemType::Inp,
        MemType::Acc,
        MemType::Acc8,
    ];
    let pad = || prop_oneof![3 => Just(0u8), 1 => 0u8..4];
    let load = (
        (prop::sample::select(mems.to_vec()), any::<bool>()),
        0u32..500,
        (0u16..7, prop_oneof![4 => 0u16..9, 1 => 0u16..70], 0u16..12),
        (pad(), pad(), pad(), pad()),
    )
        .prop_map(
            |((mem, ahead), dram_base, (y, x, stride), (y0, y1, x0, x1))| {
                let Insn::Load(shape) = load(mem, y, x, stride, [y0, y1, x0, x1]) else {
                    unreachable!()
                };
                let preload = ahead && matches!(mem, MemType::Acc | MemType::Acc8);
                Insn::from(Load {
                    dram_base,
                    preload,
                    ..shape
                })
            },
        );
    let store = (
        0u32..500,
        0u16..5,
        prop_oneof![4 => 0u16..9, 1 => 0u16..70],
        0u16..90,
        prop::option::of((any::<bool>(), 0u8..2)),
    )
        .prop_map(|(dram_base, y, x, stride, how)| {
            let Insn::Store(shape) = store(y, x, stride) else {
                unreachable!()
            };
            let requantize = how.map(|(by_row, residual)| Requantize {
                table: 0,
                by_row,
                residual,
            });
            Insn::from(Store {
                dram_base,
                requantize,
                saturate: requantize.is_none() && x % 2 == 0,
                ..shape
            })
        });
    let gemm = (any::<bool>(), 0u16..6, 0u16..5, 0u16..6).prop_map(|(reset, end, out, inner)| {
        Insn::from(Gemm {
            reset,
            uop_end: end,
            iter_out: out,
            iter_in: inner,
            ..Gemm::default()
        })
    });
    let alu = (any::<bool>(), 0u16..6, 0u16..5, 0u16..6).prop_map(|(imm, end, out, inner)| {
        Insn::from(Alu {
            deps: Deps::NONE,
            op: AluOp::Add,
            operand: if imm {
                AluOperand::Imm(1)
            } else {
                AluOperand::Acc
            },
            uop_bgn: 0,
            uop_end: end,
            iter_out: out,
            iter_in: inner,
            dst_factor_out: 0,
            dst_factor_in: 0,
            src_factor_out: 0,
            src_factor_in: 0,
        })
    });
    let window = (1u8..6, 1u8..4, 0u16..9);
    let loops = (0u16..4, 0u16..4, 0u16..6, 0u16..5);
    let depthwise = (window, loops).prop_map(|((rows, columns, pitch), loops)| {
        let (uop_end, iter_out, iter_in, src_factor_in) = loops;
        Insn::from(Depthwise {
            rows,
            columns,
            pitch,
            uop_end,
            iter_out,
            iter_in,
            src_factor_in,
            ..Depthwise::default()
        })
    });
    prop_oneof![4 => load, 2 => store, 1 => gemm, 1 => depthwise, 1 => alu]
}

fn deps_of(bits: u8) -> Deps {
    Deps {
        pop_prev: bits & 1 != 0,
        pop_next: bits & 2 != 0,
        push_prev: bits & 4 != 0,
        push_next: bits & 8 != 0,
    }
}

/// Instructions that print as assembly text.
struct Program(Vec<Insn>);

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|insn| write!(f, "\n{insn}"))
    }
}

/// Programs whose tokens are right: nothing is popped that no earlier instruction pushed. Those
/// with `wild` may deadlock.
fn any_program() -> impl Strategy<Value = Program> {
    let insns = prop::collection::vec((any_insn(), 0u8..16), 0..40);
    (insns, 0u8..16, prop::bool::weighted(0.1)).prop_map(|(insns, last, wild)| {
        let mut balance = [0i32; 4];
        let all = insns.into_iter().chain([(finish(Deps::NONE), last)]);
        let mut program = Vec::new();
        for (mut insn, bits) in all {
            let module = insn.module();
            let mut deps = deps_of(bits);
            while let Some(flag) = stray_flag(module, deps) {
                match flag {
                    "pop_prev" => deps.pop_prev = false,
                    "pop_next" => deps.pop_next = false,
                    "push_prev" => deps.push_prev = false,
                    _ => deps.push_next = false,
                }
            }
            if !wild && pops(module, deps).any(|e| balance[e as usize] == 0) {
                (deps.pop_prev, deps.pop_next) = (false, false);
            }
            pops(module, deps).for_each(|e| balance[e as usize] -= 1);
            pushes(module, deps).for_each(|e| balance[e as usize] += 1);
            *insn.deps_mut() = deps;
            program.push(insn);
        }
        Program(program)
    })
}

fn any_dram() -> impl Strategy<Value = DramModel> {
    let banked = (0u32..3, 0u32..4, 0u32..3, 0u32..9, 1u32..20, 0u32..60).prop_map(
        |(banks, row, t_hit, miss, t_refresh, interval)| DramModel::Banked {
            banks: 1 << banks,
            row_bytes: 64 << row,
            t_hit,
            t_miss: t_hit + miss,
            t_refresh,
            refresh_interval: if interval < 20 { 0 } else { 2 * interval },
        },
    );
    prop_oneof![Just(DramModel::Ideal {}), banked]
}

fn any_timing() -> impl Strategy<Value = TimingConfig> {
    let memory = (
        prop::sample::select(vec![8u32, 8, 16, 32, 64]),
        prop::sample::select(vec![16u32, 256, 4]),
        prop_oneof![Just(16u32), 1u32..40],
        prop_oneof![Just(16u32), 1u32..5],
        prop_oneof![Just(256u32), 1u32..4],
    );
    let rest = (
        (prop_oneof![Just(128u32), 1u32..12], any::<[bool; 3]>()),
        prop_oneof![Just(512u32), 1u32..5],
        prop_oneof![4 => Just(255u32), 1 => 1u32..4],
        1u32..9,
        1u32..4,
        0u32..40,
    );
    (memory, rest, any_dram()).prop_map(|(memory, rest, dram)| {
        let (bus_bytes, burst_beats, memory_latency_cycles, tags, request_fifo) = memory;
        let (fetch, queue_depth, token_max, depth, alu_two_operand_cycles, poll) = rest;
        let (chunk, [store_ahead, load_ahead, compute_ahead]) = fetch;
        TimingConfig {
            bus_bytes,
            burst_beats,
            fetch_chunk_insns: chunk.min(burst_beats * bus_bytes / 16),
            store_ahead,
            load_ahead,
            compute_ahead,
            memory_latency_cycles,
            tags,
            request_fifo,
            queue_depth,
            token_max,
            gemm_pipeline_cycles: depth,
            alu_pipeline_cycles: depth + 1,
            alu_two_operand_cycles,
            end_poll_cycles: poll,
            clock_mhz: 100.0,
            dram,
        }
    })
}

fn any_config() -> impl Strategy<Value = Config> {
    let texts = [
        "{}",
        r#"{"LOG_BLOCK": 5}"#,
        r#"{"LOG_BLOCK": 6, "LOG_BATCH": 1}"#,
        r#"{"LOG_BATCH": 2}"#,
        r#"{"LOG_BLOCK": 3, "LOG_INP_BUFF_SIZE": 14, "LOG_WGT_BUFF_SIZE": 16,
            "LOG_ACC_BUFF_SIZE": 16}"#,
    ];
    prop::sample::select(texts.to_vec()).prop_map(|text| Config::from_json(text).unwrap())
}

/// Every order of the four units.
fn orders() -> Vec<[Unit; 4]> {
    let mut orders = Vec::new();
    for code in 0..256 {
        let order = [code & 3, (code >> 2) & 3, (code >> 4) & 3, code >> 6].map(|i| Unit::ALL[i]);
        if Unit::ALL.iter().all(|u| order.contains(u)) {
            orders.push(order);
        }
    }
    orders
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_the_stepper(
        timing in any_timing(),
        config in any_config(),
        Program(insns) in any_program(),
        addr in prop_oneof![Just(0x1_0000u32), 0u32..999],
    ) {
        let mut log = Log::default();
        let result = simulate(&timing, &config, &insns, addr, &mut log);
        log.span(insns.len() - 1);
        let stepper = Stepper::new(&timing, &config, &insns, addr);
        match result {
            Ok(report) => {
                let end = stepper.run(report.cycles + 5000);
                let End::Finished(out) = end else { panic!("{end:?}, but {report:?}") };
                let mut stalls = [[0; StallReason::COUNT]; 4];
                for s in &report.stalls {
                    stalls[s.unit as usize][s.reason.index()] = s.cycles;
                }
                prop_assert_eq!(report.cycles, out.cycles);
                prop_assert_eq!(&log.spans, &out.spans);
                prop_assert_eq!(report.read_requests, out.read_requests);
                prop_assert_eq!(report.read_beats_by_client, out.read_beats);
                prop_assert_eq!(report.write_requests, out.write_requests);
                prop_assert_eq!(report.write_beats, out.write_beats);
                prop_assert_eq!(report.busy, out.busy);
                for (unit, (ours, theirs)) in stalls.iter().zip(&out.stalls).enumerate() {
                    prop_assert_eq!(ours, theirs, "stalls of {:?}", Unit::ALL[unit]);
                }
                prop_assert_eq!(report.leftover_tokens, out.tokens);
            }
            Err(error) => {
                let limit = match &error {
                    CycleError::Deadlock { cycle, .. } => cycle + 3000,
                    _ => u64::MAX,
                };
                let end = stepper.run(limit);
                prop_assert!(stepper::same_error(&error, &end), "{}, but {:?}", error, end);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_state_behind_each_cycle_is_the_steppers(
        timing in any_timing(),
        config in any_config(),
        Program(insns) in any_program(),
    ) {
        let case = Case {
            name: String::new(),
            config: config.clone(),
            words: Vec::new(),
            insns: insns.clone(),
            insn_addr: PhysAddr(0),
            allocations: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            complete: false,
        };
        let told = crate::stepper::Stepper::new(case, &timing, &Budget::default()).unwrap();
        let mut peer = Stepper::new(&timing, &config, &insns, 0);
        // In its last cycle FINISH starts, and nothing is told of what is done then. A run without an end has waits
        // that began, but are told nowhere.
        let cycles = told.last_cycle().min(20_000);
        for cycle in 0..cycles {
            let mut expected = peer.next().unwrap();
            let mut state = told.state(Some(cycle));
            state.bus = [None; 2];
            if told.report().is_err() {
                (state.stalls, expected.stalls) = ([None; 4], [None; 4]);
            }
            prop_assert_eq!(state, expected, "behind cycle {} of {:?}", cycle, insns);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_units_changes_nothing(
        timing in any_timing(),
        config in any_config(),
        Program(insns) in any_program(),
    ) {
        let run = |order| {
            let mut log = Log::default();
            let run = Run { insns: &insns, insn_addr: 0 };
            let engine = Engine::new(&timing, &config, run, &mut log);
            let result = engine.run(order);
            log.lines.sort();
            (result, log.lines)
        };
        let expected = run(Unit::ALL);
        for order in orders() {
            prop_assert_eq!(&run(order), &expected, "{:?}", order);
        }
    }

}

proptest! {
    #[test]
    fn busy_and_idle_cycles_add_up_and_spans_match_totals(
        timing in any_timing(),
        Program(insns) in any_program(),
    ) {
        let mut log = Log::default();
        let Ok(report) = simulate(&timing, &Config::default(), &insns, 0, &mut log) else {
            return Ok(());
        };
        for unit in Unit::ALL {
            let of_unit = || report.stalls.iter().filter(|s| s.unit == unit);
            let idle: u64 = of_unit().filter(|s| s.reason.is_idle()).map(|s| s.cycles).sum();
            let busy = report.busy[unit as usize];
            prop_assert_eq!(idle + busy, report.cycles, "{:?}", unit);
            let inside: u64 = of_unit().filter(|s| !s.reason.is_idle()).map(|s| s.cycles).sum();
            prop_assert!(inside <= busy);
        }
        let mut cycles = std::collections::HashSet::new();
        for s in &log.stalls {
            prop_assert!(s.from < s.to && s.to <= report.cycles, "{:?}", s);
            for cycle in s.from..s.to {
                prop_assert!(cycles.insert((s.unit, cycle)), "twice: {:?}", s);
            }
        }
        let reads: Vec<_> = log.bursts.iter().filter(|b| b.client != Client::Out).collect();
        for pair in reads.windows(2) {
            prop_assert!(pair[0].last_cycle < pair[1].first_cycle, "the bus carries one beat a cycle");
        }
    }

    #[test]
    fn any_bits_give_a_report_or_an_error(words in prop::collection::vec(any::<u128>(), 0..6)) {
        let small = |mut load: Load| { load.y_size %= 64; load };
        let decode = |w: &u128| match Insn::decode(*w).ok()? {
            Insn::Load(load) => Some(small(load).into()),
            Insn::Store(store) => Some(Store { y_size: store.y_size % 64, ..store }.into()),
            insn => Some(insn),
        };
        let mut insns: Vec<Insn> = words.iter().filter_map(decode).collect();
        insns.push(finish(Deps::NONE));
        let config = Config::default();
        let result = simulate(&TimingConfig::de10(), &config, &insns, u32::MAX, &mut Silent);
        if let Ok(report) = result {
            prop_assert!(report.cycles > 0);
        }
    }
}
