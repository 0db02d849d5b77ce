//! Arguments of commands that take instructions.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use vta_app::Target;

use super::device::{BoardArgs, LimitArgs, TimingArgs};
use super::network::ShapeArgs;

#[derive(Args)]
pub struct ReplayArgs {
    /// Recorded cases: CASE.tar.gz or a folder; a .json file of programs with the cycles of the
    /// hardware needs --device cycle
    #[arg(required = true)]
    pub cases: Vec<PathBuf>,
    /// Device: sim, cycle, oracle, `opencl[:SEL]` or board:NAME
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
pub struct PlaygroundArgs {
    /// Assembly text with its data
    pub file: PathBuf,
    /// The address of the playground, before the fragment
    #[arg(long, value_name = "URL", default_value = "index.html")]
    pub base: String,
}

#[derive(Args)]
pub struct AsmArgs {
    /// Assembly text
    pub file: PathBuf,
    /// Raw instructions, 16 bytes each, little-endian
    #[arg(long, short, value_name = "FILE.bin")]
    pub output: PathBuf,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

#[derive(Args)]
pub struct DisasmArgs {
    /// Raw instructions or a .vta bundle
    pub file: PathBuf,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

#[derive(Args)]
pub struct LayoutArgs {
    /// Layout of raw instructions: this project's for all configurations, or the original's for
    /// --config
    #[arg(long, value_enum, default_value_t)]
    pub layout: Packing,
    /// VTA configuration of --layout original, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Packing {
    #[default]
    Vta,
    Original,
}

#[derive(Args)]
pub struct CheckArgs {
    /// A network: .onnx (float or int8), `demo`, `zoo:NAME`; or raw instructions (.bin), assembly
    /// text (.asm, .s, .txt), a .vta bundle, a recorded case (.tar.gz or folder)
    pub file: PathBuf,
    /// List every node of a network, where the default groups those of a large one by operator
    #[arg(long)]
    pub nodes: bool,
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// VTA configuration, a vta_config.json (default: 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Layout of raw instructions: this project's for all configurations, or the original's for
    /// --config
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["strict", "coverage"])]
    pub layout: Packing,
    #[command(flatten)]
    pub board: BoardArgs,
    /// Report garbage in bits that no field covers, too
    #[arg(long)]
    pub strict: bool,
    /// Report accesses of different modules to one place that no chain of tokens orders, and
    /// ALU steps that read what the step before has not written back
    #[arg(long)]
    pub hazards: bool,
    /// Prove of a network, or of the .csv that `vta compile --listing` wrote, that every output byte is
    /// stored once, every product computed once and nothing read before it was written
    /// (docs/traceability.md)
    #[arg(long, conflicts_with_all = ["hazards", "strict", "nodes"])]
    pub coverage: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl CheckArgs {
    pub fn target(&self) -> Target {
        Target {
            config: self.config.clone().map(Into::into),
            board: self.board.board.clone(),
            allow_host: true,
            shapes: self.shape.all(),
            ..Target::default()
        }
    }
}
