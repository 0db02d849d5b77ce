//! What people read: the network after each pass, a layer's program as text. `INSTA_UPDATE=always
//! cargo test -p vta-compiler --test listings` records a wanted change.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vta_compiler::semantics::Requant;
use vta_compiler::{layer, lower, onnx, passes};
use vta_isa::Config;

fn after_every_pass(requant: Requant) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo/resnet20.onnx");
    let mut graph = onnx::load(&std::fs::read(path).unwrap()).unwrap();
    let name = requant.name().to_owned();
    graph.metadata.insert(Requant::KEY.to_owned(), name);
    let mut text = String::new();
    passes::quantized_with(&graph, &mut |name, dump| {
        // The stem and the first two blocks show every kind of rewriting.
        let dump = dump();
        let head: Vec<_> = dump.lines().take(12).collect();
        text += &format!("== {name}\n{}\n", head.join("\n"));
    })
    .unwrap();
    text
}

#[test]
fn the_demo_after_every_pass() {
    insta::assert_snapshot!(after_every_pass(Requant::Precise));
}

#[test]
fn the_fast_demo_after_every_pass() {
    insta::assert_snapshot!(after_every_pass(Requant::Fast));
}

#[test]
fn the_program_of_a_small_convolution() {
    let graph = layer::build(&layer::parse("conv:1,32,6,6,32,3,1,1").unwrap(), 1).unwrap();
    let options = lower::LowerOptions::default();
    let program = lower::compile(&graph, &Config::default(), &options).unwrap();
    let lines: Vec<_> = program.layers[0]
        .commands
        .iter()
        .map(|c| c.insn.to_string())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
