//! From ONNX networks to VTA programs.
pub mod graph;
pub mod qgraph;
