//! The original's runtime interface, `vta/runtime.h`.

mod calls;
mod kernel;
mod queue;

pub use calls::*;
