//! Post-training quantisation: float graph and calibration images to a QDQ graph.
//!
//! Activations get one symmetric int8 scale a tensor, chosen to minimise the mean squared
//! error over values sampled from the calibration images; a Clip (ReLU6) that uses its range keeps it
//! whole. Weights get one scale for each output
//! channel (`multiply`) or powers of two a tensor (`shift`), chosen the same way; in `shift`
//! mode activation scales are powers of two as well, so that requantising is one shift. Biases
//! are int32 at `s_x * s_w`. QuantizeLinear and DequantizeLinear stand after the activation
//! function of every operator, where other runtimes expect them too.

mod batchnorm;
mod calibration;
mod error;
mod insert;
mod scales;

use crate::graph::Graph;

pub use batchnorm::fold_batchnorm;
pub use calibration::Calibration;
pub use error::QuantizeError;
pub use insert::apply;
pub use scales::{Mode, Scales, calibrate, calibrate_with, equal_scales};

/// Quantises a float graph with calibration images (preprocessed, float32, NCHW).
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Graph, QuantizeError> {
    quantize_with(graph, &images, mode)
}

/// [`quantize`] with images that are read as they are needed.
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize_with(
    graph: &Graph,
    images: &dyn Calibration,
    mode: Mode,
) -> Result<Graph, QuantizeError> {
    let graph = fold_batchnorm(graph)?;
    let scales = calibrate_with(&graph, images, mode)?;
    apply(&graph, &scales, mode)
}
