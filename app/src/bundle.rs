//! From a quantised model to a program bundle.

use std::sync::Arc;

use vta_compiler::passes;
use vta_driver::Program;

use crate::compile;
use crate::error::{Context, Error, Result, bail};
use crate::machine::Machine;
use crate::model::{self, Form};
use crate::options::BundleOptions;
use crate::preprocess::Preprocess;
use crate::watch::Watch;
use crate::{files, tiles};

/// A compiled network as a file holds it.
pub struct Bundle {
    /// The file.
    pub bytes: Vec<u8>,
    /// What the device runs of it.
    pub program: Arc<Program>,
    /// Operators that the host computes.
    pub host_ops: usize,
}

/// Compiles a network for a machine. The bundle knows the recipe for images and the model's name,
/// not its path: the same model gives the same bytes wherever it lies.
///
/// # Errors
/// [`Error::Float`] for a float model, [`Error::Usage`] for one that is compiled already,
/// [`Error::Model`] for what can't be lowered, [`Error::Cancelled`] when `watch` says so.
pub fn bundle(args: &BundleOptions, watch: &dyn Watch) -> Result<Bundle> {
    let machine = Machine::read(args.machine())?;
    let mut graph = match model::load_with(&args.model, &args.input_shape)? {
        Form::Graph(graph) => *graph,
        Form::Program(_) | Form::Hosted(_) => bail!("{} is compiled already", args.model),
    };
    model::choose_requant(&mut graph, args.requant);
    if !model::is_quantized(&graph) {
        return Err(Error::Float(args.model.clone()));
    }
    let stated = graph.metadata.get("preprocess");
    let preprocess = Preprocess::choose(&args.preprocess, stated, watch)?;
    let name = || args.model.clone();
    let mut integer = passes::quantized(&graph).with_context(name)?;
    let facts = [
        ("preprocess".to_owned(), preprocess.to_json()),
        ("model".to_owned(), files::name(&args.model)),
    ];
    integer.metadata.extend(facts);
    if watch.cancelled() {
        return Err(Error::Cancelled);
    }
    let hosted = match args.allow_host {
        true => compile::hosted(&integer, &machine.config, &args.tiles).with_context(name)?,
        false => None,
    };
    if let Some(network) = hosted {
        let part = network.parts.first();
        let program = Arc::clone(&part.context("the network has no device")?.program);
        return Ok(Bundle {
            bytes: network.to_bytes()?,
            program,
            host_ops: network.host_ops(),
        });
    }
    let program = tiles::lower(&integer, &machine.config, &args.tiles, machine.named());
    let program = program.with_context(name)?;
    Ok(Bundle {
        bytes: program.to_bytes()?,
        program: Arc::new(program),
        host_ops: 0,
    })
}
