//! The original's runtime interface, `vta/runtime.h`.

mod calls;
mod kernel;
mod known;
mod queue;
mod thread;

pub use calls::*;
