//! Work for a device: its order, and programs in memory.

use std::sync::Arc;

use pyo3::prelude::*;
use vta_driver::{Allocations, Batch, DriverError, Point, Promise, Work};
use vta_isa::{INSN_BYTES, Insn, MemType, UOP_BYTES};

use crate::device::opened::{Calls, Open, failed};
use crate::device::streams;
use crate::error::input;
use crate::isa;

/// `waits=` and `signals=` of a call that only queues its work.
pub type Asked<'a, 'py> = Option<[Option<&'a Bound<'py, PyAny>>; 2]>;

/// What work waits for, and what it signals.
pub struct Order {
    pub calls: Calls,
    pub waits: Vec<Point>,
    pub signals: Vec<Promise>,
}

impl Order {
    /// Of a call's arguments.
    ///
    /// # Errors
    /// As for [`streams::waits`] and [`streams::signals`].
    pub fn of(asked: Asked<'_, '_>) -> PyResult<Self> {
        let calls = asked.map_or(Calls::Waited, |_| Calls::Queued);
        let [waits, signals] = asked.unwrap_or_default();
        Ok(Self {
            calls,
            waits: streams::waits(waits)?,
            signals: streams::signals(signals)?,
        })
    }
}

/// Writes a program's words and micro-ops to memory of their own.
///
/// # Errors
/// A device without room, values beyond their fields.
pub fn place(
    open: &Open,
    mut insns: Vec<Insn>,
    uops: Option<Vec<u32>>,
) -> PyResult<(Arc<Batch>, Allocations)> {
    let mut memory = Allocations::new(Arc::clone(&open.device));
    let mut place = |bytes: Vec<u8>, align: usize| {
        let addr = memory.alloc(bytes.len() as u64, align as u64)?;
        let data = bytes.into();
        open.device.submit(Work::Write { addr, data })?;
        Ok::<_, DriverError>(addr)
    };
    if let Some(uops) = uops {
        let bytes = uops.iter().flat_map(|uop| uop.to_le_bytes()).collect();
        let base = place(bytes, UOP_BYTES).map_err(failed)?.0 / UOP_BYTES as u32;
        rebase(&mut insns, base)?;
    }
    let words = isa::encoded(&insns)?;
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let batch = Arc::new(Batch {
        insn_addr: place(bytes, INSN_BYTES).map_err(failed)?,
        words,
        insns,
        marks: Vec::new(),
    });
    Ok((batch, memory))
}

/// LOADs of micro-ops that count from their own first one are told where that is.
fn rebase(insns: &mut [Insn], base: u32) -> PyResult<()> {
    for (index, insn) in insns.iter_mut().enumerate() {
        if let Insn::Load(load) = insn
            && load.mem == MemType::Uop
        {
            let moved = load.dram_base.checked_add(base);
            load.dram_base = moved.ok_or_else(|| {
                let at = load.dram_base;
                input(format!(
                    "instruction {index}: micro-op {at} is beyond the device's memory"
                ))
            })?;
        }
    }
    Ok(())
}
