//! What plans of small programs look like.

mod background;
mod direct;
mod fusions;
mod threads;

use vta_isa::asm;

use super::plan::{build, draft};
use super::run::ops::{Op, ProductOp};
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

/// One that plans at once.
fn executor(kernel: GemmKernel) -> Functional {
    Functional::with_kernel(Config::default(), kernel).with_planning(Planning::AtOnce)
}

/// The plan of the only batch.
fn plan_of(functional: &Functional) -> Arc<Plan> {
    assert_eq!(functional.known.len(), 1);
    Arc::clone(functional.known[0].plan().unwrap())
}

fn ops(program: &str) -> Result<Vec<Op>, Unplanned> {
    let insns = asm::parse(program).unwrap();
    let mut functional = executor(GemmKernel::Scalar);
    functional
        .plan(&insns, &[], &memory(), true)
        .map(|plan| plan.ops)
}

#[test]
fn reports_have_times_unless_they_are_not_asked_for() {
    let insns = asm::parse(&CONVOLUTION.replace("OUT", "0x800")).unwrap();
    for planning in [Planning::AtOnce, Planning::Never] {
        for timed in [true, false] {
            let new = Functional::new(Config::default()).with_planning(planning);
            let ran = new.with_times(timed).run(&insns, &[], &mut memory());
            assert_eq!(ran.unwrap().wall > Duration::ZERO, timed);
        }
    }
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
fn a_store_beside_the_inputs_joins_their_product() {
    let above = CONVOLUTION.replace("OUT", "0x408");
    let below = CONVOLUTION
        .replace(
            "load.inp sram_base=0 dram_base=0x404",
            "load.inp sram_base=0 dram_base=0x40c",
        )
        .replace(
            "load.inp sram_base=0 dram_base=0x400",
            "load.inp sram_base=0 dram_base=0x408",
        )
        .replace("OUT", "0x400");
    for text in [above, below] {
        let products: Vec<_> = ops(&text)
            .unwrap()
            .into_iter()
            .filter_map(|op| match op {
                Op::Product(product) => Some((product.out.unwrap(), product.read.unwrap())),
                _ => None,
            })
            .collect();
        let [(out, read)] = products[..] else {
            panic!("{} products of {text}", products.len());
        };
        assert_eq!(out.region, read.region);
        let insns = asm::parse(&text).unwrap();
        let mut expected = memory();
        let mut oracle = Oracle::new(Config::default());
        oracle.run(&insns, &[], &mut expected).unwrap();
        for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
            let mut ours = memory();
            let mut functional = executor(kernel);
            functional.run(&insns, &[], &mut ours).unwrap();
            let bytes = |m: &DeviceMemory| m.read(0x4000, 256).unwrap().to_vec();
            assert_eq!(bytes(&ours), bytes(&expected), "{kernel:?} {text}");
        }
    }
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

/// Two tiles: a product, a bias over a constant input tile, a diagonal residual, a shift and a
/// clamp, stored. Diagonal weights lie at 0x2200, where the test puts them.
const BIASED: &str = "
    load.uop sram_base=0 dram_base=0x400 y_size=1 x_size=3 x_stride=3
    load.wgt sram_base=0 dram_base=0x20 y_size=1 x_size=3 x_stride=3
    load.inp sram_base=0 dram_base=0x400 y_size=1 x_size=8 x_stride=8 push_next
    gemm reset uop_bgn=0 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1 pop_prev
    gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1 src_factor_in=1
    gemm uop_bgn=1 uop_end=2 iter_out=1 iter_in=2 dst_factor_in=1
    gemm uop_bgn=2 uop_end=3 iter_out=1 iter_in=2 dst_factor_in=1 src_factor_in=1
    alu.shr uop_bgn=0 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1 imm=3
    alu.min uop_bgn=0 uop_end=1 iter_out=1 iter_in=2 dst_factor_in=1 imm=127 push_next
    store sram_base=0 dram_base=0x800 y_size=1 x_size=2 x_stride=2 pop_prev push_prev
    finish pop_next";

/// [`memory`] with micro-ops and diagonal weights of [`BIASED`].
fn biased_memory() -> DeviceMemory {
    let mut memory = memory();
    let uop = |src: u16, wgt: u16| vta_isa::Uop { dst: 0, src, wgt };
    let uops = [uop(0, 0), uop(7, 1), uop(4, 2)].map(|u| u.encode().unwrap().to_le_bytes());
    let bytes = memory.write(0x1000, 12).unwrap();
    bytes.copy_from_slice(uops.as_flattened());
    for (i, byte) in memory.write(0x2200, 256).unwrap().iter_mut().enumerate() {
        if i / 16 != i % 16 {
            *byte = 0;
        }
    }
    memory
}

/// [`BIASED`] with the bias before the product.
fn biased_first() -> String {
    let mut lines: Vec<&str> = BIASED.lines().collect();
    let product = lines.iter().position(|l| l.contains("src_factor_in=1"));
    let product = product.unwrap();
    assert!(lines[product + 1].contains("uop_bgn=1"));
    lines.swap(product, product + 1);
    lines.join("\n")
}

#[test]
fn a_bias_and_a_residual_join_their_product() {
    for text in [BIASED.to_owned(), biased_first()] {
        let insns = asm::parse(&text).unwrap();
        let mut functional = executor(GemmKernel::Scalar);
        let plan = functional
            .plan(&insns, &[], &biased_memory(), true)
            .unwrap();
        let products: Vec<&ProductOp> = plan
            .ops
            .iter()
            .filter_map(|op| match op {
                Op::Product(product) => Some(&**product),
                _ => None,
            })
            .collect();
        let [product] = products[..] else {
            panic!("{} products of {text}", products.len());
        };
        assert!(product.out.is_some() && product.residual.is_some());
        assert!(product.groups[0].after.reads_residual());
        // The bias is what sums start from.
        assert_ne!(product.groups[0].first[0], [0; 16]);
    }
}

#[test]
fn a_constant_input_that_changes_is_seen() {
    changing_input(BIASED);
    changing_input(&biased_first());
}

fn batch(text: &str) -> Arc<Batch> {
    Arc::new(Batch {
        words: Vec::new(),
        insns: asm::parse(text).unwrap(),
        insn_addr: vta_driver::PhysAddr(0),
        marks: Vec::new(),
    })
}

/// Memory of the plans that are kept behind each of some batches, and what the last one stored.
fn plan_bytes(most: usize, batches: &[&Arc<Batch>]) -> (Vec<usize>, Vec<u8>) {
    let (mut executor, mut memory) = (executor(GemmKernel::Scalar), memory());
    executor = executor.with_most_plan_bytes(most);
    let mut run = |batch: &&Arc<Batch>| {
        executor.run_batch(batch, &mut memory).unwrap();
        executor.plan_bytes()
    };
    let kept = batches.iter().map(&mut run).collect();
    (kept, memory.read(0x8000, 256).unwrap().to_vec())
}

#[test]
fn plans_take_no_more_memory_than_they_may() {
    let [one, other] = ["0x800", "0x801"].map(|out| batch(&CONVOLUTION.replace("OUT", out)));
    let (free, stored) = plan_bytes(usize::MAX, &[&one, &other]);
    let [first, both] = free[..] else {
        panic!("{free:?}")
    };
    // Weights of a tile at least, and about as much for either.
    assert!(first > 256 && both > first + first / 2);
    let cases = [
        (both, vec![first, both]),
        (both - 1, vec![first, both - first]),
        (first - 1, vec![0, 0]),
        (0, vec![0, 0]),
    ];
    for (most, expected) in cases {
        assert_eq!(
            plan_bytes(most, &[&one, &other]),
            (expected, stored.clone()),
            "{most}"
        );
    }
}

#[test]
fn lists_that_take_more_memory_than_a_plan_may_are_not_made() {
    // Without this the lists of hostile instructions would be bounded by nothing.
    let insns = asm::parse(&CONVOLUTION.replace("OUT", "0x800")).unwrap();
    let limits = |plan_bytes| Limits {
        steps: 1 << 20,
        plan_bytes,
    };
    let (config, memory) = (Config::default(), memory());
    let pads = Scratchpads::new(&config, GemmKernel::Scalar);
    let trace = |most| {
        let subject = Subject {
            config: &config,
            pads: &pads,
            limits: limits(most),
            insns: &insns,
            marks: &[],
            memory: &memory,
            fixed_inputs: true,
            once: true,
            kept: false,
        };
        build::trace(&subject, &|| true).map(|_| ())
    };
    // Two products of four positions and one tap.
    let lists = 2 * (4 * (4 + 2) + size_of::<draft::Weight>());
    let pairs = 4 * 4;
    assert!(trace(lists + pairs).is_ok());
    for most in [0, lists, lists + pairs - 1] {
        assert!(matches!(trace(most), Err(Unplanned::Memory)), "{most}");
    }
}

#[test]
fn an_input_that_has_changed_is_data_from_then_on() {
    let (batch, mut memory) = (batch(BIASED), biased_memory());
    let mut functional = executor(GemmKernel::Scalar);
    let plans = [0u8, 1, 2].map(|value| {
        memory.write(0x4070, 1).unwrap()[0] = value;
        functional.run_batch(&batch, &mut memory).unwrap();
        plan_of(&functional)
    });
    assert!(!Arc::ptr_eq(&plans[0], &plans[1]));
    assert!(Arc::ptr_eq(&plans[1], &plans[2]));
}

/// Compares with the oracle while bytes change that a plan takes as constants.
fn changing_input(text: &str) {
    let batch = batch(text);
    for kernel in GemmKernel::ALL.into_iter().filter(|k| k.supported()) {
        let mut functional = executor(kernel);
        let mut oracle = Oracle::new(Config::default());
        let (mut ours, mut expected) = (biased_memory(), biased_memory());
        for round in 0..4u8 {
            // The bias's input tile, then a factor of the residual, then an input.
            for memory in [&mut ours, &mut expected] {
                let at = [0x4070, 0x4073, 0x2200, 0x4003][usize::from(round)];
                memory.write(at, 1).unwrap()[0] = round.wrapping_mul(91);
            }
            functional.run_batch(&batch, &mut ours).unwrap();
            oracle.run_batch(&batch, &mut expected).unwrap();
            let found = ours.read(0x8000, 32).unwrap();
            assert_eq!(
                found,
                expected.read(0x8000, 32).unwrap(),
                "{kernel:?} {round}"
            );
        }
    }
}

#[test]
fn an_element_wise_layer_is_one_map() {
    let text = "
        load.uop sram_base=0 dram_base=0x400 y_size=1 x_size=1 x_stride=1
        load.acc8 sram_base=0 dram_base=0x400 y_size=1 x_size=4 x_stride=4
        alu.mul uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 imm=5
        alu.shr uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 imm=3 push_next
        store sram_base=0 dram_base=0x800 y_size=1 x_size=4 x_stride=4 pop_prev push_prev
        gemm reset uop_bgn=0 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 pop_next
        finish";
    let ops = ops(text).unwrap();
    assert!(
        matches!(ops[..], [Op::Map(_), Op::Fill { .. }]),
        "{}",
        ops.len()
    );
}
