//! Networks: compiled, quantised, run, and where their cycles go.

pub mod compile;
pub mod cut;
mod pixels;
pub mod quantize;
pub mod report;
pub mod session;
