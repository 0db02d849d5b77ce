//! Running: networks on images and arrays, single layers, programs written by hand or recorded.

pub(crate) mod engine;
pub(crate) mod exec;
pub(crate) mod feeds;
mod json;
pub mod layer;
mod marks;
pub(crate) mod network;
pub(crate) mod outcome;
pub(crate) mod outputs;
pub(crate) mod pool;
pub(crate) mod replay;
pub(crate) mod session;
pub mod steps;
pub(crate) mod supply;
pub(crate) mod values;
mod verify;

pub use self::exec::{Done, exec, exec_text};
pub use self::feeds::image_values;
pub use self::json::counters_json;
pub use self::network::{plans, run};
pub use self::outcome::{LayerRow, Outcome, rank};
pub use self::replay::replay;
pub use self::session::Session;
pub(crate) use self::supply::Images;
pub use self::values::{Feed, Output, Outputs, Values};
pub use crate::report::timed::insn_times;
