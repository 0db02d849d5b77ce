//! Points on threads of their own, not those that compiling shares: a thread of these that waits for its parts may
//! begin another point meanwhile, and that one may wait for the first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, Scope};
use std::time::Duration;

use super::grid::Grid;
use crate::error::{Error, Result};
use crate::watch::Watch;

/// How often whoever began the work is asked whether to go on while no point is ready.
const WAIT: Duration = Duration::from_millis(50);

/// Points of one layer and configuration.
struct Group {
    points: Vec<usize>,
    next: AtomicUsize,
}

/// What the threads share.
struct Shared<'a, T> {
    job: &'a (dyn Fn(usize) -> Result<T> + Sync),
    groups: Vec<Group>,
    /// Groups that a thread has begun.
    begun: AtomicUsize,
    stop: AtomicBool,
}

impl<T> Shared<'_, T> {
    /// Computes until nothing is left: a configuration that nobody has, and another while there are
    /// some, so that no thread waits for what another compiles; then what others have not begun of theirs.
    fn work(&self, done: &SyncSender<Result<T>>) {
        loop {
            let group = self.groups.get(self.begun.fetch_add(1, Ordering::Relaxed));
            let Some(group) = group else { break };
            self.compute(group, done);
        }
        self.groups
            .iter()
            .for_each(|group| self.compute(group, done));
    }

    fn compute(&self, group: &Group, done: &SyncSender<Result<T>>) {
        while !self.stop.load(Ordering::Relaxed) {
            let next = group.next.fetch_add(1, Ordering::Relaxed);
            let Some(&index) = group.points.get(next) else {
                return;
            };
            // Nobody listens any more.
            if done.send((self.job)(index)).is_err() {
                return;
            }
        }
    }
}

/// Does `job` for the points of all groups, on so many threads, and keeps what it gives as it comes. `before` points of
/// `all` are done already: those that `watch` is told of.
///
/// # Errors
/// The first of `job` and `keep`; [`Error::Cancelled`] when `watch` says so.
pub fn compute<T: Send>(
    groups: Vec<Vec<usize>>,
    threads: usize,
    job: &(dyn Fn(usize) -> Result<T> + Sync),
    (before, all): (usize, usize),
    watch: &dyn Watch,
    keep: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    watch.progress(before, all);
    let points = groups.iter().map(Vec::len).sum();
    let group = |points| Group {
        points,
        next: AtomicUsize::new(0),
    };
    let shared = Shared {
        job,
        groups: groups.into_iter().map(group).collect(),
        begun: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    if cfg!(target_family = "wasm") {
        for (done, index) in shared.groups.iter().flat_map(|g| &g.points).enumerate() {
            if watch.cancelled() {
                return Err(Error::Cancelled);
            }
            keep(job(*index)?)?;
            watch.progress(before + done + 1, all);
        }
        return Ok(());
    }
    thread::scope(|scope| {
        let found = start(scope, &shared, threads.min(points)).and_then(|results| {
            for done in 1..=points {
                keep(next(&results, watch)?)?;
                watch.progress(before + done, all);
            }
            Ok(())
        });
        shared.stop.store(true, Ordering::Relaxed);
        found
    })
}

fn start<'s, T: Send>(
    scope: &'s Scope<'s, '_>,
    shared: &'s Shared<'_, T>,
    threads: usize,
) -> Result<Receiver<Result<T>>> {
    let (done, results) = mpsc::sync_channel(threads);
    for _ in 0..threads {
        let done = done.clone();
        let thread = thread::Builder::new().name("sweep".to_owned());
        thread.spawn_scoped(scope, move || shared.work(&done))?;
    }
    Ok(results)
}

/// The next result.
fn next<T>(results: &Receiver<Result<T>>, watch: &dyn Watch) -> Result<T> {
    loop {
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        match results.recv_timeout(WAIT) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => watch.waiting(),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::thread()),
        }
    }
}

/// Points by layer and configuration, in the order of each one's first point. Points without a machine are a group, too.
pub fn configurations(grid: &Grid, points: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for &index in points {
        let Ok(point) = grid.point(index) else {
            continue;
        };
        let config = point.machine.ok().map(|(config, _)| config.to_json());
        let group = *known.entry((point.layer, config)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(index);
    }
    groups
}
