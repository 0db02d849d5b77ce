//! Single instructions with the kernels' vectors against the oracle, on scratchpads so small that what they touch
//! often overlaps, repeats or lies outside.

use proptest::prelude::*;
use vta_driver::{DeviceMemory, RunReport};
use vta_isa::tokens::At;
use vta_isa::{
    Alu, AluOp, AluOperand, Config, Deps, Depthwise, Finish, Gemm, Insn, Load, MemType, Requantize,
    Store, Uop,
};

use super::super::run::direct::Direct;
use super::super::run::scratchpads::Scratchpads;
use crate::error::SimError;
use crate::kernels::GemmKernel;
use crate::{Executor, Functional, Oracle, Planning};

/// 64 micro-ops, 16 inputs, 8 weights and 32 accumulators (64 where there are residuals), or as many as the block's
/// size leaves.
const CONFIGS: [&str; 5] = [
    r#"{"LOG_UOP_BUFF_SIZE": 8, "LOG_INP_BUFF_SIZE": 8, "LOG_WGT_BUFF_SIZE": 11, "LOG_ACC_BUFF_SIZE": 11}"#,
    r#"{"LOG_UOP_BUFF_SIZE": 8, "LOG_INP_BUFF_SIZE": 8, "LOG_WGT_BUFF_SIZE": 11, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BATCH": 1, "LOG_UOP_BUFF_SIZE": 8, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 11, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BLOCK": 5, "LOG_UOP_BUFF_SIZE": 8, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 13, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BLOCK": 2, "LOG_UOP_BUFF_SIZE": 8, "LOG_INP_BUFF_SIZE": 6, "LOG_WGT_BUFF_SIZE": 7, "LOG_ACC_BUFF_SIZE": 9}"#,
];
const DRAM_BYTES: u64 = 1 << 14;
const DRAM: u32 = 0x1000;

/// Scratchpads and memory of one of the two.
struct State {
    pads: Scratchpads,
    memory: DeviceMemory,
}

impl State {
    fn new(config: &Config, kernel: GemmKernel, uops: &[Uop], seed: u64) -> Self {
        let mut next = seed;
        let mut random = || {
            next = next
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (next >> 40) as u32
        };
        let mut pads = Scratchpads::new(config, kernel);
        pads.uop[..uops.len()].copy_from_slice(uops);
        pads.inp.iter_mut().for_each(|x| *x = random() as u8);
        pads.wgt.iter_mut().for_each(|x| *x = random() as u8);
        // Small and large ones: shifts by any amount.
        pads.acc
            .iter_mut()
            .for_each(|x| *x = random().wrapping_mul(random()) as i32 >> (random() % 32));
        let mut memory = DeviceMemory::new();
        memory.map(DRAM, DRAM_BYTES).unwrap();
        let bytes = memory.write(DRAM.into(), DRAM_BYTES).unwrap();
        bytes.iter_mut().for_each(|x| *x = random() as u8);
        Self { pads, memory }
    }

    fn contents(&self) -> impl PartialEq + use<'_> {
        let Scratchpads {
            uop, inp, wgt, acc, ..
        } = &self.pads;
        let uop: Vec<u32> = uop.iter().map(|u| u.encode().unwrap()).collect();
        (uop, inp, wgt, acc, self.memory.region(0))
    }
}

/// Runs the same with both, instruction after instruction: ends and effects are the same.
fn compare(config: &Config, uops: &[Uop], insns: &[Insn], seed: u64) -> Result<(), TestCaseError> {
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let kernel = kernel.usable(config.block());
        let mut direct = Direct::new(config);
        let [mut ours, mut expected] = [0; 2].map(|_| State::new(config, kernel, uops, seed));
        for (index, insn) in insns.iter().map(|insn| placed(*insn, config)).enumerate() {
            let insn = &insn;
            let State { pads, memory } = &mut ours;
            let found: Result<(), SimError> = direct.execute(pads, config, (index, insn), memory);
            let State { pads, memory } = &mut expected;
            let wanted = pads
                .machine(config)
                .execute(&At { index, insn: *insn }, memory);
            prop_assert_eq!(&found, &wanted, "{:?}: {}", kernel, insn);
            prop_assert!(
                ours.contents() == expected.contents(),
                "{:?} differs: {}",
                kernel,
                insn
            );
        }
    }
    Ok(())
}

/// An instruction whose DRAM tiles count from where DRAM begins.
fn placed(mut insn: Insn, config: &Config) -> Insn {
    let first = |mem: MemType| DRAM / config.elem_bytes(mem) as u32;
    match &mut insn {
        Insn::Load(load) => load.dram_base += first(load.mem),
        Insn::Store(store) => store.dram_base += first(MemType::Out),
        Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => {}
    }
    insn
}

fn uop() -> impl Strategy<Value = Uop> {
    // Mostly inside, near each other.
    let near = |most: u16| prop_oneof![8 => 0..most, 1 => 0..4 * most];
    // Operands of ALU steps among what is written, or apart from it.
    let src = prop_oneof![2 => near(10), 1 => 20u16..30];
    (near(16), src, near(6)).prop_map(|(dst, src, wgt)| Uop { dst, src, wgt })
}

fn range() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![6 => (0u16..6, 0u16..9).prop_map(|(bgn, n)| (bgn, bgn + n)), 1 => (0u16..80, 0u16..80)]
}

fn trips() -> impl Strategy<Value = u16> {
    prop_oneof![1 => Just(0u16), 4 => Just(1u16), 8 => 2u16..9, 1 => 9u16..30]
}

fn factor() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(0u16), 5 => 1u16..4, 1 => 4u16..12]
}

fn gemm() -> impl Strategy<Value = Insn> {
    let factors = [factor(), factor(), factor(), factor(), factor(), factor()];
    (
        range(),
        [trips(), trips()],
        factors,
        [prop::bool::weighted(0.2), prop::bool::weighted(0.3)],
    )
        .prop_map(
            |((uop_bgn, uop_end), [iter_out, iter_in], [a, b, c, d, e, f], [reset, overwrite])| {
                let gemm = Gemm {
                    deps: Deps::NONE,
                    overwrite,
                    reset,
                    uop_bgn,
                    uop_end,
                    iter_out,
                    iter_in,
                    dst_factor_out: a,
                    dst_factor_in: b,
                    src_factor_out: c,
                    src_factor_in: d,
                    wgt_factor_out: e,
                    wgt_factor_in: f,
                };
                gemm.into()
            },
        )
}

fn depthwise() -> impl Strategy<Value = Insn> {
    let window = (0u8..5, 1u8..5, 0u16..9);
    let factors = [factor(), factor(), factor(), factor()];
    let loops = (range(), [trips(), trips()], factors);
    (loops, window, any::<bool>()).prop_map(
        |(((uop_bgn, uop_end), [iter_out, iter_in], [a, b, c, d]), window, overwrite)| {
            let (rows, columns, pitch) = window;
            let insn = Depthwise {
                deps: Deps::NONE,
                overwrite,
                rows,
                columns,
                pitch,
                uop_bgn,
                uop_end,
                iter_out,
                iter_in,
                dst_factor_out: a,
                dst_factor_in: b,
                src_factor_out: c,
                src_factor_in: d,
            };
            insn.into()
        },
    )
}

fn alu() -> impl Strategy<Value = Insn> {
    let operand = prop_oneof![
        (-40i16..40).prop_map(AluOperand::Imm),
        Just(AluOperand::Acc),
        Just(AluOperand::Acc)
    ];
    let op = prop::sample::select(AluOp::ALL.to_vec());
    let factors = [factor(), factor(), factor(), factor()];
    (range(), [trips(), trips()], factors, op, operand).prop_map(
        |((uop_bgn, uop_end), [iter_out, iter_in], [a, b, c, d], op, operand)| {
            let alu = Alu {
                deps: Deps::NONE,
                op,
                operand,
                uop_bgn,
                uop_end,
                iter_out,
                iter_in,
                dst_factor_out: a,
                dst_factor_in: b,
                src_factor_out: c,
                src_factor_in: d,
            };
            alu.into()
        },
    )
}

fn load() -> impl Strategy<Value = Insn> {
    let mem = prop::sample::select(vec![
        (MemType::Uop, false),
        (MemType::Wgt, false),
        (MemType::Wgt4, false),
        (MemType::Inp, false),
        (MemType::Acc, false),
        (MemType::Acc8, true),
    ]);
    let pads = [0u16..2, 0u16..2, 0u16..3, 0u16..3];
    (mem, 0u16..24, 0u32..40, [0u16..4, 0u16..5, 0u16..7], pads).prop_map(
        |((mem, preload), sram_base, tile, [y_size, x_size, x_stride], [x0, x1, y0, y1])| {
            let load = Load {
                mem,
                preload,
                pad_value: if mem == MemType::Inp { tile as i8 } else { 0 },
                sram_base: sram_base / 4,
                dram_base: tile,
                y_size,
                x_size,
                x_stride,
                x_pad_0: x0 as u8,
                x_pad_1: x1 as u8,
                y_pad_0: y0 as u8,
                y_pad_1: y1 as u8,
                ..Load::default()
            };
            load.into()
        },
    )
}

fn requantize() -> impl Strategy<Value = Option<Requantize>> {
    let how = (
        0u16..40,
        any::<bool>(),
        prop::sample::select(vec![0, 0, 1, 1, 2]),
    );
    let how = how.prop_map(|(table, by_row, residual)| Requantize {
        table,
        by_row,
        residual,
    });
    prop::option::of(how)
}

fn store() -> impl Strategy<Value = Insn> {
    let sizes = [0u16..4, 0u16..5, 0u16..7];
    (0u16..40, 0u32..1100, sizes, requantize(), any::<bool>()).prop_map(
        |(sram_base, tile, [y_size, x_size, x_stride], requantize, saturate)| {
            let store = Store {
                sram_base,
                dram_base: tile,
                y_size,
                x_size,
                x_stride,
                requantize,
                saturate: saturate && requantize.is_none(),
                ..Store::default()
            };
            store.into()
        },
    )
}

fn insn() -> impl Strategy<Value = Insn> {
    prop_oneof![4 => gemm(), 2 => depthwise(), 4 => alu(), 3 => load(), 2 => store()]
}

/// Fills DRAM, which begins with micro-ops: those of the first runs, then others.
fn fill(memory: &mut DeviceMemory, uops: &[Uop], seed: u64, run: usize) {
    let bytes = memory.write(DRAM.into(), DRAM_BYTES).unwrap();
    let values = (0..).map(|at: u64| (at.wrapping_mul(seed | 1) >> 7) as u8 ^ run as u8);
    bytes
        .iter_mut()
        .zip(values)
        .for_each(|(byte, value)| *byte = value);
    let uops = uops.iter().cycle().skip(run / 5);
    for (word, uop) in bytes.chunks_exact_mut(4).take(64).zip(uops) {
        word.copy_from_slice(&uop.encode().unwrap().to_le_bytes());
    }
}

fn memory() -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    memory.map(DRAM, DRAM_BYTES).unwrap();
    memory
}

/// Runs of the same batch are those of the oracle, though from the second on it is known what it does, or from the fourth on if
/// it has more than 64 instructions.
fn compare_runs(
    config: &Config,
    uops: &[Uop],
    insns: &[Insn],
    seed: u64,
) -> Result<(), TestCaseError> {
    let insns = insns.iter().map(|insn| placed(*insn, config));
    let is_long = seed.is_multiple_of(8);
    let some = if is_long { 64 } else { 63.min(insns.len()) };
    let insns = insns.cycle().take(some);
    let insns: Vec<Insn> = insns.chain([Finish::default().into()]).collect();
    let batch = super::threads::batch(insns);
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let ours = Functional::with_kernel(config.clone(), kernel);
        let mut ours = ours.with_planning(Planning::Never);
        let mut oracle = Oracle::new(config.clone());
        let [mut found, mut wanted] = [memory(), memory()];
        for run in 0..9 {
            // The same bytes elsewhere.
            found = if run == 7 { memory() } else { found };
            for memory in [&mut found, &mut wanted] {
                fill(memory, uops, seed, run);
            }
            let report = |end: Result<RunReport, SimError>| {
                end.map(|report| (report.traffic, report.leftover_tokens))
            };
            let found_end = report(ours.run_batch(&batch, &mut found));
            let wanted_end = report(oracle.run_batch(&batch, &mut wanted));
            let known = ours
                .known
                .back()
                .is_some_and(|known| known.script.is_some());
            prop_assert!(found_end.is_err() || known == (!is_long || run > 1));
            prop_assert_eq!(found_end, wanted_end, "{:?}, run {}", kernel, run);
            let same = found.region(0) == wanted.region(0);
            prop_assert!(same, "{:?}, run {}", kernel, run);
        }
    }
    Ok(())
}

/// An instruction that is worked out: one micro-op, of those that are loaded first, in short loops.
fn single() -> impl Strategy<Value = Insn> {
    let loops = [[1u16..3, 0..3], [1..4, 0..2]];
    (prop_oneof![gemm(), alu()], 0u16..10, loops).prop_map(|(insn, uop_bgn, loops)| {
        let [[iter_out, outer], [iter_in, inner]] = loops;
        let uop_end = uop_bgn + 1;
        match insn {
            Insn::Gemm(gemm) => Insn::Gemm(Gemm {
                uop_bgn,
                uop_end,
                iter_out,
                iter_in,
                dst_factor_out: gemm.dst_factor_out.min(outer),
                dst_factor_in: gemm.dst_factor_in.min(inner),
                src_factor_out: outer,
                src_factor_in: inner,
                wgt_factor_out: gemm.wgt_factor_out.min(1),
                wgt_factor_in: gemm.wgt_factor_in.min(1),
                ..gemm
            }),
            Insn::Alu(alu) => Insn::Alu(Alu {
                uop_bgn,
                uop_end,
                iter_out: iter_out.min(alu.iter_out.max(1)),
                iter_in: 1,
                ..alu
            }),
            other => other,
        }
    })
}

/// Micro-ops that stay inside then.
fn near_uop() -> impl Strategy<Value = Uop> {
    (0u16..16, 0u16..9, 0u16..4).prop_map(|(dst, src, wgt)| Uop { dst, src, wgt })
}

/// Some tiles in one run.
fn near_load() -> impl Strategy<Value = Insn> {
    let mem = vec![
        MemType::Wgt,
        MemType::Wgt4,
        MemType::Inp,
        MemType::Acc,
        MemType::Acc8,
    ];
    let mem = prop::sample::select(mem);
    (mem, 0u16..5, 1u32..8, 1u16..3).prop_map(|(mem, sram_base, dram_base, x_size)| {
        let load = Load {
            mem,
            sram_base,
            dram_base,
            y_size: 1,
            x_size,
            ..Load::default()
        };
        load.into()
    })
}

/// Loads some micro-ops from where they lie.
fn load_uops() -> impl Strategy<Value = Insn> {
    (0u16..4, 0u32..20, 1u16..9).prop_map(|(sram_base, dram_base, x_size)| {
        let load = Load {
            mem: MemType::Uop,
            sram_base,
            dram_base,
            y_size: 1,
            x_size,
            ..Load::default()
        };
        load.into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn runs_of_a_known_batch_are_those_of_the_oracle(
        config in prop::sample::select(CONFIGS.to_vec()),
        uops in prop::collection::vec(near_uop(), 1..16),
        first in load_uops(),
        insns in prop::collection::vec(
            prop_oneof![12 => single(), 4 => near_load(), 2 => load_uops(), 1 => insn()],
            1..14,
        ),
        last in store(),
        seed in any::<u64>(),
    ) {
        let config = Config::from_json(config).unwrap();
        let insns: Vec<Insn> = [first].into_iter().chain(insns).chain([last]).collect();
        compare_runs(&config, &uops, &insns, seed)?;
    }
}

/// What is stored is inside, and in one piece, so that a known batch has a step of its own for it.
#[test]
fn a_known_batch_rounds_or_clamps_what_it_stores() {
    let config = Config::from_json(CONFIGS[0]).unwrap();
    for how in ["", "saturate", "requantize table=1"] {
        let text = format!(
            "load.acc dram_base=16 y_size=1 x_size=4 push_next
             store {how} dram_base=128 y_size=1 x_size=1 pop_prev"
        );
        let insns = vta_isa::asm::parse(&text).unwrap();
        compare_runs(&config, &[Uop::default()], &insns, 0x9e37_79b9).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn instructions_with_vectors_are_those_of_the_oracle(
        config in prop::sample::select(CONFIGS.to_vec()),
        uops in prop::collection::vec(uop(), 1..16),
        insns in prop::collection::vec(insn(), 1..14),
        seed in any::<u64>(),
    ) {
        let config = Config::from_json(config).unwrap();
        compare(&config, &uops, &insns, seed)?;
    }
}
