//! Batches, memory and random programs on one OpenCL device.

use std::sync::Arc;

use vta_compiler::lower;
use vta_compiler::qgraph::QGraph;
use vta_driver::{Batch, Device, DriverError, PhysAddr, Program, RunReport, Work, WorkDone};
use vta_hw_opencl::Structure;
use vta_isa::{Config, Insn, asm};
use vta_sim::{Executor, Oracle};
use vta_tests::extended;
use vta_tests::opencl::{Backend, backends};
use vta_tests::programs::{RandomProgram, generate};

/// A batch of instructions that lies nowhere in device memory.
pub fn batch(insns: &[Insn]) -> Arc<Batch> {
    Arc::new(Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: insns.to_vec(),
        insn_addr: PhysAddr(0),
        marks: vec![],
    })
}

pub fn write(device: &dyn Device, addr: u32, bytes: &[u8]) {
    let work = Work::Write {
        addr: PhysAddr(addr),
        data: bytes.into(),
    };
    device.submit(work).unwrap().wait().unwrap();
}

pub fn read(device: &dyn Device, addr: u32, size_bytes: usize) -> Vec<u8> {
    let work = Work::Read {
        addr: PhysAddr(addr),
        size_bytes: size_bytes as u64,
    };
    match device.submit(work).unwrap().wait().unwrap() {
        WorkDone::Data(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

pub fn run(device: &dyn Device, batch: &Arc<Batch>) -> Result<RunReport, DriverError> {
    match device.submit(Work::Run(Arc::clone(batch)))?.wait()? {
        WorkDone::Ran(report) => Ok(report),
        other => panic!("{other:?}"),
    }
}

/// Runs a program on fresh memory of the device; all bytes of its regions afterwards.
pub fn contents(device: &dyn Device, program: &RandomProgram) -> Vec<u8> {
    for (addr, bytes) in program.regions() {
        device
            .alloc_at(PhysAddr(*addr), bytes.len() as u64)
            .unwrap();
        write(device, *addr, bytes);
    }
    let report = run(device, &batch(&program.insns)).unwrap();
    assert_eq!(report.leftover_tokens, [0; 4]);
    let mut all = Vec::new();
    for (addr, bytes) in program.regions() {
        all.extend(read(device, *addr, bytes.len()));
        device.free(PhysAddr(*addr)).unwrap();
    }
    all
}

pub fn expected(oracle: &mut Oracle, program: &RandomProgram) -> Vec<u8> {
    let mut memory = program.memory();
    oracle.run(&program.insns, &[], &mut memory).unwrap();
    program.contents(&memory)
}

pub const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BLOCK": 0, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 9, "LOG_ACC_BUFF_SIZE": 11}"#,
];

pub fn check_random(backend: &Backend, keys: &str, seeds: std::ops::Range<u64>) {
    let config = extended(keys, u64::MAX);
    let device = backend.open(&config);
    let mut oracle = Oracle::new(config.clone());
    for seed in seeds {
        let program = generate(&extended(keys, seed), seed, 1 + seed as usize % 6);
        if !device.keeps_scratchpads() {
            // What a program finds in scratchpads that it hasn't loaded is the same on both sides.
            oracle = Oracle::new(config.clone());
        }
        let (got, expected) = (contents(&device, &program), expected(&mut oracle, &program));
        let differs = got.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{} seed {seed}, {config:?}", backend.name());
    }
    println!("{}: {config:?}", backend.name());
}

pub fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

/// A tile of int8 goes through the accumulators, which are shifted in between.
pub const SHIFT_AND_STORE: &str =
    "load.uop sram_base=0 dram_base=0x800 y_size=1 x_size=1 x_stride=1
    load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=1 x_stride=1
    alu.shl imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
    store sram_base=3 dram_base=0x120 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
    finish pop_next";

/// Memory for it: the data, and a micro-op of tile 3.
pub fn prepare(device: &dyn Device) {
    device.alloc_at(PhysAddr(0x1000), 0x1000).unwrap();
    device.alloc_at(PhysAddr(0x2000), 0x1000).unwrap();
    write(device, 0x1000, &[5; 16]);
    write(device, 0x2000, &[3, 0, 0, 0]);
}

pub fn parsed(text: &str) -> Arc<Batch> {
    batch(&asm::parse(text).unwrap())
}

/// FPGAs and their emulators, with the core.
pub fn fpgas(what: &str) -> Vec<Backend> {
    let mut all = backends(what);
    all.retain(|b| b.entry.fpga && b.structure == Structure::Core);
    all
}
