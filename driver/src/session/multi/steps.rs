//! What steps of a network need, whatever session runs them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{FlushReason, HostKernel, MarkReport, MultiProgram, RunReport, Step};

/// What layers of the host took so far, each put there by the thread that computed it.
pub(super) type HostMarks = Arc<Mutex<Vec<MarkReport>>>;

/// The report of the layers of the host; `None` where there are none.
pub(super) fn host_report(marks: &HostMarks) -> Option<RunReport> {
    let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
    let marks = std::mem::take(&mut *marks);
    (!marks.is_empty()).then(|| RunReport {
        wall: marks.iter().map(|mark| mark.wall).sum(),
        marks,
        ..RunReport::default()
    })
}

/// The outputs of a kernel for one image, as many as its step has.
pub(super) fn run_kernel(
    kernel: &dyn HostKernel,
    inputs: &[Vec<Vec<i16>>],
    image: usize,
    count: usize,
) -> Result<Vec<Vec<i16>>, String> {
    let rows = inputs.iter().map(|x| x.get(image).map(Vec::as_slice));
    let rows: Option<Vec<&[i16]>> = rows.collect();
    let rows = rows.ok_or("an image is missing")?;
    // A panic would take the stream's thread along, and with it every later ticket.
    let run = AssertUnwindSafe(|| kernel.run(&rows));
    let out = catch_unwind(run).unwrap_or_else(|_| Err("it panicked".to_owned()))?;
    if out.len() == count {
        Ok(out)
    } else {
        Err(format!("it gave {} tensors, not {count}", out.len()))
    }
}

/// Why the batch of a step is submitted: where the next layer, if any, is; nowhere means the host.
pub(super) fn flush_reason(program: &MultiProgram, index: usize, part: usize) -> FlushReason {
    let later = program.steps.iter().skip(index + 1);
    let next = later.filter_map(|step| match step {
        Step::Run { part, .. } => Some(Some(*part)),
        Step::Host(_) => Some(None),
        Step::Copy { .. } => None,
    });
    match next.take(1).next() {
        Some(next) if next != Some(part) => FlushReason::NextLayerElsewhere,
        Some(_) => FlushReason::Synchronize,
        None => FlushReason::HostRead,
    }
}
