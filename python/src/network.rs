//! Networks: compiled, quantised, run, and where their cycles go.

pub mod compile;
mod pixels;
pub mod quantize;
pub mod report;
pub mod session;
