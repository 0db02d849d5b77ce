//! The original's driver interface, `vta/driver.h`.

mod calls;
mod machine;
mod memory;
mod original;

pub use calls::*;
pub(crate) use calls::{told, told_each, with_machine};
pub(crate) use machine::{Machine, only_tokens};
pub(crate) use memory::freed;
