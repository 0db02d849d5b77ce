//! From a quantised model to a program bundle.

use std::sync::Arc;

use vta_compiler::passes;
use vta_driver::Program;

use crate::compile;
use crate::error::{Context, Error, Result, bail};
use crate::files;
use crate::machine::Machine;
use crate::model::{self, Form};
use crate::options::{BundleOptions, Target};
use crate::preprocess::Preprocess;
use crate::watch::Watch;

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
    let mut target = Target {
        tiles: args.tiles.clone(),
        allow_host: args.allow_host,
        ..Target::default()
    };
    target.device.board.clone_from(&args.board);
    let compiled = compile::for_target(&target, integer, &machine.config).with_context(name)?;
    Ok(Bundle {
        bytes: compiled.to_bundle()?,
        host_ops: compiled.host_ops(),
        program: compiled.device_program()?,
    })
}
