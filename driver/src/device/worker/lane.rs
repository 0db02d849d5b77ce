//! A lane of a worker device: a thread that does work in order and answers tickets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
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
pub(super) struct Item {
    pub work: Work,
    pub regions: Vec<Arc<Allocation>>,
    pub reply: Sender<Reply>,
}

/// A lane's thread. Dropping it finishes what is queued.
pub(super) struct LaneThread {
    /// Missing while it is dropped.
    pub sender: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
}

impl LaneThread {
    /// Starts a thread, with the runner of the lane that runs batches.
    pub(super) fn start(
        device: &str,
        lost: &Arc<AtomicBool>,
        packers: &Arc<OnceLock<Packers>>,
        mut runner: Option<Runner>,
    ) -> Self {
        let (sender, receiver) = bounded(QUEUE_DEPTH);
        let (name, gone, packers) = (device.to_owned(), Arc::clone(lost), Arc::clone(packers));
        let work = move || {
            let server = Server {
                name: &name,
                packers: &packers,
                lost: &gone,
            };
            server.serve(&receiver, runner.as_mut());
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
        }
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

/// What a lane's thread works with.
struct Server<'a> {
    /// The device's.
    name: &'a str,
    packers: &'a OnceLock<Packers>,
    lost: &'a AtomicBool,
}

impl Server<'_> {
    /// Does a lane's work. After a panic, here or in the other lane, it only answers.
    fn serve(&self, receiver: &Receiver<Item>, mut runner: Option<&mut Runner>) {
        let gone = || Err(DriverError::lost(self.name));
        let mut layouts = Layouts::default();
        for item in receiver {
            let answer = if self.lost.load(Ordering::Acquire) {
                gone()
            } else {
                let mut held = Held::take(item.regions, &mut layouts);
                let work = || self.perform(&item.work, &mut held.memory, runner.as_deref_mut());
                catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                    self.lost.store(true, Ordering::Release);
                    gone()
                })
            };
            // Nobody waits for a dropped ticket's answer.
            let _ = item.reply.send(answer);
        }
    }

    fn perform(
        &self,
        work: &Work,
        memory: &mut DeviceMemory,
        runner: Option<&mut Runner>,
    ) -> Reply {
        let device = || self.name.to_owned();
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
                let packers = self.packers.get_or_init(Packers::default);
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
                let runner = runner.ok_or_else(|| DriverError::lost(self.name))?;
                runner(batch, memory)
                    .map(WorkDone::Ran)
                    .map_err(|message| DriverError::Device {
                        device: device(),
                        message,
                    })
            }
        }
    }
}
