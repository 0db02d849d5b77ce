//! Post-training quantisation: float graph and calibration images to a QDQ graph.
//!
//! First, channels between two layers are scaled against each other, so that their ranges are alike and
//! one scale fits all; what the network computes stays. Activations get one int8 scale a tensor, chosen by a
//! [`Method`] from histograms of all values that calibration images give; a Clip (ReLU6) that uses its range
//! keeps it whole. One that gains by it has a zero point ([`ZeroPoints`]). What a network ends with has no
//! scale where it joins values that are far apart, or the host computes it. Weights get one scale for each output
//! channel, or one a tensor ([`WeightScales`]), which the largest weight fills, or which makes the squared error
//! smallest ([`WeightMethod`]). In [`Mode::Shift`] all scales are powers of
//! two, those of weights chosen by squared error, so that requantising is one shift. Biases are int32 at
//! `s_x * s_w`, less what the rounded weights add to the mean of their channel. QuantizeLinear and
//! DequantizeLinear stand after the activation function of every operator, where other runtimes expect
//! them too. A [`report`] says what all that costs, layer by layer.

mod advice;
mod batchnorm;
mod calibration;
mod channels;
mod correct;
mod equalize;
mod error;
mod histogram;
mod insert;
mod method;
mod mode;
mod options;
mod report;
mod rounded;
mod scales;
mod slices;

use std::borrow::Cow;

use self::calibration::{Look, observe_as};
use crate::graph::{Graph, ValueId};

pub use batchnorm::fold_batchnorm;
pub use calibration::{Calibration, Observed, observe};
pub use error::QuantizeError;
use insert::Given;
pub use insert::apply;
pub(crate) use insert::apply_with;
pub use method::Method;
pub use mode::{Mode, WeightMethod, WeightScales, ZeroPoints};
pub use options::Options;
pub use report::{LayerError, Report, report};
pub use scales::{Scale, Scales, calibrate, choose, equal_scales};

/// Quantises a float graph with calibration images (preprocessed, float32, NCHW).
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize(graph: &Graph, images: &[Vec<f32>], mode: Mode) -> Result<Graph, QuantizeError> {
    Ok(quantize_network(graph, &images, &Options::new(mode))?.graph)
}

/// A quantised graph, and what is known of how it became one.
#[derive(Debug)]
pub struct Quantized {
    /// With QuantizeLinear and DequantizeLinear.
    pub graph: Graph,
    /// Pairs of layers that were equalised.
    pub equalized: usize,
    /// The float graph, rewritten as far as it is before it is quantised.
    source: Graph,
    /// What stands for those of its values that are rounded.
    rounded: Vec<Option<ValueId>>,
    scales: Scales,
    observed: Observed,
    options: Options,
}

/// [`quantize`] with images that are read as they are needed, of which memory and results don't depend on how many are
/// held at once, for a [`report`] on it. A graph that is given away isn't held beside what is made of it.
///
/// # Errors
/// [`QuantizeError`].
pub fn quantize_network<'g>(
    graph: impl Into<Cow<'g, Graph>>,
    images: &dyn Calibration,
    options: &Options,
) -> Result<Quantized, QuantizeError> {
    let graph = graph.into();
    let mut source = if batchnorm::is_possible(&graph) {
        Cow::Owned(fold_batchnorm(&graph)?)
    } else {
        graph
    };
    let equalizes = options.equalize && equalize::is_possible(&source);
    let of = if equalizes { 2 } else { 1 };
    let look = |index| Look { index, of };
    let mut observed = observe_as(&source, images, look(0))?;
    let mut equalized = 0;
    if equalizes {
        let (equal, pairs) = equalize::equalize(&source, &observed, options);
        (source, equalized) = (Cow::Owned(equal), pairs);
        observed = observe_as(&source, images, look(1))?;
    }
    let scales = choose(&source, &observed, options);
    let given = Given {
        scales: &scales,
        options,
        observed: Some(&observed),
        constants: &|_| None,
    };
    let (graph, rounded) = insert::apply_as(&source, &given)?;
    Ok(Quantized {
        graph,
        equalized,
        source: source.into_owned(),
        rounded,
        scales,
        observed,
        options: *options,
    })
}

/// The step of every tensor of [`stand_in`]: what int8 holds then is within 8 of 0, as most
/// activations are.
const STAND_IN: f32 = 1.0 / 16.0;

/// A float graph quantised without calibration: nodes and roundings are those of [`quantize`], but all
/// scales of activations are one. For what depends on the structure alone, as which nodes the device
/// computes.
///
/// # Errors
/// [`QuantizeError`], but for images.
pub fn stand_in(graph: &Graph) -> Result<Graph, QuantizeError> {
    let graph = fold_batchnorm(graph)?;
    apply(&graph, &equal_scales(&graph, STAND_IN), Mode::Multiply)
}
