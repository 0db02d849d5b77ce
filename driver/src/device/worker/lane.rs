//! A lane of a worker device: a thread that does work in order and answers tickets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::memory::regions::{Claim, Held, Kept, Layouts};
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
    claim: Claim,
    reply: Sender<Reply>,
}

/// A lane's thread, which starts with the first piece of work that is sent. Dropping it finishes what is queued.
pub(super) struct LaneThread {
    /// Once it was needed; inside, `None` if the system gave none.
    thread: OnceLock<Option<Running>>,
    server: Arc<Mutex<Server>>,
    /// Pieces of work that were sent and aren't done.
    queued: Arc<AtomicUsize>,
}

struct Running {
    sender: Sender<Item>,
    thread: JoinHandle<()>,
}

impl LaneThread {
    /// One with the runner of the lane that runs batches.
    pub(super) fn new(
        device: &str,
        lost: &Arc<AtomicBool>,
        packers: &Arc<OnceLock<Packers>>,
        kept: &Arc<Kept>,
        runner: Option<Runner>,
    ) -> Self {
        let server = Arc::new(Mutex::new(Server {
            name: device.to_owned(),
            packers: Arc::clone(packers),
            kept: Arc::clone(kept),
            lost: Arc::clone(lost),
            runner,
            layouts: Layouts::default(),
        }));
        Self {
            thread: OnceLock::new(),
            server,
            queued: Arc::default(),
        }
    }

    fn start(&self) -> Option<Running> {
        let (sender, receiver) = bounded::<Item>(QUEUE_DEPTH);
        let (own, count) = (Arc::clone(&self.server), Arc::clone(&self.queued));
        let work = move || {
            for item in receiver {
                let mut server = own.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = server.answer(&item.work, || item.claim);
                drop(server);
                count.fetch_sub(1, Ordering::Release);
                // Nobody waits for a dropped ticket's answer.
                let _ = item.reply.send(answer);
            }
        };
        let thread = Builder::new().spawn(work);
        let thread = thread.inspect_err(|error| {
            let server = self.server();
            server.lost.store(true, Ordering::Release);
            tracing::error!(device = server.name, %error, "starting a worker thread");
        });
        let thread = thread.ok()?;
        Some(Running { sender, thread })
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        // Panics of the runner are caught in `answer`.
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a piece of work, and gives where its answer comes; `None` where the thread is gone.
    pub(super) fn send(&self, work: Work, claim: Claim) -> Option<Receiver<Reply>> {
        let (reply, receiver) = bounded(1);
        // There is no other thread.
        if cfg!(target_family = "wasm") {
            // The receiver is here, and has room.
            let _ = reply.send(self.perform(&work, || claim));
            return Some(receiver);
        }
        let item = Item { work, claim, reply };
        let running = self.thread.get_or_init(|| self.start()).as_ref()?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        let sent = running.sender.send(item);
        sent.is_ok().then_some(receiver)
    }

    /// Whether the thread was needed yet.
    #[cfg(test)]
    pub(super) fn started(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Whether all that was sent is done.
    pub(super) fn is_idle(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }

    /// Does a piece of work on the caller's thread.
    pub(super) fn perform(&self, work: &Work, claim: impl FnOnce() -> Claim) -> Reply {
        self.server().answer(work, claim)
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        if let Some(Some(Running { sender, thread })) = self.thread.take() {
            drop(sender);
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
    kept: Arc<Kept>,
    lost: Arc<AtomicBool>,
    runner: Option<Runner>,
    layouts: Layouts,
}

impl Server {
    /// Does a piece of work, which claims allocations unless it has those of the last batch. After a panic, here or in
    /// the other lane, it only answers.
    fn answer(&mut self, work: &Work, claim: impl FnOnce() -> Claim) -> Reply {
        if self.lost.load(Ordering::Acquire) {
            return Err(DriverError::lost(&self.name));
        }
        let again = match work {
            Work::Run(batch) => self.kept.again(batch),
            Work::Write { .. } | Work::Pack { .. } | Work::Read { .. } => None,
        };
        let mut held = again.unwrap_or_else(|| {
            let claim = claim();
            self.kept.taking(|| Held::take(claim, &mut self.layouts))
        });
        let done = || {
            perform(
                (&self.name, &self.packers),
                work,
                &mut held.memory,
                self.runner.as_mut(),
            )
        };
        let done = catch_unwind(AssertUnwindSafe(done)).unwrap_or_else(|_| {
            self.lost.store(true, Ordering::Release);
            Err(DriverError::lost(&self.name))
        });
        if let (Work::Run(batch), Ok(_)) = (work, &done) {
            self.kept.keep(batch, held);
        }
        done
    }
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
