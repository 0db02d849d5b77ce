//! Arguments that say where a program runs, and for what machine.

use std::path::PathBuf;

use clap::Args;
use vta_app::Target;
use vta_app::options::ConfigSource;
use vta_driver::Budget;

/// Where and for what instance a program runs.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// Device: sim (fast functional simulator), cycle (its results with the hardware's cycles),
    /// oracle (slow, obvious), `opencl[:cpu|gpu|fpga|NAME[:INDEX]]`, see `vta devices`, board:pynq, board:de10
    /// or board:FILE.toml (a VTA behind registers, docs/boards.md), or rtl:LIB.so (a Verilated design,
    /// docs/rtl.md). `vta run` takes several, e.g. opencl,sim: the first runs all layers that no --placement puts
    /// elsewhere
    #[arg(long, default_value = "sim")]
    pub device: String,
    /// Bitstream for an OpenCL device that takes no source (.aocx, .xclbin)
    #[arg(long, value_name = "FILE")]
    pub bitstream: Option<PathBuf>,
    /// Memory scopes of an OpenCL device's weights and inputs: weights=SCOPE,activations=SCOPE of
    /// buffer, constant, image, image2d (default: the fastest that `vta bench --device SEL --scopes`
    /// found there, or buffers)
    #[arg(long, value_name = "ROLE=SCOPE,..")]
    pub scope: Option<String>,
    /// VTA configuration, a vta_config.json (default: the board's, or 1x16x16)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub timing: TimingArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

impl DeviceArgs {
    /// The device, and what is shown of its cycles.
    pub fn target(&self, views: &ViewArgs) -> Target {
        Target {
            device: self.device.clone(),
            bitstream: self.bitstream.clone(),
            scope: self.scope.clone(),
            budget: self.limits.budget(),
            timing_only: views.timing_only,
            trace: views.trace.clone(),
            report: views.report.clone(),
            costs: views.costs.clone(),
            host_speed: views.host_speed.clone(),
            ..self.timing.target(self.config.as_ref())
        }
    }
}

/// What one batch may ask for.
#[derive(Args, Clone, Default)]
pub struct LimitArgs {
    /// The most GEMM and ALU steps of a batch (2^34)
    #[arg(long, value_name = "N")]
    pub limit_steps: Option<u64>,
    /// The most cycles of a batch (2^40)
    #[arg(long, value_name = "N")]
    pub limit_cycles: Option<u64>,
    /// The most DRAM bytes of a batch (2^34)
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
    /// Only the timing of a board, for --device cycle and a machine of your own: pynq (default),
    /// de10, own, or a file in TOML
    #[arg(long, value_name = "BOARD|FILE", conflicts_with = "board")]
    pub timing: Option<String>,
}

impl TimingArgs {
    /// The machine with a configuration.
    pub fn target(&self, config: Option<&PathBuf>) -> Target {
        Target {
            config: config.cloned().map(ConfigSource::from),
            board: self.board.board.clone(),
            timing: self.timing.clone(),
            ..Target::default()
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
    /// Prices of operations and parts, in TOML, as `vta costs` prints them (--device cycle)
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// How fast the host is, in TOML, to estimate the time of its layers (--device cycle)
    #[arg(long, value_name = "FILE")]
    pub host_speed: Option<PathBuf>,
}
