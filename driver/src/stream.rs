//! Streams: work in order, with waits before and signals after each piece.

pub(crate) mod timeline;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use self::timeline::Node;
pub use self::timeline::{Point, Promise, Timeline};
use crate::{Device, DriverError, Lane, Ticket, TimelineError, Work, WorkDone};

/// How many pieces of work may wait in a stream before `submit` blocks.
const QUEUE_DEPTH: usize = 64;

type Reply = Result<WorkDone, DriverError>;
type Make = Box<dyn FnOnce() -> Result<Work, DriverError> + Send>;

/// An ordered queue of work on one [`Lane`] of a device.
///
/// Pieces run in the order of submission, each when its waits are satisfied. Streams are in no
/// other order with each other, on one device or on several; those of one lane share it, so that
/// a stream that waits doesn't hold up another. One thread of the stream waits and hands work to
/// the device, another sees it end and signals: the next piece is queued on the device before the
/// last one ends.
///
/// Memory that work names must stay allocated until the work is done, unlike that of
/// [`Device::submit`]: the device learns of it only when the waits are satisfied.
///
/// Dropping a stream finishes what it holds; only work that waits for a promise of the host's
/// fails, with [`TimelineError::Closed`].
///
/// ```
/// use std::sync::Arc;
/// use vta_driver::{Device, Lane, NullDevice, Stream, Timeline, Work, WorkDone};
/// use vta_isa::Config;
///
/// let device = Arc::new(NullDevice::with_config(Config::default()));
/// let addr = device.alloc(2)?;
/// let copy = Stream::new("copy", device.clone(), Lane::Copy);
/// let compute = Stream::new("compute", device.clone(), Lane::Compute);
///
/// // The second stream reads what the first has written.
/// let written = Timeline::new("written");
/// let write = Work::Write { addr, data: [4u8, 2].into() };
/// copy.submit(write, &[], vec![written.promise(1)?])?;
/// let read = compute.submit(Work::Read { addr, size_bytes: 2 }, &[written.at(1)], vec![])?;
/// assert!(matches!(read.wait()?, WorkDone::Data(bytes) if bytes == [4, 2]));
/// # Ok::<(), vta_driver::DriverError>(())
/// ```
pub struct Stream {
    shared: Arc<Shared>,
    sender: Option<Sender<Item>>,
    /// The last piece of work that was accepted.
    last: Mutex<Option<Arc<Node>>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    name: String,
    device: Arc<dyn Device>,
    lane: Lane,
    /// Set when the stream is dropped.
    closed: AtomicBool,
    /// What the issuing thread waits for.
    waiting_for: Mutex<Option<Timeline>>,
}

struct Item {
    make: Make,
    rest: Rest,
}

/// What remains to be done with work that is on the device.
struct Rest {
    node: Arc<Node>,
    signals: Vec<Promise>,
    reply: Sender<Reply>,
}

impl Stream {
    /// A stream with two threads of its own; the name is for errors.
    pub fn new(name: impl Into<String>, device: Arc<dyn Device>, lane: Lane) -> Self {
        let shared = Arc::new(Shared {
            name: name.into(),
            device,
            lane,
            closed: AtomicBool::new(false),
            waiting_for: Mutex::new(None),
        });
        let (sender, items) = bounded(QUEUE_DEPTH);
        let (running, tickets) = bounded(QUEUE_DEPTH);
        let issuer = Arc::clone(&shared);
        let mut threads = Vec::new();
        let mut start = |body: Box<dyn FnOnce() + Send>| match Builder::new().spawn(body) {
            Ok(thread) => threads.push(thread),
            // Whatever is sent to the thread's channel fails, so all work fails as lost.
            Err(error) => tracing::error!(%error, "starting a stream's thread"),
        };
        start(Box::new(move || issue(&issuer, &items, &running)));
        start(Box::new(move || complete(&tickets)));
        Self {
            shared,
            sender: Some(sender),
            last: Mutex::new(None),
            threads,
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// Queues work that starts when every wait is satisfied and keeps its promises when it has
    /// ended. When it fails, or a wait does, its promises fail with the first cause, and so does
    /// everything that waits for them; later work of the stream goes on.
    ///
    /// Returns at once; when the bounded queue is full it blocks until there is room.
    ///
    /// # Errors
    /// [`TimelineError::NoSignaller`] or [`TimelineError::Failed`] for a wait that can't be
    /// satisfied, [`TimelineError::Cycle`] for one that depends on the work itself,
    /// [`TimelineError::Full`] when blocking could last for ever; [`DriverError::Lost`] when the
    /// system gave no thread. The promises then fail.
    pub fn submit(
        &self,
        work: Work,
        waits: &[Point],
        signals: Vec<Promise>,
    ) -> Result<Box<dyn Ticket>, DriverError> {
        self.submit_with(move || Ok(work), waits, signals)
    }

    /// As [`Self::submit`], for work that is known only when the waits are satisfied, such as a
    /// write of what another device has computed. `make` runs on the stream's thread and
    /// mustn't block.
    ///
    /// # Errors
    /// As [`Self::submit`]; an error of `make` is the work's.
    pub fn submit_with(
        &self,
        make: impl FnOnce() -> Result<Work, DriverError> + Send + 'static,
        waits: &[Point],
        signals: Vec<Promise>,
    ) -> Result<Box<dyn Ticket>, DriverError> {
        for wait in waits {
            if let Err(error) = wait.timeline.check(wait.value) {
                return Err(refuse(signals, error.into()));
            }
        }
        // Held until the work is in the queue: the order of nodes is the order of the queue.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let node = Node::new(waits.to_vec(), last.clone());
        for signal in &signals {
            signal.hand_to(&node);
        }
        if let Some(Point { timeline, value }) = node.dependence().cycle {
            let timeline = timeline.name().to_owned();
            return Err(refuse(
                signals,
                TimelineError::Cycle { timeline, value }.into(),
            ));
        }
        let (reply, receiver) = bounded(1);
        let rest = Rest {
            node: Arc::clone(&node),
            signals,
            reply,
        };
        let make = Box::new(make);
        self.send(Item { make, rest })?;
        *last = Some(node);
        let lost = self.shared.lost();
        // The reply's sender is dropped when the stream stops, so this can't hang.
        Ok(Box::new(move || receiver.recv().unwrap_or(Err(lost))))
    }

    /// Blocks on a full queue unless only the host could empty it.
    fn send(&self, item: Item) -> Result<(), DriverError> {
        let lost = |item: Item| refuse(item.rest.signals, self.shared.lost());
        let Some(sender) = &self.sender else {
            return Err(lost(item));
        };
        match sender.try_send(item) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(item)) => Err(lost(item)),
            Err(TrySendError::Full(item)) if item.rest.node.dependence().on_host => {
                let stream = self.shared.name.clone();
                let depth = QUEUE_DEPTH;
                let full = TimelineError::Full { stream, depth };
                Err(refuse(item.rest.signals, full.into()))
            }
            Err(TrySendError::Full(item)) => sender.send(item).map_err(|e| lost(e.into_inner())),
        }
    }
}

/// Fails the promises of work that isn't accepted; why it isn't.
fn refuse(signals: Vec<Promise>, error: DriverError) -> DriverError {
    for signal in signals {
        signal.fail(root(&error));
    }
    error
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.sender = None;
        let waiting = self.shared.waiting_for().clone();
        if let Some(timeline) = waiting {
            timeline.wake();
        }
        for thread in self.threads.drain(..) {
            // Work that owns the stream drops it on one of its own threads.
            if thread.thread().id() != std::thread::current().id() {
                // A panic has dropped its work, whose promises and tickets say so.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn lost(&self) -> DriverError {
        DriverError::lost(&self.device.info().name)
    }

    fn waiting_for(&self) -> MutexGuard<'_, Option<Timeline>> {
        self.waiting_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all of the work's waits. When the stream is dropped meanwhile, those that need
    /// the host are given up.
    fn ready(&self, node: &Arc<Node>) -> Result<(), TimelineError> {
        let closed = || self.closed.load(Ordering::SeqCst);
        for wait in &node.waits {
            *self.waiting_for() = Some(wait.timeline.clone());
            let waited = wait.timeline.block(wait.value, None, &closed);
            *self.waiting_for() = None;
            if waited? {
                continue;
            }
            if node.dependence().on_host {
                let stream = self.name.clone();
                return Err(TimelineError::Closed { stream });
            }
            wait.wait()?;
        }
        Ok(())
    }
}

impl Rest {
    fn end(self, done: Reply) {
        let error = done.as_ref().err().map(root);
        // Answered first: who sees a promise kept finds the ticket ready.
        let _ = self.reply.send(done);
        for signal in self.signals {
            match &error {
                None => signal.keep(),
                Some(error) => signal.fail(error.clone()),
            }
        }
        self.node.finish();
    }
}

/// The failure behind a failed wait.
fn root(error: &DriverError) -> DriverError {
    match error {
        DriverError::Timeline(TimelineError::Failed { cause, .. }) => root(cause),
        other => other.clone(),
    }
}

fn issue(shared: &Shared, items: &Receiver<Item>, running: &Sender<(Box<dyn Ticket>, Rest)>) {
    for Item { make, rest } in items {
        let ready = shared.ready(&rest.node).map_err(DriverError::from);
        let submitted = ready
            .and_then(|()| make())
            .and_then(|work| shared.device.submit_on(shared.lane, work));
        match submitted {
            Ok(ticket) => {
                if let Err(unsent) = running.send((ticket, rest)) {
                    unsent.into_inner().1.end(Err(shared.lost()));
                }
            }
            Err(error) => rest.end(Err(error)),
        }
    }
}

fn complete(tickets: &Receiver<(Box<dyn Ticket>, Rest)>) {
    for (ticket, rest) in tickets {
        let done = ticket.wait();
        rest.end(done);
    }
}

#[cfg(test)]
mod tests;
