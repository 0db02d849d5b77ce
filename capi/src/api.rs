//! The functions of `vta.h`. What they promise of pointers stands in the header's introduction
//! (`cbindgen.toml`): each is NULL, or points to what its function says.

mod describe;
mod open;
mod run;

pub use describe::*;
pub use open::*;
pub use run::*;
