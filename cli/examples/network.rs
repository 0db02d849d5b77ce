//! From an ONNX file to a label through the library: read, compile, load, run, compare.
//!
//! `cargo run --release -p vta --example network` prints `class 3, bit for bit the reference's`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use image::imageops::FilterType;
use vta_compiler::{lower, onnx, passes, reference};
use vta_driver::{Device, QueueLimits, Session};
use vta_isa::Config;
use vta_sim::SimDevice;

/// Runs the demo's network on its picture of a cat.
fn main() -> Result<(), Box<dyn Error>> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let (class, same) = classify(&demo.join("resnet20.onnx"), &demo.join("cat.png"))?;
    let verdict = if same {
        "bit for bit the reference's"
    } else {
        "NOT the reference's"
    };
    println!("class {class}, {verdict}");
    Ok(())
}

/// The largest output, and whether all outputs are the reference interpreter's.
pub fn classify(model: &Path, picture: &Path) -> Result<(usize, bool), Box<dyn Error>> {
    // QDQ ONNX becomes a graph of integers, and that a program for one configuration.
    let config = Config::default();
    let graph = passes::quantized(&onnx::load(&std::fs::read(model)?)?)?;
    let program = lower::compile(&graph, &config, &lower::LowerOptions::default())?;
    let input = &program.tensors[program.inputs[0] as usize];

    // The picture as int8 in CHW order, by the recipe that the network was trained with.
    let [_, height, width] = input.chw;
    let fitted = image::open(picture)?.resize_to_fill(width, height, FilterType::Triangle);
    let rgb = fitted.into_rgb8();
    let (mean, std) = ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]);
    let mut values = Vec::new();
    for channel in 0..3 {
        for pixel in rgb.pixels() {
            let real = (f32::from(pixel.0[channel]) / 255.0 - mean[channel]) / std[channel];
            let steps = (real / input.scale).round_ties_even();
            values.push(steps.clamp(-128.0, 127.0) as i8);
        }
    }

    // A session loads the constants once; every run is one submission.
    let device: Arc<dyn Device> = Arc::new(SimDevice::functional(config));
    let mut session = Session::new(Arc::new(program), device, QueueLimits::default())?;
    let run = session.run(&[&values])?;
    let outputs = &run.outputs[0][0];
    let class = (0..outputs.len()).max_by_key(|i| outputs[*i]).unwrap_or(0);
    let expected = reference::run(&graph, &values)?;
    let last = graph.outputs[0].0;
    Ok((class, *outputs == expected[last]))
}
