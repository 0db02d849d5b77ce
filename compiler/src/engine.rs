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
mod exact;
mod gaps;
pub(crate) mod interpolate;
mod model;
mod own;
mod parts;
mod stages;

use thiserror::Error;

use crate::graph::{Data, Element};

pub use library::add_product;
pub use model::model;
pub use stages::Engine;

/// A tensor of any shape, its last dimension the innermost.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions; none for a single value.
    pub shape: Vec<usize>,
    /// As many values as the product of the dimensions.
    pub data: Data,
}

/// Rows and columns of values that lie in steps: those of a matrix, of its transpose, or a part of either.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// All of them.
    pub values: &'a [f32],
    /// Rows, columns.
    pub sizes: [usize; 2],
    /// Values from one row to the next, and from one column to the next.
    pub strides: [usize; 2],
}

impl Tensor {
    /// The tensor in a larger one, with -1 where it isn't, or 0 in types that lack it; `None` for one that is larger.
    pub(crate) fn within(self, shape: &[usize]) -> Option<Self> {
        if self.shape == shape {
            return Some(self);
        }
        let Self { shape: own, data } = &self;
        let mut sides = own.iter().zip(shape);
        if own.len() != shape.len() || sides.any(|(own, side)| own > side) {
            return None;
        }
        // Where the rows of the last dimension begin.
        let length = own.last().copied().unwrap_or(1);
        let place = |row: usize| {
            let (mut rest, mut place, mut step) = (row * length, 0, 1);
            for (own, side) in own.iter().zip(shape).rev() {
                place += rest % own * step;
                rest /= own;
                step *= side;
            }
            place
        };
        fn placed<T: Copy>(
            data: &[T],
            fill: T,
            [length, count]: [usize; 2],
            place: impl Fn(usize) -> usize,
        ) -> Vec<T> {
            let mut all = vec![fill; count];
            for (row, values) in data.chunks_exact(length.max(1)).enumerate() {
                all[place(row)..][..length].copy_from_slice(values);
            }
            all
        }
        let sizes = [length, shape.iter().product()];
        let data = match data {
            Data::F32(v) => Data::F32(placed(v, -1.0, sizes, place)),
            Data::I8(v) => Data::I8(placed(v, -1, sizes, place)),
            Data::U8(v) => Data::U8(placed(v, 0, sizes, place)),
            Data::I16(v) => Data::I16(placed(v, -1, sizes, place)),
            Data::U16(v) => Data::U16(placed(v, 0, sizes, place)),
            Data::I32(v) => Data::I32(placed(v, -1, sizes, place)),
            Data::I64(v) => Data::I64(placed(v, -1, sizes, place)),
            Data::Bool(v) => Data::Bool(placed(v, false, sizes, place)),
        };
        let shape = shape.to_vec();
        Some(Self { shape, data })
    }
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

    /// The tensor, which has as many values as its shape says.
    ///
    /// # Errors
    /// [`EngineError::Length`].
    pub(crate) fn checked(self) -> Result<Self, EngineError> {
        let expected = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if expected == Some(self.data.len()) {
            return Ok(self);
        }
        Err(EngineError::Length {
            name: self.name.to_owned(),
            found: self.data.len(),
            expected: expected.unwrap_or(usize::MAX),
        })
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

/// What the library, whose integers have 32 bits, gives as int64, as truth values or as integers of 16 bits.
pub(crate) fn widened(data: Data, element: Element) -> Data {
    match (data, element) {
        (Data::I32(v), Element::I64) => Data::I64(v.into_iter().map(i64::from).collect()),
        (Data::I32(v), Element::I16) => Data::I16(v.into_iter().map(|x| x as i16).collect()),
        (Data::I32(v), Element::U16) => Data::U16(v.into_iter().map(|x| x as u16).collect()),
        (Data::I32(v), Element::Bool) => Data::Bool(v.into_iter().map(|x| x != 0).collect()),
        (data, _) => data,
    }
}
