//! Commands whose work is in `vta-app`: arguments in, tables and JSON out.

pub mod boards;
pub mod check;
pub mod compile;
pub mod costs;
mod coverage;
pub mod cut;
pub mod exec;
pub mod explore;
pub mod layer;
pub mod listing;
pub mod models;
pub mod quantize;
pub mod replay;
pub mod run;
pub mod shell;
pub mod sweep;
