//! Programs whose tiles repeat have the oracle's bits on every executor: all kernels, 1 to 8
//! threads, the cycle device and OpenCL.
//!
//! `VTA_PROGRAMS` says how many programs run (default 300), `VTA_SEED` which is the first:
//!
//! ```text
//! VTA_PROGRAMS=200000 cargo test --release -p vta-tests --test executors repeats -- --nocapture
//! ```

use std::ops::Range;
use std::sync::Arc;

use vta_driver::{Batch, Device, DeviceMemory, PhysAddr, Work, WorkDone};
use vta_hw_opencl::Structure;
use vta_isa::{Config, check};
use vta_sim::cycle::TimingConfig;
use vta_sim::hazards::{self, UopSource};
use vta_sim::{CycleLog, Execution, Executor, Functional, GemmKernel, Oracle, Planning, SimDevice};
use vta_tests::extended;
use vta_tests::opencl::backends;
use vta_tests::repeats::{Repeats, generate};

const CONFIGS: [&str; 4] = [
    "{}",
    r#"{"LOG_BLOCK": 2, "LOG_INP_BUFF_SIZE": 10, "LOG_WGT_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 12}"#,
    r#"{"LOG_BATCH": 1}"#,
    r#"{"LOG_BLOCK": 5}"#,
];

/// Threads of one batch at most.
const THREADS: usize = 8;

/// A byte of the region of each memory type that changes between two runs of a batch.
const CHANGED: [u64; 4] = [0x20_0003, 0x30_0005, 0x40_0002, 0x50_0007];

/// The seeds: `VTA_PROGRAMS` of them from `VTA_SEED`.
fn seeds() -> Range<u64> {
    let read = |name, default| match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text}: not a number")),
        Err(_) => default,
    };
    let first: u64 = read("VTA_SEED", 0);
    first..first + read("VTA_PROGRAMS", 300)
}

fn batch(program: &Repeats) -> Arc<Batch> {
    Arc::new(Batch {
        words: program.insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns: program.insns.clone(),
        insn_addr: PhysAddr(0x60_0000),
        marks: Vec::new(),
    })
}

/// Memory after a first run and, with some bytes changed, after a second one of the same batch.
fn run_twice(executor: &mut dyn Executor, program: &Repeats, batch: &Arc<Batch>) -> [Vec<u8>; 2] {
    let mut memory = program.memory();
    [0, 1].map(|run| {
        if run == 1 {
            for addr in CHANGED {
                memory.write(addr, 1).unwrap()[0] ^= 0x55;
            }
        }
        let report = executor.run_batch(batch, &mut memory).unwrap();
        assert_eq!(report.leftover_tokens, [0; 4]);
        program.contents(&memory)
    })
}

fn assert_same(found: &[u8], expected: &[u8], program: &Repeats, what: &str) {
    let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) else {
        assert_eq!(found.len(), expected.len());
        return;
    };
    let text: String = program.insns.iter().map(|i| format!("\n{i}")).collect();
    panic!(
        "{what}: byte {at} is {}, not {}{text}",
        found[at], expected[at]
    );
}

/// Every kernel on one thread, and two to eight threads with a kernel each that depends on the
/// configuration: over the configurations each pair comes up.
#[test]
fn every_kernel_and_number_of_threads_is_the_oracle() {
    let kernels: Vec<_> = GemmKernel::ALL
        .into_iter()
        .filter(|k| k.supported())
        .collect();
    for keys in CONFIGS {
        let config = extended(keys, u64::MAX);
        let fast = |kernel| {
            let executor = Functional::with_kernel(config.clone(), kernel);
            executor.with_planning(Planning::AtOnce)
        };
        let mut oracle = Oracle::new(config.clone());
        let mut one: Vec<_> = kernels.iter().map(|&k| (k, fast(k))).collect();
        let own = CONFIGS.iter().position(|k| *k == keys).unwrap();
        let mut several = Vec::new();
        for &kernel in &kernels {
            several.push((kernel, 1, fast(kernel).with_planning(Planning::Again)));
        }
        for threads in 2..=THREADS {
            let kernel = kernels[(threads + own) % kernels.len()];
            let fast = fast(kernel).with_threads(threads).with_least_cost_ns(0);
            several.push((kernel, threads, fast));
        }
        for seed in seeds().filter(|s| *s as usize % CONFIGS.len() == own) {
            let program = generate(&extended(keys, seed / 4), seed);
            assert_eq!(check::check(&config, &program.insns), vec![], "seed {seed}");
            let batch = batch(&program);
            let expected = run_twice(&mut oracle, &program, &batch);
            let compare = |executor: &mut Functional, name: &str| {
                let found = run_twice(executor, &program, &batch);
                for (run, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let what = format!("seed {seed} of {keys}, run {run}, {name}");
                    assert_same(found, expected, &program, &what);
                }
            };
            for (kernel, executor) in &mut one {
                compare(executor, kernel.name());
            }
            // Executors keep their scratchpads from program to program, as the oracle does, so
            // all of them run all programs.
            for (kernel, threads, executor) in &mut several {
                compare(executor, &format!("{} on {threads} threads", kernel.name()));
            }
        }
    }
}

/// Runs once on a device; the bytes, or why it refuses.
fn run_on(device: &dyn Device, program: &Repeats) -> Result<Vec<u8>, String> {
    let submit = |work| device.submit(work).unwrap();
    for (addr, bytes) in &program.regions {
        let addr = PhysAddr(*addr);
        device.alloc_at(addr, bytes.len() as u64).unwrap();
        let data = bytes[..].into();
        submit(Work::Write { addr, data }).wait().unwrap();
    }
    let ran = submit(Work::Run(batch(program))).wait();
    let mut all = Vec::new();
    for (addr, bytes) in &program.regions {
        let (addr, size_bytes) = (PhysAddr(*addr), bytes.len() as u64);
        let WorkDone::Data(data) = submit(Work::Read { addr, size_bytes }).wait().unwrap() else {
            panic!("a read ends in data");
        };
        all.extend(data);
        device.free(addr).unwrap();
    }
    ran.map(|_| all).map_err(|e| e.to_string())
}

/// The oracle's bytes; it keeps its scratchpads between programs.
fn run_oracle(oracle: &mut Oracle, program: &Repeats) -> Vec<u8> {
    let mut memory = program.memory();
    oracle.run(&program.insns, &[], &mut memory).unwrap();
    program.contents(&memory)
}

fn has_hazard(config: &Config, program: &Repeats, memory: &DeviceMemory) -> bool {
    let uops = UopSource::Memory(memory);
    hazards::first_alu_hazard(config, &program.insns, uops).is_some()
}

#[test]
fn the_cycle_device_is_the_oracle_or_names_the_hazard() {
    let (mut ran, mut refused) = (0, 0);
    for (own, keys) in CONFIGS.iter().enumerate() {
        let config = extended(keys, u64::MAX);
        let log = CycleLog::default();
        let device = SimDevice::cycle(config.clone(), TimingConfig::pynq(), Execution::Full, log);
        let mut oracle = Oracle::new(config.clone());
        for seed in seeds().filter(|s| *s as usize % CONFIGS.len() == own) {
            let program = generate(&extended(keys, seed / 4), seed);
            let found = run_on(&device, &program);
            if has_hazard(&config, &program, &program.memory()) {
                let error = found.unwrap_err();
                assert!(error.contains("the RTL aborts: "), "seed {seed}: {error}");
                refused += 1;
                continue;
            }
            let expected = run_oracle(&mut oracle, &program);
            let what = format!("seed {seed} of {keys}, cycle");
            assert_same(&found.unwrap(), &expected, &program, &what);
            ran += 1;
        }
    }
    println!("cycle: {ran} programs ran, {refused} were refused for an ALU hazard");
    assert!(ran * 3 > refused, "{ran} ran, {refused} were refused");
}

/// On OpenCL each device runs every program with the first configuration.
#[test]
fn opencl_devices_are_the_oracle() {
    let config = extended("{}", u64::MAX);
    for backend in backends("programs whose tiles repeat") {
        // The interpreter of one work-item is slow on emulators; the throughput structure joins.
        let share = match backend.structure {
            Structure::Throughput => 1,
            Structure::Core | Structure::Channels => 8,
        };
        let device = backend.open(&config);
        let mut oracle = Oracle::new(config.clone());
        let mut programs = 0;
        for seed in seeds().filter(|s| s % share == 0) {
            let program = generate(&extended("{}", seed / 8), seed);
            let found = run_on(&device, &program).unwrap();
            let expected = run_oracle(&mut oracle, &program);
            let what = format!("seed {seed}, {}", backend.name());
            assert_same(&found, &expected, &program, &what);
            programs += 1;
        }
        println!("{}: {programs} programs", backend.name());
    }
}

/// What the suite is for comes up: tiles visited twice by an ALU instruction, the same loops
/// back to back, zero factors, overlapping rows.
#[test]
fn programs_have_what_they_are_for() {
    use vta_isa::Insn;
    let config = Config::default();
    let (mut back_to_back, mut still, mut overlapping) = (0, 0, 0);
    for seed in 0..200 {
        let insns = generate(&config, seed).insns;
        for pair in insns.windows(2) {
            if let [Insn::Alu(a), Insn::Alu(b)] = pair {
                let trips = u32::from(a.iter_out) * u32::from(a.iter_in);
                let same = (a.uop_bgn, a.uop_end) == (b.uop_bgn, b.uop_end)
                    && (a.dst_factor_out, a.dst_factor_in) == (b.dst_factor_out, b.dst_factor_in);
                back_to_back += u32::from(same);
                let zero = a.dst_factor_out == 0 && a.dst_factor_in == 0;
                still += u32::from(same && zero && trips > 1);
            }
            if let Insn::Store(store) = &pair[0] {
                overlapping += u32::from(store.y_size > 1 && store.x_stride < store.x_size);
            }
        }
    }
    assert!(back_to_back > 200, "{back_to_back}");
    assert!(still > 40, "{still}");
    assert!(overlapping > 40, "{overlapping}");
}
