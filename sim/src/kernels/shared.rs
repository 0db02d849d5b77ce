//! Memory that several threads work on at once, each on bytes of its own.
//!
//! A batch is cut into tasks. Each says in its [`Footprint`] which bytes it reads and which it
//! writes, and an [`Order`] works out from the footprints alone how many of the tasks before it
//! must have ended when a task begins. [`Shared`] hands tasks out in their order and lends each
//! the bytes of its footprint while it runs, and no others.
//!
//! The interface is safe, whatever the tasks do. Two tasks of which one writes a byte that the
//! other touches never run at the same time, because
//! - every task is handed out once, by one atomic counter;
//! - [`Hand::next`] returns a task's [`Grant`] only after it has seen the flags of all tasks
//!   that [`Order`] says it waits for; a flag is raised when a grant is dropped, and no reference to the
//!   bytes outlives its grant;
//! - [`Grant::read`], [`Grant::read_runs`] and [`Grant::write`] refuse bytes that aren't in the task's footprint.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use vta_driver::{Lent, Span};
use vta_isa::resolve::{covers, meet, merge};

use super::source::{Runs, Source};

/// Tasks before a task that are searched for one that it must wait for. Behind them it waits for
/// all: the search stays linear.
const MOST_SEARCHED: usize = 2048;

/// Looks at a flag before the thread lets others have its core: some tens of microseconds, longer
/// than most tasks.
const SPINS: u64 = 1000;
/// Times that the thread lets others have its core before it sleeps: about a millisecond, as long as a run.
const YIELDS: u64 = 2000;
/// How long it sleeps until it looks again.
const NAP: Duration = Duration::from_micros(100);

/// Bytes that a task reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// Ascending; they don't touch.
    reads: Vec<Span>,
    writes: Vec<Span>,
}

impl Footprint {
    /// From spans in any order; they may overlap.
    pub fn new(mut reads: Vec<Span>, mut writes: Vec<Span>) -> Self {
        merge(&mut reads);
        merge(&mut writes);
        Self { reads, writes }
    }

    /// Whether one writes what the other touches.
    pub fn conflicts(&self, other: &Self) -> bool {
        meet(&self.writes, &other.writes)
            || meet(&self.writes, &other.reads)
            || meet(&self.reads, &other.writes)
    }

    /// What it writes, in ascending order.
    pub fn writes(&self) -> &[Span] {
        &self.writes
    }
}

/// Tasks in the order in which they are handed out.
#[derive(Debug)]
pub(crate) struct Order {
    /// What each touches, and how many of the first tasks must have ended when it begins.
    tasks: Box<[(Footprint, usize)]>,
}

impl Order {
    /// An order in which any two tasks that conflict run one after the other, as they are listed.
    pub fn new(footprints: Vec<Footprint>) -> Self {
        let after = |task: usize| {
            let first = task.saturating_sub(MOST_SEARCHED);
            let mut before = (first..task).rev();
            let found = before.find(|&b| footprints[b].conflicts(&footprints[task]));
            found.map_or(first, |b| b + 1)
        };
        let after: Vec<usize> = (0..footprints.len()).map(after).collect();
        Self {
            tasks: footprints.into_iter().zip(after).collect(),
        }
    }

    /// How many of the first tasks must have ended when the task begins.
    #[cfg(test)]
    pub fn after(&self, task: usize) -> usize {
        self.tasks[task].1
    }
}

/// The bytes of one region.
struct Bytes<'a> {
    start: *mut u8,
    len: usize,
    writable: bool,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: the pointer is that of borrowed bytes, which stay borrowed for 'a. They are reached
// through grants only, which never let two threads have a byte that one of them writes.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

impl<'a> Bytes<'a> {
    fn new(lent: Lent<'a>) -> Self {
        let (start, len, writable) = match lent {
            Lent::Read(bytes) => (bytes.as_ptr().cast_mut(), bytes.len(), false),
            Lent::Write(bytes) => (bytes.as_mut_ptr(), bytes.len(), true),
        };
        Self {
            start,
            len,
            writable,
            lent: PhantomData,
        }
    }
}

/// One run of all tasks of an order over borrowed memory.
pub(crate) struct Shared<'a> {
    order: &'a Order,
    regions: Vec<Bytes<'a>>,
    /// The next task that nobody has.
    next: AtomicUsize,
    ended: Box<[AtomicBool]>,
    /// A task has panicked: nobody waits any more.
    failed: AtomicBool,
}

impl<'a> Shared<'a> {
    /// A run over the regions that the spans of the order's footprints mean.
    pub fn new(order: &'a Order, regions: Vec<Lent<'a>>) -> Self {
        Self {
            order,
            regions: regions.into_iter().map(Bytes::new).collect(),
            next: AtomicUsize::new(0),
            ended: order.tasks.iter().map(|_| AtomicBool::new(false)).collect(),
            failed: AtomicBool::new(false),
        }
    }

    /// What a thread takes tasks with.
    pub fn hand(&self) -> Hand<'_> {
        Hand {
            shared: self,
            seen: 0,
        }
    }

    /// Whether the task has ended; `None` if it may never.
    fn has_ended(&self, task: usize) -> Option<bool> {
        let ended = self.ended[task].load(Ordering::Acquire);
        (ended || !self.failed.load(Ordering::Relaxed)).then_some(ended)
    }

    /// Waits for a task's end; false if it may never come.
    fn wait(&self, task: usize) -> bool {
        let mut look = 0u64;
        loop {
            match self.has_ended(task) {
                Some(false) if look < SPINS => std::hint::spin_loop(),
                Some(false) if look < SPINS + YIELDS => std::thread::yield_now(),
                // Nobody has to wake it, which would take longer than most tasks.
                Some(false) => std::thread::sleep(NAP),
                Some(true) => return true,
                None => return false,
            }
            look += 1;
        }
    }
}

/// Takes tasks for one thread, one after the other.
pub(crate) struct Hand<'a> {
    shared: &'a Shared<'a>,
    /// All tasks before this one have ended, and this thread has seen it.
    seen: usize,
}

impl Hand<'_> {
    /// The next task, once it may begin; `None` when there is none left, or one has panicked.
    ///
    /// The tasks that it waits for were handed out before it, to threads that don't wait for it:
    /// the first of all tasks that haven't ended waits for none.
    pub fn next(&mut self) -> Option<Grant<'_>> {
        let shared = self.shared;
        if shared.failed.load(Ordering::Relaxed) {
            return None;
        }
        let task = shared.next.fetch_add(1, Ordering::Relaxed);
        let (footprint, after) = shared.order.tasks.get(task)?;
        while self.seen < *after {
            if !shared.wait(self.seen) {
                return None;
            }
            self.seen += 1;
        }
        Some(Grant {
            shared,
            footprint,
            task,
        })
    }
}

/// The bytes of a task while it runs; dropping it ends the task.
pub(crate) struct Grant<'a> {
    shared: &'a Shared<'a>,
    footprint: &'a Footprint,
    task: usize,
}

impl Grant<'_> {
    /// Which task.
    pub fn task(&self) -> usize {
        self.task
    }

    fn bytes(&self, span: &Span) -> &Bytes<'_> {
        let bytes = &self.shared.regions[span.region];
        let end = span.start.checked_add(span.len);
        assert!(end.is_some_and(|end| end <= bytes.len));
        bytes
    }

    /// Bytes that the footprint says are read.
    ///
    /// # Panics
    /// When it doesn't, or they aren't in the region: a fault of the caller.
    pub fn read(&self, span: Span) -> &[u8] {
        assert!(covers(&self.footprint.reads, &span));
        let bytes = self.bytes(&span);
        // SAFETY: the bytes are inside the region, which stays borrowed. No other task that
        // writes any of them runs before this grant is dropped, and this task's own `write`
        // borrows the grant, as this reference does.
        unsafe { std::slice::from_raw_parts(bytes.start.add(span.start), span.len) }
    }

    /// The part of a region that inputs count from, of which the footprint says that their runs are read.
    ///
    /// # Panics
    /// When it doesn't, or they aren't in the region: a fault of the caller.
    pub fn read_runs<'g>(&'g self, whole: Span, runs: &'g Runs) -> Source<'g> {
        assert!(
            runs.of(whole)
                .all(|run| covers(&self.footprint.reads, &run))
        );
        let start = self.bytes(&whole).start.wrapping_add(whole.start);
        // SAFETY: all lie inside the region, which stays borrowed. No other task that writes any byte of the runs runs
        // before this grant is dropped, and this task's own `write` borrows the grant, as this does.
        unsafe { Source::of_runs(start, whole.len, runs) }
    }

    /// Bytes that the footprint says are written.
    ///
    /// # Panics
    /// When it doesn't, or they aren't in a region to write: a fault of the caller.
    pub fn write(&mut self, span: Span) -> &mut [u8] {
        assert!(covers(&self.footprint.writes, &span));
        let bytes = self.bytes(&span);
        assert!(bytes.writable);
        // SAFETY: the bytes are inside the region, which stays borrowed to write. No other task
        // that touches any of them runs before this grant is dropped, and this reference borrows
        // the grant alone.
        unsafe { std::slice::from_raw_parts_mut(bytes.start.add(span.start), span.len) }
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.failed.store(true, Ordering::Relaxed);
        } else {
            self.shared.ended[self.task].store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
