//! What is measured: networks, images for them, and the simulator.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use vta_app::options::ConfigSource;
use vta_app::{Compiled, Model, Target};
use vta_compiler::zoo;
use vta_driver::{Device, Program};
use vta_isa::Config;
use vta_sim::{Functional, GemmKernel, Planning, SimDevice};

/// A network for a configuration, all of which a device computes; a bundle is for its own.
pub fn program(network: &str, config: &Config) -> Result<Arc<Program>> {
    let compiled = compiled(network, config)?;
    ensure!(
        compiled.split.is_none(),
        "{network}: the host computes some of its layers, so that it can only be run"
    );
    Ok(compiled.program)
}

/// The same, of whose layers the host may compute some.
pub fn compiled(network: &str, config: &Config) -> Result<Compiled> {
    let model = Model::open(network)?;
    ensure!(
        !model.is_float(),
        "{network} is a float model: run vta quantize first"
    );
    let keys = serde_json::from_str(&config.to_json())?;
    let target = Target {
        config: (!model.is_compiled()).then_some(ConfigSource::Keys(keys)),
        allow_host: !model.is_compiled(),
        ..Target::default()
    };
    Ok(model.compile(&target, &())?)
}

/// As many images as a run takes, all different.
pub fn images(program: &Program) -> Result<Vec<Vec<i16>>> {
    let images = (0..program.config.batch()).map(|seed| image(program, seed as u64));
    images.collect()
}

/// An image for the network's input.
pub fn image(program: &Program, seed: u64) -> Result<Vec<i16>> {
    let input = program.inputs.first().context("the program has no input")?;
    let [c, h, w] = program.tensor(*input)?.chw.map(|d| d as usize);
    let values = zoo::sample_image(h.max(w), seed).into_iter();
    let values = values.map(|v| i16::from(v) - 128).cycle();
    Ok(values.take(c * h * w).collect())
}

/// A device that runs each image on so many threads.
pub fn simulator(config: &Config, kernel: GemmKernel, threads: usize) -> Arc<dyn Device> {
    let executor = Functional::with_kernel(config.clone(), kernel).with_threads(threads);
    // Known programs are measured.
    let executor = executor.with_planning(Planning::AtOnce);
    let threads = executor.helpers();
    let device = SimDevice::with_executor("sim", config.clone(), executor);
    Arc::new(device.with_packing_threads(threads))
}
