//! The device's threads: one enqueues, one for each lane waits.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use vta_driver::{DriverError, Lane, RunReport, Work, WorkDone};

use super::engine::Engine;
use crate::cl::Pending;
use crate::error::{ClFault, EngineError, OpenClError};
use crate::shared::Shared;

/// How many pieces of work may be enqueued and unfinished.
const IN_FLIGHT: usize = 64;

pub(crate) type Reply = Result<WorkDone, DriverError>;

/// What the device is told, in order.
pub(crate) enum Item {
    Map {
        addr: u32,
        size_bytes: u64,
    },
    Unmap {
        addr: u32,
    },
    Work {
        lane: Lane,
        work: Work,
        reply: Sender<Reply>,
    },
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

/// What waits for each lane, in the order of [`Lane`].
type Lanes = [Sender<Unfinished>; 2];

/// Starts the threads. The receiver's channel closes when everything that was queued is finished.
pub(crate) fn start(
    engine: Engine,
    items: Receiver<Item>,
    shared: &Arc<Shared>,
) -> Result<Receiver<Infallible>, OpenClError> {
    let (finished, heard) = bounded(0);
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
    let lane = |name: &str| -> Result<Sender<Unfinished>, OpenClError> {
        let (unfinished, waiting) = bounded(IN_FLIGHT);
        let (state, finished) = (Arc::clone(shared), finished.clone());
        let work = move || {
            answer(&waiting, &state);
            drop(finished);
        };
        spawn(name, Box::new(work))?;
        Ok(unfinished)
    };
    let lanes = [lane("opencl-wait")?, lane("opencl-wait-copy")?];
    let state = Arc::clone(shared);
    spawn(
        "opencl-enqueue",
        Box::new(move || serve(engine, &items, &lanes, &state)),
    )?;
    Ok(heard)
}

/// Enqueues until the device is dropped. Everything of the engine is released before the other
/// threads' channels close, so that a device is gone when it says so.
fn serve(mut engine: Engine, items: &Receiver<Item>, to: &Lanes, shared: &Shared) {
    for item in items {
        match item {
            Item::Map { addr, size_bytes } => engine.map(addr, size_bytes),
            Item::Unmap { addr } => engine.unmap(addr),
            Item::Work { lane, work, reply } => {
                let (pending, outcome) = match enqueue(&mut engine, lane, work, shared) {
                    Ok(enqueued) => enqueued,
                    Err(error) => (Vec::new(), Outcome::Failed(shared.engine_error(error))),
                };
                let unfinished = Unfinished {
                    pending,
                    outcome,
                    reply,
                };
                if to[lane as usize].send(unfinished).is_err() {
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
    lane: Lane,
    work: Work,
    shared: &Shared,
) -> Result<(Vec<Pending>, Outcome), EngineError> {
    let began = Instant::now();
    let stats = &shared.stats;
    let spans = engine.order(lane, &work)?;
    let done = match work {
        Work::Write { addr, data } => {
            stats.sent(data.len() as u64);
            (engine.write(lane, addr.0, data)?, Outcome::Written)
        }
        Work::Pack { addr, images } => {
            let pending = engine.pack(lane, addr.0, images)?;
            (pending, Outcome::Written)
        }
        Work::Read { addr, size_bytes } => {
            stats.received(size_bytes);
            (engine.read(lane, addr.0, size_bytes)?, Outcome::Data)
        }
        Work::Run(batch) => {
            let (pending, report) = engine.run(&batch)?;
            (pending, Outcome::Ran { report, began })
        }
    };
    engine.note(lane, spans, done.0.last());
    Ok(done)
}

/// Waits for work in its order and answers its tickets.
fn answer(waiting: &Receiver<Unfinished>, shared: &Shared) {
    let mut last = Instant::now();
    for unfinished in waiting {
        let mut data = Vec::new();
        let mut failed = None;
        if !unfinished.pending.is_empty() {
            // The queue is in order: who waits for the last has waited for all.
            shared.stats.add(|s| s.waits += 1);
        }
        for mut pending in unfinished.pending {
            let waited = pending.wait();
            if shared.profile {
                let ns = pending.kernel_nanoseconds();
                shared.stats.add(|s| *s.kernel_ns.get_or_insert(0) += ns);
            }
            match waited {
                Ok(bytes) if data.is_empty() => data = bytes,
                Ok(_) => {}
                Err(fault) => failed = Some(fault),
            }
        }
        let now = Instant::now();
        let reply = match (failed, unfinished.outcome) {
            (_, Outcome::Failed(error)) => Err(error),
            (Some(fault), _) => Err(shared.failed(fault)),
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
