//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use vta_app::machine::Wanted;
use vta_app::options::{self, DeviceOptions, PreprocessOptions, RunOptions, Target, ViewOptions};
use vta_compiler::semantics::Requant;
use vta_driver::Budget;

const AFTER: &str = "\
Start with: vta run demo

Exit status:
  0  all went right
  1  a run failed, or what was compared differs
  2  wrong usage or input, and a line that names file, value and limit

Environment:
  COLUMNS     the width that tables and texts fit, if it is more than 80
  NO_COLOR    no colours
  TERM=dumb   no colours, block characters or bars that move
  VTA_KERNEL  the kernels of --device sim: scalar, avx2, avxvnni or avx512vnni";

const AFTER_RUN: &str = "\
Examples:
  vta run demo
  vta run demo --input photo.jpg --top 3
  vta run model.int8.onnx --input photos/ --threads 4 --output logits.npy
  vta run zoo:resnet50 --profile --verify
  vta run zoo:resnet50 --device cycle --timing-only --report report.html";

const AFTER_EXEC: &str = "\
Examples:
  vta exec model.vta --input photo.jpg
  vta exec program.asm
  vta exec program.asm --device cycle --trace trace.json
  vta exec program.asm --hazards";

const AFTER_SWEEP: &str = "\
The table is a CSV file with a line of headings: an axis' values, then cycles (of one pass of so \
many images), bound_cycles, macs, utilization, dram_bytes, energy_uj, area_mm2, why a point has no \
result, and what was swept.

Examples:
  vta sweep zoo:resnet18 --vary LOG_BLOCK=4,5 --vary bus_bytes=8,16 -o t.csv
  vta sweep gemm:8,64,64 --vary tags=1,2,4,8 -o t.csv --picture t.svg";

const AFTER_TUNE: &str = "\
Examples:
  vta tune model.int8.onnx -o tiles.json
  vta run model.int8.onnx --tiles tiles.json --input photo.jpg
  vta tune demo --explain conv1";

/// Run, compile and inspect neural networks on the Versatile Tensor Accelerator.
#[derive(Parser)]
#[command(
    name = "vta",
    version,
    propagate_version = true,
    max_term_width = 80,
    after_help = "Start with: vta run demo",
    after_long_help = AFTER
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a network on images and print what it sees
    #[command(after_long_help = AFTER_RUN)]
    Run(RunArgs),
    /// Run one layer on seeded data and check it against the reference
    Layer(LayerArgs),
    /// Quantise a float ONNX model to int8 (QDQ) with calibration images
    Quantize(QuantizeArgs),
    /// Compile a network to a program bundle
    Compile(CompileArgs),
    /// Run a compiled program bundle, or assembly text with its data
    #[command(after_long_help = AFTER_EXEC)]
    Exec(RunArgs),
    /// Replay recorded device runs and compare every byte
    Replay(ReplayArgs),
    /// Assemble text to raw instructions
    Asm(AsmArgs),
    /// Print raw instructions or a program bundle as text
    Disasm(DisasmArgs),
    /// Check a program for errors without running it
    Check(CheckArgs),
    /// Count cycles over a grid of configurations and boards
    #[command(after_long_help = AFTER_SWEEP)]
    Sweep(SweepArgs),
    /// Measure the functional simulator against this CPU's multiply-add peak, or OpenCL devices
    Bench(BenchArgs),
    /// Choose tiles by counting cycles, and keep them in a cache
    #[command(after_long_help = AFTER_TUNE)]
    Tune(TuneArgs),
    /// List the built-in networks
    Models,
    /// List the boards that --board knows by name
    Boards(BoardsArgs),
    /// List the devices of this machine with what each can do
    Devices(DevicesArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write man pages of all commands to a folder
    Man {
        /// The folder, which is made if it isn't there
        folder: PathBuf,
    },
}

/// Where and for what instance a program runs.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// Device: sim (fast functional simulator), cycle (its results with the hardware's cycles),
    /// oracle (slow, obvious) or `opencl[:cpu|gpu|fpga|NAME[:INDEX]]`, see `vta devices`; `vta run`
    /// takes several, e.g. opencl,sim: the first runs what no --placement puts elsewhere
    #[arg(long, default_value = "sim")]
    pub device: String,
    /// Bitstream for an OpenCL device that takes no source (.aocx, .xclbin)
    #[arg(long, value_name = "FILE")]
    pub bitstream: Option<PathBuf>,
    /// VTA configuration, a vta_config.json (default: what the board has, or 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub timing: TimingArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// What one batch may ask for.
#[derive(Args, Clone, Default)]
pub struct LimitArgs {
    /// GEMM and ALU steps of a batch at most (2^34)
    #[arg(long, value_name = "N")]
    pub limit_steps: Option<u64>,
    /// Cycles of a batch at most (2^40)
    #[arg(long, value_name = "N")]
    pub limit_cycles: Option<u64>,
    /// DRAM bytes of a batch at most (2^34)
    #[arg(long, value_name = "N")]
    pub limit_bytes: Option<u64>,
}

impl LimitArgs {
    /// The limits that are given, and the defaults.
    pub fn budget(&self) -> Budget {
        let usual = Budget::default();
        Budget {
            steps: self.limit_steps.unwrap_or(usual.steps),
            cycles: self.limit_cycles.unwrap_or(usual.cycles),
            bytes: self.limit_bytes.unwrap_or(usual.bytes),
        }
    }
}

/// The board that programs are for.
#[derive(Args, Clone, Default)]
pub struct BoardArgs {
    /// Board with its scratchpads, operations and clock: a name of `vta boards`, or a file in TOML
    #[arg(long, value_name = "BOARD|FILE")]
    pub board: Option<String>,
}

/// The board, or how the device `cycle` takes time without one.
#[derive(Args, Clone, Default)]
pub struct TimingArgs {
    #[command(flatten)]
    pub board: BoardArgs,
    /// Timing alone of a board, for --device cycle and a machine of one's own: pynq (default),
    /// de10, or a file in TOML
    #[arg(long, value_name = "BOARD|FILE", conflicts_with = "board")]
    pub timing: Option<String>,
}

impl TimingArgs {
    /// The machine with a configuration.
    pub fn machine<'a>(&'a self, config: Option<&'a PathBuf>) -> Wanted<'a> {
        Wanted {
            config: config.map(PathBuf::as_path),
            board: self.board.board.as_deref(),
            timing: self.timing.as_deref(),
        }
    }
}

/// What `--device cycle` shows of its cycles.
#[derive(Args, Clone, Default)]
pub struct ViewArgs {
    /// Count cycles and compute nothing (--device cycle)
    #[arg(long)]
    pub timing_only: bool,
    /// Write a trace for ui.perfetto.dev: 1 ns is one cycle (--device cycle)
    #[arg(long, value_name = "TRACE.json")]
    pub trace: Option<PathBuf>,
    /// Write a report that says where the cycles go (--device cycle)
    #[arg(long, value_name = "REPORT.html")]
    pub report: Option<PathBuf>,
    /// Energy of each operation, in TOML, for report and JSON (--device cycle)
    #[arg(long, value_name = "FILE")]
    pub energy: Option<PathBuf>,
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
    /// How int32 sums become int8 (default: what the model says, else precise; `zoo:` is fast)
    #[arg(long, value_enum)]
    pub requant: Option<RequantMode>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequantMode {
    /// Round every tensor as the model does: the labels of a runtime that computes in floats
    Precise,
    /// Fewest operations: values may differ from the model's by one step
    Fast,
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
    /// ONNX file (float or QDQ int8), .vta bundle, `demo`, or `zoo:NAME`; for `vta exec` also
    /// assembly text (.asm, .s, .txt) with its data, see docs/first-program.md
    pub model: String,
    /// Image (png, jpeg, webp, bmp, tiff), folder of images or of class folders, .npy or .npz with
    /// `images` (and `labels`); may be repeated
    #[arg(long, short, value_name = "FILE|DIR")]
    pub input: Vec<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub views: ViewArgs,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
    #[command(flatten)]
    pub requant: RequantArgs,
    #[command(flatten)]
    pub tiles: TilesArgs,
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
    /// Look for accesses that no token orders and for ALU hazards before running
    #[arg(long)]
    pub hazards: bool,
    /// Calibration images for a float model (default: the input images)
    #[arg(long, value_name = "DIR|.npz")]
    pub calibration: Option<PathBuf>,
    /// Runs in flight: copies of one overlap the computation of another, and on several devices
    /// each has work while another computes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// Which layers run on which of several devices: a TOML file of "layer or pattern" = "device"
    #[arg(long, value_name = "FILE.toml")]
    pub placement: Option<PathBuf>,
    /// Let the host compute what no device has an operator for: Sigmoid, HardSigmoid, HardSwish,
    /// Tanh, Elu, LeakyRelu, Softmax, Mul, Sub, Concat, Resize
    #[arg(long)]
    pub allow_host: bool,
    /// Threads (default: one for each core). As many images run side by side, each on a device of
    /// its own; with fewer images, several threads share each image on --device sim
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
    #[arg(long, short, value_name = "Q.onnx")]
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
    #[command(flatten)]
    pub board: BoardArgs,
    /// Print the network after a pass: import, merge-clamps, fuse-residuals, merge-clamps-again,
    /// plan, or all
    #[arg(long, value_name = "PASS")]
    pub dump_after: Option<String>,
    /// Let the host compute what no device has an operator for; the bundle says what and where
    #[arg(long)]
    pub allow_host: bool,
    #[command(flatten)]
    pub preprocess: PreprocessArgs,
    #[command(flatten)]
    pub requant: RequantArgs,
    #[command(flatten)]
    pub tiles: TilesArgs,
}

#[derive(Args)]
pub struct ReplayArgs {
    /// Recorded cases: CASE.tar.gz or a folder; a .json file of programs with the cycles of the
    /// hardware needs --device cycle
    #[arg(required = true)]
    pub cases: Vec<PathBuf>,
    /// Device: sim, cycle, oracle or `opencl[:SEL]`
    #[arg(long, default_value = "sim")]
    pub device: String,
    /// Bitstream for an OpenCL device that takes no source (.aocx, .xclbin)
    #[arg(long, value_name = "FILE")]
    pub bitstream: Option<PathBuf>,
    #[command(flatten)]
    pub timing: TimingArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
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
    /// Raw instructions (.bin), assembly text (.asm, .s, .txt), a .vta bundle, a recorded case
    /// (.tar.gz or folder), or a network to compile: .onnx, `demo`, `zoo:NAME`
    pub file: PathBuf,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub board: BoardArgs,
    /// Report garbage in bits that no field covers, too
    #[arg(long)]
    pub strict: bool,
    /// Report accesses of different modules to one place that no chain of tokens orders, and
    /// ALU steps that read what the step before has not written back
    #[arg(long)]
    pub hazards: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct SweepArgs {
    /// A network (ONNX file, `demo`, `zoo:NAME`) or a layer as in `vta layer`
    pub model: String,
    /// One axis of the grid: a key of vta_config.json (LOG_BLOCK, LOG_WGT_BUFF_SIZE, ..) or of a
    /// timing file (bus_bytes, memory_latency_cycles, burst_beats, ..) with its values; repeat it
    #[arg(long, value_name = "KEY=V1,V2,..", required = true)]
    pub vary: Vec<String>,
    /// Configuration of all that isn't varied, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub timing: TimingArgs,
    /// Table to write; rows that are there already are not computed again
    #[arg(long, short, value_name = "OUT.csv")]
    pub output: PathBuf,
    /// Picture of cycles against area, with the Pareto front
    #[arg(long, value_name = "OUT.svg")]
    pub picture: Option<PathBuf>,
    /// Points to compute side by side (default: one for each core)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
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
    /// Print what an offline compiler needs for a configuration: -D macros of the kernels
    #[arg(long, conflicts_with_all = ["save_bitstream", "json"])]
    pub macros: bool,
}

#[derive(Args)]
pub struct BenchArgs {
    /// Runs of each layer, a quarter as many of each network and way. Medians are printed
    #[arg(long, value_name = "N", default_value_t = 201)]
    pub samples: usize,
    /// Threads to use at most; with 2 or more, what two gain is measured
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
    /// Images of a run, for --device: each is BATCH of a VTA whose scratchpads grow with it
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub batch: Vec<usize>,
    /// Submit one by one the instructions of the first layers that have up to N together
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub instructions: usize,
    /// Count the cycles of the ResNets and their distinct layers instead, beside what no schedule
    /// can beat
    #[arg(long)]
    pub cycles: bool,
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
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl DeviceArgs {
    pub fn options(&self) -> DeviceOptions {
        DeviceOptions {
            device: self.device.clone(),
            bitstream: self.bitstream.clone(),
            config: self.config.clone(),
            board: self.timing.board.board.clone(),
            timing: self.timing.timing.clone(),
            budget: self.limits.budget(),
        }
    }
}

impl ViewArgs {
    pub fn options(&self) -> ViewOptions {
        ViewOptions {
            timing_only: self.timing_only,
            trace: self.trace.clone(),
            report: self.report.clone(),
            energy: self.energy.clone(),
        }
    }
}

impl PreprocessArgs {
    pub fn options(&self) -> PreprocessOptions {
        PreprocessOptions {
            preprocess: self.preprocess.map(|preset| match preset {
                Preset::Imagenet => options::Preset::Imagenet,
                Preset::Cifar10 => options::Preset::Cifar10,
                Preset::Raw => options::Preset::Raw,
            }),
            mean: self.mean.clone(),
            std: self.std.clone(),
            scale: self.scale,
        }
    }
}

impl TilesArgs {
    pub fn options(&self) -> options::TilesOptions {
        options::TilesOptions {
            cache: self.cache.clone(),
        }
    }
}

impl RequantArgs {
    pub fn mode(&self) -> Option<Requant> {
        self.requant.map(|mode| match mode {
            RequantMode::Precise => Requant::Precise,
            RequantMode::Fast => Requant::Fast,
        })
    }
}

impl RunArgs {
    pub fn options(&self) -> RunOptions {
        RunOptions {
            model: self.model.clone(),
            input: self.input.clone(),
            target: Target {
                device: self.device.options(),
                views: self.views.options(),
                tiles: self.tiles.options(),
                placement: self.placement.clone(),
                allow_host: self.allow_host,
                threads: self.threads,
                batch: self.batch,
            },
            preprocess: self.preprocess.options(),
            requant: self.requant.mode(),
            limit: self.limit,
            top: self.top,
            reference: self.reference.clone(),
            verify: self.verify,
            hazards: self.hazards,
            calibration: self.calibration.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of fenced blocks that call `vta`, continued lines joined, without comments.
    fn commands(text: &str) -> Vec<String> {
        let (mut found, mut inside, mut open) = (Vec::<String>::new(), false, false);
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with("```") {
                inside = !inside;
                continue;
            }
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let words = line.split(" #").next().unwrap_or_default();
            let words = words.split_once("vta ").filter(|(before, _)| {
                // Variables may stand before it, and cargo.
                before.is_empty() || before.split_whitespace().all(|w| w.contains('='))
            });
            match (inside, words, open, found.last_mut()) {
                (true, _, true, Some(last)) => last.push_str(line),
                (true, Some((_, rest)), ..) => found.push(rest.to_owned()),
                _ => continue,
            }
            open = line.ends_with('\\');
        }
        found
            .iter()
            .map(|c| c.replace("\\", " ").replace("...", "x"))
            .collect()
    }

    #[test]
    fn every_command_of_the_documents_is_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut checked = 0;
        let documents = std::fs::read_dir(root.join("docs")).unwrap();
        let documents = documents.map(|entry| entry.unwrap().path());
        for path in documents.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]) {
            if path.extension().is_none_or(|e| e != "md") {
                continue;
            }
            for command in commands(&std::fs::read_to_string(&path).unwrap()) {
                let words = command.split_whitespace();
                let parsed = Cli::try_parse_from(["vta"].into_iter().chain(words));
                let error = parsed.err().map(|e| e.to_string());
                assert!(error.is_none(), "{}: {command}: {error:?}", path.display());
                checked += 1;
            }
        }
        assert!(checked > 30, "{checked} commands");
    }
}
