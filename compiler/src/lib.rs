//! From ONNX networks to VTA programs.
//!
//! [`onnx`] reads a model into a [`graph::Graph`]; [`quantize`] makes a float one QDQ;
//! [`passes`] turn QDQ into the fused integer graph ([`qgraph::QGraph`]), whose arithmetic
//! [`semantics`] plans and [`reference`](mod@reference) interprets; [`lower`] tiles it and emits
//! a [`vta_program::Program`]. [`engine`] runs ONNX operators on the host, [`host`] has the operators that the device lacks, [`placement`] spreads a
//! network over several devices and the host. [`reflect`] describes nodes of every form alike. [`tune`] measures tiles where the search only
//! estimates. [`zoo`] and [`layer`] have networks and layers with seeded data.
//!
//! ```
//! use vta_compiler::{layer, lower, reference};
//! use vta_isa::Config;
//!
//! let spec = layer::parse("conv:1,16,8,8,32,3,1,1")?;
//! let graph = layer::build(&spec, 1)?;
//! let program = lower::compile(&graph, &Config::default(), &lower::LowerOptions::default())?;
//! assert_eq!(program.layers.len(), 1);
//! let values = reference::run(&graph, &layer::input(&spec, 1, 0))?;
//! assert_eq!(values[1].len(), 32 * 8 * 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It runs nothing on a device: `vta-driver` does.
pub mod engine;
pub mod float;
pub mod graph;
pub mod host;
pub mod layer;
pub mod lower;
pub mod onnx;
mod operators;
pub mod passes;
pub mod placement;
pub mod qgraph;
pub mod quantize;
pub mod reference;
pub mod reflect;
mod refusals;
pub mod semantics;
pub mod tune;
pub mod zoo;
