//! Whole networks on the cycle engine: what a network's instructions take, and how fast the engine
//! tells.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use vta_compiler::qgraph::QGraph;
use vta_compiler::quantize::Mode;
use vta_compiler::{lower, passes, tune, zoo};
use vta_driver::{DeviceInfo, Program, QueueLimits, RunReport, Session, WorkerDevice};
use vta_isa::{Config, Insn, Opcode};
use vta_sim::cycle::{CycleReport, Silent, StallReason, TimingConfig, Unit, simulate};

/// The instructions of a network's one submission.
fn instructions(name: &str) -> Vec<Insn> {
    let graph = passes::quantized(&zoo::graph(name).unwrap()).unwrap();
    let options = lower::LowerOptions::default();
    let program = lower::compile(&graph, &Config::default(), &options).unwrap();
    recorded(&graph, program)
}

fn recorded(graph: &QGraph, program: Program) -> Vec<Insn> {
    let config = program.config.clone();
    let batches = Arc::new(Mutex::new(Vec::new()));
    let info = DeviceInfo {
        name: "recorder".to_owned(),
        config,
    };
    let recorder = {
        let batches = Arc::clone(&batches);
        WorkerDevice::new(
            info,
            Box::new(move |batch, _| {
                batches.lock().unwrap().push(batch.insns.to_vec());
                Ok(RunReport::default())
            }),
        )
    };
    let program = Arc::new(program);
    let mut session = Session::new(program, Arc::new(recorder), QueueLimits::default()).unwrap();
    let [c, h, w] = graph.tensors[graph.inputs[0].0].chw;
    session.run(&[&vec![0; c * h * w]]).unwrap();
    let mut batches = batches.lock().unwrap();
    assert_eq!(batches.len(), 1);
    batches.remove(0)
}

/// With the tiles that are shipped, in cycles of `pynq` for each GEMM step of the mathematics.
#[test]
fn resnet18_takes_little_more_than_its_gemm_steps() {
    for (mode, most) in [(Mode::Shift, 1.08), (Mode::Multiply, 1.12)] {
        let graph = zoo::graph_with("resnet18", mode).unwrap();
        let graph = passes::quantized(&graph).unwrap();
        let (config, options) = (Config::default(), lower::LowerOptions::default());
        let cache = tune::shipped().unwrap();
        let tiles = tune::tiles(&cache, &graph, &config, &options, "pynq").unwrap();
        let program = lower::compile_with(&graph, &config, &options, &tiles).unwrap();
        let steps: u64 = program.layers.iter().map(|l| l.steps.dense).sum();
        assert_eq!(steps, 7_127_008);
        let insns = recorded(&graph, program);
        let report = simulate(&TimingConfig::pynq(), &config, &insns, 0, &mut Silent).unwrap();
        let ratio = report.cycles as f64 / steps as f64;
        assert!(
            ratio < most,
            "{mode:?}: {} cycles, {ratio:.3}",
            report.cycles
        );
    }
}

fn check(report: &CycleReport, insns: &[Insn]) {
    for unit in Unit::ALL {
        let stalls = report
            .stalls
            .iter()
            .filter(|s| s.unit == unit && s.reason.is_idle());
        let idle: u64 = stalls.map(|s| s.cycles).sum();
        assert_eq!(idle + report.busy[unit as usize], report.cycles, "{unit:?}");
    }
    let steps = |insn: &Insn| match insn {
        Insn::Gemm(gemm) => gemm.steps(),
        _ => 0,
    };
    assert_eq!(report.gemm_uops, insns.iter().map(steps).sum::<u64>());
    assert_eq!(report.leftover_tokens, [0; 4]);
    assert!(report.busy[Unit::Compute as usize] > report.gemm_uops);
    assert_eq!(
        report.stall(Unit::Compute, StallReason::Ended),
        0,
        "FINISH is compute's"
    );
}

#[test]
fn resnet18_adds_up_on_both_boards() {
    let insns = instructions("resnet18");
    assert_eq!(insns.last().unwrap().opcode(), Opcode::Finish);
    for name in TimingConfig::PRESETS {
        let timing = TimingConfig::preset(name).unwrap();
        let begin = Instant::now();
        let report = simulate(&timing, &Config::default(), &insns, 0, &mut Silent).unwrap();
        let seconds = begin.elapsed().as_secs_f64();
        check(&report, &insns);
        println!(
            "resnet18 on {name}: {} instructions, {} cycles, {:.0} million simulated cycles a \
             second",
            insns.len(),
            report.cycles,
            report.cycles as f64 / seconds / 1e6
        );
        for s in &report.stalls {
            println!(
                "  {:8} {:32} {:>12}",
                s.unit.name(),
                s.reason.to_string(),
                s.cycles
            );
        }
    }
}
