//! What is measured: networks, and images for them.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use vta_app::open::{Model, Network};
use vta_app::{Target, compile};
use vta_compiler::{passes, zoo};
use vta_driver::Program;
use vta_isa::Config;

/// A network for a configuration; a bundle is for its own.
pub fn program(network: &str, config: &Config) -> Result<Arc<Program>> {
    let model = Model::open(network)?;
    ensure!(
        !model.is_float(),
        "{network} is a float model: run vta quantize first"
    );
    Ok(match model.into_network() {
        Network::Graph(graph) => {
            let graph = passes::quantized(&graph)?;
            compile::for_target(&Target::default(), graph, config)?.program
        }
        Network::Compiled(compiled) if compiled.split.is_none() => compiled.program,
        Network::Compiled(_) => {
            bail!("{network}: the host computes some of its layers, so that it can only be run")
        }
    })
}

/// As many images as a run takes, all different.
pub fn images(program: &Program) -> Result<Vec<Vec<i8>>> {
    let images = (0..program.config.batch()).map(|seed| image(program, seed as u64));
    images.collect()
}

/// An image for the network's input.
pub fn image(program: &Program, seed: u64) -> Result<Vec<i8>> {
    let input = program.inputs.first().context("the program has no input")?;
    let [c, h, w] = program.tensor(*input)?.chw.map(|d| d as usize);
    let values = zoo::sample_image(h.max(w), seed).into_iter();
    let values = values.map(|v| (i16::from(v) - 128) as i8).cycle();
    Ok(values.take(c * h * w).collect())
}
