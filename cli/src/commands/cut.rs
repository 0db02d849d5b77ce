//! `vta cut`.

use anyhow::Result;
use vta_app::cut::{self, CutOptions};
use vta_files::output;

use crate::args::CutArgs;
use crate::terminal::say_written;

/// Writes a part of a model.
pub fn cut(args: &CutArgs) -> Result<bool> {
    let options = CutOptions {
        inputs: args.inputs.clone(),
        outputs: args.outputs.clone(),
        shapes: args.shape.all(),
    };
    let part = cut::cut(&args.model, None, options)?;
    output::write(&args.output, &part.onnx)?;
    let [nodes, all] = part.nodes;
    let (path, bytes) = (args.output.display(), part.onnx.len());
    say_written(
        &args.output,
        &format!("{path}: {nodes} of {all} nodes, {bytes} bytes"),
    )?;
    Ok(true)
}
