//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Run, compile and inspect neural networks on the Versatile Tensor Accelerator.
#[derive(Parser)]
#[command(
    name = "vta",
    version,
    propagate_version = true,
    after_help = "Start with: vta run demo"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a network on images and print what it sees
    Run(RunArgs),
    /// Run one layer on seeded data and check it against the reference
    Layer(LayerArgs),
    /// Quantise a float ONNX model to int8 (QDQ) with calibration images
    Quantize(QuantizeArgs),
    /// Compile a network to a program bundle
    Compile(CompileArgs),
    /// Run a compiled program bundle
    Exec(RunArgs),
    /// Replay recorded device runs and compare every byte
    Replay(ReplayArgs),
    /// Assemble text to raw instructions
    Asm(AsmArgs),
    /// Print raw instructions or a program bundle as text
    Disasm(DisasmArgs),
    /// Check a program for errors without running it
    Check(CheckArgs),
    /// List the built-in networks
    Models,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Where and for what instance a program runs.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// Device: sim (fast functional simulator) or oracle (slow, obvious); `vta run` takes several,
    /// e.g. sim,oracle, of which the first runs what no --placement puts elsewhere
    #[arg(long, default_value = "sim")]
    pub device: String,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How images become the network's input.
#[derive(Args, Clone, Default)]
pub struct PreprocessArgs {
    /// Known recipe: (x * scale - mean) / std in RGB
    #[arg(long, value_enum)]
    pub preprocess: Option<Preset>,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// 1/255, ImageNet's mean and standard deviation
    Imagenet,
    /// 1/255, CIFAR-10's mean and standard deviation
    Cifar10,
    /// 0..255 as they are
    Raw,
}

#[derive(Args, Clone)]
pub struct RunArgs {
    /// ONNX file (float or QDQ int8), .vta bundle, `demo`, or `zoo:NAME`
    pub model: String,
    /// Image (png, jpeg), folder, .npy or .npz with `images` (and `labels`); may be repeated
    #[arg(long, short, value_name = "FILE|DIR")]
    pub input: Vec<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
    /// Images to run at most
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Labels to print for each image
    #[arg(long, value_name = "K", default_value_t = 5)]
    pub top: usize,
    /// Write the outputs as float32 [images, values]
    #[arg(long, short, value_name = "OUT.npy")]
    pub output: Option<PathBuf>,
    /// Logits of another runtime to compare labels with: FILE.npz:ARRAY or FILE.npy
    #[arg(long, value_name = "FILE")]
    pub reference: Option<String>,
    /// Compare every layer's output with the reference interpreter, bit for bit
    #[arg(long)]
    pub verify: bool,
    /// Calibration images for a float model (default: the input images)
    #[arg(long, value_name = "DIR|.npz")]
    pub calibration: Option<PathBuf>,
    /// Runs in flight on each device: copies of one overlap the computation of another
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// Which layers run on which of several devices: a TOML file of "layer or pattern" = "device"
    #[arg(long, value_name = "FILE.toml")]
    pub placement: Option<PathBuf>,
    /// Devices to run side by side (default: one for each core)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print a table of all layers
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct LayerArgs {
    /// resnet18.C1 to resnet18.C11, conv:N,CI,H,W,CO,K,S,P or gemm:M,K,N
    pub layer: String,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Seed of weights and inputs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuantizeMode {
    /// Power-of-two scales: the device only shifts
    Shift,
    /// Any scales, per channel for weights: the device multiplies and shifts
    Multiply,
}

#[derive(Args)]
pub struct QuantizeArgs {
    /// Float ONNX model
    pub model: PathBuf,
    /// Calibration images: folder, image, .npy or .npz with `images`
    #[arg(long, value_name = "DIR|.npz", required = true)]
    pub calibration: PathBuf,
    /// The QDQ model to write
    #[arg(long, short, value_name = "FILE.onnx")]
    pub output: PathBuf,
    /// How scales are chosen
    #[arg(long, value_enum, default_value = "multiply")]
    pub mode: QuantizeMode,
    /// Calibration images to use at most
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
}

#[derive(Args)]
pub struct CompileArgs {
    /// ONNX file (QDQ int8), `demo`, or `zoo:NAME`
    pub model: String,
    /// The bundle to write
    #[arg(
        long,
        short,
        value_name = "FILE.vta",
        required_unless_present = "dump_after"
    )]
    pub output: Option<PathBuf>,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the network after a pass: import, merge-clamps, fuse-residuals, merge-clamps-again,
    /// plan, or all
    #[arg(long, value_name = "PASS")]
    pub dump_after: Option<String>,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
}

#[derive(Args)]
pub struct ReplayArgs {
    /// Recorded cases: CASE.tar.gz or a folder
    #[arg(required = true)]
    pub cases: Vec<PathBuf>,
    /// Device: sim or oracle
    #[arg(long, default_value = "sim")]
    pub device: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct AsmArgs {
    /// Assembly text
    pub file: PathBuf,
    /// Raw instructions, 16 bytes each, little-endian
    #[arg(long, short, value_name = "FILE.bin")]
    pub output: PathBuf,
}

#[derive(Args)]
pub struct DisasmArgs {
    /// Raw instructions or a .vta bundle
    pub file: PathBuf,
}

#[derive(Args)]
pub struct CheckArgs {
    /// Raw instructions (.bin), assembly text (.asm, .s, .txt), or a .vta bundle
    pub file: PathBuf,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Report garbage in bits that no field covers, too
    #[arg(long)]
    pub strict: bool,
}
