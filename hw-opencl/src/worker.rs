//! The device's two threads: one enqueues, one waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use vta_driver::{DriverError, RunReport, Work, WorkDone};

use crate::cl::Pending;
use crate::device::Shared;
use crate::engine::{Engine, EngineError};
use crate::error::{ClFault, OpenClError};

/// How many pieces of work may be enqueued and unfinished.
const IN_FLIGHT: usize = 64;

pub(crate) type Reply = Result<WorkDone, DriverError>;

/// What the device is told, in order.
pub(crate) enum Item {
    Map { addr: u32, size_bytes: u64 },
    Unmap { addr: u32 },
    Work { work: Work, reply: Sender<Reply> },
}

/// Work that is enqueued, with what its ticket gets when it is finished.
struct Unfinished {
    pending: Vec<Pending>,
    outcome: Outcome,
    reply: Sender<Reply>,
}

enum Outcome {
    Failed(DriverError),
    Written,
    Data,
    Ran { report: RunReport, began: Instant },
}

/// Starts both threads. The receiver hears when everything that was queued is finished.
pub(crate) fn start(
    engine: Engine,
    items: Receiver<Item>,
    shared: &Arc<Shared>,
) -> Result<Receiver<()>, OpenClError> {
    let (unfinished, waiting) = bounded(IN_FLIGHT);
    let (finished, heard) = bounded(1);
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = Builder::new().name(name.to_owned()).spawn(work);
        thread.map(drop).map_err(|error| OpenClError::Call {
            device: shared.device.clone(),
            fault: ClFault {
                call: "starting a thread",
                code: error.raw_os_error().unwrap_or(0),
                name: error.to_string(),
            },
        })
    };
    let state = Arc::clone(shared);
    spawn(
        "opencl-wait",
        Box::new(move || {
            answer(&waiting, &state);
            // Nobody listens when the device was left behind.
            let _ = finished.send(());
        }),
    )?;
    let state = Arc::clone(shared);
    spawn(
        "opencl-enqueue",
        Box::new(move || serve(engine, &items, &unfinished, &state)),
    )?;
    Ok(heard)
}

/// Enqueues until the device is dropped. Everything of the engine is released before the other
/// thread's channel closes, so that a device is gone when it says so.
fn serve(mut engine: Engine, items: &Receiver<Item>, to: &Sender<Unfinished>, shared: &Shared) {
    for item in items {
        match item {
            Item::Map { addr, size_bytes } => engine.map(addr, size_bytes),
            Item::Unmap { addr } => engine.unmap(addr),
            Item::Work { work, reply } => {
                let (pending, outcome) = match enqueue(&mut engine, work, shared) {
                    Ok(enqueued) => enqueued,
                    Err(error) => (Vec::new(), Outcome::Failed(error.into_driver(shared))),
                };
                let unfinished = Unfinished {
                    pending,
                    outcome,
                    reply,
                };
                if to.send(unfinished).is_err() {
                    return;
                }
            }
        }
    }
    if let Err(fault) = engine.finish() {
        tracing::warn!(device = shared.device, %fault, "finishing");
    }
}

fn enqueue(
    engine: &mut Engine,
    work: Work,
    shared: &Shared,
) -> Result<(Vec<Pending>, Outcome), EngineError> {
    let began = Instant::now();
    let stats = &shared.stats;
    match work {
        Work::Write { addr, data } => {
            stats
                .bytes_written
                .fetch_add(data.len() as u64, Ordering::Relaxed);
            let pending = engine.write(addr.0, data)?;
            Ok((pending, Outcome::Written))
        }
        Work::Read { addr, size_bytes } => {
            stats.bytes_read.fetch_add(size_bytes, Ordering::Relaxed);
            let pending = engine.read(addr.0, size_bytes)?;
            Ok((pending, Outcome::Data))
        }
        Work::Run(batch) => {
            let (pending, report) = engine.run(&batch)?;
            Ok((pending, Outcome::Ran { report, began }))
        }
    }
}

/// Waits for work in its order and answers its tickets.
fn answer(waiting: &Receiver<Unfinished>, shared: &Shared) {
    let mut last = Instant::now();
    for unfinished in waiting {
        let mut data = Vec::new();
        let mut failed = None;
        for pending in unfinished.pending {
            match pending.wait() {
                Ok(bytes) if data.is_empty() => data = bytes,
                Ok(_) => {}
                Err(fault) => failed = Some(fault),
            }
        }
        let now = Instant::now();
        let reply = match (failed, unfinished.outcome) {
            (_, Outcome::Failed(error)) => Err(error),
            (Some(fault), _) => Err(shared.error(&OpenClError::Call {
                device: shared.device.clone(),
                fault,
            })),
            (None, Outcome::Written) => Ok(WorkDone::Written),
            (None, Outcome::Data) => Ok(WorkDone::Data(data)),
            (None, Outcome::Ran { mut report, began }) => {
                // The device worked on what was before until then.
                report.wall = now - began.max(last).min(now);
                Ok(WorkDone::Ran(report))
            }
        };
        last = now;
        shared.done();
        // Nobody waits for a dropped ticket's answer.
        let _ = unfinished.reply.send(reply);
    }
}
