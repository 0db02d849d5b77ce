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
//! let input = session.inputs()[0].clone();
//! let grey = vec![0.0; input.len()];
//! let feed = Feed { name: &input.name, values: Values::Real(grey.into()) };
//! let found = session.run(&[feed], &())?;
//! assert_eq!(found.outputs[0].images, 1);
//! # Ok::<(), vta_app::Error>(())
//! ```
//!
//! | to | there is |
//! |---|---|
//! | open a network, list networks, boards and devices | [`Model`], [`open`] |
//! | say how it is opened and where it runs | [`Target`], [`options`], [`device`] |
//! | read images and arrays | [`images`] |
//! | quantise a model | [`mod@quantize`] |
//! | compile it, write a bundle or a listing, see what passes and the fast executor make of it | [`compile`] |
//! | run it on arrays, compare it | [`Session`] |
//! | run images and rank labels, a layer, a program by hand, recorded programs | [`run`] |
//! | see where its cycles go | [`Report`], from [`Session::report`] |
//! | check it without running it | [`check`] |
//! | keep a part of it | [`mod@cut`] |
//! | vary machines, choose tiles, see how far layers are from the least that any tiling takes | [`sweep`] |
//!
//! Nothing here prints or knows of a terminal: long work tells a [`Watch`] how far it is and asks it
//! whether to go on. Errors are one type, [`Error`], split by cause; options
//! that they name have the name of the front that tells them ([`options::names`]).
//!
//! What it doesn't do: networks of several inputs, training, anything that `vta-driver` and
//! `vta-compiler` do alone.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "board", feature = "opencl", feature = "rtl")),
    allow(dead_code, reason = "only the devices that are left out read it")
)]

pub mod check;
pub mod compile;
pub mod cut;
pub mod device;
mod error;
pub mod files;
pub mod images;
pub mod open;
pub mod options;
pub mod quantize;
pub mod report;
mod room;
pub mod run;
pub mod sweep;
mod watch;

pub use compile::Compiled;
pub use error::{Error, Result, message};
pub use open::{Model, Tensor};
pub use options::Target;
pub use report::Report;
pub use run::{Feed, Output, Outputs, Session, Values};
pub use watch::Watch;
