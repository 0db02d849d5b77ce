//! Copies beside batches, runs in flight, and batches of images on every OpenCL device of this
//! machine: the same bits as one after the other.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vta_compiler::qgraph::QGraph;
use vta_compiler::{lower, onnx, passes, reference};
use vta_driver::{
    Batch, Device, DeviceCounters, Lane, PhysAddr, Program, QueueLimits, Session, Ticket, Work,
    WorkDone,
};
use vta_hw_opencl::{Options, Structure};
use vta_isa::{Config, asm};
use vta_sim::{Executor, Oracle};
use vta_tests::opencl::{Backend, backends};
use vta_tests::programs::generate;

fn write(addr: u32, bytes: &[u8]) -> Work {
    Work::Write {
        addr: PhysAddr(addr),
        data: bytes.into(),
    }
}

fn read(addr: u32, size_bytes: usize) -> Work {
    Work::Read {
        addr: PhysAddr(addr),
        size_bytes: size_bytes as u64,
    }
}

fn bytes(ticket: Box<dyn Ticket>) -> Vec<u8> {
    match ticket.wait().unwrap() {
        WorkDone::Data(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn batch(text: &str) -> Work {
    let insns = asm::parse(text).unwrap();
    Work::Run(Arc::new(Batch {
        words: insns.iter().map(|i| i.encode().unwrap()).collect(),
        insns,
        insn_addr: PhysAddr(0),
        marks: vec![],
    }))
}

/// Doubles the tile at 0x1000 into 0x2000.
const DOUBLE: &str = "load.uop sram_base=0 dram_base=0xc00 y_size=1 x_size=1 x_stride=1
    load.acc8 sram_base=0 dram_base=0x100 y_size=1 x_size=1 x_stride=1
    alu.shl imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
    store sram_base=0 dram_base=0x200 y_size=1 x_size=1 x_stride=1 pop_prev push_prev
    finish pop_next";

#[test]
fn work_on_the_same_bytes_keeps_its_order_over_both_lanes() {
    for backend in backends("lanes") {
        let device = backend.open(&Config::default());
        for addr in [0x1000, 0x2000, 0x3000, 0x4000] {
            device.alloc_at(PhysAddr(addr), 0x1000).unwrap();
        }
        let double = batch(DOUBLE);
        let mut expected = Vec::new();
        let mut tickets = Vec::new();
        // Nothing is waited for, and every third copy shares its lane with the batches.
        for n in 0..60u8 {
            let lane = if n % 3 == 0 {
                Lane::Compute
            } else {
                Lane::Copy
            };
            let other = if n % 2 == 0 {
                Lane::Compute
            } else {
                Lane::Copy
            };
            device.submit_on(lane, write(0x1000, &[n; 16])).unwrap();
            device.submit_on(other, write(0x4000, &[n; 64])).unwrap();
            device.submit_on(lane, double.clone()).unwrap();
            tickets.push(device.submit_on(other, read(0x2000, 16)).unwrap());
            tickets.push(device.submit_on(lane, read(0x4000, 64)).unwrap());
            expected.extend([vec![2 * n; 16], vec![n; 64]]);
        }
        let got: Vec<_> = tickets.into_iter().map(bytes).collect();
        assert!(got == expected, "{}", backend.name());
        // New memory on either lane is zero, and takes over what was there.
        let far = device.alloc(64 << 20).unwrap();
        let zero = device.submit_on(Lane::Copy, read(far.0, 100)).unwrap();
        let kept = device.submit_on(Lane::Copy, read(0x2000, 16)).unwrap();
        assert_eq!(bytes(zero), [0; 100], "{}", backend.name());
        assert_eq!(bytes(kept), [118; 16], "{}", backend.name());
    }
}

#[test]
fn a_copy_ends_while_a_batch_runs() {
    for backend in backends("overlap") {
        // Two kernels at a time need two of the processor's cores.
        if backend.structure != Structure::Throughput || backend.entry.facts.compute_units < 2 {
            continue;
        }
        let device = backend.open(&Config::default());
        device.alloc_at(PhysAddr(0x1000), 0x1000).unwrap();
        device.alloc_at(PhysAddr(0x2000), 0x1000).unwrap();
        let wait = |ticket: Box<dyn Ticket>| ticket.wait().unwrap();
        // Some tenths of a second on one lane after another.
        let text = "gemm uop_end=200 iter_out=300 iter_in=300\nfinish";
        let overlaps = || {
            let long = device.submit(batch(text)).unwrap();
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    wait(long);
                    ended.store(true, Ordering::SeqCst);
                });
                for n in 0..4 {
                    let written = device.submit_on(Lane::Copy, write(0x2000, &[n; 16]));
                    wait(written.unwrap());
                    let copied = device.submit_on(Lane::Copy, read(0x2000, 16)).unwrap();
                    assert_eq!(bytes(copied), [n; 16]);
                }
                !ended.load(Ordering::SeqCst)
            })
        };
        // Other tests' kernels may have the cores for a while.
        let any = (0..8).any(|_| overlaps());
        assert!(any, "{}: copies wait for the batch", backend.name());
    }
}

fn demo() -> QGraph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    passes::quantized(&onnx::load(&std::fs::read(path).unwrap()).unwrap()).unwrap()
}

fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

fn image(seed: usize) -> Vec<i16> {
    (0..3072)
        .map(|i| i16::from(((i * 37 + seed * 101) % 255) as i8))
        .collect()
}

fn session(backend: &Backend, program: &Arc<Program>, options: Options) -> Session {
    let device = backend.open_with(&program.config, options).unwrap();
    Session::new(
        Arc::clone(program),
        Arc::new(device),
        QueueLimits::default(),
    )
    .unwrap()
}

#[test]
fn runs_in_flight_are_the_reference_and_are_counted() {
    let graph = demo();
    let program = compile(&graph, &Config::default());
    let images: Vec<_> = (0..6).map(image).collect();
    let expected: Vec<_> = images
        .iter()
        .map(|x| reference::run(&graph, x).unwrap()[graph.outputs[0].0].clone())
        .collect();
    let groups: Vec<Vec<&[i16]>> = images.iter().map(|x| vec![&x[..]]).collect();
    for backend in backends("runs in flight") {
        for (pinned, pack) in [(false, false), (true, false), (true, true)] {
            let options = Options {
                pinned: Some(pinned),
                pack: Some(pack),
                ..Options::from_env()
            };
            let mut session = session(&backend, &program, options);
            for in_flight in [1, 2, 3] {
                let before = session.device().counters().unwrap();
                let got = session.run_many(&groups, in_flight).unwrap();
                let got: Vec<_> = got.into_iter().map(|o| o.outputs[0][0].clone()).collect();
                let name = backend.name();
                assert!(got == expected, "{name}, {in_flight} in flight");
                let counted = session.device().counters().unwrap().since(&before);
                assert_eq!((counted.batches, counted.stalls), (6, 0), "{name}");
                assert!(counted.launches >= 6 && counted.kernel_ns.is_none());
                // Each result is read once.
                let size = program.tensor(program.outputs[0]).unwrap();
                let size = size.packed_bytes(&program.config).unwrap();
                assert_eq!(counted.bytes_from_device, 6 * size);
            }
            let before = session.device().counters().unwrap();
            session.run_many(&groups[..1], 1).unwrap();
            let counted = session.device().counters().unwrap().since(&before);
            let input = program.tensor(program.inputs[0]).unwrap();
            let input = match pack && backend.structure == Structure::Throughput {
                true => input.image_len() as u64,
                false => input.packed_bytes(&program.config).unwrap(),
            };
            let DeviceCounters {
                waits,
                copies,
                bytes_to_device,
                ..
            } = counted;
            // Only the input and the output travel: weights, instructions and plan are there.
            assert_eq!((waits, copies, bytes_to_device), (3, 2, input));
        }
    }
}

#[test]
fn images_of_one_run_are_the_reference() {
    let graph = demo();
    let keys = r#"{"LOG_BATCH": 2, "LOG_INP_BUFF_SIZE": 17, "LOG_ACC_BUFF_SIZE": 19}"#;
    let program = compile(&graph, &Config::from_json(keys).unwrap());
    let images: Vec<_> = (0..4).map(image).collect();
    let refs: Vec<&[i16]> = images.iter().map(Vec::as_slice).collect();
    for backend in backends("images of one run") {
        let mut session = session(&backend, &program, Options::from_env());
        let out = session.run(&refs).unwrap();
        for (got, image) in out.outputs[0].iter().zip(&images) {
            let expected = reference::run(&graph, image).unwrap();
            assert!(*got == expected[graph.outputs[0].0], "{}", backend.name());
        }
    }
}

#[test]
fn kernels_are_timed_when_asked() {
    let program = compile(&demo(), &Config::default());
    let image = image(1);
    for backend in backends("profiles") {
        let options = Options {
            profile: true,
            ..Options::from_env()
        };
        let mut session = session(&backend, &program, options);
        session.run(&[&image]).unwrap();
        let before = session.device().counters().unwrap();
        session.run(&[&image]).unwrap();
        let counted = session.device().counters().unwrap().since(&before);
        let kernels = counted.kernel_ns.unwrap();
        assert!(kernels > 0, "{}", backend.name());
    }
}

/// The GPU's single launch, on other devices a single work-group.
#[test]
fn a_batch_in_one_launch_is_the_oracles() {
    for backend in backends("one launch") {
        if backend.structure != Structure::Throughput {
            continue;
        }
        let options = Options {
            one_launch: Some(true),
            ..Options::from_env()
        };
        let config = Config::default();
        let device = backend.open_with(&config, options).unwrap();
        let mut oracle = Oracle::new(config.clone());
        for seed in 200..220 {
            let program = generate(&config, seed, 3);
            let mut memory = program.memory();
            oracle.run(&program.insns, &[], &mut memory).unwrap();
            for (addr, data) in program.regions() {
                let size = data.len() as u64;
                device.alloc_at(PhysAddr(*addr), size).unwrap();
                device.submit(write(*addr, data)).unwrap();
            }
            let words = program.insns.iter().map(|i| i.encode().unwrap()).collect();
            let run = Work::Run(Arc::new(Batch {
                words,
                insns: program.insns.clone(),
                insn_addr: PhysAddr(0),
                marks: vec![],
            }));
            let launches = device.counters().unwrap().launches;
            device.submit(run).unwrap().wait().unwrap();
            assert!(device.counters().unwrap().launches <= launches + 1);
            let mut got = Vec::new();
            for (addr, data) in program.regions() {
                got.extend(bytes(device.submit(read(*addr, data.len())).unwrap()));
                device.free(PhysAddr(*addr)).unwrap();
            }
            let right = got == program.contents(&memory);
            assert!(right, "{} seed {seed}", backend.name());
        }
    }
}
