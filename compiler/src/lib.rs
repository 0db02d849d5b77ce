//! From ONNX networks to VTA programs.
pub mod graph;
pub mod qgraph;
pub mod reference;
pub mod semantics;
