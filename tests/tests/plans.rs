//! What the fast executor makes of compiled layers: when the emitter or a fusion changes, the
//! difference of a plan shows here before it shows as lost speed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use vta_compiler::qgraph::QGraph;
use vta_compiler::{layer, lower, passes, zoo};
use vta_driver::{Device, QueueLimits, Session};
use vta_isa::Config;
use vta_sim::{GemmKernel, PlanLog, Planner, SimDevice};

/// The plans of all batches.
fn plans(graph: &QGraph, input: &[i16], kernel: GemmKernel) -> String {
    let config = Config::default();
    let options = lower::LowerOptions::default();
    let program = Arc::new(lower::compile(graph, &config, &options).unwrap());
    let log = PlanLog::default();
    let planner = Planner::new(config.clone(), kernel, log.clone());
    let device: Arc<dyn Device> = Arc::new(SimDevice::with_executor("plans", config, planner));
    let limits = QueueLimits::default();
    let mut session = Session::keeping_tensors(program, device, limits).unwrap();
    session.run(&[input]).unwrap();
    let listings = log.take().into_iter();
    listings.map(|plan| plan.unwrap().summary()).collect()
}

fn layer(spec: &str, kernel: GemmKernel) -> String {
    let spec = layer::parse(spec).unwrap();
    let graph = layer::build(&spec, 1).unwrap();
    plans(&graph, &layer::input(&spec, 1, 0), kernel)
}

#[test]
fn plans_of_resnet18s_convolutions() {
    for number in 1..=11 {
        let name = format!("resnet18.C{number}");
        insta::assert_snapshot!(name.clone(), layer(&name, GemmKernel::Avx512Vnni));
    }
    insta::assert_snapshot!("resnet18.C8_avx2", layer("resnet18.C8", GemmKernel::Avx2));
}

#[test]
fn plans_of_other_networks_layers() {
    for (name, spec) in [
        ("resnet50_narrowing", "conv:1,256,56,56,64,1,1,0"),
        ("resnet50_widening", "conv:1,128,28,28,512,1,1,0"),
        ("mobilenet_depthwise", "dw:1,256,28,28,3,1,1"),
        ("mobilenet_pointwise", "conv:1,256,14,14,512,1,1,0"),
        ("resnext50_groups", "conv:1,256,28,28,256,3,1,1,32"),
        ("dense", "gemm:1,512,1000"),
    ] {
        insta::assert_snapshot!(name, layer(spec, GemmKernel::Avx512Vnni));
    }
}

#[test]
fn plans_of_a_network() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let image = zoo::sample_image(224, 0).into_iter();
    let image: Vec<i16> = image
        .map(|v| i16::from((i16::from(v) - 128) as i8))
        .collect();
    insta::assert_snapshot!("resnet18", plans(&graph, &image, GemmKernel::Avx512Vnni));
}
