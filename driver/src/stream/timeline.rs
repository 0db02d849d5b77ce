//! Timelines: increasing numbers that host, streams and devices wait for and signal.
//!
//! The model is that of Vulkan's timeline semaphores, made strict where those are undefined:
//!
//! - Every signal is a [`Promise`] first, made by the host and either kept by it or handed to a
//!   [`Stream`](crate::Stream) together with work. Promised values increase.
//! - A timeline reaches a value when every promise up to it was kept, in whatever order.
//! - A promise that fails, because its work failed, its device is gone or it was dropped, ends
//!   the timeline: no value from there on is ever reached, and every wait says why.
//!
//! So the driver knows at any time who may still signal, and a wait that can't be satisfied is
//! an error at once.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use web_time::Instant;

use crate::{DriverError, TimelineError};

/// An increasing number that starts at 0. Clones are the same timeline.
///
/// ```
/// use std::time::Duration;
/// use vta_driver::{Timeline, TimelineError};
///
/// let line = Timeline::new("frames");
/// let first = line.promise(1)?;
/// let worker = std::thread::spawn(move || first.keep());
/// line.wait(1)?;
/// assert_eq!(line.value(), 1);
/// # worker.join().expect("the worker ends");
///
/// // Nobody has promised 2: the wait fails at once instead of hanging.
/// assert!(matches!(line.wait(2), Err(TimelineError::NoSignaller { .. })));
/// let late = line.promise(2)?;
/// let waited = line.wait_timeout(2, Duration::from_millis(1));
/// assert!(matches!(waited, Err(TimelineError::Timeout { .. })));
/// drop(late);
/// assert!(matches!(line.wait(2), Err(TimelineError::Failed { .. })));
/// # Ok::<(), TimelineError>(())
/// ```
#[derive(Clone)]
pub struct Timeline {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    value: u64,
    /// The largest value ever promised.
    promised: u64,
    /// Promises that are neither kept nor failed, and the work that holds them; the host holds
    /// those without.
    pending: BTreeMap<u64, Option<Arc<Node>>>,
    /// Kept promises behind an outstanding one.
    kept: BTreeSet<u64>,
    /// The smallest failed promise.
    failed: Option<(u64, DriverError)>,
}

/// A value of a timeline, to be waited for.
#[derive(Clone, Debug)]
pub struct Point {
    /// The timeline.
    pub timeline: Timeline,
    /// The value.
    pub value: u64,
}

impl Point {
    /// [`Timeline::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> Result<(), TimelineError> {
        self.timeline.wait(self.value)
    }
}

impl Timeline {
    /// A timeline at 0; the name is for errors.
    pub fn new(name: impl Into<String>) -> Self {
        let inner = Inner {
            name: name.into(),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The value reached: every promise up to it was kept.
    pub fn value(&self) -> u64 {
        self.state().value
    }

    /// The largest value promised so far: who waits for it waits for all signals up to now.
    pub fn promised(&self) -> u64 {
        self.state().promised
    }

    /// A point to wait for.
    pub fn at(&self, value: u64) -> Point {
        Point {
            timeline: self.clone(),
            value,
        }
    }

    /// Announces that a value will be signalled. Until the promise is kept, failed or dropped
    /// the timeline stays below it.
    ///
    /// # Errors
    /// [`TimelineError::NotIncreasing`] unless `value` is above all promised before (and 0).
    pub fn promise(&self, value: u64) -> Result<Promise, TimelineError> {
        let mut state = self.state();
        self.promise_locked(&mut state, value)
    }

    /// Promises the value after the largest promised so far.
    ///
    /// # Errors
    /// [`TimelineError::NotIncreasing`] when that was the largest `u64`.
    pub fn promise_next(&self) -> Result<Promise, TimelineError> {
        let mut state = self.state();
        let value = state.promised.saturating_add(1);
        self.promise_locked(&mut state, value)
    }

    fn promise_locked(&self, state: &mut State, value: u64) -> Result<Promise, TimelineError> {
        if value <= state.promised {
            return Err(TimelineError::NotIncreasing {
                timeline: self.inner.name.clone(),
                value,
                promised: state.promised,
            });
        }
        state.promised = value;
        state.pending.insert(value, None);
        Ok(Promise {
            point: self.at(value),
            open: true,
        })
    }

    /// Signals a value from the host: a promise that is kept at once.
    ///
    /// The timeline reaches it when every earlier promise is kept.
    ///
    /// # Errors
    /// As [`Self::promise`].
    pub fn signal(&self, value: u64) -> Result<(), TimelineError> {
        self.promise(value).map(Promise::keep)
    }

    /// Blocks until the timeline has reached `value`.
    ///
    /// A promise that this thread itself holds can't be told from another's: who keeps one waits
    /// with [`Self::wait_timeout`].
    ///
    /// # Errors
    /// [`TimelineError::NoSignaller`] or [`TimelineError::Failed`] as soon as it can't be reached.
    pub fn wait(&self, value: u64) -> Result<(), TimelineError> {
        self.block(value, None, &|| false).map(drop)
    }

    /// As [`Self::wait`], for at most `limit`.
    ///
    /// # Errors
    /// Also [`TimelineError::Timeout`].
    pub fn wait_timeout(&self, value: u64, limit: Duration) -> Result<(), TimelineError> {
        self.block(value, Some(limit), &|| false).map(drop)
    }

    /// Waits until the value is reached or `stop`, which is asked after every [`Self::wake`]
    /// under the timeline's lock, says so; whether it is reached.
    pub(crate) fn block(
        &self,
        value: u64,
        limit: Option<Duration>,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, TimelineError> {
        let started = Instant::now();
        let mut state = self.state();
        loop {
            let reached = self.reaches(&state, value)?;
            if reached || stop() {
                return Ok(reached);
            }
            let Some(limit) = limit else {
                let woken = self.inner.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = started.elapsed();
            let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(TimelineError::Timeout {
                    timeline: self.inner.name.clone(),
                    value,
                    reached: state.value,
                    waited,
                });
            };
            let woken = self.inner.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes every blocked wait ask its `stop` again.
    pub(crate) fn wake(&self) {
        drop(self.state());
        self.inner.changed.notify_all();
    }

    /// Whether `value` is reached or outstanding.
    ///
    /// # Errors
    /// As [`Self::wait`], at once.
    pub(crate) fn check(&self, value: u64) -> Result<(), TimelineError> {
        self.reaches(&self.state(), value).map(drop)
    }

    /// Whether `value` is reached already; an error when it never will be.
    fn reaches(&self, state: &State, value: u64) -> Result<bool, TimelineError> {
        if state.value >= value {
            return Ok(true);
        }
        let next = state.next_signal(value);
        let timeline = || self.inner.name.clone();
        match (&state.failed, next) {
            (Some((at, cause)), next) if next.is_none_or(|n| n >= *at) => {
                Err(TimelineError::Failed {
                    timeline: timeline(),
                    value,
                    cause: Box::new(cause.clone()),
                })
            }
            (_, Some(_)) => Ok(false),
            (_, None) => Err(TimelineError::NoSignaller {
                timeline: timeline(),
                value,
                reached: state.value,
            }),
        }
    }

    /// Who holds the promises that `value` depends on; `None` is the host.
    fn holders(&self, value: u64) -> Vec<Option<Arc<Node>>> {
        let state = self.state();
        match state.next_signal(value) {
            Some(last) if state.value < value => {
                let holders = state.pending.range(..=last);
                holders.map(|(_, holder)| holder.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn settle(&self, value: u64, outcome: Result<(), DriverError>) {
        let mut state = self.state();
        state.pending.remove(&value);
        match outcome {
            Ok(()) => {
                state.kept.insert(value);
            }
            Err(cause) if state.failed.as_ref().is_none_or(|(at, _)| value < *at) => {
                state.failed = Some((value, cause));
            }
            Err(_) => {}
        }
        state.advance();
        drop(state);
        self.inner.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between calls, so a poisoned lock is harmless.
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeline")
            .field("name", &self.inner.name)
            .field("value", &self.value())
            .finish()
    }
}

impl State {
    /// The smallest outstanding or kept signal that is at least `value`.
    fn next_signal(&self, value: u64) -> Option<u64> {
        let pending = self.pending.range(value..).next().map(|(v, _)| *v);
        let kept = self.kept.range(value..).next().copied();
        pending.into_iter().chain(kept).min()
    }

    /// Moves to the largest kept value below every outstanding or failed one.
    fn advance(&mut self) {
        let pending = self.pending.first_key_value().map(|(v, _)| *v);
        let failed = self.failed.as_ref().map(|(v, _)| *v);
        let reached = match pending.into_iter().chain(failed).min() {
            Some(barrier) => self.kept.range(..barrier).next_back().copied(),
            None => self.kept.last().copied(),
        };
        if let Some(reached) = reached {
            self.value = reached;
            self.kept = self.kept.split_off(&reached);
            self.kept.remove(&reached);
        }
    }
}

/// The right and the duty to signal one value of a timeline.
///
/// Dropping it unkept fails the value, so that nobody waits for ever.
#[derive(Debug)]
#[must_use = "a promise that is dropped fails its value"]
pub struct Promise {
    point: Point,
    open: bool,
}

impl Promise {
    /// What it promises.
    pub fn point(&self) -> Point {
        self.point.clone()
    }

    /// Signals the value.
    pub fn keep(mut self) {
        self.open = false;
        self.point.timeline.settle(self.point.value, Ok(()));
    }

    /// Says that the value will never be signalled, and why.
    pub fn fail(mut self, cause: DriverError) {
        self.open = false;
        self.point.timeline.settle(self.point.value, Err(cause));
    }

    /// Notes that submitted work holds the promise from now on.
    pub(crate) fn hand_to(&self, node: &Arc<Node>) {
        let mut state = self.point.timeline.state();
        state
            .pending
            .insert(self.point.value, Some(Arc::clone(node)));
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.open {
            let broken = TimelineError::Broken {
                timeline: self.point.timeline.inner.name.clone(),
                value: self.point.value,
            };
            let cause = Err(broken.into());
            self.point.timeline.settle(self.point.value, cause);
        }
    }
}

/// Submitted work in the graph of who waits for whom.
pub(crate) struct Node {
    pub(crate) waits: Vec<Point>,
    /// The work before it in its stream, until that or this is done.
    previous: Mutex<Option<Arc<Node>>>,
}

/// What work depends on.
#[derive(Default)]
pub(crate) struct Dependence {
    /// A wait of some work for the work itself.
    pub(crate) cycle: Option<Point>,
    /// Whether a promise is among it that the host holds.
    pub(crate) on_host: bool,
}

impl Node {
    pub(crate) fn new(waits: Vec<Point>, previous: Option<Arc<Node>>) -> Arc<Self> {
        Arc::new(Self {
            waits,
            previous: Mutex::new(previous),
        })
    }

    /// Forgets what came before, once the work is done or has failed.
    pub(crate) fn finish(&self) {
        drop(self.previous().take());
    }

    /// Follows waits and stream order as far as work is outstanding.
    ///
    /// Timelines are locked one after the other. Threads that submit the parts of a cycle at the
    /// same time first register their promises and then search, so the last to register finds
    /// the whole of it.
    pub(crate) fn dependence(self: &Arc<Self>) -> Dependence {
        let mut found = Dependence::default();
        let mut seen = HashSet::from([Arc::as_ptr(self)]);
        let mut stack = vec![Arc::clone(self)];
        while let Some(node) = stack.pop() {
            for wait in &node.waits {
                for holder in wait.timeline.holders(wait.value) {
                    let Some(holder) = holder else {
                        found.on_host = true;
                        continue;
                    };
                    if Arc::ptr_eq(&holder, self) {
                        found.cycle.get_or_insert_with(|| wait.clone());
                    } else if seen.insert(Arc::as_ptr(&holder)) {
                        stack.push(holder);
                    }
                }
            }
            let previous = node.previous().clone();
            stack.extend(previous.filter(|p| seen.insert(Arc::as_ptr(p))));
        }
        found
    }

    fn previous(&self) -> MutexGuard<'_, Option<Arc<Node>>> {
        self.previous.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
