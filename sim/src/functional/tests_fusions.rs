//! Small programs that a fusion must leave alone, or may take, each for one of its conditions:
//! without the condition the program's results are others than the oracle's.

use vta_isa::{Uop, asm};

use super::*;
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

/// Micro-ops are loaded first, all of them; then the lines run one after the other.
struct Case {
    name: &'static str,
    uops: &'static [(u16, u16, u16)],
    text: &'static str,
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
    for (i, &(dst, src, wgt)) in case.uops.iter().enumerate() {
        let word = Uop { dst, src, wgt }.encode().unwrap();
        let at = 0x1000 + 4 * i as u64;
        let bytes = memory.write(at, 4).unwrap();
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    memory
}

/// The instructions, with tokens that make them run as they are listed.
fn program(case: &Case) -> Vec<Insn> {
    let uops = format!(
        "load.uop dram_base=0x400 y_size=1 x_size={0} x_stride={0}\n",
        case.uops.len()
    );
    let mut insns = asm::parse(&(uops + case.text + "\nfinish")).unwrap();
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
fn compare(case: &Case) {
    let insns = program(case);
    let mut expected = memory(case);
    let mut oracle = Oracle::new(Config::default());
    oracle.run(&insns, &[], &mut expected).unwrap();
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let mut one_by_one = Functional::with_kernel(Config::default(), kernel);
        one_by_one
            .interpret(&insns, &[], &mut memory(case))
            .unwrap();
        for threads in [1, 3] {
            let name = format!("{}, {kernel:?}, {threads} threads", case.name);
            let planned = Functional::with_kernel(Config::default(), kernel);
            let mut planned = planned.with_threads(threads).with_least_cost_ns(0);
            let mut memory = memory(case);
            assert!(planned.plan(&insns, &[], &memory, true).is_ok(), "{name}");
            planned.run(&insns, &[], &mut memory).unwrap();
            planned.settle();
            assert!(bytes(&memory) == bytes(&expected), "{name}: DRAM");
            let (a, b) = (&planned.pads, &one_by_one.pads);
            assert!(a.acc == b.acc && a.inp == b.inp, "{name}: tiles");
            assert!(a.uop == b.uop && a.wgt == b.wgt, "{name}: constants");
        }
    }
}

const CASES: &[Case] = &[
    Case {
        name: "a chain on runs that repeat a tile isn't done run by run",
        uops: &[(0, 0, 0), (1, 1, 0), (0, 0, 0)],
        text: "alu.add imm=1 uop_end=3 iter_out=1 iter_in=1
               alu.shl imm=1 uop_end=3 iter_out=1 iter_in=1
               store dram_base=0x4000 y_size=1 x_size=2 x_stride=2",
    },
    Case {
        name: "a tile that a loop with factor 0 visits again and again",
        uops: &[(4, 0, 0), (2, 0, 0)],
        text: "load.acc sram_base=0 dram_base=0xc00 y_size=1 x_size=8 x_stride=8
               alu.mul imm=3 uop_end=2 iter_out=3 iter_in=5
               alu.shr imm=2 uop_end=1 iter_out=3 iter_in=5
               alu.max imm=-9 uop_end=2 iter_out=1 iter_in=5
               store dram_base=0x4000 sram_base=2 y_size=1 x_size=3 x_stride=3",
    },
    Case {
        name: "a tile that a joined product writes is no constant any more",
        uops: &[(3, 0, 0), (3, 3, 1), (10, 0, 0), (10, 5, 0)],
        text: "load.acc sram_base=5 dram_base=0xc00 y_size=1 x_size=1 x_stride=1
               load.wgt dram_base=0x80 y_size=1 x_size=2 x_stride=2
               load.inp dram_base=0x2000 y_size=1 x_size=8 x_stride=8
               gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1 src_factor_in=1
               gemm uop_bgn=1 uop_end=2 iter_out=1 iter_in=3 dst_factor_in=1 src_factor_in=1
               gemm uop_bgn=2 uop_end=3 iter_out=1 iter_in=2 dst_factor_in=1 src_factor_in=1
               alu.add uop_bgn=3 uop_end=4 iter_out=1 iter_in=2 dst_factor_in=1
               store dram_base=0x4000 sram_base=10 y_size=1 x_size=2 x_stride=2",
    },
];

#[test]
fn every_condition_of_a_fusion_is_needed() {
    CASES.iter().for_each(compare);
}
