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
