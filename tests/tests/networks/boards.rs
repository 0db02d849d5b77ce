//! Networks for boards with the original RTL: what they use, their cycles, their bits.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use vta_compiler::qgraph::QGraph;
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{lower, onnx, passes, reference, tune, zoo};
use vta_driver::{
    Batch, Device, DeviceInfo, DeviceMemory, Program, QueueLimits, RunReport, Session, Work,
    WorkerDevice,
};
use vta_hw_opencl::Structure;
use vta_isa::{Config, Insn, MemType, Opcode, asm, check};
use vta_sim::cycle::{Silent, simulate};
use vta_sim::hazards::{self, UopSource};
use vta_sim::{Board, CycleLog, CycleMachine, Execution, SimDevice};
use vta_tests::cifar::{self, IMAGENET};

fn shift(name: &str) -> QGraph {
    passes::quantized(&zoo::graph_with(name, Mode::Shift).unwrap()).unwrap()
}

/// The demo's float model with scales that are powers of two.
fn demo() -> QGraph {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let float = onnx::load(&std::fs::read(models.join("resnet20_f32.onnx")).unwrap()).unwrap();
    let pixels: Vec<u8> = cifar::array(&models.join("cifar10_calib128.npz"), "images");
    let images = pixels.chunks(3072).take(8);
    let images: Vec<_> = images.map(|image| IMAGENET.input(image, 32)).collect();
    passes::quantized(&quantize::quantize(&float, &images, Mode::Shift).unwrap()).unwrap()
}

/// With the tiles that come with the compiler, as the command line compiles.
fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    let options = lower::LowerOptions::default();
    let cache = tune::shipped().unwrap();
    let tiles = tune::tiles(&cache, graph, config, &options, "pynq").unwrap();
    Arc::new(lower::compile_with(graph, config, &options, &tiles).unwrap())
}

fn image(graph: &QGraph) -> Vec<i16> {
    let [c, h, w] = graph.tensors[graph.inputs[0].0].chw;
    let pixels = zoo::sample_image(h.max(w), 1);
    let pixel = |i: usize| (i16::from(pixels[i]) - 118) * 2 / 3;
    (0..c * h * w).map(pixel).collect()
}

/// What a device gets of a run, after it has been looked at: the instructions of all batches.
fn listing(program: &Arc<Program>) -> Vec<Insn> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let (sink, config) = (Arc::clone(&all), program.config.clone());
    let info = DeviceInfo {
        name: "listing".to_owned(),
        config: config.clone(),
    };
    let runner = move |batch: &Arc<Batch>, memory: &mut DeviceMemory| {
        let known = |memory| UopSource::Memory(memory);
        let edges = hazards::deviations(&config, &batch.insns, known(memory));
        assert_eq!(edges.first().map(ToString::to_string), None);
        let hazard = hazards::first_alu_hazard(&config, &batch.insns, known(memory));
        assert_eq!(hazard.map(|h| h.to_string()), None);
        sink.lock().unwrap().extend(batch.insns.iter().copied());
        Ok(RunReport::default())
    };
    let device = WorkerDevice::new(info, Box::new(runner));
    let mut session = Session::new(
        Arc::clone(program),
        Arc::new(device),
        QueueLimits::default(),
    )
    .unwrap();
    let input = program.tensor(program.inputs[0]).unwrap();
    session.run(&[&vec![0; input.image_len()]]).unwrap();
    drop(session);
    let insns = all.lock().unwrap().clone();
    assert!(insns.iter().any(|i| i.opcode() == Opcode::Gemm));
    insns
}

/// One past the last micro-op of the scratchpad that instructions name.
fn micro_ops(insns: &[Insn]) -> u64 {
    let end = |insn: &Insn| match insn {
        Insn::Load(load) if load.mem == MemType::Uop => {
            u64::from(load.sram_base) + load.sram_tiles()
        }
        Insn::Gemm(gemm) => gemm.uop_end.into(),
        Insn::Alu(alu) => alu.uop_end.into(),
        Insn::Depthwise(insn) => insn.uop_end.into(),
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => 0,
    };
    insns.iter().map(end).max().unwrap_or(0)
}

/// The program of a network for `pynq`: at most 2048 micro-ops, no operation that the RTL lacks,
/// and at most 3 % more cycles than on the default machine with the same timing.
fn check_listing(name: &str) {
    let graph = shift(name);
    let board = Board::preset("pynq").unwrap();
    let cycles = |config: &Config| {
        let insns = listing(&compile(&graph, config));
        let report = simulate(&board.timing, config, &insns, 0, &mut Silent).unwrap();
        (insns, report.cycles)
    };
    let (insns, on_board) = cycles(&board.config);
    let used = micro_ops(&insns);
    assert!((1..=2048).contains(&used), "{name}: {used} micro-ops");
    let text: Vec<String> = insns.iter().map(ToString::to_string).collect();
    for lacking in ["alu.mul", "alu.shl", "load.acc8"] {
        let found = text.iter().find(|line| line.starts_with(lacking));
        assert_eq!(found, None, "{name}");
    }
    let found = check::check(&board.config, &insns);
    assert_eq!(found, [], "{name}");
    let (_, default) = cycles(&Config::default());
    let ratio = on_board as f64 / default as f64;
    println!("{name}:shift: {used} micro-ops, {on_board} cycles, {default} by default: {ratio:.4}");
    assert!(
        ratio <= 1.03,
        "{name}: {on_board} cycles, {default} by default"
    );
}

#[test]
fn resnet18_needs_what_pynq_has() {
    check_listing("resnet18");
}

#[test]
fn resnet50_needs_what_pynq_has() {
    check_listing("resnet50");
}

#[test]
fn mobilenet_needs_what_pynq_has() {
    check_listing("mobilenet-v1");
}

/// An image, and what the reference interpreter computes of it, layer by layer.
struct Expected {
    image: Vec<i16>,
    tensors: Vec<Vec<i16>>,
}

impl Expected {
    fn of(graph: &QGraph) -> Self {
        let image = image(graph);
        let tensors = reference::run(graph, &image).unwrap();
        Self { image, tensors }
    }

    /// Every layer on a device has these bits.
    fn check(&self, program: &Arc<Program>, device: Arc<dyn Device>) {
        let name = device.info().name.clone();
        let limits = QueueLimits::default();
        let mut session = Session::keeping_tensors(Arc::clone(program), device, limits).unwrap();
        session.run(&[&self.image]).unwrap();
        for layer in &program.layers {
            let got = session.read_tensor(layer.output).unwrap();
            let same = got[0] == self.tensors[layer.output as usize];
            assert!(same, "{name}: layer {}", layer.name);
        }
    }
}

fn cycle(board: &Board) -> Arc<dyn Device> {
    let machine = CycleMachine {
        config: board.config.clone(),
        timing: board.timing.clone(),
        core: board.core,
        budget: vta_driver::Budget::default(),
    };
    Arc::new(machine.device(Execution::Full, CycleLog::default()))
}

#[test]
fn the_demo_has_the_reference_bits_on_every_executor() {
    let graph = demo();
    let expected = Expected::of(&graph);
    for name in ["pynq", "de10", "f1"] {
        let board = Board::preset(name).unwrap();
        let program = compile(&graph, &board.config);
        expected.check(&program, cycle(&board));
        if name == "pynq" {
            let config = || board.config.clone();
            expected.check(&program, Arc::new(SimDevice::oracle(config())));
            expected.check(&program, Arc::new(SimDevice::functional(config())));
            for backend in vta_tests::opencl::backends("the demo for pynq") {
                expected.check(&program, Arc::new(backend.open(&board.config)));
            }
            // A machine with more runs it, too.
            expected.check(&program, Arc::new(SimDevice::functional(Config::default())));
        }
    }
}

/// The bits of a network for `pynq` on every executor, layer by layer; of OpenCL the structures that
/// do not take minutes for it on two cores.
fn check_executors(name: &str, structures: &[Structure]) {
    let board = Board::preset("pynq").unwrap();
    let graph = shift(name);
    let program = compile(&graph, &board.config);
    let expected = Expected::of(&graph);
    let config = || board.config.clone();
    expected.check(&program, Arc::new(SimDevice::oracle(config())));
    expected.check(&program, Arc::new(SimDevice::functional(config())));
    expected.check(&program, cycle(&board));
    let mut backends = vta_tests::opencl::backends(name);
    backends.retain(|backend| structures.contains(&backend.structure));
    for backend in backends {
        expected.check(&program, Arc::new(backend.open(&board.config)));
    }
}

#[test]
fn resnet18_has_the_reference_bits_on_every_executor() {
    check_executors("resnet18", &[Structure::Throughput]);
}

#[test]
fn resnet50_has_the_reference_bits_on_every_executor() {
    check_executors("resnet50", &[Structure::Throughput]);
}

#[test]
fn mobilenet_has_the_reference_bits_on_every_executor() {
    check_executors("mobilenet-v1", &[Structure::Throughput, Structure::Core]);
}

#[test]
fn networks_of_multiplications_are_refused_with_the_way_out() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let config = Board::preset("pynq").unwrap().config;
    let error = lower::compile(&graph, &config, &lower::LowerOptions::default());
    let error = error.unwrap_err().to_string();
    for part in [
        "nodes ",
        "no MUL",
        "a model quantised by powers of two",
        "zoo:NAME:shift",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let pac = Board::preset("pac").unwrap();
    assert!(lower::compile(&graph, &pac.config, &lower::LowerOptions::default()).is_ok());
}

#[test]
fn every_device_refuses_what_its_machine_lacks() {
    let config = Board::preset("pynq").unwrap().config;
    let mut devices: Vec<Arc<dyn Device>> = vec![
        Arc::new(SimDevice::oracle(config.clone())),
        Arc::new(SimDevice::functional(config.clone())),
        cycle(&Board::preset("pynq").unwrap()),
    ];
    for backend in vta_tests::opencl::backends("what a machine lacks") {
        devices.push(Arc::new(backend.open(&config)));
    }
    for device in devices {
        let name = device.info().name.clone();
        for (text, expected) in [
            ("load.acc8", Some("instruction 0 (load.acc8")),
            (
                "alu.mul imm=2 uop_end=1 iter_out=1 iter_in=1",
                Some("needs MUL"),
            ),
            (
                "alu.shl imm=2 uop_end=1 iter_out=1 iter_in=1",
                Some("needs SHL"),
            ),
            ("alu.shr imm=-2 uop_end=1 iter_out=1 iter_in=1", None),
        ] {
            let insns = asm::parse(&format!("{text}\nfinish")).unwrap();
            let work = Work::Run(Arc::new(Batch {
                words: insns.iter().map(|i| i.encode().unwrap()).collect(),
                insns,
                insn_addr: device.alloc(4096).unwrap(),
                marks: Vec::new(),
            }));
            let done = device.submit(work).and_then(|ticket| ticket.wait());
            match expected {
                None => assert!(done.is_ok(), "{name}: {text}: {}", done.unwrap_err()),
                Some(part) => {
                    let error = done.unwrap_err().to_string();
                    assert!(error.contains(part), "{name}: {text}: {error}");
                }
            }
        }
    }
}

/// Programs on which the RTL and the instruction set part: each that doesn't finish there is
/// named, and each that does has its cycles with the counts of the RTL.
#[test]
fn recorded_edges_of_the_rtl_are_told() {
    let Some(shared) = vta_tests::shared("conformance/rtl-edges") else {
        return;
    };
    let text = std::fs::read_to_string(shared.join("conformance/rtl-edges/edges.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let insn_addr = file["insn_addr"].as_u64().unwrap() as u32;
    let programs = file["programs"].as_array().unwrap();
    assert!(programs.len() >= 8);
    let board = Board::preset("pynq").unwrap();
    for program in programs {
        let name = program["name"].as_str().unwrap();
        let word = |w: &Value| u128::from_str_radix(w.as_str().unwrap(), 16).unwrap();
        let words = program["insns"].as_array().unwrap().iter().map(word);
        let insns: Vec<_> = words.map(|w| Insn::decode(w).unwrap()).collect();
        let edges = hazards::deviations(&board.config, &insns, UopSource::Unknown);
        let [edge] = &edges[..] else {
            panic!("{name}: {edges:?}");
        };
        let text = edge.to_string();
        match program["rtl"].as_str().unwrap() {
            "finishes" => {
                assert!(edge.what.finishes(), "{name}: {text}");
                let insns: Vec<_> = insns.iter().map(hazards::counts_on_rtl).collect();
                let report =
                    simulate(&board.timing, &board.config, &insns, insn_addr, &mut Silent).unwrap();
                assert_eq!(
                    Some(report.cycles),
                    program["rtl_cycles"].as_u64(),
                    "{name}"
                );
                assert_eq!(
                    Some(report.read_beats),
                    program["rdbeats"].as_u64(),
                    "{name}"
                );
            }
            "hangs" => assert!(text.contains("the RTL hangs on"), "{name}: {text}"),
            "aborts" => assert!(text.contains("the RTL aborts on"), "{name}: {text}"),
            other => panic!("{name}: {other}"),
        }
    }
}
