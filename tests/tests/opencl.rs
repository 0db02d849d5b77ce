//! Every OpenCL device of this machine, with every structure, is the oracle bit for bit.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vta_compiler::qgraph::QGraph;
use vta_compiler::{lower, onnx, passes, reference, zoo};
use vta_driver::{
    Batch, Device, DriverError, PhysAddr, Program, QueueLimits, RunReport, Session, Work, WorkDone,
    replay,
};
use vta_hw_opencl::{
    Math, OpenClDevice, OpenClError, Options, Selector, Structure, save_bitstream,
};
use vta_isa::{Config, Insn, asm};
use vta_sim::{Executor, Oracle};
use vta_tests::opencl::{Backend, backends, cached_in, entries};
use vta_tests::programs::{RandomProgram, generate};

/// A batch of instructions that lies nowhere in device memory.
fn batch(insns: &[Insn]) -> Arc<Batch> {
    Arc::new(Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: insns.to_vec(),
        insn_addr: PhysAddr(0),
        marks: vec![],
    })
}

fn write(device: &dyn Device, addr: u32, bytes: &[u8]) {
    let work = Work::Write {
        addr: PhysAddr(addr),
        data: bytes.into(),
    };
    device.submit(work).unwrap().wait().unwrap();
}

fn read(device: &dyn Device, addr: u32, size_bytes: usize) -> Vec<u8> {
    let work = Work::Read {
        addr: PhysAddr(addr),
        size_bytes: size_bytes as u64,
    };
    match device.submit(work).unwrap().wait().unwrap() {
        WorkDone::Data(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn run(device: &dyn Device, batch: &Arc<Batch>) -> Result<RunReport, DriverError> {
    match device.submit(Work::Run(Arc::clone(batch)))?.wait()? {
        WorkDone::Ran(report) => Ok(report),
        other => panic!("{other:?}"),
    }
}

/// Runs a program on fresh memory of the device; all bytes of its regions afterwards.
fn contents(device: &dyn Device, program: &RandomProgram) -> Vec<u8> {
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

fn expected(oracle: &mut Oracle, program: &RandomProgram) -> Vec<u8> {
    let mut memory = program.memory();
    oracle.run(&program.insns, &[], &mut memory).unwrap();
    program.contents(&memory)
}

fn check_recorded(folder: &str, least: usize) {
    let Some(shared) = vta_tests::shared(folder) else {
        return;
    };
    let entries = std::fs::read_dir(shared.join(folder)).unwrap();
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.is_dir() || p.extension().is_some_and(|e| e == "gz"));
    paths.sort();
    let cases: Vec<_> = paths
        .iter()
        .flat_map(|p| replay::load(p).unwrap())
        .collect();
    assert!(cases.len() >= least, "only {} runs", cases.len());
    for backend in backends(folder) {
        let mut wrong = Vec::new();
        let mut open: Option<OpenClDevice> = None;
        for case in &cases {
            if open.as_ref().is_none_or(|d| d.info().config != case.config) {
                open = Some(backend.open(&case.config));
            }
            let device = open.as_ref().unwrap();
            let report = replay::run_case(case, device).unwrap();
            assert!(report.bytes_compared > 0, "{}: nothing compared", case.name);
            if report.bytes_different > 0 {
                wrong.push((&case.name, report.bytes_different, report.mismatches[0]));
            }
        }
        let (right, all) = (cases.len() - wrong.len(), cases.len());
        println!(
            "{folder} on {}: {right} of {all} runs match",
            backend.name()
        );
        assert!(wrong.is_empty(), "{}: {wrong:?}", backend.name());
    }
}

#[test]
fn runs_of_the_original_runtime() {
    check_recorded("conformance/tvm", 26);
}

#[test]
fn binaries_of_the_standalone_toolchain() {
    check_recorded("conformance/standalone-vta", 8);
}

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BLOCK": 5, "LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BLOCK": 0, "LOG_INP_BUFF_SIZE": 9, "LOG_WGT_BUFF_SIZE": 9, "LOG_ACC_BUFF_SIZE": 11}"#,
];

fn check_random(backend: &Backend, config: &str, seeds: std::ops::Range<u64>) {
    let config = Config::from_json(config).unwrap();
    let device = backend.open(&config);
    let mut oracle = Oracle::new(config.clone());
    for seed in seeds {
        let program = generate(&config, seed, 1 + seed as usize % 6);
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

#[test]
fn random_programs_are_the_oracles() {
    for backend in backends("random programs") {
        for config in CONFIGS {
            check_random(&backend, config, 0..60);
        }
    }
}

fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

fn check_layers(graph: &QGraph, image: &[i8]) {
    let program = compile(graph, &Config::default());
    let expected = reference::run(graph, image).unwrap();
    for backend in backends("networks") {
        let device = Arc::new(backend.open(&program.config));
        let shared: Arc<dyn Device> = device.clone();
        let mut session =
            Session::keeping_tensors(Arc::clone(&program), shared, QueueLimits::default()).unwrap();
        for _ in 0..2 {
            let out = session.run(&[image]).unwrap();
            assert_eq!(out.outputs[0][0], expected[graph.outputs[0].0]);
            for layer in &program.layers {
                let got = session.read_tensor(layer.output).unwrap();
                let right = got[0] == expected[layer.output as usize];
                assert!(right, "{}: {}", backend.name(), layer.name);
            }
        }
        let stats = device.stats();
        assert_eq!(session.counters().submissions, 2);
        assert_eq!((stats.batches, stats.planned, stats.stalls), (2, 1, 0));
        println!(
            "{}: {} launches for two images",
            backend.name(),
            stats.launches
        );
    }
}

#[test]
fn the_demo_is_the_reference_layer_by_layer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    let graph = passes::quantized(&onnx::load(&std::fs::read(path).unwrap()).unwrap()).unwrap();
    let image: Vec<i8> = (0..3072).map(|i| (i * 37 % 255) as i8).collect();
    check_layers(&graph, &image);
}

#[test]
fn zoo_resnet18_is_the_reference_layer_by_layer() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let image = zoo::sample_image(224, 1);
    let image: Vec<i8> = image
        .iter()
        .map(|&x| ((i32::from(x) - 118) * 2 / 3) as i8)
        .collect();
    check_layers(&graph, &image);
}

/// A tile of int8 goes through the accumulators, which are shifted in between.
const SHIFT_AND_STORE: &str = "load.uop sram_base=0 dram_base=0x800 y_size=1 x_size=1 x_stride=1
    load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=1 x_stride=1
    alu.shl imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
    store sram_base=3 dram_base=0x120 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
    finish pop_next";

/// Memory for it: the data, and a micro-op of tile 3.
fn prepare(device: &dyn Device) {
    device.alloc_at(PhysAddr(0x1000), 0x1000).unwrap();
    device.alloc_at(PhysAddr(0x2000), 0x1000).unwrap();
    write(device, 0x1000, &[5; 16]);
    write(device, 0x2000, &[3, 0, 0, 0]);
}

fn parsed(text: &str) -> Arc<Batch> {
    batch(&asm::parse(text).unwrap())
}

#[test]
fn bad_batches_are_refused_by_name_and_the_device_goes_on() {
    let cases = [
        (
            "load.inp sram_base=2040 dram_base=0x100 y_size=1 x_size=9\nfinish",
            "sram_base reaches 2048, but the inp scratchpad has 2048",
        ),
        (
            "load.inp dram_base=0x1ff y_size=1 x_size=2\nfinish",
            "instruction 0 (load.inp sram_base=0 dram_base=511 y_size=1 x_size=2): DRAM bytes \
             0x1ff0..0x2010 cross from the allocation that ends at 0x2000",
        ),
        (
            "store dram_base=0x9000 y_size=1 x_size=1\nfinish",
            "DRAM bytes 0x90000..0x90010",
        ),
        (
            "alu.add uop_end=1 iter_out=3 iter_in=1 src_factor_out=2047\nfinish",
            "src reaches 4094",
        ),
        (
            "gemm uop_bgn=2 uop_end=1\nfinish",
            "uop_end 1 is below uop_bgn 2",
        ),
        (
            "gemm uop_end=8193 iter_out=1 iter_in=1\nfinish",
            "uop_end reaches 8192",
        ),
        (
            "load.inp pop_next\nfinish",
            "deadlock: load waits at instruction 0",
        ),
        ("gemm", "does not end in FINISH"),
        (
            "gemm reset uop_end=8000 iter_out=16383 iter_in=16383\nfinish",
            "more than its budget of 1048576 GEMM and ALU steps; --limit-steps raises it",
        ),
    ];
    for backend in backends("bad batches") {
        let options = Options {
            max_steps: 1 << 20,
            ..Options::from_env()
        };
        let device = backend.open_with(&Config::default(), options).unwrap();
        prepare(&device);
        for (text, expected) in cases {
            let error = run(&device, &parsed(text)).unwrap_err();
            assert!(matches!(error, DriverError::Device { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(expected), "{}: {error}", backend.name());
        }
        let outside = Work::Read {
            addr: PhysAddr(0x1ff0),
            size_bytes: 17,
        };
        let error = device.submit(outside).unwrap().wait().unwrap_err();
        assert!(matches!(error, DriverError::Memory { .. }), "{error:?}");
        run(&device, &parsed(SHIFT_AND_STORE)).unwrap();
        assert_eq!(read(&device, 0x1200, 16), [10; 16], "{}", backend.name());
    }
}

#[test]
fn micro_ops_that_the_device_stored_are_read_back() {
    // The tile that the STORE writes holds micro-ops of tile 3, and is loaded as such.
    let text = "load.acc8 sram_base=7 dram_base=0x102 y_size=1 x_size=1 x_stride=1 push_next
        store sram_base=7 dram_base=0x140 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
        load.uop sram_base=0 dram_base=0x500 y_size=1 x_size=1 x_stride=1 pop_next
        load.acc8 sram_base=3 dram_base=0x100 y_size=1 x_size=1 x_stride=1
        alu.shl imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
        store sram_base=3 dram_base=0x120 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
        finish pop_next";
    for backend in backends("stored micro-ops") {
        let device = backend.open(&Config::default());
        prepare(&device);
        write(&device, 0x1400, &[9, 0, 0, 0]);
        write(
            &device,
            0x1020,
            &[3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0],
        );
        let batch = parsed(text);
        for stalls in 1..3 {
            run(&device, &batch).unwrap();
            assert_eq!(read(&device, 0x1200, 16), [10; 16], "{}", backend.name());
            write(&device, 0x1200, &[0; 16]);
            assert_eq!(device.stats().stalls, stalls, "such a batch can't be kept");
        }
    }
}

#[test]
fn a_kept_plan_follows_the_micro_ops_in_memory() {
    for backend in backends("kept plans") {
        let device = backend.open(&Config::default());
        prepare(&device);
        let batch = parsed(SHIFT_AND_STORE);
        let mut planned = Vec::new();
        for (uop, expected) in [(3, 10), (3, 10), (4, 5), (3, 10)] {
            write(&device, 0x2000, &[uop, 0, 0, 0]);
            run(&device, &batch).unwrap();
            assert_eq!(
                read(&device, 0x1200, 16),
                [expected; 16],
                "{}",
                backend.name()
            );
            planned.push(device.stats().planned);
        }
        assert_eq!(planned, [1, 1, 2, 3]);
    }
}

#[test]
fn memory_grows_and_new_allocations_are_zero() {
    for backend in backends("memory") {
        let device = backend.open(&Config::default());
        device.alloc_at(PhysAddr(0x0200_0000), 32).unwrap();
        write(&device, 0x0200_0000, &[7; 32]);
        device.alloc_at(PhysAddr(0x3001), 9).unwrap();
        write(&device, 0x3001, &[8; 9]);
        let far = device.alloc(40 << 20).unwrap();
        write(&device, far.0 + (40 << 20) - 3, &[9; 3]);
        assert_eq!(read(&device, 0x0200_0000, 32), [7; 32]);
        assert_eq!(read(&device, 0x3001, 9), [8; 9]);
        assert_eq!(read(&device, far.0 + (40 << 20) - 5, 5), [0, 0, 9, 9, 9]);
        device.free(PhysAddr(0x3001)).unwrap();
        device.alloc_at(PhysAddr(0x3000), 16).unwrap();
        assert_eq!(read(&device, 0x3000, 16), [0; 16], "{}", backend.name());
        let limit = backend.entry.max_alloc_bytes();
        let error = device.alloc(limit.max(1 << 32)).unwrap_err();
        assert!(matches!(error, DriverError::Alloc { .. }), "{error}");
    }
}

#[test]
fn a_hung_kernel_is_given_up_and_other_devices_go_on() {
    for backend in backends("hung kernels") {
        // Some seconds of work that nothing interrupts.
        let trips = match backend.structure {
            Structure::Throughput => 700,
            Structure::Core | Structure::Channels => 300,
        };
        let text = &format!("gemm uop_end=200 iter_out={trips} iter_in={trips}\nfinish");
        let options = Options {
            time_limit: Duration::from_millis(200),
            ..Options::from_env()
        };
        let device = backend.open_with(&Config::default(), options).unwrap();
        let hung = run(&device, &parsed(text)).unwrap_err().to_string();
        assert!(
            hung.contains("given up as hung"),
            "{}: {hung}",
            backend.name()
        );
        let start = Instant::now();
        assert!(run(&device, &parsed(text)).is_err());
        drop(device);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "leaving it takes long"
        );
        let other = backend.open(&Config::default());
        prepare(&other);
        run(&other, &parsed(SHIFT_AND_STORE)).unwrap();
        assert_eq!(read(&other, 0x1200, 16), [10; 16], "{}", backend.name());
    }
}

#[test]
fn binaries_are_cached_and_a_damaged_cache_is_survived() {
    for backend in backends("cache") {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let options = cached_in(folder.path().to_owned());
            let device = backend.open_with(&Config::default(), options).unwrap();
            prepare(&device);
            run(&device, &parsed(SHIFT_AND_STORE)).unwrap();
            assert_eq!(read(&device, 0x1200, 16), [10; 16]);
            (device.stats().builds, device.stats().cache_hits)
        };
        assert_eq!(open(), (1, 0), "{}", backend.name());
        assert_eq!(open(), (0, 1), "{}", backend.name());
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        }
        assert_eq!(open(), (1, 0), "{}", backend.name());
        assert_eq!(open(), (0, 1), "{}", backend.name());
    }
}

/// FPGAs and their emulators, with the core.
fn fpgas(what: &str) -> Vec<Backend> {
    let mut all = backends(what);
    all.retain(|b| b.entry.fpga && b.structure == Structure::Core);
    all
}

#[test]
fn a_saved_bitstream_runs_and_a_wrong_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vta.aocx");
    let options = || Options {
        bitstream: Some(path.clone()),
        ..Options::from_env()
    };
    for backend in fpgas("bitstreams") {
        let config = Config::default();
        save_bitstream(&backend.entry, &config, Structure::Core, &path).unwrap();
        let device = backend.open_with(&config, options()).unwrap();
        assert_eq!(device.stats().builds, 0);
        for seed in 0..20 {
            let program = generate(&config, seed, 3);
            let mut oracle = Oracle::new(config.clone());
            assert!(
                contents(&device, &program) == expected(&mut oracle, &program),
                "{seed}"
            );
        }
        drop(device);
        let small = Config::from_json(r#"{"LOG_ACC_BUFF_SIZE": 16}"#).unwrap();
        let error = backend.open_with(&small, options()).err().unwrap();
        let OpenClError::WrongBitstream {
            what,
            found,
            expected,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(
            (*what, *found, *expected),
            ("accumulator depth", 2048, 1024)
        );
        let channels = Options {
            structure: Some(Structure::Channels),
            ..options()
        };
        let error = OpenClDevice::open_entry(&backend.entry, config.clone(), channels);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("it has no kernel vta_load"), "{error}");
        for junk in [&b""[..], b"no bitstream at all"] {
            std::fs::write(&path, junk).unwrap();
            let error = backend.open_with(&config, options()).err().unwrap();
            assert!(matches!(error, OpenClError::Bitstream { .. }), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = backend.open_with(&config, options()).err().unwrap();
        assert!(matches!(error, OpenClError::Bitstream { .. }), "{error}");
    }
}

#[test]
fn kernels_joined_by_channels_are_the_oracle() {
    for Backend { entry, .. } in fpgas("channels") {
        let backend = Backend {
            entry,
            structure: Structure::Channels,
        };
        check_random(&backend, "{}", 0..3);
        check_random(&backend, CONFIGS[2], 0..6);
    }
}

/// The GPU's way of forming products, on any device that can, so that machines without a GPU
/// test it, too.
#[test]
fn every_way_of_forming_products_is_the_oracle() {
    let configs = ["{}", CONFIGS[1]].map(|c| Config::from_json(c).unwrap());
    for backend in backends("products") {
        if backend.structure != Structure::Throughput {
            continue;
        }
        for (config, math) in configs
            .iter()
            .flat_map(|c| [Math::Int, Math::Pairs, Math::Float, Math::Fours].map(|m| (c, m)))
        {
            let options = Options {
                math: Some(math),
                ..Options::from_env()
            };
            let device = backend.open_with(config, options).unwrap();
            let mut oracle = Oracle::new(config.clone());
            for seed in 100..110 {
                let program = generate(config, seed, 4);
                let same = contents(&device, &program) == expected(&mut oracle, &program);
                assert!(same, "{} {math:?} seed {seed}", backend.name());
            }
        }
    }
}

/// Sums of extremes over more products than a float holds exactly, and than int32 holds at all.
#[test]
fn long_sums_are_exact_and_wrap() {
    // 9 micro-ops, 12 000 times 16 products of 128 * 128 each.
    let text = "load.uop sram_base=0 dram_base=0x400 y_size=1 x_size=9 x_stride=9
        load.inp sram_base=0 dram_base=0x200 y_size=1 x_size=1 x_stride=1
        load.wgt sram_base=0 dram_base=0x30 y_size=1 x_size=1 x_stride=1 push_next
        gemm uop_end=9 iter_out=3000 iter_in=4 dst_factor_in=1 pop_prev
        alu.shr imm=24 uop_end=1 iter_out=1 iter_in=4 dst_factor_in=1 push_next
        store sram_base=0 dram_base=0x210 y_size=1 x_size=4 x_stride=4 pop_prev push_prev
        finish pop_next";
    // 9 * 3000 * 16 * 2^14, modulo 2^32, shifted.
    let sum = (((9u64 * 3000 * 16) << 14) as u32 as i32) >> 24;
    for backend in backends("long sums") {
        let device = backend.open(&Config::default());
        device.alloc_at(PhysAddr(0x1000), 0x4000).unwrap();
        write(&device, 0x2000, &[0x80; 16]);
        write(&device, 0x3000, &[0x80; 256]);
        run(&device, &parsed(text)).unwrap();
        assert_eq!(
            read(&device, 0x2100, 64),
            [sum as u8; 64],
            "{}",
            backend.name()
        );
    }
}

#[test]
fn devices_that_are_not_there_are_named() {
    let entries = entries("selectors");
    for entry in &entries {
        let selector: Selector = entry.selector.parse().unwrap();
        assert_eq!(selector.find().unwrap().name(), entry.name());
    }
    if entries.is_empty() {
        return;
    }
    let missing: Selector = "opencl:no such device".parse().unwrap();
    let error = missing.find().unwrap_err().to_string();
    assert!(error.contains(&entries[0].selector), "{error}");
}

/// Processor time of this process in seconds, where the system tells.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|t| t.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// GMAC/s of a network's images on every backend, after a first one that compiles and plans. The
/// environment narrows it: VTA_SPEED_NET, VTA_SPEED_ONLY (a part of a backend's name),
/// VTA_SPEED_ALL (every way of forming products).
#[test]
#[ignore = "measures"]
fn speed() {
    let set = |name| std::env::var(name).ok();
    let name = set("VTA_SPEED_NET").unwrap_or_else(|| "resnet18".into());
    let only = set("VTA_SPEED_ONLY").unwrap_or_default();
    let graph = passes::quantized(&zoo::graph(&name).unwrap()).unwrap();
    let program = compile(&graph, &Config::default());
    let image = zoo::sample_image(224, 1);
    let image: Vec<i8> = image
        .iter()
        .map(|&x| ((i32::from(x) - 118) * 2 / 3) as i8)
        .collect();
    let macs: u64 = program.layers.iter().map(|l| l.macs).sum();
    let ways = [Math::Int, Math::Pairs, Math::Float, Math::Fours].map(Some);
    for backend in backends("speed") {
        if !backend.name().contains(&only) {
            continue;
        }
        let all = set("VTA_SPEED_ALL").is_some() && backend.structure == Structure::Throughput;
        for math in if all { &ways[..] } else { &[None] } {
            let options = Options {
                math: *math,
                ..Options::from_env()
            };
            let device = Arc::new(backend.open_with(&program.config, options).unwrap());
            let shared: Arc<dyn Device> = device.clone();
            let mut session =
                Session::new(Arc::clone(&program), shared, QueueLimits::default()).unwrap();
            let first = Instant::now();
            session.run(&[&image]).unwrap();
            let first = first.elapsed().as_secs_f64() * 1e3;
            let (runs, mut best) = (10, f64::MAX);
            let processor = processor_seconds();
            for _ in 0..runs {
                let start = Instant::now();
                session.run(&[&image]).unwrap();
                best = best.min(start.elapsed().as_secs_f64());
            }
            let processor = (processor_seconds() - processor) * 1e3 / f64::from(runs);
            let stats = device.stats();
            println!(
                "{:28} {math:?}: {:.1} ms, {:.2} GMAC/s (first {first:.0} ms), processor \
                 {processor:.0} ms, {} launches, {} stalls, plan {} bytes",
                backend.name(),
                best * 1e3,
                macs as f64 / best / 1e9,
                stats.launches / stats.batches,
                stats.stalls,
                stats.plan_bytes,
            );
        }
    }
}
