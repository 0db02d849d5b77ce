//! The original's driver interface, `vta/driver.h`.

mod calls;
mod machine;
mod memory;

pub use calls::*;
