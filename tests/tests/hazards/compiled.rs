//! The compiler's output is clean; so are recorded runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vta_compiler::qgraph::QGraph;
use vta_compiler::quantize::Mode;
use vta_compiler::{layer, lower, onnx, passes, zoo};
use vta_driver::{Program, QueueLimits};
use vta_isa::Config;
use vta_sim::hazards::{self, BatchReport, Hazard};

use crate::kit::texts;

fn compile(graph: &QGraph, config: &Config) -> Arc<Program> {
    Arc::new(lower::compile(graph, config, &lower::LowerOptions::default()).unwrap())
}

/// Everything that was found, with its layer.
fn findings(batches: &[BatchReport]) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        let report = &batch.report;
        let text = |h: &Hazard| format!("{}: {h}", batch.layer(h.insn()).unwrap_or("?"));
        all.extend(report.hazards.iter().map(text));
        all.extend(report.notes.iter().map(ToString::to_string));
    }
    all
}

fn assert_clean(name: &str, program: &Arc<Program>, limits: QueueLimits) -> usize {
    let start = Instant::now();
    let batches = hazards::check_program(program, limits).unwrap();
    let insns: usize = batches.iter().map(|b| b.report.insns).sum();
    let found: u64 = batches.iter().map(|b| b.report.found).sum();
    let findings = findings(&batches);
    println!(
        "{name}: {} batch(es), {insns} instructions, {found} hazard(s), {:.0} ms",
        batches.len(),
        start.elapsed().as_secs_f64() * 1e3
    );
    findings.iter().take(5).for_each(|f| println!("    {f}"));
    assert!(
        findings.is_empty(),
        "{name}: {found} hazard(s): {:#?}",
        &findings[..1]
    );
    assert!(insns > program.layers.iter().map(|l| l.commands.len()).sum());
    batches.len()
}

#[test]
fn compiled_layers_are_clean() {
    let specs = layer::RESNET18.map(|(name, _)| format!("resnet18.{name}"));
    let more = ["gemm:1,512,1000", "gemm:64,100,33", "conv:1,3,9,11,5,3,2,1"].map(str::to_owned);
    for spec in specs.iter().chain(&more) {
        let parsed = layer::parse(spec).unwrap();
        let graph = layer::build(&parsed, 1).unwrap();
        for text in ["{}", r#"{"LOG_BLOCK": 5}"#] {
            let program = compile(&graph, &Config::from_json(text).unwrap());
            assert_clean(&format!("{spec} {text}"), &program, QueueLimits::default());
        }
    }
}

#[test]
fn the_compiled_demo_is_clean_in_one_batch_and_in_many() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo/resnet20.onnx");
    let graph = onnx::load(&std::fs::read(path).unwrap()).unwrap();
    let program = compile(&passes::quantized(&graph).unwrap(), &Config::default());
    assert_eq!(assert_clean("demo", &program, QueueLimits::default()), 1);
    let limits = QueueLimits {
        insns: 800,
        ..QueueLimits::default()
    };
    assert!(assert_clean("demo, cut", &program, limits) > 1);
}

#[test]
fn compiled_networks_of_the_zoo_are_clean() {
    for name in ["resnet18", "resnet50", "resnext50", "mobilenet-v1"] {
        let graph = passes::quantized(&zoo::graph(name).unwrap()).unwrap();
        let program = compile(&graph, &Config::default());
        assert_clean(&format!("zoo:{name}"), &program, QueueLimits::default());
    }
    let shift = zoo::graph_with("resnet18", Mode::Shift).unwrap();
    let program = compile(&passes::quantized(&shift).unwrap(), &Config::default());
    assert_clean("zoo:resnet18:shift", &program, QueueLimits::default());
}

#[test]
fn recorded_runs_are_checked_with_their_micro_ops() {
    let Some(shared) = vta_tests::shared("conformance") else {
        return;
    };
    let folders = ["tvm", "standalone-vta"].map(|f| shared.join("conformance").join(f));
    let entries = folders.iter().flat_map(|f| std::fs::read_dir(f).unwrap());
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    let cases = paths
        .iter()
        .filter(|p| p.is_dir() || p.extension().is_some_and(|e| e == "gz"));
    let mut total = 0;
    for case in cases.flat_map(|p| vta_replay::load(p).unwrap()) {
        let report = hazards::check_case(&case).unwrap();
        println!(
            "{}: {} instructions, {} hazard(s)",
            case.name, report.insns, report.found
        );
        for text in texts(&report).iter().take(2) {
            println!("    {text}");
        }
        assert!(report.notes.is_empty(), "{}: {:?}", case.name, report.notes);
        total += 1;
    }
    assert!(total >= 34, "{total}");
}
