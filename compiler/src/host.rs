//! What the host computes: the parts of networks that the device has no operation for.
//!
//! A [`Segment`] reads and writes int8 tensors like any layer: it dequantises its inputs, computes in
//! float32 by the [`engine`](crate::engine), and quantises the results as QuantizeLinear does, dividing
//! by the scale and rounding half to even. The reference interpreter and the driver run the same
//! segment. [`Ends`] stand between a caller's values and the int8 tensors of the whole network.

mod ends;
mod error;
mod model;
mod segment;
mod view;

pub use ends::{EndModel, EndOutput, Ends, Read};
pub use error::HostError;
pub use segment::Segment;
pub(crate) use view::View;
