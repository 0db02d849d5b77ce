//! What OpenCL devices are measured with.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use vta_app::compile;
use vta_app::open::{self, Form};
use vta_compiler::zoo;
use vta_driver::Program;
use vta_isa::Config;

/// A network for a configuration; a bundle is for its own.
pub fn program(network: &str, config: &Config) -> Result<Arc<Program>> {
    Ok(match open::load(network)? {
        Form::Graph(graph) => {
            ensure!(
                open::is_quantized(&graph),
                "{network} is a float model: run vta quantize first"
            );
            Arc::new(compile::compile(&graph, config)?.1)
        }
        Form::Program(program) => Arc::new(*program),
        Form::Hosted(_) => bail!("{network}: {}", open::NOT_ALONE),
    })
}

/// As many images as a run takes, all different.
pub fn images(program: &Program) -> Result<Vec<Vec<i8>>> {
    let input = program.inputs.first().context("the program has no input")?;
    let spec = program.tensor(*input)?;
    let [c, h, w] = spec.chw.map(|d| d as usize);
    let image = |seed: usize| -> Vec<i8> {
        let values = zoo::sample_image(h.max(w), seed as u64);
        let values = values.iter().map(|&v| (i16::from(v) - 128) as i8);
        values.cycle().take(c * h * w).collect()
    };
    Ok((0..program.config.batch()).map(image).collect())
}
