//! What one does with networks on the VTA, as a library: open one (an ONNX file, a compiled bundle,
//! a network of the zoo), compile it with measured tiles, place it, run it on arrays or images,
//! compare it with the reference, count its cycles and say where they go. The command line `vta` is
//! a thin layer of arguments and tables over this crate.
//!
//! ```
//! use vta_app::{Feed, Model, Session, Target, Values};
//!
//! let model = Model::open("demo")?;
//! let mut session = Session::open(model, &Target::named("sim"), &())?;
//! let input = session.inputs()?.remove(0);
//! let grey = vec![0.0; input.len()];
//! let feed = Feed { name: &input.name, values: Values::Real(grey.into()) };
//! let found = session.run(&[feed], &())?;
//! assert_eq!(found.outputs[0].images, 1);
//! # Ok::<(), vta_app::Error>(())
//! ```
//!
//! | to | there is |
//! |---|---|
//! | open a network | [`Model`] |
//! | say where it runs | [`Target`] |
//! | compile and run it, compare it | [`Session`] |
//! | see where its cycles go | [`Report`], from [`Session::report`] |
//! | run images and rank labels, as `vta run` does | [`run::run`] |
//! | run a layer, quantise a model, write a bundle | [`layer::run`], [`quantize::quantize`], [`bundle::bundle`] |
//! | see what passes and the fast executor make of a network | [`dump`], [`Session::plans`] |
//! | list networks, boards and devices | [`known`] |
//! | check, replay and run programs by hand | [`check`], [`replay_rtl`], [`exec`] |
//! | compare a design with the cycle model | [`rtl`] |
//! | write down what each instruction does, and prove that nothing is left out | [`listing`] |
//! | vary machines, choose tiles | [`sweep`], [`tune`] |
//!
//! Nothing here prints or knows of a terminal: long work tells a [`Watch`] how far it is and asks it
//! whether to go on. Errors are one type, [`Error`], split by cause; options
//! that they name have the name of the front that tells them ([`options::names`]).
//!
//! What it doesn't do: networks of several inputs, training, anything that `vta-driver` and
//! `vta-compiler` do alone.
#![forbid(unsafe_code)]

mod ahead;
pub mod bundle;
mod calibrate;
pub mod check;
pub mod compile;
pub mod cycle;
pub mod device;
pub mod dump;
mod engine;
pub mod error;
pub mod exec;
mod feeds;
pub mod files;
pub mod hints;
pub mod host_share;
pub mod images;
pub mod known;
pub mod layer;
pub mod listing;
mod listing_html;
pub mod machine;
pub mod model;
pub mod options;
pub mod outcome;
pub mod outputs;
mod pool;
pub mod preprocess;
pub mod quantize;
pub mod replay_rtl;
pub mod report;
pub mod report_html;
pub mod room;
pub mod rtl;
pub mod run;
pub mod session;
pub mod source;
mod supply;
pub mod sweep;
pub mod tiles;
pub mod timed;
pub mod topology;
pub mod trace;
pub mod tune;
pub mod watch;

pub use compile::Compiled;
pub use error::{Error, Result};
pub use model::{Model, Tensor};
pub use options::Target;
pub use report::Report;
pub use session::{Feed, Output, Outputs, Session, Values};
pub use supply::Images;
pub use watch::Watch;
