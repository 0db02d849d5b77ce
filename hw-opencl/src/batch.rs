//! Walking a batch in an order that its tokens allow, with every bound checked.
//!
//! Kernels check nothing: whatever reaches a device was found legal here first. That needs the
//! micro-ops, so the host keeps what the micro-op scratchpad holds, reading the loads of micro-ops
//! from a mirror of device memory.

use std::fmt::Display;
use std::ops::Range;

use vta_driver::{Batch, DeviceMemory, StepBudget};
use vta_isa::resolve::{LoadAccess, Resolved, Rows, StoreAccess, UopScratchpad};
use vta_isa::tokens::At;
use vta_isa::{Config, Insn, MemType};

use crate::error::EngineError;
use crate::mirror::Mirror;

/// What becomes of the instructions: operations of the throughput structure, or a stream for
/// the core. FINISH doesn't come here.
pub(crate) trait Sink {
    /// Takes the next instruction, whose bounds and memory are checked.
    ///
    /// # Errors
    /// An instruction that it can't pass on.
    fn take(&mut self, at: &At, resolved: &Resolved<'_>) -> Result<(), EngineError>;
}

/// Where a walk stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At the end.
    End,
    /// Before the instruction at this place of the order: it loads micro-ops from bytes that the
    /// device wrote, so they must be read back to the mirror first.
    ReadBack {
        position: usize,
        ranges: Vec<(u32, u64)>,
    },
}

/// A walk over one batch.
pub(crate) struct Walk<'a> {
    pub config: &'a Config,
    pub batch: &'a Batch,
    pub order: &'a [u32],
    pub uops: &'a mut UopScratchpad,
    pub steps: StepBudget,
    /// DRAM that was read as micro-ops: address and length.
    pub uop_sources: Vec<(u32, u32)>,
}

impl Walk<'_> {
    /// Walks from `from` on. The instruction at `fresh` may load micro-ops although the device
    /// wrote them: they were read back.
    pub fn run(
        &mut self,
        mirror: &mut Mirror,
        from: usize,
        fresh: Option<usize>,
        sink: &mut dyn Sink,
    ) -> Result<Stop, EngineError> {
        for position in from..self.order.len() {
            let index = self.order[position] as usize;
            let at = At {
                index,
                insn: self.batch.insns[index],
            };
            let spent = self.steps.spend(index, &at.insn);
            spent.map_err(EngineError::refused)?;
            let resolved = self.uops.resolve(self.config, &at.insn);
            let resolved = resolved.map_err(|fault| refused(&at, fault))?;
            match resolved {
                Resolved::Load(access) => {
                    check_load(&at, &access, mirror.memory())?;
                    if access.load.mem == MemType::Uop {
                        let ranges = stale_rows(&access, mirror);
                        if !ranges.is_empty() && fresh != Some(position) {
                            return Ok(Stop::ReadBack { position, ranges });
                        }
                        self.load_uops(&access, mirror.memory());
                    }
                    sink.take(&at, &Resolved::Load(access))?;
                }
                Resolved::Store(access) => {
                    check_store(&at, &access, mirror)?;
                    sink.take(&at, &Resolved::Store(access))?;
                }
                Resolved::Sync if matches!(at.insn, Insn::Finish(_)) => {}
                other @ (Resolved::Sync
                | Resolved::Gemm(_)
                | Resolved::Alu(_)
                | Resolved::Depthwise(_)) => {
                    sink.take(&at, &other)?;
                }
            }
        }
        Ok(Stop::End)
    }

    /// A LOAD UOP whose rows are checked.
    fn load_uops(&mut self, access: &LoadAccess, memory: &DeviceMemory) {
        self.uops.fill(self.config, &access.load, memory);
        let sources = access.rows.iter();
        let sources = sources.map(|row| (row.start as u32, (row.end - row.start) as u32));
        self.uop_sources.extend(sources);
    }
}

/// Whether all that lies between some rows is in one allocation, so that each of them is.
fn is_within_one(rows: &Rows, memory: &DeviceMemory) -> bool {
    let Range { start, end } = rows.span();
    memory.read(start, end - start).is_ok()
}

fn check_load(at: &At, access: &LoadAccess, memory: &DeviceMemory) -> Result<(), EngineError> {
    if is_within_one(&access.rows, memory) {
        return Ok(());
    }
    // A row that is read again and again is looked up once.
    let once = access.rows.stride_bytes == 0;
    let rows = access.rows.iter();
    for row in rows.take(if once { 1 } else { usize::MAX }) {
        let read = memory.read(row.start, row.end - row.start);
        read.map_err(|source| refused(at, source))?;
    }
    Ok(())
}

fn check_store(at: &At, access: &StoreAccess, mirror: &mut Mirror) -> Result<(), EngineError> {
    if !is_within_one(&access.rows, mirror.memory()) {
        for row in access.rows.iter() {
            let read = mirror.memory().read(row.start, row.end - row.start);
            read.map_err(|source| refused(at, source))?;
        }
    }
    for row in access.rows.apart() {
        mirror.device_writes(&row);
    }
    Ok(())
}

/// Rows of a load of micro-ops that the device has written, as addresses and lengths.
fn stale_rows(access: &LoadAccess, mirror: &Mirror) -> Vec<(u32, u64)> {
    let stale = access.rows.iter().filter(|row| mirror.is_stale(row));
    stale
        .map(|row| (row.start as u32, row.end - row.start))
        .collect()
}

/// Of an instruction.
pub(crate) fn refused(at: &At, why: impl Display) -> EngineError {
    EngineError::refused(format_args!("{at}: {why}"))
}
