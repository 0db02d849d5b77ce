//! The engine of a build without the feature `host`: no model is ever loaded.

use std::borrow::Cow;
use std::convert::Infallible;

use super::{EngineError, Lent, Tensor};

/// No model.
#[derive(Debug)]
pub struct Engine(Infallible);

impl Engine {
    /// # Errors
    /// Always [`EngineError::Absent`].
    pub fn new<'m>(_: impl Into<Cow<'m, [u8]>>) -> Result<Self, EngineError> {
        Err(EngineError::Absent)
    }

    /// # Errors
    /// None: there is no engine that could be run.
    pub fn run(&self, _: &[Lent<'_>], _: &[&str]) -> Result<Vec<Tensor>, EngineError> {
        match self.0 {}
    }
}
