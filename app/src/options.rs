//! What a caller asks for, as plain data. A [`Target`] can be stored and sent, with what isn't given at its
//! default.
//!
//! Python and C learn an option's name when they run, and set it through [`Target::slot`]. The command line knows
//! its arguments when it is compiled: `clap` declares them there with their help, and the compiler checks the fields
//! that they go to. This crate has no `clap`, so that Python's and C's libraries don't build it.

pub(crate) mod hints;
pub mod names;
mod network;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vta_compiler::quantize::{self, Mode};
use vta_compiler::semantics::Requant;
use vta_driver::Budget;

pub use self::hints::did_you_mean;
pub use self::network::{Slot, named};
use crate::open::Preprocess;

/// A `vta_config.json`, or what stands in one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigSource {
    /// The file.
    File(PathBuf),
    /// Its keys. Those that are absent have the value of the board, or of the default instance.
    Keys(Map<String, Value>),
}

impl From<PathBuf> for ConfigSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

/// Where a program runs, and how a network is opened and compiled for that; by default on the fast simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Target {
    /// `sim`, `cycle`, `oracle`, `opencl[:SEL]`, `board:NAME` or `rtl:LIB.so`; several with commas
    /// between, where a network may be spread: the first runs what no placement puts elsewhere.
    pub device: String,
    /// Bitstream for an OpenCL device that takes no source.
    pub bitstream: Option<PathBuf>,
    /// What an OpenCL device reads weights and inputs as, `weights=SCOPE,activations=SCOPE`, of
    /// buffer, constant, image and image2d; `None` is what was measured to be faster there, or else buffers.
    pub scope: Option<String>,
    /// A `vta_config.json`, or its keys; `None` is what the board has, or the default instance, 1x16x16.
    pub config: Option<ConfigSource>,
    /// The board: a preset's name or a TOML file; `None` is a machine of one's own, or with the devices
    /// `board:pynq` and `board:de10` and no configuration the board of that name.
    pub board: Option<String>,
    /// Timing of the device `cycle` without a board: a preset's name or a TOML file; `None` is
    /// `pynq`.
    pub timing: Option<String>,
    /// What a batch may ask for; a program that asks for more is refused.
    pub budget: Budget,
    /// What the device `rtl` is compared with, batch by batch: `cycle`.
    pub against: Option<String>,
    /// A waveform for the library of the device `rtl` to write.
    pub wave: Option<PathBuf>,
    /// Count cycles and compute nothing, on the device `cycle`.
    pub timing_only: bool,
    /// Don't take the time of runs on the device `sim`, of which nobody asks: that is a tenth of a short one.
    pub untimed: bool,
    /// A trace for ui.perfetto.dev to write, of the device `cycle`.
    pub trace: Option<PathBuf>,
    /// An HTML report to write, of the device `cycle`.
    pub report: Option<PathBuf>,
    /// Prices of operations and parts, in TOML, for estimates of energy and area; `None` are the built-in ones.
    pub costs: Option<PathBuf>,
    /// How fast the host is, in TOML, for estimates of what it takes; `None` is the built-in speed.
    pub host_speed: Option<PathBuf>,
    /// Tiles that were measured, in place of those that come with the compiler.
    pub tiles: Option<PathBuf>,
    /// Which layers run on which device: a TOML file of `"layer or pattern" = "device"`.
    pub placement: Option<PathBuf>,
    /// Let the host compute what no device has an operator for.
    pub allow_host: bool,
    /// Threads, at least 1; `None` is one for each core. An OpenCL device uses its cores by itself:
    /// they prepare its images.
    pub threads: Option<usize>,
    /// Runs in flight, at least 1; `None` is 1, and 2 where a device is an OpenCL device.
    pub batch: Option<usize>,
    /// Shapes of inputs that an ONNX model leaves open: see [`input_shape`].
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// How int32 sums become int8; `None` is what the model says.
    pub requant: Option<Requant>,
    /// How images become inputs, as far as it isn't as the model says.
    pub preprocess: Preprocess,
}

impl Default for Target {
    fn default() -> Self {
        Self::named("sim")
    }
}

impl Target {
    /// A device by name: see [`Target::device`]. Whether there is one shows when it is opened.
    pub fn named(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            bitstream: None,
            scope: None,
            config: None,
            board: None,
            timing: None,
            budget: Budget::default(),
            against: None,
            wave: None,
            timing_only: false,
            untimed: false,
            trace: None,
            report: None,
            costs: None,
            host_speed: None,
            tiles: None,
            placement: None,
            allow_host: false,
            threads: None,
            batch: None,
            shapes: BTreeMap::new(),
            requant: None,
            preprocess: Preprocess::default(),
        }
    }

    /// The names of the devices, in order.
    pub fn devices(&self) -> Vec<&str> {
        self.device.split(',').collect()
    }
}

/// The name and shape of an input whose dimensions a model leaves open: `NAME=1x3x224x224`, or the dimensions
/// alone for the only input, whose name is empty then. The batch is first, and each is at least 1.
///
/// # Errors
/// In words: what is no shape.
pub fn input_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    // Names of ONNX may have one themselves.
    let (name, sizes) = text.rsplit_once('=').unwrap_or(("", text));
    let size = |s: &str| s.parse::<usize>().ok().filter(|n| *n > 0);
    let shape: Option<Vec<usize>> = sizes.split('x').map(size).collect();
    let shape = shape.ok_or_else(|| {
        format!("'{sizes}' is no shape: sizes of at least 1 with x between, 1x3x224x224")
    })?;
    Ok((name.to_owned(), shape))
}

/// A run of a network on images.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// ONNX file, bundle, `demo` or `zoo:NAME`.
    pub model: String,
    /// How it is opened and compiled, and where it runs.
    pub target: Target,
    /// Images, folders of them and arrays; none for what the model brings along. `NAME=FILE` says which
    /// input a file is for, where the network has several.
    pub input: Vec<PathBuf>,
    /// Images to run at most.
    pub limit: Option<usize>,
    /// Labels that are told of each image, at least 1.
    pub top: usize,
    /// A file for the outputs: .npy of the only one, or .npz of all by their names.
    pub output: Option<PathBuf>,
    /// Logits of another runtime to compare labels with: `FILE.npz:ARRAY` or `FILE.npy`.
    pub reference: Option<String>,
    /// Compare every layer's output with the reference interpreter.
    pub verify: bool,
    /// Look for hazards before running.
    pub hazards: bool,
    /// Calibration images for a float model; `None` are the input images.
    pub calibration: Vec<PathBuf>,
    /// How a float model is quantised.
    pub quantize: Quantizing,
}

impl RunOptions {
    /// A run on the fast simulator with what the model brings along.
    pub fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            top: 5,
            ..Self::default()
        }
    }
}

/// How a float model is quantised, and on what it is compared with float.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantizing {
    /// What is done.
    pub options: quantize::Options,
    /// Whether another method of scales is taken where it loses less.
    pub choose_method: bool,
    /// Whether channels aren't equalised where that loses less.
    pub choose_equalize: bool,
    /// Images that are kept out of the calibration; `None` are a fifth, of 5 or more.
    pub held_out: Option<usize>,
    /// Nodes that stay in float, by their name or their output's. [`Self::AUTO`] alone are as few as reach the target.
    pub keep_float: Vec<String>,
    /// Layers whose weights have 4 bits: by their names or their outputs', `all`, or the last ones, as `last:2`.
    pub int4: Vec<String>,
    /// The least cosine of each output, and of classes the least agreement, that [`Self::AUTO`] is to reach.
    pub target: f64,
}

impl Quantizing {
    /// In place of names, nodes that are chosen.
    pub const AUTO: &str = "AUTO";

    /// The defaults of a mode.
    pub fn new(mode: Mode) -> Self {
        Self {
            options: quantize::Options::new(mode),
            choose_method: true,
            choose_equalize: true,
            held_out: None,
            keep_float: Vec::new(),
            int4: Vec::new(),
            target: 0.99,
        }
    }

    /// Whether nodes that stay in float are chosen.
    pub fn is_auto(&self) -> bool {
        self.keep_float == [Self::AUTO]
    }
}

impl Default for Quantizing {
    fn default() -> Self {
        Self::new(Mode::Multiply)
    }
}

/// A float model to quantise.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// Float ONNX file.
    pub model: PathBuf,
    /// Shapes of inputs whose dimensions the file leaves open.
    pub input_shape: BTreeMap<String, Vec<usize>>,
    /// Calibration images: a folder, an image or an array.
    pub calibration: Vec<PathBuf>,
    /// Images to compare with float on; none are some of those to calibrate with.
    pub held_out: Vec<PathBuf>,
    /// How it is quantised.
    pub quantize: Quantizing,
    /// Calibration images to use at most, with those that are kept out.
    pub limit: Option<usize>,
    /// How images become inputs, as far as it isn't as the model says.
    pub preprocess: Preprocess,
}

impl QuantizeOptions {
    /// A model with any scales and its own recipe, all images.
    pub fn new(model: impl Into<PathBuf>, calibration: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            input_shape: BTreeMap::new(),
            calibration: vec![calibration.into()],
            held_out: Vec::new(),
            quantize: Quantizing::default(),
            limit: None,
            preprocess: Preprocess::default(),
        }
    }
}
