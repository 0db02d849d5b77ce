//! `vta quantize`.

use anyhow::Result;
use vta_app::quantize;
use vta_driver::output;

use crate::args::QuantizeArgs;
use crate::bar::Bar;
use crate::terminal::say_written;

/// Quantises a float model and writes it.
pub fn quantize(args: &QuantizeArgs) -> Result<bool> {
    let bar = Bar::new("images", 20, false);
    let quantised = quantize::quantize(&args.options(), &bar)?;
    bar.clear();
    output::write(&args.output, &quantised.onnx)?;
    let line = format!(
        "{}: {} nodes, {} bytes, calibrated with {} images",
        args.output.display(),
        quantised.nodes,
        quantised.onnx.len(),
        quantised.images
    );
    say_written(&args.output, &line)?;
    Ok(true)
}
