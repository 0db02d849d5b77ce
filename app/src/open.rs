//! What a run begins with: networks, the recipe for their inputs, programs written by hand.

pub(crate) mod known;
mod link;
pub(crate) mod model;
pub(crate) mod preprocess;
pub(crate) mod source;

pub use self::known::{DeviceEntry, Devices, Outline, board_json, boards, models, unit};
pub use self::link::playground;
pub(crate) use self::model::Network;
pub use self::model::{CIFAR10, Model, Port, Tensor, bundle_program, is_bundle, layer_or_network};
pub use self::preprocess::{Preprocess, to_steps};
pub(crate) use self::source::Source;
pub use self::source::{assembly, is_assembly};
