//! `--device rtl:LIB.so`: networks on a design, compared with the cycle model batch by batch.

mod compare;
mod search;
mod slice;
mod tail;

use std::path::Path;
use std::sync::Arc;

use vta_driver::{Batch, Device, DeviceInfo, DeviceMemory, RunReport, Runner, WorkerDevice};
use vta_hw_rtl::{Moved, Options, Rtl, RtlDevice, RtlError, stores_else};
use vta_isa::{Config, INSN_BYTES, Insn};
use vta_sim::{CycleLog, Execution};

pub use vta_hw_rtl::end_on_abort;

use self::compare::{Byte, Two, copy};
use self::search::{Search, named};
use crate::device::kind::Opened;
use crate::device::machine::Machine;
use crate::device::totals::{AGAINST, Log};
use crate::error::{Result, bail, ensure, from};
use crate::options::Target;
use crate::options::names;

pub(super) const OPENED: Option<Opened> = Some(Opened {
    check: |name| library(name).map(drop),
    open,
});

from!(Device: RtlError);

/// Lines of differences that are kept.
const MAX_LINES: usize = 16;

fn open(name: &str, config: &Config, target: &Target, _: usize) -> Result<Arc<dyn Device>> {
    let (path, options) = (library(name)?, Options::default());
    let device = RtlDevice::open(path, config.clone(), target.budget, &options)?;
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

/// Begins to count what a design takes, when its options are right.
///
/// # Errors
/// Something to compare with that isn't known.
pub(super) fn begin(target: &Target) -> Result<Log> {
    if let Some(against) = &target.against {
        ensure!(
            against == AGAINST,
            "{} {}: a design is compared with {}";
            names::AGAINST, against, AGAINST
        );
    }
    Ok(Log::default())
}

/// Opens the design of a target for a configuration, and counts what it takes.
///
/// # Errors
/// A library that can't be opened, a configuration that the board hasn't room for.
pub(super) fn device(
    target: &Target,
    machine: &Machine,
    config: &Config,
    log: &Log,
) -> Result<WorkerDevice> {
    let options = Options {
        wave: target.wave.clone(),
        max_clocks: Some(target.budget.cycles),
        ..Options::default()
    };
    let reference = || machine.runner(config.clone(), Execution::Full, CycleLog::default());
    let reference = target.against.is_some().then(reference).transpose()?;
    let mut bench = Bench {
        rtl: Rtl::open(library(&target.device)?, &options)?,
        config: config.clone(),
        reference,
        machine: machine.clone(),
        log: log.clone(),
    };
    let runner: Runner = Box::new(move |batch, memory| bench.run(batch, memory));
    let info = DeviceInfo {
        name: target.device.clone(),
        config: config.clone(),
    };
    Ok(WorkerDevice::new(info, runner))
}

/// A design with what it is compared with.
struct Bench {
    rtl: Rtl,
    config: Config,
    reference: Option<Runner>,
    /// The machine that it is compared with.
    machine: Machine,
    log: Log,
}

impl Bench {
    fn run(&mut self, batch: &Arc<Batch>, memory: &mut DeviceMemory) -> Result<RunReport, String> {
        let config = &self.config;
        let Some(reference) = &mut self.reference else {
            let max_clocks = Some(self.machine.budget.cycles);
            let ran = vta_hw_rtl::run(&mut self.rtl, config, max_clocks, batch, memory);
            let (report, moved) = ran.map_err(|error| error.to_string())?;
            if let Some(text) = stores_else(batch, &report, &moved) {
                return Err(text);
            }
            let mut log = self.log.lock();
            log.batches += 1;
            log.cycles += report.cycles.unwrap_or(0);
            return Ok(report);
        };
        let before = copy(memory)?;
        let mut two = Two {
            config,
            rtl: &mut self.rtl,
            reference,
            machine: &self.machine,
        };
        let (found, report) = two.run(batch, memory)?;
        if let Some(byte) = found.byte {
            let wrong = wrong(&mut two, batch, &before, byte);
            let other = other_board(&self.machine, &found.moved, batch.insns.len());
            let other = other.or_else(|| stores_else(batch, &report, &found.moved));
            return Err(other.map_or(wrong.clone(), |other| format!("{wrong}; {other}")));
        }
        let [design, model] = found.cycles;
        let (number, kept) = {
            let log = self.log.lock();
            (log.batches, log.differences.len())
        };
        let mut line = None;
        if design != model && kept < MAX_LINES {
            let why = match other_board(&self.machine, &found.moved, batch.insns.len()) {
                Some(other) => other,
                None => late(&mut two, batch, &before)?,
            };
            let cycles = format!("{design} cycles, by {AGAINST} {model}");
            line = Some(format!("batch {number}: {cycles}; {why}"));
        }
        let mut log = self.log.lock();
        log.batches += 1;
        log.cycles += design;
        *log.compared_cycles.get_or_insert(0) += model;
        log.differing += u64::from(design != model);
        log.differences.extend(line);
        Ok(report)
    }
}

/// In words, that a design is another board's, by the beats in which it moves and fetches.
fn other_board(machine: &Machine, moved: &Moved, insns: usize) -> Option<String> {
    let Machine { name, timing, .. } = machine;
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
