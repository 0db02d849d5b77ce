//! How a graph is quantised.

use super::error::QuantizeError;
use super::method::Method;
use super::mode::{Mode, WeightScales, ZeroPoints};
use crate::qgraph::Numbers as Activations;

/// How a graph is quantised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Which scales there may be.
    pub mode: Mode,
    /// How many bits activations have.
    pub activations: Activations,
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
            activations: Activations::Int8,
            method: Method::Mse,
            zero_points: ZeroPoints::Auto,
            weights: WeightScales::PerChannel,
            bias_correction: true,
            adaptive_rounding: true,
            equalize: true,
        }
    }

    /// With so many bits of activations, and the method that goes with them: int16 has steps for all values, of which
    /// nothing need be cut off.
    #[must_use]
    pub const fn with_activations(self, activations: Activations) -> Self {
        let method = match activations {
            Activations::Int8 => self.method,
            Activations::Int16 => Method::MinMax,
        };
        Self {
            activations,
            method,
            ..self
        }
    }

    /// Which activations have a zero point: of int16 none.
    pub fn zero_points(&self) -> ZeroPoints {
        match self.activations {
            Activations::Int8 => self.zero_points,
            Activations::Int16 => ZeroPoints::Symmetric,
        }
    }

    /// Whether what is asked goes together.
    ///
    /// # Errors
    /// [`QuantizeError::Options`].
    pub fn check(&self) -> Result<(), QuantizeError> {
        let fail = |text: &str| Err(QuantizeError::Options(text.to_owned()));
        match (self.activations, self.zero_points, self.method) {
            (Activations::Int16, ZeroPoints::Asymmetric, _) => {
                fail("int16 activations have no zero points: a range of one side has 32767 steps")
            }
            (Activations::Int16, _, Method::Entropy) => fail(
                "the method entropy is for the 128 levels of int8: int16 takes min-max, percentile or mse",
            ),
            _ => Ok(()),
        }
    }
}
