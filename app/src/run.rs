//! Running: networks on images and arrays, single layers, programs written by hand or recorded.

pub(crate) mod engine;
pub(crate) mod exec;
pub(crate) mod feeds;
pub mod layer;
pub(crate) mod network;
pub(crate) mod outcome;
pub(crate) mod outputs;
pub(crate) mod pool;
pub(crate) mod replay;
pub(crate) mod session;
pub(crate) mod supply;

pub use self::exec::{Done, Time, exec, insn_times};
pub use self::network::{Wanted, plans, run};
pub use self::outcome::{LayerRow, Outcome, counters_json, json};
pub use self::outputs::save;
pub use self::replay::replay;
pub use self::session::{Feed, Output, Outputs, Session, Values};
pub use self::supply::Images;
