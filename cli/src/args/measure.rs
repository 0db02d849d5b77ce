//! Arguments of commands that measure machines, or list them.

use std::path::PathBuf;

use clap::Args;
use vta_app::Target;

use super::device::TimingArgs;

/// What isn't varied of the machines, what they cost, and where results go.
#[derive(Args)]
pub struct TableArgs {
    #[command(flatten)]
    pub timing: TimingArgs,
    /// Prices of operations and parts, in TOML, as `vta costs` prints them
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Table to write; its rows are not computed again
    #[arg(long, short, value_name = "OUT.csv")]
    pub output: PathBuf,
}

impl TableArgs {
    /// The machine that isn't varied.
    pub fn target(&self, config: Option<&PathBuf>, points: &PointsArgs) -> Target {
        Target {
            threads: points.threads,
            costs: self.costs.clone(),
            ..self.timing.target(config)
        }
    }
}

/// How points are computed and shown.
#[derive(Args)]
pub struct PointsArgs {
    /// Points to compute side by side (default: one for each core)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SweepArgs {
    /// A network (ONNX file, `demo`, `zoo:NAME`) or a layer as in `vta layer`; of several the first axis
    /// is `model`
    #[arg(required_unless_present = "layers")]
    pub model: Vec<String>,
    /// Sweep the layers of a SCALE-Sim topology, each by itself, instead of a network
    #[arg(long, value_name = "FILE.csv", conflicts_with = "model")]
    pub layers: Option<PathBuf>,
    /// One axis of the grid: a key of vta_config.json (LOG_BLOCK, LOG_WGT_BUFF_SIZE, ..) or of a
    /// timing file (bus_bytes, memory_latency_cycles, preset=pynq,own, ..) with its values,
    /// board=pynq,FILE.toml,.. for boards with their limits, or
    /// EXTENSIONS=none,CLIP,CLIP+MOV,.. beside those of the configuration; repeat it
    #[arg(long, value_name = "KEY=V1,V2,..", required_unless_present = "layers")]
    pub vary: Vec<String>,
    /// Configuration for the keys that aren't varied, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub table: TableArgs,
    /// Compute one of N parts of the points, I from 1 to N; `vta merge` joins their tables
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Picture of cycles against area, with the Pareto front
    #[arg(long, value_name = "OUT.svg")]
    pub picture: Option<PathBuf>,
    #[command(flatten)]
    pub how: PointsArgs,
}

#[derive(Args)]
pub struct ExploreArgs {
    /// A network (ONNX file, `demo`, `zoo:NAME`) or a layer as in `vta layer`; of several the sums count
    #[arg(required = true)]
    pub model: Vec<String>,
    /// The largest machine, by the estimate of `vta costs`; larger ones aren't compiled
    #[arg(long, value_name = "MM2")]
    pub area: Option<f64>,
    /// What is to be small: of cycles, energy, area, time (by the machine's clock) and dram (bytes), each of an
    /// image
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "cycles,energy"
    )]
    pub objective: Vec<String>,
    /// An axis as of `vta sweep`, more than those that are walked anyway or in the place of one: BATCH and BLOCK,
    /// scratchpads, sets of extensions, the bus
    #[arg(long, value_name = "KEY=V1,V2,..")]
    pub vary: Vec<String>,
    /// Machines to measure at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub points: usize,
    /// Searches that the points are divided among, of which every fourth leaves out extensions
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub searches: usize,
    /// Chooses other machines
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Configuration where the search begins, and for keys that aren't varied, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub table: TableArgs,
    /// Do one of N parts of the searches, I from 1 to N; `vta merge` joins their tables
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Picture of the first two objectives, or of the only one against area, with the Pareto front
    #[arg(long, value_name = "OUT.svg")]
    pub picture: Option<PathBuf>,
    #[command(flatten)]
    pub how: PointsArgs,
}

#[derive(Args)]
pub struct CostsArgs {
    /// Prices that aren't the built-in ones, in TOML
    pub file: Option<PathBuf>,
}

#[derive(Args)]
pub struct MergeArgs {
    /// Tables of one sweep's shards
    #[arg(value_name = "TABLE.csv", required = true)]
    pub tables: Vec<PathBuf>,
    /// Table of the whole sweep to write; `vta sweep` can go on with it
    #[arg(long, short, value_name = "OUT.csv")]
    pub output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct TuneArgs {
    /// A network (ONNX file, `demo`, `zoo:NAME`) or a layer as in `vta layer`
    pub model: String,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub timing: TimingArgs,
    /// Cache to extend; shapes that it knows are not measured again
    #[arg(long, short, value_name = "CACHE.json")]
    pub output: Option<PathBuf>,
    /// Tiles to measure for each shape
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub candidates: usize,
    /// Measure one layer's candidates and print them, fastest first
    #[arg(long, value_name = "LAYER")]
    pub explain: Option<String>,
    /// Measure no tiles, but print what each layer takes at least, whatever its tiles, beside what it takes with those that
    /// are known, of --output among them
    #[arg(long, conflicts_with = "explain")]
    pub certificate: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct BenchArgs {
    /// Runs of each layer; networks and ways get a quarter. Prints medians
    #[arg(long, value_name = "N", default_value_t = 201)]
    pub samples: usize,
    /// The most threads to use; the gain of 2, 4, 8 and so on is measured
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub threads: usize,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Measure OpenCL devices instead, `opencl[:SEL]` with commas between: one submission against
    /// many, two runs in flight against one, the share of time that kernels run
    #[arg(long, value_name = "SEL,..", conflicts_with = "cycles")]
    pub device: Option<String>,
    /// Networks for --device
    #[arg(
        long,
        value_name = "MODEL,..",
        value_delimiter = ',',
        default_value = "zoo:resnet18"
    )]
    pub model: Vec<String>,
    /// Numbers of images of a run, for --device. Each is the BATCH of a VTA whose scratchpads grow with it
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub batch: Vec<usize>,
    /// Submit the instructions of the first layers one by one, as far as they have N together
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub instructions: usize,
    /// Measure the memory scopes of --device instead. If one is clearly faster than buffers, the device
    /// is opened with it from now on
    #[arg(long, requires = "device")]
    pub scopes: bool,
    /// Count the cycles of the ResNets and their distinct layers instead, beside bounds that no
    /// schedule can beat
    #[arg(long)]
    pub cycles: bool,
    /// Measure first runs of the ResNets and of --case instead, beside runs of known programs and of
    /// an interpreter
    #[arg(long, conflicts_with_all = ["cycles", "device"])]
    pub first: bool,
    /// Measure the kinds of layers of an int8 network instead, on one thread beside the peak
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["cycles", "device", "first"])]
    pub onnx: Option<String>,
    /// Recorded runs for --first, as `vta replay` takes them
    #[arg(long, value_name = "CASE", num_args = 1.., requires = "first")]
    pub case: Vec<PathBuf>,
    #[command(flatten)]
    pub timing: TimingArgs,
    /// Tables in Markdown (--cycles)
    #[arg(long, requires = "cycles", conflicts_with = "json")]
    pub markdown: bool,
    /// Also time onnxruntime's int8 resnet18, with this Python (default: python3)
    #[arg(long, value_name = "PYTHON", num_args = 0..=1, default_missing_value = "python3")]
    pub onnxruntime: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct BoardsArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct DevicesArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the core as a bitstream for a device that builds from source, e.g. an FPGA emulator
    #[arg(long, value_name = "FILE", requires = "device")]
    pub save_bitstream: Option<PathBuf>,
    /// The device to save it for: `opencl[:SEL]`
    #[arg(long, value_name = "SEL", requires = "save_bitstream")]
    pub device: Option<String>,
    /// VTA configuration of the bitstream, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the -D macros of the kernels that an offline compiler needs for a configuration
    #[arg(long, conflicts_with_all = ["save_bitstream", "json"])]
    pub macros: bool,
}
