//! `--device rtl:LIB.so`: networks on a design, compared with the cycle model batch by batch.

mod compare;
mod search;
mod slice;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vta_driver::{
    Batch, Budget, Device, DeviceInfo, DeviceMemory, RunReport, Runner, WorkerDevice,
};
use vta_hw_rtl::{Moved, Options, Rtl, RtlDevice, RtlError, stores_else};
use vta_isa::{Config, INSN_BYTES, Insn};
use vta_sim::cycle::TimingConfig;
use vta_sim::{CycleLog, Execution};

pub use vta_hw_rtl::end_on_abort;

use self::compare::{Byte, Two, copy};
use self::search::{Search, named};
use crate::device::kind::{Kind, Opening};
use crate::device::machine::Machine;
use crate::device::totals::{AGAINST, Totals};
use crate::error::{Result, bail, ensure, from};
use crate::options::DeviceOptions;
use crate::options::names;

pub(super) const KIND: Kind = Kind {
    name: "rtl",
    then: &[':'],
    form: "rtl:LIB.so",
    meant: &[],
    single: true,
    check: |name| library(name).map(drop),
    open,
};

from!(Device: RtlError);

/// Lines of differences that are kept.
const MAX_LINES: usize = 16;

/// Options of a design, read and checked.
pub struct Loop {
    library: PathBuf,
    name: String,
    wave: Option<PathBuf>,
    compared: bool,
    budget: Budget,
    log: Log,
}

fn open(name: &str, config: &Config, opening: &Opening) -> Result<Arc<dyn Device>> {
    let (path, options) = (library(name)?, Options::default());
    let device = RtlDevice::open(path, config.clone(), opening.budget, &options)?;
    Ok(Arc::new(device))
}

/// The library of a name.
///
/// # Errors
/// When it names none.
fn library(name: &str) -> Result<&Path> {
    match name.strip_prefix("rtl:").filter(|path| !path.is_empty()) {
        Some(path) => Ok(Path::new(path)),
        None => {
            bail!("{} rtl:LIB.so names the library of a design, as docs/rtl.md says"; names::DEVICE)
        }
    }
}

/// Shared by the device and who asks.
type Log = Arc<Mutex<Totals>>;

fn lock(log: &Log) -> MutexGuard<'_, Totals> {
    // Totals are added whole.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loop {
    /// Reads the options of a device that is a design.
    ///
    /// # Errors
    /// A name without a library, something to compare with that isn't known.
    pub fn new(args: &DeviceOptions) -> Result<Self> {
        if let Some(against) = &args.against {
            ensure!(
                against == AGAINST,
                "{} {}: a design is compared with {}";
                names::AGAINST, against, AGAINST
            );
        }
        Ok(Self {
            library: library(&args.device)?.to_owned(),
            name: args.device.clone(),
            wave: args.wave.clone(),
            compared: args.against.is_some(),
            budget: args.budget,
            log: Log::default(),
        })
    }

    /// Opens the design for a configuration.
    ///
    /// # Errors
    /// A library that can't be opened, a configuration that the board hasn't room for.
    pub fn device(&self, machine: &Machine, config: &Config) -> Result<WorkerDevice> {
        let options = Options {
            wave: self.wave.clone(),
            max_clocks: Some(self.budget.cycles),
            ..Options::default()
        };
        let (execution, log) = (Execution::Full, CycleLog::default());
        let reference = || machine.cycle_runner(self.budget, config.clone(), execution, log);
        let reference = self.compared.then(reference).transpose()?;
        let mut bench = Bench {
            rtl: Rtl::open(&self.library, &options)?,
            config: config.clone(),
            budget: self.budget,
            reference,
            board: (machine.name.clone(), machine.timing.clone()),
            log: Arc::clone(&self.log),
        };
        let runner: Runner = Box::new(move |batch, memory| bench.run(batch, memory));
        let info = DeviceInfo {
            name: self.name.clone(),
            config: config.clone(),
        };
        Ok(WorkerDevice::new(info, runner))
    }

    /// What was found so far.
    pub fn totals(&self) -> Totals {
        lock(&self.log).clone()
    }
}

/// A design with what it is compared with.
struct Bench {
    rtl: Rtl,
    config: Config,
    budget: Budget,
    reference: Option<Runner>,
    /// The board that it is compared with.
    board: (String, TimingConfig),
    log: Log,
}

impl Bench {
    fn run(&mut self, batch: &Arc<Batch>, memory: &mut DeviceMemory) -> Result<RunReport, String> {
        let config = &self.config;
        let Some(reference) = &mut self.reference else {
            let max_clocks = Some(self.budget.cycles);
            let ran = vta_hw_rtl::run(&mut self.rtl, config, max_clocks, batch, memory);
            let (report, moved) = ran.map_err(|error| error.to_string())?;
            if let Some(text) = stores_else(batch, &report, &moved) {
                return Err(text);
            }
            let mut log = lock(&self.log);
            log.batches += 1;
            log.cycles += report.cycles.unwrap_or(0);
            return Ok(report);
        };
        let before = copy(memory)?;
        let mut two = Two {
            config,
            rtl: &mut self.rtl,
            reference,
            timing: &self.board.1,
            budget: &self.budget,
        };
        let (found, report) = two.run(batch, memory)?;
        if let Some(byte) = found.byte {
            let wrong = wrong(&mut two, batch, &before, byte);
            let other = other_board(&self.board, &found.moved, batch.insns.len());
            let other = other.or_else(|| stores_else(batch, &report, &found.moved));
            return Err(other.map_or(wrong.clone(), |other| format!("{wrong}; {other}")));
        }
        let number = lock(&self.log).batches;
        let [design, model] = found.cycles;
        let line = match other_board(&self.board, &found.moved, batch.insns.len()) {
            _ if design == model => None,
            _ if number_of_lines(&self.log) >= MAX_LINES => Some(None),
            Some(other) => Some(Some(other)),
            None => Some(Some(late(&mut two, batch, &before)?)),
        };
        let line = line.map(|line| {
            line.map(|line| {
                format!("batch {number}: {design} cycles, by {AGAINST} {model}; {line}")
            })
        });
        let mut log = lock(&self.log);
        log.batches += 1;
        log.cycles += found.cycles[0];
        *log.compared_cycles.get_or_insert(0) += found.cycles[1];
        if let Some(line) = line {
            log.differing += 1;
            log.differences.extend(line);
        }
        Ok(report)
    }
}

fn number_of_lines(log: &Log) -> usize {
    lock(log).differences.len()
}

/// In words, that a design is another board's, by the beats in which it moves and fetches.
fn other_board(
    (name, timing): &(String, TimingConfig),
    moved: &Moved,
    insns: usize,
) -> Option<String> {
    let beat = u64::from(timing.bus_bytes);
    if moved.beat_bytes != 0 && moved.beat_bytes != beat {
        return Some(format!(
            "the design is another board's: its bus has {} bytes a beat, {name}'s {beat}",
            moved.beat_bytes
        ));
    }
    let fetched = insns.min(timing.fetch_chunk_insns as usize) * INSN_BYTES;
    let expected = (fetched as u64).div_ceil(beat);
    (moved.fetched_beats != expected).then(|| {
        format!(
            "the design is another board's: its first read has {} beats, {name}'s {expected}",
            moved.fetched_beats
        )
    })
}

/// In words, which byte differs, who stored it and which instruction is the first to do otherwise.
fn wrong(
    two: &mut Two<'_>,
    batch: &Batch,
    before: &DeviceMemory,
    (addr, found, expected): Byte,
) -> String {
    let config = two.config;
    let stores = |insn: &Insn| {
        let rows = matches!(insn, Insn::Store(_)).then(|| insn.dram_rows(config));
        rows.flatten()
            .is_some_and(|rows| rows.iter().any(|row| row.contains(&addr)))
    };
    let stored = match batch.insns.iter().rposition(stores) {
        Some(index) => format!("stored by {}", named(batch, index)),
        None => "which no instruction stores".to_owned(),
    };
    let (found, expected) = (found as i8, expected as i8);
    let byte = format!(
        "the first byte that differs from {AGAINST}'s is at {addr:#x}: {found}, by {AGAINST} {expected}, {stored}"
    );
    let searched = Search::new(two, config, batch, before);
    match searched.and_then(|mut search| search.wrong()) {
        Ok(found) => format!("{byte}; {found}"),
        Err(error) => format!("{byte}; looking for the instruction: {error}"),
    }
}

/// In words, which instruction takes other cycles.
fn late(two: &mut Two<'_>, batch: &Arc<Batch>, before: &DeviceMemory) -> Result<String, String> {
    let config = two.config;
    let at = match Search::new(two, config, batch, before)?.late()? {
        Some((index, by)) => {
            format!(
                "the first that differs is {}, by {by:+} cycles",
                named(batch, index)
            )
        }
        None => "the same instructions again take the same".to_owned(),
    };
    // The scratchpads are again as the batch left them.
    two.run(batch, &mut copy(before)?)?;
    Ok(at)
}
