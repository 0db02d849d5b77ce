//! Building kernels, and what is kept of that on disk.

pub(crate) mod cache;
pub(crate) mod measured;
pub(crate) mod program;
