//! Whole programs and recorded runs: the batches that a device really gets.

use std::sync::{Arc, mpsc};

use thiserror::Error;
use vta_driver::{
    Allocations, CommandQueue, Device, DeviceInfo, DeviceMemory, DriverError, FlushReason,
    LayerMark, MemoryError, Program, QueueLimits, RunReport, Runner, WorkerDevice,
};
use vta_isa::MemType;
use vta_isa::tokens::TokenError;
use vta_replay::Case;

use super::{Report, UopSource, check};

/// Something that can't be checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HazardError {
    /// There is no order to check.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The program can't be queued.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A recorded run's allocations contradict each other.
    #[error("{case}: {source}")]
    Memory {
        /// The recorded run.
        case: String,
        /// The allocation.
        source: MemoryError,
    },
}

/// The hazards of one batch of a program.
#[derive(Clone, Debug)]
pub struct BatchReport {
    /// What was found.
    pub report: Report,
    /// Which instructions belong to which layer.
    pub marks: Vec<LayerMark>,
}

impl BatchReport {
    /// The layer of an instruction of the batch.
    pub fn layer(&self, insn: usize) -> Option<&str> {
        let mark = self.marks.iter().rev().find(|m| m.first_insn <= insn)?;
        Some(&mark.name)
    }
}

/// Checks a compiled program: queues all of it, as a run does, on a device that checks batches
/// where others run them. So addresses and loads of micro-ops are those of a run. Batches run
/// one after another, so nothing races across them.
///
/// # Errors
/// [`HazardError`] when the program can't be queued or a batch's tokens are wrong.
pub fn check_program(
    program: &Arc<Program>,
    limits: QueueLimits,
) -> Result<Vec<BatchReport>, HazardError> {
    let config = program.config.clone();
    let info = DeviceInfo {
        name: "hazards".to_owned(),
        config: config.clone(),
    };
    let (sender, receiver) = mpsc::channel();
    let runner: Runner = Box::new(move |batch, memory| {
        let report = check(&config, &batch.insns, UopSource::Memory(memory));
        let report = report.map(|report| BatchReport {
            report,
            marks: batch.marks.clone(),
        });
        // The receiver outlives the device.
        let _ = sender.send(report);
        Ok(RunReport::default())
    });
    let device: Arc<dyn Device> = Arc::new(WorkerDevice::new(info, runner));
    // Nothing that buffers hold changes an instruction, so they stay empty.
    let mut buffers = Allocations::new(Arc::clone(&device));
    let align = MemType::ALL.map(|mem| program.config.elem_bytes(mem) as u64);
    let align = align.into_iter().fold(1, u64::max);
    let sizes = program.buffers.iter().map(|buffer| buffer.size_bytes);
    let addresses = sizes.map(|size| buffers.alloc(size, align));
    let addresses = addresses.collect::<Result<_, _>>()?;
    let mut queue = CommandQueue::new(Arc::clone(program), device, addresses, limits)?;
    for layer in 0..program.layers.len() {
        queue.push_layer(layer)?;
    }
    queue.submit(FlushReason::HostRead)?;
    for ticket in queue.take_tickets() {
        ticket.wait()?;
    }
    drop((queue, buffers));
    let reports: Result<Vec<_>, TokenError> = receiver.iter().collect();
    Ok(reports?)
}

/// Checks a recorded run, with the micro-ops of its DRAM.
///
/// # Errors
/// [`HazardError`] when its allocations overlap or its tokens are wrong.
pub fn check_case(case: &Case) -> Result<Report, HazardError> {
    let memory = case_memory(case)?;
    let uops = UopSource::Memory(&memory);
    Ok(check(&case.config, &case.insns, uops)?)
}

/// The DRAM of a recorded run before it.
pub(super) fn case_memory(case: &Case) -> Result<DeviceMemory, HazardError> {
    case.memory().map_err(|source| HazardError::Memory {
        case: case.name.clone(),
        source,
    })
}
