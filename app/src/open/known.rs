//! What there is without a file: networks, boards, devices of this machine.

use serde_json::{Value, json};
use vta_compiler::{lower, passes, zoo};
use vta_isa::{Extension, MemType};
use vta_sim::Board;

pub use vta_compiler::zoo::Outline;

pub use crate::device::opencl::DeviceEntry;

use crate::device::{board, opencl};
use crate::error::{Context, Result};
use crate::open::model;

/// The devices that are part of the program.
const BUILT_IN: [(&str, &str); 3] = [
    ("sim", "functional, fast"),
    ("cycle", "the same, with cycles of the hardware"),
    ("oracle", "functional, slow and obvious"),
];

/// The built-in networks: name, size and a remark.
///
/// # Errors
/// None that a user could cause.
pub fn models() -> Result<Vec<(String, Outline, &'static str)>> {
    let graph = model::demo()?;
    let network = passes::quantized(&graph)?;
    let input = network.inputs.first().context("the demo has no input")?;
    let demo = Outline {
        input: network.tensors[input.0].chw,
        layers: lower::layers(&network),
        macs: graph.macs(),
        weights: graph.weights(),
    };
    let mut all = vec![("demo".to_owned(), demo, "trained on CIFAR-10")];
    for name in zoo::NAMES {
        let outline = zoo::outline(name)?;
        all.push((format!("zoo:{name}"), outline, "seeded, 1000 classes"));
    }
    Ok(all)
}

/// The boards that have names.
///
/// # Errors
/// None that a user could cause.
pub fn boards() -> Result<Vec<Board>> {
    let boards = Board::PRESETS.into_iter().map(Board::preset);
    Ok(boards.collect::<Result<_, _>>()?)
}

/// Rows and columns of a board's matrix unit.
pub fn unit(board: &Board) -> String {
    let (batch, block) = (board.config.batch(), board.config.block());
    format!("{batch}x{block}x{block}")
}

/// A board of `vta boards --json`.
pub fn board_json(board: &Board) -> Value {
    let depth = |mem| board.config.depth(mem);
    let extensions = board.config.extensions();
    let extensions: Vec<_> = extensions.iter().map(Extension::name).collect();
    json!({
        "name": board.name, "unit": unit(board), "core": board.core.name(),
        "uops": depth(MemType::Uop), "inp_tiles": depth(MemType::Inp),
        "wgt_tiles": depth(MemType::Wgt), "acc_tiles": depth(MemType::Acc),
        "extensions": extensions, "clock_mhz": board.timing.clock_mhz,
    })
}

/// The devices of this machine.
pub struct Devices {
    /// Simulators: what `device` calls them, and what they are.
    pub built_in: Vec<(String, String)>,
    /// The presets of boards whose memory is here, likewise.
    pub boards: Vec<(String, String)>,
    /// Devices of OpenCL.
    pub opencl: Vec<DeviceEntry>,
    /// Why there are none of these.
    pub missing: Option<String>,
}

impl Devices {
    /// Looks for them.
    ///
    /// # Errors
    /// [`crate::Error::Device`] for drivers of OpenCL that fail.
    pub fn find() -> Result<Self> {
        let (opencl, missing) = opencl::found()?;
        let built_in = BUILT_IN.map(|(name, what)| (name.to_owned(), what.to_owned()));
        Ok(Self {
            built_in: built_in.into(),
            boards: board::found(),
            opencl,
            missing,
        })
    }

    /// The list of `vta devices --json`.
    pub fn json(&self) -> Value {
        let plain = self.built_in.iter().chain(&self.boards);
        let plain = plain.map(|(name, what)| json!({ "device": name, "name": what }));
        plain
            .chain(self.opencl.iter().map(opencl::object))
            .collect()
    }
}
