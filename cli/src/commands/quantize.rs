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
    let quantized = quantize::quantize(&args.options(), &bar)?;
    bar.clear();
    output::write(&args.output, &quantized.onnx)?;
    let line = format!(
        "{}: {} nodes, {} bytes, calibrated with {} images",
        args.output.display(),
        quantized.nodes,
        quantized.onnx.len(),
        quantized.images
    );
    say_written(&args.output, &line)?;
    Ok(true)
}
