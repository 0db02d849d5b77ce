//! The library of a build without the feature `host`: no model is ever loaded.

use std::convert::Infallible;

use super::{EngineError, Lent, Matrix, Tensor};

/// No model.
#[derive(Debug)]
pub struct Library(Infallible);

/// # Panics
/// Always: there are no values to multiply without a run.
pub fn add_product(_: &mut [f32], _: Matrix<'_>, _: Matrix<'_>) {
    unreachable!("no model was run")
}

impl Library {
    /// # Errors
    /// Always [`EngineError::Absent`].
    pub fn new(_: Vec<u8>) -> Result<Self, EngineError> {
        Err(EngineError::Absent)
    }

    /// # Errors
    /// None: there is no model that could be run.
    pub fn run(&self, _: &[Lent<'_>], _: &[&str]) -> Result<Vec<Tensor>, EngineError> {
        match self.0 {}
    }
}
