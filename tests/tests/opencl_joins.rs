//! The throughput structure joins instructions: few launches, and the oracle's bits.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use vta_driver::{Batch, Device, DeviceMemory, PhysAddr, Work, WorkDone};
use vta_hw_opencl::{Math, OpenClDevice, Options, Structure};
use vta_isa::{Config, Insn, Uop, asm};
use vta_sim::{Executor, Oracle};
use vta_tests::convolutions;
use vta_tests::extended;
use vta_tests::opencl::{Backend, backends};
use vta_tests::programs::RandomProgram;

fn submit(device: &OpenClDevice, work: Work) -> WorkDone {
    device.submit(work).unwrap().wait().unwrap()
}

fn write(device: &OpenClDevice, addr: u32, bytes: &[u8]) {
    let (addr, data) = (PhysAddr(addr), bytes.into());
    submit(device, Work::Write { addr, data });
}

fn read(device: &OpenClDevice, addr: u32, size_bytes: usize) -> Vec<u8> {
    let (addr, size_bytes) = (PhysAddr(addr), size_bytes as u64);
    match submit(device, Work::Read { addr, size_bytes }) {
        WorkDone::Data(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Launches of a batch.
fn run(device: &OpenClDevice, insns: &[Insn]) -> u64 {
    let before = device.counters().unwrap().launches;
    let batch = Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: insns.to_vec(),
        insn_addr: PhysAddr(0),
        marks: vec![],
    };
    submit(device, Work::Run(Arc::new(batch)));
    device.counters().unwrap().launches - before
}

fn throughput(what: &str) -> Vec<Backend> {
    let mut all = backends(what);
    all.retain(|b| b.structure == Structure::Throughput);
    all
}

/// All bytes of the program's regions afterwards, and the launches.
fn contents(device: &OpenClDevice, program: &RandomProgram) -> (Vec<u8>, u64) {
    for (addr, bytes) in program.regions() {
        let size = bytes.len() as u64;
        device.alloc_at(PhysAddr(*addr), size).unwrap();
        write(device, *addr, bytes);
    }
    let launches = run(device, &program.insns);
    let mut all = Vec::new();
    for (addr, bytes) in program.regions() {
        all.extend(read(device, *addr, bytes.len()));
        device.free(PhysAddr(*addr)).unwrap();
    }
    (all, launches)
}

const CONFIGS: [&str; 5] = [
    "{}",
    r#"{"LOG_BATCH": 2}"#,
    r#"{"LOG_BATCH": 5, "LOG_INP_BUFF_SIZE": 18, "LOG_ACC_BUFF_SIZE": 20}"#,
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 8, "LOG_WGT_BUFF_SIZE": 10, "LOG_ACC_BUFF_SIZE": 12}"#,
];

/// Programs like a compiler's, and what it would never emit. The scratchpads keep what a program
/// leaves for the next one.
#[test]
fn random_convolutions_are_the_oracles() {
    for backend in throughput("random convolutions") {
        for (keys, math) in CONFIGS
            .iter()
            .flat_map(|c| [None, Some(Math::Fours), Some(Math::Matrix)].map(|m| (c, m)))
        {
            let config = extended(keys, u64::MAX);
            let options = Options {
                math,
                ..Options::from_env()
            };
            let device = backend.open_with(&config, options).unwrap();
            let mut oracle = Oracle::new(config.clone());
            let seeds = if math.is_some() { 0..8 } else { 0..60 };
            let (mut launches, mut insns) = (0, 0);
            for seed in seeds {
                let config = extended(keys, seed);
                let program = convolutions::generate(&config, seed, 1 + seed as usize % 8);
                let mut memory = program.memory();
                oracle.run(&program.insns, &[], &mut memory).unwrap();
                let (got, count) = contents(&device, &program);
                let expected = program.contents(&memory);
                let differs = got.iter().zip(&expected).position(|(a, b)| a != b);
                let name = backend.name();
                assert_eq!(differs, None, "{name} seed {seed}, {config:?}, {math:?}");
                (launches, insns) = (launches + count, insns + program.insns.len());
            }
            println!(
                "{}: {launches} launches, {insns} instructions",
                backend.name()
            );
        }
    }
}

/// Two chunks of a 3x3 convolution's products: four tap rectangles each on 28x28 outputs, a bias in
/// front, the second chunk loaded over the first, then the steps of a requantisation. `LATE` is
/// put between the chunks.
const LAYER: &str = "load.uop sram_base=0 dram_base=0x400 y_size=1 x_size=6 x_stride=6
    gemm reset uop_bgn=0 uop_end=1 iter_out=1 iter_in=784 dst_factor_in=1 push_prev
    load.inp sram_base=0 dram_base=0x200 y_size=1 x_size=900 x_stride=900 pop_next
    load.wgt sram_base=0 dram_base=0x30 y_size=1 x_size=8 x_stride=8 push_next
    gemm uop_bgn=5 uop_end=6 iter_out=1 iter_in=784 dst_factor_in=1 pop_prev
    gemm uop_bgn=0 uop_end=2 iter_out=28 iter_in=28 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1
    gemm uop_bgn=2 uop_end=3 iter_out=28 iter_in=27 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1
    gemm uop_bgn=3 uop_end=4 iter_out=27 iter_in=28 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1
    gemm uop_bgn=4 uop_end=5 iter_out=27 iter_in=27 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1 push_prev
    LATE
    load.inp sram_base=0 dram_base=0x240 y_size=1 x_size=900 x_stride=900 pop_next
    load.wgt sram_base=0 dram_base=0x38 y_size=1 x_size=8 x_stride=8 push_next
    gemm uop_bgn=0 uop_end=2 iter_out=28 iter_in=28 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1 pop_prev
    gemm uop_bgn=2 uop_end=3 iter_out=28 iter_in=27 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1
    gemm uop_bgn=3 uop_end=4 iter_out=27 iter_in=28 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1
    gemm uop_bgn=4 uop_end=5 iter_out=27 iter_in=27 dst_factor_out=28 dst_factor_in=1 src_factor_out=30 src_factor_in=1
    alu.shr imm=5 uop_bgn=0 uop_end=1 iter_out=1 iter_in=784 dst_factor_in=1
    alu.min imm=127 uop_bgn=0 uop_end=1 iter_out=1 iter_in=784 dst_factor_in=1
    alu.max imm=-128 uop_bgn=0 uop_end=1 iter_out=1 iter_in=784 dst_factor_in=1 push_next
    store sram_base=0 dram_base=0x600 y_size=1 x_size=784 x_stride=784 pop_prev push_prev
    finish pop_next";

/// Micro-ops of `LAYER`: tile, input and weight.
const UOPS: [[u16; 3]; 6] = [
    [0, 0, 0],
    [0, 31, 1],
    [1, 2, 2],
    [28, 30, 3],
    [29, 32, 4],
    [0, 899, 5],
];

/// Launches of `LAYER` with something between its chunks, which must not change the bits.
fn launches_with(backend: &Backend, late: &str) -> u64 {
    let config = Config::default();
    let options = Options {
        one_launch: Some(false),
        ..Options::from_env()
    };
    let device = backend.open_with(&config, options).unwrap();
    let mut memory = DeviceMemory::new();
    let mut bytes: Vec<u8> = (0..0xc000u32).map(|i| (i * i / 7) as u8).collect();
    for ([dst, src, wgt], to) in UOPS.into_iter().zip(bytes.chunks_exact_mut(4)) {
        let word = Uop { dst, src, wgt }.encode().unwrap();
        to.copy_from_slice(&word.to_le_bytes());
    }
    memory.map(0x1000, 0xc000).unwrap();
    memory
        .write(0x1000, 0xc000)
        .unwrap()
        .copy_from_slice(&bytes);
    device.alloc_at(PhysAddr(0x1000), 0xc000).unwrap();
    write(&device, 0x1000, &bytes);
    let insns = asm::parse(&LAYER.replace("LATE", late)).unwrap();
    let launches = run(&device, &insns);
    let mut oracle = Oracle::new(config);
    oracle.run(&insns, &[], &mut memory).unwrap();
    let expected = memory.read(0x1000, 0xc000).unwrap();
    let right = read(&device, 0x1000, 0xc000) == expected;
    assert!(right, "{} {late:?}", backend.name());
    launches
}

#[test]
fn rectangles_and_chunks_of_one_layer_are_one_launch() {
    for backend in throughput("layers") {
        let joined = launches_with(&backend, "");
        // What comes before, products, steps and store.
        assert!(joined <= 4, "{}: {joined} launches", backend.name());
        let read_half_way = "alu.add imm=1 uop_bgn=0 uop_end=1 iter_out=1 iter_in=1";
        let parted = launches_with(&backend, read_half_way);
        assert!(parted > joined, "{}: {parted} launches", backend.name());
        // The compute module's own LOAD of what is summed.
        let overwritten = "load.acc8 sram_base=3 dram_base=0x220 y_size=1 x_size=1 x_stride=1";
        let parted = launches_with(&backend, overwritten);
        assert!(parted > joined, "{}: {parted} launches", backend.name());
        println!("{}: {joined} and {parted} launches", backend.name());
    }
}
