//! Commands whose work is in `vta-app`: arguments in, tables and JSON out.

pub mod boards;
pub mod check;
pub mod exec;
pub mod run;
pub mod sweep;
