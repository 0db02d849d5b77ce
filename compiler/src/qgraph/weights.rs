//! Weights that graphs share.

use std::ops::Deref;
use std::sync::Arc;

/// Weights of a convolution, in the order that its operator says. All graphs that were made of one share
/// them: a clone copies nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights(Arc<Vec<i8>>);

impl Deref for Weights {
    type Target = [i8];

    fn deref(&self) -> &[i8] {
        &self.0
    }
}

impl From<Vec<i8>> for Weights {
    fn from(weights: Vec<i8>) -> Self {
        Self(Arc::new(weights))
    }
}
