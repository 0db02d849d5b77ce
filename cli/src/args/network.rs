//! Arguments of commands that take a network or a layer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use vta_app::Target;
use vta_app::open::Preprocess;
use vta_app::options::{QuantizeOptions, Quantizing, RunOptions, input_shape};
use vta_compiler::quantize::{Activations, Method, Mode, Options, WeightScales, ZeroPoints};
use vta_compiler::semantics::Requant;
use vta_driver::FlatCut;

use super::device::{BoardArgs, DeviceArgs, ViewArgs};

/// One of some values, each with its name and its help.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, T, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.map(|(name, _, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(move |given| {
        let found = values.iter().find(|(name, ..)| *name == given);
        found.map(|(_, value, _)| *value).ok_or("no such value")
    })
}

/// How images become the network's input.
#[derive(Args, Clone, Default)]
pub struct PreprocessArgs {
    /// Known recipe: (x * scale - mean) / std in RGB
    #[arg(long, value_parser = one_of([
        ("imagenet", "imagenet", "1/255, ImageNet's mean and standard deviation"),
        ("cifar10", "cifar10", "1/255, CIFAR-10's mean and standard deviation"),
        ("raw", "raw", "0..255 as they are"),
    ]))]
    pub preprocess: Option<&'static str>,
    /// Mean of each channel after scaling, e.g. 0.485,0.456,0.406
    #[arg(
        long,
        value_name = "R,G,B",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub mean: Option<Vec<f32>>,
    /// Standard deviation of each channel after scaling
    #[arg(long, value_name = "R,G,B", value_delimiter = ',')]
    pub std: Option<Vec<f32>>,
    /// Factor on 0..255 pixel values
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f32>,
}

impl PreprocessArgs {
    pub fn options(&self) -> Preprocess {
        let known = self
            .preprocess
            .and_then(|name| Preprocess::named(name).ok());
        let given = Preprocess {
            mean: self.mean.clone(),
            std: self.std.clone(),
            scale: self.scale,
        };
        given.or(known.unwrap_or_default())
    }
}

/// Shapes that a model leaves open.
#[derive(Args, Clone, Default)]
pub struct ShapeArgs {
    /// Shape of an input whose dimensions an ONNX file leaves open (default: a batch of 1). A single
    /// input needs no NAME=. May be repeated
    #[arg(long = "input-shape", value_name = "NAME=1x3x224x224", value_parser = input_shape)]
    shapes: Vec<(String, Vec<usize>)>,
}

impl ShapeArgs {
    /// By the inputs' names.
    pub fn all(&self) -> BTreeMap<String, Vec<usize>> {
        self.shapes.iter().cloned().collect()
    }
}

/// Where tiles come from.
#[derive(Args, Clone, Default)]
pub struct TilesArgs {
    /// Tiles that `vta tune` measured, in place of those that come with the compiler
    #[arg(long = "tiles", value_name = "CACHE.json")]
    pub cache: Option<PathBuf>,
}

/// How closely fixed point follows the model.
#[derive(Args, Clone, Default)]
pub struct RequantArgs {
    /// How int32 sums become int8 (default: the model's own way, or precise; `zoo:` is fast)
    #[arg(long, value_parser = one_of([
        (
            "precise",
            Requant::Precise,
            "Round every tensor as the model does; labels are those of a runtime that computes in floats",
        ),
        (
            "fast",
            Requant::Fast,
            "Fewest operations: values may differ from the model's by one step",
        ),
    ]))]
    pub requant: Option<Requant>,
}

/// What the fast executor makes of a batch.
#[derive(Args, Clone, Default)]
pub struct DumpArgs {
    /// Print the fast executor's plan of the instructions, and run nothing: each different operation
    /// of a batch once, or, with full, all with their instructions and places in DRAM
    #[arg(
        long = "dump-plan",
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "short"
    )]
    pub plan: Option<PlanDetail>,
}

// The option's help says it: with comments here, the help of every option would be long.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanDetail {
    Short,
    Full,
}

#[derive(Args, Clone)]
pub struct RunArgs {
    /// ONNX file (float or QDQ int8), .vta bundle, `demo`, or `zoo:NAME`; for `vta exec` also
    /// assembly text (.asm, .s, .txt) with its data (docs/first-program.md)
    pub model: String,
    /// Image (png, jpeg, webp, bmp, tiff), folder of images or of class folders, .npy or .npz with
    /// `images` (and `labels`); may be repeated; NAME=FILE where the network has several inputs
    #[arg(long, short, value_name = "[NAME=]FILE|DIR")]
    pub input: Vec<PathBuf>,
    #[command(flatten)]
    pub shape: ShapeArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Compare every byte and cycle with those of cycle, and name the first instruction that differs
    /// (--device rtl:LIB.so)
    #[arg(long, value_name = "cycle")]
    pub against: Option<String>,
    /// Let the library write a waveform (--device rtl:LIB.so)
    #[arg(long, value_name = "FILE")]
    pub wave: Option<PathBuf>,
    #[command(flatten)]
    pub views: ViewArgs,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
    #[command(flatten)]
    pub requant: RequantArgs,
    #[command(flatten)]
    pub tiles: TilesArgs,
    /// The most images to run
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Labels to print for each image
    #[arg(long, value_name = "K", default_value_t = 5)]
    pub top: usize,
    /// Write the output, or all by their names into an .npz, with the model's types and dimensions
    #[arg(long, short, value_name = "OUT.npy|OUT.npz")]
    pub output: Option<PathBuf>,
    /// Logits of another runtime to compare labels with: FILE.npz:ARRAY or FILE.npy
    #[arg(long, value_name = "FILE")]
    pub reference: Option<String>,
    /// Compare every layer's output with the reference interpreter, bit for bit
    #[arg(long)]
    pub verify: bool,
    /// Look for accesses that no token orders and for ALU hazards before running
    #[arg(long)]
    pub hazards: bool,
    /// Calibration images for a float model (default: the input images); NAME=FILE as for --input
    #[arg(long, value_name = "[NAME=]DIR|.npz")]
    pub calibration: Vec<PathBuf>,
    /// Runs in flight (default: 1, with an OpenCL device 2): copies of one overlap the computation
    /// of another, and on several devices each has work while another computes
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Which layers run on which of several devices: a TOML file of "layer or pattern" = "device"
    #[arg(long, value_name = "FILE.toml")]
    pub placement: Option<PathBuf>,
    /// Let the host compute operators that no device has, in floats between int8 tensors
    #[arg(long)]
    pub allow_host: bool,
    /// Threads (default: one for each core). They run as many images side by side, each on a device of
    /// its own. With fewer images, several threads share an image on --device sim. For an OpenCL device
    /// they read images ahead
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print a table of all layers
    #[arg(long)]
    pub profile: bool,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub dump: DumpArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    pub fn options(&self) -> RunOptions {
        RunOptions {
            model: self.model.clone(),
            target: Target {
                against: self.against.clone(),
                wave: self.wave.clone(),
                tiles: self.tiles.cache.clone(),
                placement: self.placement.clone(),
                allow_host: self.allow_host,
                threads: self.threads,
                batch: self.batch,
                shapes: self.shape.all(),
                requant: self.requant.requant,
                preprocess: self.preprocess.options(),
                ..self.device.target(&self.views)
            },
            input: self.input.clone(),
            limit: self.limit,
            top: self.top,
            output: self.output.clone(),
            reference: self.reference.clone(),
            verify: self.verify,
            hazards: self.hazards,
            calibration: self.calibration.clone(),
            quantize: self.keep.quantizing(Mode::Multiply),
        }
    }
}

#[derive(Args)]
pub struct LayerArgs {
    /// resnet18.C1 to resnet18.C11, `conv:N,CI,H,W,CO,K,S,P[,G]` (G groups), dw:N,C,H,W,K,S,P
    /// (depthwise) or gemm:M,K,N
    pub layer: String,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub views: ViewArgs,
    #[command(flatten)]
    pub tiles: TilesArgs,
    /// Seed of weights and inputs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub dump: DumpArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Layers that stay in float.
#[derive(Args, Clone)]
pub struct KeepArgs {
    /// Nodes of a float model that stay in float on the host, by their names or their outputs', with commas
    /// between; or AUTO, for as few as bring the outputs to --target on images kept out
    #[arg(long, value_name = "NODES|AUTO", value_delimiter = ',')]
    pub keep_float: Vec<String>,
    /// Layers whose weights have 4 bits, which machines with WGT4 load in half the time: by their names or their
    /// outputs', with commas between; or all, or last:2 for the last two
    #[arg(long, value_name = "LAYERS", value_delimiter = ',')]
    pub int4: Vec<String>,
    /// Bits of activations
    #[arg(long, default_value = "int8", value_parser = one_of([
        ("int8", Activations::Int8, "8, as every machine has them"),
        (
            "int16",
            Activations::Int16,
            "16, for machines whose LOG_INP_WIDTH and LOG_OUT_WIDTH are 4; weights stay int8",
        ),
    ]))]
    pub activations: Activations,
    /// What `--keep-float AUTO` brings each output to: 0.99 is a relative error of 0.01, or where it has scores of
    /// classes, that 99 % of images are expected to keep the largest; sequences of probabilities need both, in every row
    #[arg(
        long,
        value_name = "PART",
        default_value_t = 0.99,
        requires = "keep_float"
    )]
    pub target: f64,
}

#[derive(Args)]
pub struct CutArgs {
    /// ONNX model, float or int8
    pub model: PathBuf,
    /// Values that the part begins at, by their names in the file (default: the model's inputs, as far as
    /// the part needs them). May be repeated
    #[arg(long, value_name = "A,B")]
    pub inputs: Vec<String>,
    /// Values that it ends at (default: the model's outputs). May be repeated
    #[arg(long, value_name = "C,D")]
    pub outputs: Vec<String>,
    /// The part to write
    #[arg(long, short, value_name = "PART.onnx")]
    pub output: PathBuf,
    #[command(flatten)]
    pub shape: ShapeArgs,
}

#[derive(Args)]
pub struct QuantizeArgs {
    /// Float ONNX model
    pub model: PathBuf,
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// Calibration images: folder, image, .npy or .npz with `images`; may be repeated, NAME=FILE where the
    /// network has several inputs
    #[arg(long, value_name = "DIR|.npz", required = true)]
    pub calibration: Vec<PathBuf>,
    /// The QDQ model to write
    #[arg(long, short, value_name = "Q.onnx")]
    pub output: PathBuf,
    /// Kind of scales
    #[arg(long, default_value = "multiply", value_parser = one_of([
        ("shift", Mode::Shift, "Power-of-two scales: the device only shifts"),
        ("multiply", Mode::Multiply, "Any scales: the device multiplies and shifts"),
    ]))]
    pub mode: Mode,
    /// How scales of activations are chosen: `min-max` cuts nothing off, `percentile:99.9` keeps that
    /// many percent (99.99 without a number), `mse` has the smallest squared error, `entropy` keeps the
    /// distribution, as TensorRT does (default: `min-max` for int16; `mse`, or `min-max` or `percentile` where it loses less on images
    /// kept out)
    #[arg(long)]
    pub method: Option<Method>,
    /// Which weights share a scale
    #[arg(long, default_value = "per-channel", value_parser = one_of([
        ("per-channel", WeightScales::PerChannel, "The weights of an output channel"),
        (
            "per-tensor",
            WeightScales::PerTensor,
            "All weights of a layer, as always with `--mode shift`",
        ),
    ]))]
    pub weights: WeightScales,
    /// Which activations have a zero point, so that a range that isn't the same on both sides of 0 uses all steps
    #[arg(long, default_value = "auto", value_parser = one_of([
        ("auto", ZeroPoints::Auto, "Those that gain more by it than it costs cycles"),
        ("symmetric", ZeroPoints::Symmetric, "None"),
        ("asymmetric", ZeroPoints::Asymmetric, "All whose range isn't the same on both sides"),
    ]))]
    pub zero_points: ZeroPoints,
    /// Leave biases as they are. Corrected biases remove the error that rounded weights add to the mean of a
    /// channel, if the calibration images resemble others
    #[arg(long)]
    pub no_bias_correction: bool,
    /// Round each weight to its nearest step. Otherwise they are rounded so that what their errors add to a layer's
    /// outputs is small on the calibration images
    #[arg(long)]
    pub no_adaptive_rounding: bool,
    /// Equalise channels whatever it loses: scale them between two layers so that their ranges are alike, which
    /// runs the images twice (default: where it doesn't lose more on images kept out)
    #[arg(long, conflicts_with = "no_equalize")]
    pub equalize: bool,
    /// Leave channels as they are
    #[arg(long)]
    pub no_equalize: bool,
    /// Images to compare the int8 model with the float one on: so many of those to calibrate with, which are kept
    /// out of the calibration (default: a fifth, of 5 or more), or others, as for --calibration
    #[arg(long, value_name = "N|[NAME=]FILE|DIR")]
    pub held_out: Vec<PathBuf>,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// The most images to use, with those that are kept out
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Measure the loss of each layer by quantising, print the worst layers with remedies, and write all as
    /// JSON
    #[arg(long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CompileArgs {
    /// ONNX file (QDQ int8), `demo`, or `zoo:NAME`
    pub model: String,
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// The bundle to write
    #[arg(
        long,
        short,
        value_name = "FILE.vta",
        required_unless_present_any = ["dump_after", "listing"]
    )]
    pub output: Option<PathBuf>,
    /// Write every instruction and micro-op with its layer, tile, tensor coordinates and memory, too
    /// (docs/traceability.md)
    #[arg(long, value_name = "OUT.{csv,html}", conflicts_with = "dump_after")]
    pub listing: Option<PathBuf>,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub board: BoardArgs,
    /// Print the network after a pass: import, join-channels, merge-clamps, fuse-residuals,
    /// merge-clamps-again, order-rows, plan, or all
    #[arg(long, value_name = "PASS")]
    pub dump_after: Option<String>,
    /// Let the host compute operators that no device has; the bundle holds these layers
    #[arg(long)]
    pub allow_host: bool,
    /// Write a flat image for controllers without an operating system instead of a bundle, in batches
    /// of single layers, with counts of their own, or of the whole network
    #[arg(long, value_name = "BATCHES", conflicts_with = "dump_after", value_parser = one_of([
        (
            "layers",
            FlatCut::Layers,
            "A batch for each layer: cycles and time of each are counted",
        ),
        (
            "network",
            FlatCut::Nowhere,
            "One batch, as far as queues hold it: layers overlap",
        ),
    ]))]
    pub flat: Option<FlatCut>,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
    #[command(flatten)]
    pub requant: RequantArgs,
    #[command(flatten)]
    pub tiles: TilesArgs,
}

impl LayerArgs {
    pub fn target(&self) -> Target {
        Target {
            tiles: self.tiles.cache.clone(),
            ..self.device.target(&self.views)
        }
    }
}

impl KeepArgs {
    fn quantizing(&self, mode: Mode) -> Quantizing {
        let given = Quantizing::new(mode);
        Quantizing {
            options: given.options.with_activations(self.activations),
            keep_float: self.keep_float.clone(),
            int4: self.int4.clone(),
            target: self.target,
            ..given
        }
    }
}

impl QuantizeArgs {
    pub fn options(&self) -> QuantizeOptions {
        // A file of that name is meant, if there is one.
        let count = match &self.held_out[..] {
            [one] if !one.exists() => one.to_str().and_then(|one| one.parse().ok()),
            _ => None,
        };
        let files = self.held_out.iter().filter(|_| count.is_none());
        let quantizing = self.keep.quantizing(self.mode);
        let given = quantizing.options;
        QuantizeOptions {
            model: self.model.clone(),
            input_shape: self.shape.all(),
            calibration: self.calibration.clone(),
            held_out: files.cloned().collect(),
            quantize: Quantizing {
                options: Options {
                    method: self.method.unwrap_or(given.method),
                    weights: self.weights,
                    zero_points: self.zero_points,
                    bias_correction: !self.no_bias_correction,
                    adaptive_rounding: !self.no_adaptive_rounding,
                    equalize: !self.no_equalize,
                    ..given
                },
                choose_method: self.method.is_none(),
                choose_equalize: !self.equalize,
                held_out: count,
                ..quantizing
            },
            limit: self.limit,
            preprocess: self.preprocess.options(),
        }
    }
}

impl CompileArgs {
    pub fn target(&self) -> Target {
        Target {
            config: self.config.clone().map(Into::into),
            board: self.board.board.clone(),
            allow_host: self.allow_host,
            tiles: self.tiles.cache.clone(),
            shapes: self.shape.all(),
            requant: self.requant.requant,
            preprocess: self.preprocess.options(),
            ..Target::default()
        }
    }
}
