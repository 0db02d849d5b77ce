//! The command line.

mod device;
mod measure;
mod network;
mod program;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{ArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use vta_files::output::Promise;

pub use self::device::{TimingArgs, ViewArgs};
pub use self::measure::{
    BenchArgs, BoardsArgs, CostsArgs, DevicesArgs, ExploreArgs, MergeArgs, SweepArgs, TuneArgs,
};
pub use self::network::{CompileArgs, CutArgs, LayerArgs, PlanDetail, QuantizeArgs, RunArgs};
pub use self::program::{
    AsmArgs, CheckArgs, DisasmArgs, LayoutArgs, Packing, PlaygroundArgs, ReplayArgs,
};

const AFTER: &str = "\
Start with: vta run demo

Exit status:
  0  all went right
  1  a run failed, or a comparison differs
  2  wrong usage or input, and a line that names file, value and limit

Environment:
  COLUMNS     the width that tables and texts fit, if it is more than 80
  NO_COLOR    no colours
  TERM=dumb   no colours, block characters or bars that move
  VTA_KERNEL  the kernels of --device sim: scalar, neon, avx2, avx512bw,
              avxvnni, avx512vnni or amx";

const AFTER_RUN: &str = "\
Examples:
  vta run demo
  vta run demo --input photo.jpg --top 3
  vta run model.int8.onnx --input photos/ --threads 4 --output logits.npy
  vta run zoo:resnet50 --profile --verify
  vta run zoo:resnet50 --device cycle --timing-only --report report.html";

const AFTER_CUT: &str = "\
Nodes and weights keep their names and bytes; weights that lie in other files are put in. `vta check` says \
where a cut helps, and Netron shows the names of values.

Examples:
  vta cut model.onnx --outputs features -o backbone.onnx
  vta cut model.onnx --inputs features -o head.onnx";

const AFTER_EXEC: &str = "\
Examples:
  vta exec model.vta --input photo.jpg
  vta exec program.asm
  vta exec program.asm --device cycle --trace trace.json
  vta exec program.asm --hazards";

const AFTER_SWEEP: &str = "\
The table is a CSV file with a line of headings. Its columns are the axes, cycles and images of a pass, \
bound_cycles, pass_ms, macs, utilization, dram_bytes, energy_uj, area_mm2, error (why a point has no result), \
sweep (its model and fixed options) and a check of the row. A changed row is refused, and so are two results \
for a point. With --layers the first axis is `layer`, and the front is that of all layers' sums.

Examples:
  vta sweep zoo:resnet18 --vary LOG_BLOCK=4,5 --vary bus_bytes=8,16 -o t.csv
  vta sweep gemm:8,64,64 --vary tags=1,2,4,8 -o t.csv --picture t.svg
  vta sweep --layers topology.csv --vary LOG_BLOCK=3,4,5 -o t.csv
  vta sweep demo --vary tags=1,2,4,8 --shard 1/2 -o t1.csv";

const AFTER_EXPLORE: &str = "\
The table is that of `vta sweep`. An exploration that was stopped goes on where it was, and one of more points \
with what it has. The same options choose the same machines. What costs no area, such as memory_latency_cycles, is \
only worth an axis if it is a choice.

Examples:
  vta explore zoo:resnet18 --area 2.5 -o t.csv --picture t.svg
  vta explore demo zoo:mobilenet-v1 --objective cycles,area -o t.csv
  vta explore demo --vary LOG_BATCH=0 --vary EXTENSIONS=none,CLIP -o t.csv
  vta explore demo --shard 1/2 -o t1.csv";

const AFTER_MERGE: &str = "\
Rows have the order of the grid, and a point has one row. Tables of other sweeps are refused, and so are \
different rows of one point. Missing points are reported, and are no failure.

Examples:
  vta merge t1.csv t2.csv -o t.csv
  vta sweep demo --vary tags=1,2,4,8 -o t.csv --picture t.svg";

const AFTER_TUNE: &str = "\
Examples:
  vta tune model.int8.onnx -o tiles.json
  vta run model.int8.onnx --tiles tiles.json --input photo.jpg
  vta tune demo --explain conv1";

/// Arguments that name files to write; all others that are paths name what is read.
const OUTPUTS: [&str; 7] = [
    "listing",
    "output",
    "picture",
    "report",
    "save_bitstream",
    "trace",
    "wave",
];

/// What the arguments ask to be written. Tables of sweeps and caches of tiles go on where they are.
pub fn outputs(matches: &ArgMatches) -> Vec<Promise> {
    let Some((command, given)) = matches.subcommand() else {
        return Vec::new();
    };
    let continued = ["explore", "sweep", "tune"].contains(&command);
    let promise = |id: &&str| {
        // `get_one` panics where the command has no such argument, or one that is no path.
        let path = given.try_get_one::<PathBuf>(id).ok()??.clone();
        let continued = continued && *id == "output";
        Some(Promise { path, continued })
    };
    OUTPUTS.iter().filter_map(promise).collect()
}

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
    /// Write the part of an ONNX model between named values
    #[command(after_long_help = AFTER_CUT)]
    Cut(CutArgs),
    /// Run a compiled program bundle, or assembly text with its data
    #[command(after_long_help = AFTER_EXEC)]
    Exec(RunArgs),
    /// Replay recorded device runs and compare every byte
    Replay(ReplayArgs),
    /// Assemble text to raw instructions
    Asm(AsmArgs),
    /// Print raw instructions or a program bundle as text
    Disasm(DisasmArgs),
    /// Print a link to a program in the playground
    Playground(PlaygroundArgs),
    /// Check a network or a program without running it
    Check(CheckArgs),
    /// Count cycles over a grid of configurations and boards
    #[command(after_long_help = AFTER_SWEEP)]
    Sweep(SweepArgs),
    /// Choose configurations, extensions and memories, and show those that no other beats
    #[command(after_long_help = AFTER_EXPLORE)]
    Explore(ExploreArgs),
    /// Join the tables of a sweep's shards
    #[command(after_long_help = AFTER_MERGE)]
    Merge(MergeArgs),
    /// Measure the functional simulator against this CPU's multiply-add peak, or OpenCL devices
    Bench(BenchArgs),
    /// Choose tiles by counting cycles, and keep them in a cache
    #[command(after_long_help = AFTER_TUNE)]
    Tune(TuneArgs),
    /// List the built-in networks
    Models,
    /// List the boards that --board knows by name
    Boards(BoardsArgs),
    /// Print what operations and parts cost, with sources: the file that --costs takes
    Costs(CostsArgs),
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
