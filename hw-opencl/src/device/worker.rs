//! The device's threads: one enqueues, one for each lane waits.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use vta_driver::{DriverError, Lane, Work, WorkDone};

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

/// Work that is enqueued, with what its ticket gets when it is finished: of a read without the
/// bytes, of a batch without the time.
struct Unfinished {
    pending: Vec<Pending>,
    done: Reply,
    began: Instant,
    reply: Sender<Reply>,
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
        let fault = |error: std::io::Error| ClFault {
            call: "starting a thread",
            code: error.raw_os_error().unwrap_or(0),
            name: error.to_string(),
        };
        thread.map(drop).map_err(|e| fault(e).of(&shared.device))
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
                let began = Instant::now();
                let (pending, done) = match enqueue(&mut engine, lane, work, shared) {
                    Ok((pending, done)) => (pending, Ok(done)),
                    Err(error) => (Vec::new(), Err(shared.engine_error(error))),
                };
                let unfinished = Unfinished {
                    pending,
                    done,
                    began,
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
) -> Result<(Vec<Pending>, WorkDone), EngineError> {
    let stats = &shared.stats;
    let spans = engine.order(lane, &work)?;
    let done = match work {
        Work::Write { addr, data } => {
            stats.sent(data.len() as u64);
            (engine.write(lane, addr.0, data)?, WorkDone::Written)
        }
        Work::Pack { addr, images } => {
            let pending = engine.pack(lane, addr.0, images)?;
            (pending, WorkDone::Written)
        }
        Work::Read { addr, size_bytes } => {
            stats.received(size_bytes);
            let pending = engine.read(lane, addr.0, size_bytes)?;
            (pending, WorkDone::Data(Vec::new()))
        }
        Work::Run(batch) => {
            let (pending, report) = engine.run(&batch)?;
            (pending, WorkDone::Ran(report))
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
        let reply = match (failed, unfinished.done) {
            (Some(fault), Ok(_)) => Err(shared.failed(fault)),
            (None, Ok(WorkDone::Data(_))) => Ok(WorkDone::Data(data)),
            (None, Ok(WorkDone::Ran(mut report))) => {
                // The device worked on what was before until then.
                report.wall = now - unfinished.began.max(last).min(now);
                Ok(WorkDone::Ran(report))
            }
            (_, done) => done,
        };
        last = now;
        shared.done();
        // Nobody waits for a dropped ticket's answer.
        let _ = unfinished.reply.send(reply);
    }
}
