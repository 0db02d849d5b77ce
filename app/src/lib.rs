//! What one does with networks on the VTA, as a library: open one (an ONNX file, a compiled bundle,
//! a network of the zoo), compile it with measured tiles, place it, run it on images, compare it
//! with the reference, count its cycles and say where they go. The command line `vta` is a thin
//! layer of arguments and tables over this crate.
//!
//! ```no_run
//! use vta_app::options::RunOptions;
//! use vta_app::run::{Wanted, run};
//!
//! let outcome = run(&RunOptions::new("demo"), Wanted::Labels, &())?;
//! let (class, confidence) = outcome.ranking(0)[0];
//! println!("{}: {} {confidence}", outcome.names[0], outcome.label(class));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here prints or knows of a terminal: long work tells a [`watch::Watch`] how far it is.
#![forbid(unsafe_code)]

pub mod check;
pub mod cycle;
pub mod exec;
pub mod files;
pub mod hints;
pub mod images;
pub mod machine;
pub mod model;
pub mod options;
pub mod outcome;
pub mod preprocess;
pub mod replay_rtl;
pub mod report_html;
pub mod run;
pub mod source;
pub mod sweep;
pub mod tiles;
pub mod timed;
pub mod trace;
pub mod watch;
