//! `libvta`: what C and C++ programs link.
//!
//! | header | is |
//! |---|---|
//! | `vta.h` | networks on devices: open, set inputs, run, read outputs, count |
//! | `vta/driver.h` | the original's driver interface, for the original runtime and programs over it |
//! | `vta/runtime.h` | the original's runtime interface, for modules that its compiler made |
//!
//! What every layer shares is in [`error`], where no panic leaves a function of C, a call that fails says
//! why to its thread, and a status says of what class the failure is; and in [`raw`], which checks pointers.

mod api;
mod counters;
mod driver_api;
pub mod error;
mod failure;
mod last;
mod options;
pub mod raw;
mod runtime_api;
mod session;
mod tensor;
mod values;

pub use api::*;
pub use counters::Counters;
pub use driver_api::*;
pub use last::{vta_last_error, vta_last_status};
pub use options::Options;
pub use runtime_api::*;
pub use session::Session;
pub use tensor::{Tensor, Type};
