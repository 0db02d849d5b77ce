//! `cargo bench -p vta-compiler --bench compile [-- NETWORK|FILE.onnx ..]`: milliseconds of each step from a network of
//! the zoo or an int8 file to its bundle, medians of five rounds with quartiles, and the most bytes that the
//! compiling thread has allocated at a time, for each weight.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::io;
use std::time::Instant;

use vta_compiler::graph::Graph;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::onnx;
use vta_compiler::{passes, tune, zoo};
use vta_isa::Config;

const ROUNDS: usize = 5;
const STEPS: [&str; 6] = ["make or read", "passes", "tiles", "lower", "write", "all"];

fn graph(name: &str) -> Graph {
    match name.ends_with(".onnx") {
        true => onnx::load(&std::fs::read(name).unwrap()).unwrap(),
        false => zoo::graph(name).unwrap(),
    }
}

/// Milliseconds of each step.
fn compile(name: &str) -> [f64; STEPS.len()] {
    let (config, options) = (Config::default(), LowerOptions::default());
    let start = Instant::now();
    let graph = graph(name);
    let made = start.elapsed();
    let network = passes::quantized(&graph).unwrap();
    drop(graph);
    let passed = start.elapsed();
    let shipped = tune::shipped().unwrap();
    let tiles = tune::tiles(&shipped, &network, &config, &options, "pynq").unwrap();
    let tiled = start.elapsed();
    let program = lower::compile_with(&network, &config, &options, &tiles).unwrap();
    let lowered = start.elapsed();
    program.image().unwrap().write_to(&mut io::sink()).unwrap();
    let all = start.elapsed();
    let steps = [
        made,
        passed - made,
        tiled - passed,
        lowered - tiled,
        all - lowered,
        all,
    ];
    steps.map(|step| step.as_secs_f64() * 1e3)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return; // `cargo test --benches` only wants to know that it starts.
    }
    let given = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'));
    let mut names: Vec<&str> = given.map(String::as_str).collect();
    if names.is_empty() {
        names = vec!["resnet18", "resnet50", "resnet152"];
    }
    println!("| network | {} | bytes a weight |", STEPS.join(" | "));
    println!("|---{}|---|", "|---".repeat(STEPS.len()));
    for name in names {
        let weights = graph(name).weights();
        let info = allocation_counter::measure(|| _ = compile(name));
        let rounds: Vec<_> = (0..ROUNDS).map(|_| compile(name)).collect();
        let cells = (0..STEPS.len()).map(|step| {
            let mut taken: Vec<f64> = rounds.iter().map(|round| round[step]).collect();
            taken.sort_by(f64::total_cmp);
            let [low, median, high] = [ROUNDS / 4, ROUNDS / 2, ROUNDS * 3 / 4].map(|at| taken[at]);
            format!("{median:.0} ({low:.0}, {high:.0})")
        });
        let cells: Vec<String> = cells.collect();
        let peak = info.bytes_max as f64 / weights as f64;
        println!("| {name} | {} | {peak:.2} |", cells.join(" | "));
    }
}
