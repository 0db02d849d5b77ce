//! Single instructions with the kernels' vectors against the oracle, on scratchpads so small that what they touch
//! often overlaps, repeats or lies outside.

use proptest::prelude::*;
use vta_driver::DeviceMemory;
use vta_isa::tokens::At;
use vta_isa::{Alu, AluOp, AluOperand, Config, Deps, Gemm, Insn, Load, MemType, Store, Uop};

use super::super::run::direct::Direct;
use super::super::run::scratchpads::Scratchpads;
use crate::error::SimError;
use crate::kernels::GemmKernel;

/// 64 micro-ops, 16 inputs, 8 weights and 32 accumulators, or as many as the block's size leaves.
const CONFIGS: [&str; 4] = [
    r#"{"LOG_UOP_BUFF_SIZE": 8, "LOG_INP_BUFF_SIZE": 8, "LOG_WGT_BUFF_SIZE": 11, "LOG_ACC_BUFF_SIZE": 11}"#,
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
        Insn::Gemm(_) | Insn::Alu(_) | Insn::Finish(_) => {}
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
        prop::bool::weighted(0.2),
    )
        .prop_map(
            |((uop_bgn, uop_end), [iter_out, iter_in], [a, b, c, d, e, f], reset)| {
                let gemm = Gemm {
                    deps: Deps::NONE,
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
        MemType::Uop,
        MemType::Wgt,
        MemType::Wgt,
        MemType::Inp,
        MemType::Acc,
        MemType::Acc8,
    ]);
    let pads = [0u16..2, 0u16..2, 0u16..3, 0u16..3];
    (mem, 0u16..24, 0u32..40, [0u16..4, 0u16..5, 0u16..7], pads).prop_map(
        |(mem, sram_base, tile, [y_size, x_size, x_stride], [x0, x1, y0, y1])| {
            let load = Load {
                mem,
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

fn store() -> impl Strategy<Value = Insn> {
    (0u16..40, 0u32..1100, [0u16..4, 0u16..5, 0u16..7]).prop_map(
        |(sram_base, tile, [y_size, x_size, x_stride])| {
            let store = Store {
                sram_base,
                dram_base: tile,
                y_size,
                x_size,
                x_stride,
                ..Store::default()
            };
            store.into()
        },
    )
}

fn insn() -> impl Strategy<Value = Insn> {
    prop_oneof![4 => gemm(), 4 => alu(), 3 => load(), 1 => store()]
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
