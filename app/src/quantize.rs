//! From a float model to an int8 one that other runtimes load, too.

use vta_compiler::{onnx, passes};

use crate::error::{Context, Result};
use crate::images::Source;
use crate::options::QuantizeOptions;
use crate::preprocess::Preprocess;
use crate::watch::Watch;
use crate::{calibrate, model};

/// An int8 model.
pub struct Quantized {
    /// As ONNX with QuantizeLinear and DequantizeLinear, the recipe for images among its metadata.
    pub onnx: Vec<u8>,
    /// Of the graph.
    pub nodes: usize,
    /// Images that it was calibrated with.
    pub images: usize,
}

/// Quantises a float model; what comes out is known to compile.
///
/// # Errors
/// [`crate::Error::Io`] and [`crate::Error::Model`] for a file that can't be read or holds no model that can be
/// quantised, [`crate::Error::Input`] for images that can't be read or don't fit, [`crate::Error::Cancelled`]
/// when `watch` says so.
pub fn quantize(args: &QuantizeOptions, watch: &dyn Watch) -> Result<Quantized> {
    let mut graph = model::read_onnx(&args.model, &args.input_shape)?;
    let stated = graph.metadata.get("preprocess");
    let preprocess = Preprocess::choose(&args.preprocess, stated, watch)?;
    let mut pictures = Source::open(std::slice::from_ref(&args.calibration), args.limit)?;
    if let [input] = &model::inputs_of(&graph)[..] {
        pictures.shape(&input.shape)?;
    }
    graph
        .metadata
        .insert("preprocess".to_owned(), preprocess.to_json());
    let quantized = calibrate::quantize(&graph, &pictures, &preprocess, &args.quantize, watch);
    let quantized = quantized.with_context(|| args.model.display().to_string())?;
    // What is written is known to compile.
    passes::quantized(&quantized)?;
    Ok(Quantized {
        onnx: onnx::save(&quantized),
        nodes: quantized.nodes.len(),
        images: pictures.len(),
    })
}
