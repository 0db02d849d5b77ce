//! A lane of a worker device: a thread that does work in order and answers tickets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::memory::regions::{Allocation, Held, Layouts};
use crate::packing::Packers;
use crate::{Batch, DeviceMemory, DriverError, RunReport, Work, WorkDone};

/// How many pieces of work may wait in a lane before `submit` blocks.
const QUEUE_DEPTH: usize = 64;

/// Runs one batch. The memory holds the allocations that the batch's instructions name and its
/// words lie in, and no others. The error text names the instruction.
pub type Runner =
    Box<dyn FnMut(&Arc<Batch>, &mut DeviceMemory) -> Result<RunReport, String> + Send>;

/// What a ticket gets.
pub(super) type Reply = Result<WorkDone, DriverError>;

/// A piece of work on its way to a lane.
struct Item {
    work: Work,
    regions: Vec<Arc<Allocation>>,
    reply: Sender<Reply>,
}

/// A lane's thread. Dropping it finishes what is queued.
pub(super) struct LaneThread {
    /// Missing while it is dropped.
    sender: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
    server: Arc<Mutex<Server>>,
    /// Pieces of work that were sent and aren't done.
    queued: Arc<AtomicUsize>,
}

impl LaneThread {
    /// Starts a thread, with the runner of the lane that runs batches.
    pub(super) fn start(
        device: &str,
        lost: &Arc<AtomicBool>,
        packers: &Arc<OnceLock<Packers>>,
        runner: Option<Runner>,
    ) -> Self {
        let (sender, receiver) = bounded::<Item>(QUEUE_DEPTH);
        let server = Arc::new(Mutex::new(Server {
            name: device.to_owned(),
            packers: Arc::clone(packers),
            lost: Arc::clone(lost),
            runner,
            layouts: Layouts::default(),
        }));
        let queued = Arc::new(AtomicUsize::new(0));
        let (own, count) = (Arc::clone(&server), Arc::clone(&queued));
        let work = move || {
            for item in receiver {
                let answer = answer(&own, &item.work, item.regions);
                count.fetch_sub(1, Ordering::Release);
                // Nobody waits for a dropped ticket's answer.
                let _ = item.reply.send(answer);
            }
        };
        // Without a thread the closure and its receiver are gone, so every send fails as lost.
        let thread = Builder::new().spawn(work);
        let thread = thread.inspect_err(|error| {
            lost.store(true, Ordering::Release);
            tracing::error!(device, %error, "starting a worker thread");
        });
        Self {
            sender: Some(sender),
            thread: thread.ok(),
            server,
            queued,
        }
    }

    /// Sends a piece of work, and gives where its answer comes; `None` where the thread is gone.
    pub(super) fn send(
        &self,
        work: Work,
        regions: Vec<Arc<Allocation>>,
    ) -> Option<Receiver<Reply>> {
        let (reply, receiver) = bounded(1);
        let item = Item {
            work,
            regions,
            reply,
        };
        self.queued.fetch_add(1, Ordering::Relaxed);
        let sent = self.sender.as_ref()?.send(item);
        sent.is_ok().then_some(receiver)
    }

    /// Whether all that was sent is done.
    pub(super) fn is_idle(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }

    /// Does a piece of work on the caller's thread.
    pub(super) fn perform(&self, work: &Work, regions: Vec<Arc<Allocation>>) -> Reply {
        answer(&self.server, work, regions)
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the runner was already answered through its tickets.
            let _ = thread.join();
        }
    }
}

/// What a lane works with.
struct Server {
    /// The device's.
    name: String,
    packers: Arc<OnceLock<Packers>>,
    lost: Arc<AtomicBool>,
    runner: Option<Runner>,
    layouts: Layouts,
}

/// Does a piece of work. After a panic, here or in the other lane, it only answers.
fn answer(server: &Mutex<Server>, work: &Work, regions: Vec<Arc<Allocation>>) -> Reply {
    // Panics of the runner are caught below.
    let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
    let server = &mut *server;
    if server.lost.load(Ordering::Acquire) {
        return Err(DriverError::lost(&server.name));
    }
    let mut held = Held::take(regions, &mut server.layouts);
    let work = || {
        perform(
            (&server.name, &server.packers),
            work,
            &mut held.memory,
            server.runner.as_mut(),
        )
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        server.lost.store(true, Ordering::Release);
        Err(DriverError::lost(&server.name))
    })
}

fn perform(
    (name, packers): (&str, &OnceLock<Packers>),
    work: &Work,
    memory: &mut DeviceMemory,
    runner: Option<&mut Runner>,
) -> Reply {
    let device = || name.to_owned();
    let fault = |source| DriverError::Memory {
        device: device(),
        source,
    };
    match work {
        Work::Write { addr, data } => {
            memory
                .write(addr.0.into(), data.len() as u64)
                .map_err(fault)?
                .copy_from_slice(data);
            Ok(WorkDone::Written)
        }
        Work::Pack { addr, images } => {
            let tiles = memory.write(addr.0.into(), images.packed_bytes());
            let packers = packers.get_or_init(Packers::default);
            images.pack_by(packers, tiles.map_err(fault)?);
            Ok(WorkDone::Written)
        }
        Work::Read { addr, size_bytes } => memory
            .read(addr.0.into(), *size_bytes)
            .map_err(fault)
            .map(<[u8]>::to_vec)
            .map(WorkDone::Data),
        Work::Run(batch) => {
            // `submit_on` sends batches to the lane that has the runner.
            let runner = runner.ok_or_else(|| DriverError::lost(name))?;
            runner(batch, memory)
                .map(WorkDone::Ran)
                .map_err(|message| DriverError::Device {
                    device: device(),
                    message,
                })
        }
    }
}
