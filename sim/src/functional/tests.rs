//! What plans of small programs look like.

use vta_isa::asm;

use super::plan::Op;
use super::*;

/// Micro-ops at 0x1000, weights at 0x2000, activations at 0x4000, results at 0x8000.
fn memory() -> DeviceMemory {
    let mut memory = DeviceMemory::new();
    for (addr, size) in [(0x1000, 64), (0x2000, 1024), (0x4000, 256), (0x8000, 256)] {
        memory.map(addr, size).unwrap();
        let bytes = memory.write(addr.into(), size).unwrap();
        if addr > 0x1000 {
            let value = |i: usize| (i * 37 % 251) as u8;
            bytes
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = value(i));
        }
    }
    memory
}

/// Two chunks of a reduction into four tiles, a shift and a store.
const CONVOLUTION: &str = "
    load.uop sram_base=0 dram_base=0x400 y_size=1 x_size=1 x_stride=1
    load.wgt sram_base=0 dram_base=0x20 y_size=1 x_size=1 x_stride=1
    load.inp sram_base=0 dram_base=0x400 y_size=1 x_size=4 x_stride=4 push_next
    gemm reset uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1
    gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 src_factor_in=1 pop_prev push_prev
    load.inp sram_base=0 dram_base=0x404 y_size=1 x_size=4 x_stride=4 pop_next push_next
    gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 src_factor_in=1 pop_prev
    alu.shr uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 imm=5 push_next
    store sram_base=0 dram_base=OUT y_size=1 x_size=4 x_stride=4 pop_prev push_prev
    finish pop_next";

fn ops(program: &str) -> Result<Vec<Op>, Unplanned> {
    let insns = asm::parse(program).unwrap();
    let mut functional = Functional::with_kernel(Config::default(), GemmKernel::Scalar);
    functional
        .plan(&insns, &[], &memory(), true)
        .map(|plan| plan.ops)
}

#[test]
fn a_tile_of_a_convolution_is_one_product() {
    let ops = ops(&CONVOLUTION.replace("OUT", "0x800")).unwrap();
    let products: Vec<_> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Product(product) => Some((product.out.is_some(), product.read.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(products, [(true, true)]);
    // The inputs that the scratchpad holds at the end are all that is loaded.
    assert_eq!(ops.len(), 2);
}

#[test]
fn a_store_to_the_inputs_is_not_moved_before_they_are_read() {
    let ops = ops(&CONVOLUTION.replace("OUT", "0x404")).unwrap();
    let stores = ops.iter().filter(|op| matches!(op, Op::Store(_))).count();
    assert_eq!(stores, 1);
}

#[test]
fn a_program_that_stores_to_its_weights_is_interpreted() {
    let program = CONVOLUTION.replace("OUT", "0x200");
    assert!(matches!(ops(&program), Err(Unplanned::Pattern)));
}

#[test]
fn a_faulty_program_is_interpreted() {
    let program = CONVOLUTION.replace("OUT", "0x900");
    assert!(matches!(ops(&program), Err(Unplanned::Fault)));
}
