//! Building the kernels: from source through the cache, or from a bitstream.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use vta_files::output;
use vta_isa::{Config, MemType, header};

use crate::build::cache::BinaryCache;
use crate::cl::{Arg, BuildFault, Built, Bytes, CoreKernel, Ctx, Queue};
use crate::error::{ClFault, OpenClError};
use crate::options::{Cache, Math, Options};
use crate::plan::target::{Room, Shape, depth};
use crate::plan::versions::Scratchpad;
use crate::scopes::Scopes;
use crate::select::{DeviceEntry, DeviceKind, Structure};
use crate::sources::{CORE_SOURCE, PACK_SOURCE, THROUGHPUT_SOURCE};
use crate::stats::Counts;
use crate::words::throughput_header;

/// The largest bitstream that is read.
const MAX_BITSTREAM_BYTES: u64 = 1 << 30;
/// Registers of a multiprocessor of NVIDIA's, of all generations since 2012.
const REGISTERS: u32 = 1 << 16;
/// Work-groups that a multiprocessor holds at once when so many share its registers; each has
/// 256 work-items, of which it takes at least 1024.
pub(crate) const GROUPS_PER_UNIT: u32 = 4;
/// Rows, lanes and products of a tile that a matrix instruction works on.
const MATRIX: u32 = 16;
/// Batch rows that so many registers hold the sums of.
const MAX_MATRIX_BATCH: u32 = 64;
/// Work-items that have such a tile together.
const MATRIX_UNITS: u32 = 32;
/// Scratchpads up to this size become arrays of an FPGA's kernel.
const MAX_ON_CHIP_BYTES: usize = 4 << 20;

/// How many times a scratchpad a GPU has beyond it: inputs, weights, accumulators.
const GPU_ROOM: [u64; 3] = [64, 32, 32];
/// The same of a CPU.
const CPU_ROOM: [u64; 3] = [4, 2, 2];

/// How the throughput structure's kernels are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThroughputBuild {
    pub shape: Shape,
    pub math: Math,
    transpose: bool,
}

impl ThroughputBuild {
    /// For a kind of device: single lanes side by side on a GPU, vectors on anything else.
    pub fn new(kind: DeviceKind, config: &Config, math: Option<Math>) -> Self {
        let block = config.block() as u32;
        let gpu = kind == DeviceKind::Gpu || matches!(math, Some(Math::Fours | Math::Matrix));
        let wanted = math.unwrap_or(if gpu { Math::Fours } else { Math::Float });
        let batch = config.batch() as u32;
        let math = match wanted {
            Math::Fours | Math::Matrix if block < 4 => Math::Int,
            Math::Matrix if block != MATRIX || batch > MAX_MATRIX_BATCH => Math::Fours,
            Math::Pairs if block < 2 => Math::Int,
            other => other,
        };
        let transpose = !gpu && block >= 16;
        let wgt_elems = if !gpu {
            if transpose { 256 } else { block * block }
        } else if matches!(math, Math::Fours | Math::Matrix) {
            4
        } else {
            1
        };
        let lanes = if gpu { 1 } else { block.min(16) };
        let rows = if gpu { 2 } else { 8 };
        let (product_rows, product_units) = match math {
            // Two tiles of rows have the same weights, but not where that leaves few units.
            Math::Matrix if batch == 1 => (MATRIX, MATRIX_UNITS),
            Math::Matrix => ((2 * MATRIX / batch).max(1), MATRIX_UNITS),
            Math::Int | Math::Pairs | Math::Float | Math::Fours => (rows, batch * block / lanes),
        };
        let shape = Shape {
            lanes,
            rows,
            product_rows,
            product_units,
            // Sums of more images are enough units.
            product_parts: if math == Math::Matrix && batch == 1 {
                4
            } else {
                1
            },
            wgt_elems,
            group: if gpu { 256 } else { 1 },
        };
        Self {
            shape,
            math,
            transpose,
        }
    }

    /// Scratchpad tiles beyond the program's, of a device whose scratchpads have at most so many
    /// bytes. A GPU fills itself with the outputs of a whole layer; a CPU must find everything in
    /// its caches.
    pub fn room(&self, config: &Config, most_bytes: [u64; 3]) -> Room {
        let times = if self.shape.group > 1 {
            GPU_ROOM
        } else {
            CPU_ROOM
        };
        let tile_bytes = self.tile_bytes(config);
        let room = |scratchpad: Scratchpad| {
            let (depth, n) = (u64::from(depth(config, scratchpad)), scratchpad as usize);
            let most = most_bytes[n].min(u32::MAX.into()) / tile_bytes[n];
            (depth * times[n]).min(most.saturating_sub(depth + 1)) as u32
        };
        Room(Scratchpad::ALL.map(room))
    }

    /// Bytes of a tile of each scratchpad, in [`Scratchpad`]'s order.
    pub fn tile_bytes(&self, config: &Config) -> [u64; 3] {
        let (lanes, area) = (config.lanes() as u64, (config.block() as u64).pow(2));
        [
            lanes * self.elem_bytes(),
            area * self.elem_bytes(),
            lanes * 4,
        ]
    }

    fn options(&self) -> String {
        let Shape {
            lanes,
            rows,
            product_rows,
            group,
            ..
        } = self.shape;
        let math = self.math as u32;
        let transpose = if self.transpose {
            " -DVTA_TRANSPOSE"
        } else {
            ""
        };
        format!(
            " -DVTA_V={lanes} -DVTA_ROWS={rows} -DVTA_PRODUCT_ROWS={product_rows} -DVTA_GROUP={group} \
             -DVTA_MATH={math}{transpose}"
        )
    }

    /// Bytes of an element of the input and weight scratchpads.
    pub fn elem_bytes(&self) -> u64 {
        match self.math {
            Math::Int | Math::Fours | Math::Matrix => 1,
            Math::Pairs => 2,
            Math::Float => 4,
        }
    }
}

/// The numbers that fix the instance: in words, as macros, and what they are. A bitstream's identity has
/// them in this order.
fn instance(config: &Config) -> [(&'static str, &'static str, usize); 6] {
    let depth = |mem| config.depth(mem);
    [
        ("BATCH", "BATCH", config.batch()),
        ("BLOCK", "BLOCK", config.block()),
        ("micro-op depth", "UOP_DEPTH", depth(MemType::Uop)),
        ("input depth", "INP_DEPTH", depth(MemType::Inp)),
        ("weight depth", "WGT_DEPTH", depth(MemType::Wgt)),
        ("accumulator depth", "ACC_DEPTH", depth(MemType::Acc)),
    ]
}

/// The `-D` macros that fix the instance; an offline compiler for an FPGA needs the same.
pub fn config_macros(config: &Config) -> String {
    let macros = instance(config).map(|(_, name, value)| format!("-DVTA_{name}={value}"));
    macros.join(" ")
}

/// Bytes of the core's scratchpads.
pub(crate) fn scratchpad_bytes(config: &Config) -> usize {
    let (lanes, area) = (config.lanes(), config.block() * config.block());
    config.depth(MemType::Uop) * 4
        + config.depth(MemType::Inp) * lanes
        + config.depth(MemType::Wgt) * area
        + config.depth(MemType::Acc) * lanes * 4
}

/// Everything that a build depends on.
pub(crate) struct Builder<'a> {
    pub entry: &'a DeviceEntry,
    pub config: &'a Config,
    pub options: &'a Options,
    /// Of the throughput structure.
    pub scopes: Scopes,
    pub stats: &'a Counts,
    pub ctx: &'a Arc<Ctx>,
}

impl Builder<'_> {
    /// The device's name in errors.
    fn device(&self) -> String {
        self.entry.selector.clone()
    }

    pub fn call(&self, fault: ClFault) -> OpenClError {
        fault.of(&self.entry.selector)
    }

    /// Why the scopes can't be had.
    pub fn no_scopes(&self, reason: String) -> OpenClError {
        OpenClError::Scope {
            device: self.device(),
            scopes: self.scopes.to_string(),
            reason,
        }
    }

    /// Why a structure can't be run.
    pub fn no_structure(&self, structure: Structure, reason: &str) -> OpenClError {
        OpenClError::Structure {
            device: self.device(),
            structure: structure.name(),
            reason: reason.to_owned(),
        }
    }

    /// Why a bitstream can't be used.
    fn no_bitstream(&self, path: &Path, reason: String) -> OpenClError {
        OpenClError::Bitstream {
            device: self.device(),
            path: path.display().to_string(),
            reason,
        }
    }

    fn failed(&self, fault: BuildFault) -> OpenClError {
        OpenClError::Build {
            device: self.device(),
            fault: fault.fault,
            log: fault.log,
        }
    }

    /// Whether scratchpads are arrays of the core's kernel.
    pub fn on_chip(&self) -> bool {
        self.entry.kind == DeviceKind::Accelerator
            && scratchpad_bytes(self.config) <= MAX_ON_CHIP_BYTES
    }

    /// The core's program: of the bitstream, if there is one, else from source.
    pub fn core(&self, structure: Structure) -> Result<Built, OpenClError> {
        if let Some(path) = &self.options.bitstream {
            return self.bitstream(path, structure);
        }
        if !self.entry.facts.takes_source {
            let reason = "the device takes no source: it needs a bitstream";
            return Err(self.no_structure(structure, reason));
        }
        let mut options = config_macros(self.config);
        match structure {
            Structure::Channels => options.push_str(" -DVTA_CHANNELS"),
            Structure::Core | Structure::Throughput if self.on_chip() => {
                options.push_str(" -DVTA_ON_CHIP");
            }
            Structure::Core | Structure::Throughput => {}
        }
        self.source(CORE_SOURCE, &options)
    }

    /// Whether the device takes NVIDIA's instructions as inline assembly.
    fn is_nvidia(&self) -> bool {
        self.entry.facts.platform.contains("NVIDIA")
    }

    /// How the throughput structure is built here, with its program and how many work-groups may
    /// wait for each other in it: with matrix instructions where the device has them.
    pub fn throughput_build(&self) -> Result<(ThroughputBuild, Built, u32), OpenClError> {
        let of = |math| ThroughputBuild::new(self.entry.kind, self.config, math);
        let made = |build: ThroughputBuild| {
            let (built, groups) = self.throughput(&build)?;
            Ok((build, built, groups))
        };
        let matrix = of(Some(Math::Matrix));
        let tries = self.options.math.is_none()
            && self.is_nvidia()
            && self.entry.kind == DeviceKind::Gpu
            && matrix.math == Math::Matrix;
        if tries {
            match made(matrix) {
                Err(OpenClError::Build { log, .. }) => {
                    tracing::info!(log, "building without matrix instructions");
                }
                other => return other,
            }
        }
        made(of(self.options.math))
    }

    /// The throughput structure's program, and how many work-groups may wait for each other in
    /// it; 0 when it is launched level by level.
    fn throughput(&self, build: &ThroughputBuild) -> Result<(Built, u32), OpenClError> {
        let mut options = config_macros(self.config) + &build.options() + &self.scopes.macros();
        let nvidia = self.is_nvidia() && matches!(build.math, Math::Fours | Math::Matrix);
        if nvidia && build.math == Math::Matrix {
            // Without the instruction fours are faster.
            options.push_str(" -DVTA_MMA");
        }
        let one_launch = self.scopes.are_buffers() && self.options.one_launch.unwrap_or(nvidia);
        let mut variants = Vec::new();
        if nvidia && one_launch {
            let limit = REGISTERS / (GROUPS_PER_UNIT * build.shape.group);
            let more = format!(" -DVTA_DP4A -DVTA_ONE_LAUNCH -cl-nv-maxrregcount={limit}");
            let groups = GROUPS_PER_UNIT * self.entry.facts.compute_units;
            variants.push((more, groups));
        }
        if nvidia {
            // These instructions are reached through inline assembly, which only some drivers
            // take.
            variants.push((" -DVTA_DP4A".to_owned(), 0));
        }
        if one_launch {
            variants.push((" -DVTA_ONE_LAUNCH".to_owned(), 1));
        }
        let source = throughput_header() + THROUGHPUT_SOURCE + PACK_SOURCE;
        for (more, groups) in variants {
            match self.source(&source, &format!("{options}{more}")) {
                Err(OpenClError::Build { log, .. }) => {
                    tracing::warn!(log, "building without{more}");
                }
                other => return Ok((other?, groups)),
            }
        }
        Ok((self.source(&source, &options)?, 0))
    }

    /// Builds from source, or loads the binary of an earlier build.
    fn source(&self, source: &str, options: &str) -> Result<Built, OpenClError> {
        let cache = self.options.cache_folder().map(BinaryCache::new);
        let text = header::opencl_header() + source;
        let key = [&self.entry.facts.identity()[..], options, &text].join("\n");
        if let Some(binary) = cache.as_ref().and_then(|c| c.get(&key)) {
            match self.ctx.load(&binary, options) {
                Ok(built) => {
                    self.stats.add(|s| s.cache_hits += 1);
                    return Ok(built);
                }
                Err(fault) => {
                    // The runtime changed without saying so: build again.
                    tracing::warn!(fault = %fault.fault, log = fault.log, "a cached binary");
                }
            }
        }
        let built = self.ctx.build(&text, options);
        let built = built.map_err(|fault| self.failed(fault))?;
        self.stats.add(|s| s.builds += 1);
        if !built.log.is_empty() {
            tracing::info!(device = self.device(), log = built.log, "build log");
        }
        if let Some(cache) = cache {
            match built.binary() {
                Ok(binary) if !binary.is_empty() => cache.put(&key, &binary),
                Ok(_) => {}
                Err(fault) => tracing::warn!(%fault, "reading a built binary"),
            }
        }
        Ok(built)
    }

    fn bitstream(&self, path: &Path, structure: Structure) -> Result<Built, OpenClError> {
        let refuse = |reason| self.no_bitstream(path, reason);
        let size = fs::metadata(path).map_err(|e| refuse(e.to_string()))?.len();
        if size == 0 || size > MAX_BITSTREAM_BYTES {
            return Err(refuse(format!(
                "{size} bytes, but 1 to {MAX_BITSTREAM_BYTES} are expected"
            )));
        }
        let mut binary = Vec::new();
        let read = vta_files::open_input(path).and_then(|mut file| file.read_to_end(&mut binary));
        read.map_err(|e| refuse(e.to_string()))?;
        let built = self.ctx.load(&binary, "").map_err(|fault| {
            let BuildFault { fault, log } = fault;
            refuse(format!(
                "{fault}; is it for this board and this version of its software? {log}"
            ))
        })?;
        for name in kernels(structure) {
            if !built.has_kernel(name) {
                return Err(refuse(format!("it has no kernel {name}")));
            }
        }
        Ok(built)
    }

    /// Asks a program what it was built for, and refuses another instance.
    pub fn check_identity(&self, built: &Built, queue: &Queue) -> Result<(), OpenClError> {
        let Some(path) = &self.options.bitstream else {
            return Ok(());
        };
        let call = |fault| self.call(fault);
        let kernel = built.kernel("vta_identity").map_err(call)?;
        let words = self.identity_words(&kernel, queue).map_err(call)?;
        let version = ("encoding version", header::ENCODING_VERSION);
        let instance = instance(self.config).map(|(what, _, value)| (what, value as u32));
        let expected = [version].into_iter().chain(instance);
        for ((what, expected), found) in expected.zip(words) {
            if found != expected {
                return Err(self.no_bitstream(
                    path,
                    format!("it was built for another VTA: its {what} is {found}, not {expected}"),
                ));
            }
        }
        Ok(())
    }

    fn identity_words(&self, kernel: &CoreKernel, queue: &Queue) -> Result<Vec<u32>, ClFault> {
        let mut out: Bytes = self.ctx.buffer(7 * 4)?;
        queue.zero(&mut out, 0, 7 * 4)?;
        kernel.set(0, &[Arg::Buffer(&out)])?;
        queue.launch(kernel, 1, 1)?;
        let bytes = queue.read(&out, 0, 7 * 4)?.wait()?;
        let word = |c: &[u8]| u32::from_ne_bytes([c[0], c[1], c[2], c[3]]);
        Ok(bytes.chunks_exact(4).map(word).collect())
    }
}

/// The kernels that a structure needs.
pub(crate) fn kernels(structure: Structure) -> &'static [&'static str] {
    match structure {
        Structure::Core => &["vta_core", "vta_identity"],
        Structure::Channels => &["vta_load", "vta_compute", "vta_store", "vta_identity"],
        Structure::Throughput => &["vta_levels"],
    }
}

/// Builds the core for a device and writes the program's binary: what an FPGA's offline compiler
/// makes for a board, here for a device that builds from source, such as an FPGA's emulator.
///
/// # Errors
/// As for opening the device; a file that can't be written.
pub fn save_bitstream(
    entry: &DeviceEntry,
    config: &Config,
    structure: Structure,
    path: &Path,
) -> Result<(), OpenClError> {
    let options = Options {
        cache: Cache::None,
        ..Options::default()
    };
    let call = |fault: ClFault| fault.of(&entry.selector);
    let ctx = Arc::new(Ctx::new(&entry.facts).map_err(call)?);
    let builder = Builder {
        entry,
        config,
        options: &options,
        scopes: Scopes::default(),
        stats: &Counts::default(),
        ctx: &ctx,
    };
    let binary = builder.core(structure)?.binary().map_err(call)?;
    Ok(output::write(path, binary)?)
}
