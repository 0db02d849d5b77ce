//! The engine that computes ONNX operators on the host, in floats: a loaded model, and its runs.
//!
//! Its file `library.rs` is the only place that names the library behind it (`rten`; docs/host-engine.md says why it is
//! that one). Models are run as they stand, without fusions or folded constants, so that a value is the
//! same bits whether it is read in the middle of a network or is the output of a part of it. A
//! run computes on one thread, since the library's sums depend on how many share them: runs side by
//! side are how a caller uses more. Results are the same for every number of threads and
//! whatever else runs; on CPUs with other vector units they may differ in the last places of a float.
//!
//! # Memory
//! A run holds the model's constants, and of the values those that are asked for or still read.
//! Nothing limits them here: a caller that doesn't know the model bounds the shapes of its values first.

#[cfg(not(feature = "host"))]
#[path = "engine/absent.rs"]
mod library;
#[cfg(feature = "host")]
mod library;

mod composed;
mod cubic;
mod exact;
mod gaps;
mod model;
mod parts;

use thiserror::Error;

use crate::graph::{Data, Element};

pub use library::Engine;
pub use model::model;

/// A tensor of any shape, its last dimension the innermost.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions; none for a single value.
    pub shape: Vec<usize>,
    /// As many values as the product of the dimensions.
    pub data: Data,
}

/// A tensor that a run reads where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'t> {
    /// The value's name.
    pub name: &'t str,
    /// Dimensions.
    pub shape: &'t [usize],
    /// As many values as their product.
    pub data: &'t Data,
}

impl<'t> Lent<'t> {
    /// A whole tensor.
    pub fn of(name: &'t str, tensor: &'t Tensor) -> Self {
        Self {
            name,
            shape: &tensor.shape,
            data: &tensor.data,
        }
    }

    /// A tensor of its own.
    pub fn copied(&self) -> Tensor {
        Tensor {
            shape: self.shape.to_vec(),
            data: self.data.clone(),
        }
    }
}

/// What the engine can't load or run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model isn't one that can be run.
    #[error("the host can't load it: {0}")]
    Load(String),
    /// No value of the model has this name.
    #[error("the host's model has no value {0}")]
    Name(String),
    /// A tensor whose values aren't as many as its shape says.
    #[error("tensor {name} has {found} values, its shape {expected}")]
    Length {
        /// Its name.
        name: String,
        /// Values given.
        found: usize,
        /// Product of its dimensions, or the largest number there is.
        expected: usize,
    },
    /// The run stopped.
    #[error("the host can't compute it: {0}")]
    Run(String),
    /// The library isn't part of this build.
    #[error("the host computes nothing in this build, which lacks the feature `host`")]
    Absent,
    /// The system gives no thread to compute on.
    #[error("the system gives no thread for the host's layers")]
    Thread,
}

/// What the library, whose integers have 32 bits, gives as int64 or as truth values.
pub(crate) fn widened(data: Data, element: Element) -> Data {
    match (data, element) {
        (Data::I32(v), Element::I64) => Data::I64(v.into_iter().map(i64::from).collect()),
        (Data::I32(v), Element::Bool) => Data::Bool(v.into_iter().map(|x| x != 0).collect()),
        (data, _) => data,
    }
}
