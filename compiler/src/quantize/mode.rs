//! Which scales there may be.

/// How scales are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Powers of two: the device requantises with a shift alone.
    Shift,
    /// Any scales: the device multiplies and shifts.
    Multiply,
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
