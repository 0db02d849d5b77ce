//! From ONNX networks to VTA programs.
pub mod graph;
pub mod lower;
pub mod onnx;
pub mod passes;
pub mod qgraph;
pub mod reference;
pub mod semantics;
