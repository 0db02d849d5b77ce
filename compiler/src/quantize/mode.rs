//! Which scales there may be.

use std::fmt;

/// How scales are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Powers of two: the device requantises with a shift alone.
    Shift,
    /// Any scales: the device multiplies and shifts.
    Multiply,
}

/// How many bits activations have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// 8, as every device has them.
    #[default]
    Int8,
    /// 16, of devices whose inputs and outputs have as many. Weights have 8 or 4.
    Int16,
}

impl Activations {
    /// The last step on each side of 0.
    pub(super) const fn last(self) -> f64 {
        match self {
            Self::Int8 => 127.0,
            Self::Int16 => 32767.0,
        }
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int8 => "int8",
            Self::Int16 => "int16",
        })
    }
}

/// Which weights of a convolution or dense layer share a scale; in [`Mode::Shift`] all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightScales {
    /// Those of an output channel.
    PerChannel,
    /// All.
    PerTensor,
}

/// Which activations have a zero point other than 0, so that a range that isn't the same on both sides of
/// zero uses all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroPoints {
    /// None.
    Symmetric,
    /// All whose ranges aren't the same on both sides.
    Asymmetric,
    /// Those that gain more by it than it costs cycles.
    Auto,
}

/// What the integers of a tensor mean: `step * (value - zero)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Real value of one step.
    pub step: f32,
    /// The value that means 0; 0 for int16.
    pub zero: i8,
}

impl Scale {
    /// One whose 0 means 0.
    pub const fn symmetric(step: f32) -> Self {
        Self { step, zero: 0 }
    }
}
