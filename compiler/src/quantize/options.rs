//! How a graph is quantised.

use super::method::Method;
use super::mode::{Mode, WeightScales, ZeroPoints};

/// How a graph is quantised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Which scales there may be.
    pub mode: Mode,
    /// How those of activations are chosen.
    pub method: Method,
    /// Which activations have a zero point other than 0.
    pub zero_points: ZeroPoints,
    /// How many weights share a scale.
    pub weights: WeightScales,
    /// Whether biases take off what rounded weights add to the mean of a channel.
    pub bias_correction: bool,
    /// Whether weights are rounded so that their errors cancel on what calibration images give a layer.
    pub adaptive_rounding: bool,
    /// Whether channels between two layers are scaled so that their ranges are alike, which takes a
    /// second look at the images.
    pub equalize: bool,
}

impl Options {
    /// The defaults of a mode.
    pub const fn new(mode: Mode) -> Self {
        Self {
            mode,
            method: Method::Mse,
            zero_points: ZeroPoints::Auto,
            weights: WeightScales::PerChannel,
            bias_correction: true,
            adaptive_rounding: true,
            equalize: true,
        }
    }
}
