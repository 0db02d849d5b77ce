//! Operators that the host computes: what networks have between layers that the device has no
//! operation for.
//!
//! A host operator reads and writes int8 tensors like any other: it dequantises its inputs,
//! computes in float64, and quantises the result as QuantizeLinear does, rounding half to even.
//! The reference interpreter and the driver call the same code. [`exp`] takes only additions,
//! multiplications and divisions, so that the bits are the same on every machine.

mod bits;
mod call;
mod operator;

pub use call::{HostCall, Operand};
pub use operator::{HostError, HostOp, exp};
