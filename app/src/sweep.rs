//! Cycles over a grid of configurations and boards.

mod area;
mod grid;
mod labels;
mod layers;
mod merge;
mod picture;
mod row;
mod shard;
mod sweeper;
mod table;
mod topology;
mod tune;

pub use self::merge::merge;
pub use self::row::{Measured, Row};
pub use self::sweeper::Sweeper;
pub use self::topology::{Shape, Workload};
pub use self::tune::{Tuner, pass};

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, Scope};
use std::time::Duration;

use vta_files::output;

use self::grid::Point;
use self::layers::Machines;
use self::picture::{front, pareto};
use self::shard::Shard;
use self::table::Table;
use crate::error::{Error, Result, ensure};
use crate::options::Target;
use crate::options::names::{PICTURE, SHARD};
use crate::watch::Watch;

/// How often whoever began a sweep is asked whether to go on while no point is ready.
const WAIT: Duration = Duration::from_millis(50);

/// What is swept, and where the results go.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// What runs on each machine.
    pub work: Workload,
    /// `KEY=V1,V2,..`, an axis each.
    pub vary: Vec<String>,
    /// What isn't varied, and how many points are computed side by side: see [`Sweeper::open`].
    pub target: Target,
    /// The table; rows that are there already are not computed again.
    pub output: PathBuf,
    /// The part of the points to compute, `I/N`; `None` is all.
    pub shard: Option<String>,
    /// A picture of cycles against area to write.
    pub picture: Option<PathBuf>,
}

/// A finished sweep.
pub struct Swept {
    /// The axes' keys.
    pub keys: Vec<String>,
    /// Whether the first axis is of layers, which are no part of the machine.
    pub has_layers: bool,
    /// A row for each point, or each of the shard, in the grid's order.
    pub rows: Vec<Row>,
    /// Machines that no other one beats in area and cycles an image, by area; of layers their sums.
    pub front: Vec<Row>,
    /// Points that were in the table already.
    pub resumed: usize,
    /// Points that were computed now.
    pub computed: usize,
}

/// Runs the sweep. A point that can't be computed has its reason in its row.
///
/// # Errors
/// A grid, model or file that can't be read, a table or picture that can't be written,
/// [`Error::Cancelled`] when `watch` says so: what the table has then is found again.
pub fn sweep(args: &SweepOptions, watch: &dyn Watch) -> Result<Swept> {
    let shard = args.shard.as_deref().map(str::parse::<Shard>).transpose()?;
    ensure!(
        shard.is_none() || args.picture.is_none(),
        "{} shows the whole grid, not a {}: merge the tables first";
        PICTURE, SHARD
    );
    let sweeper = Sweeper::open(&args.work, &args.vary, &args.target, watch)?;
    let (name, grid) = (&args.work.name, sweeper.grid());
    let mut table = Table::open(&args.output, name, grid, shard)?;
    let wanted = |index: usize| shard.is_none_or(|shard| shard.has(index));
    let mut missing: Vec<(usize, Point)> = (0..).zip(grid.points()).collect();
    missing.retain(|(index, _)| wanted(*index));
    let all = missing.len();
    missing.retain(|(_, point)| !table.has(&point.values));
    let (resumed, computed) = (all - missing.len(), missing.len());
    compute(&sweeper, &missing, watch, &mut |row| table.append(row))?;
    let rows = table.finish(grid)?;
    let machines = Machines::of(grid, &rows);
    if let Some(path) = &args.picture {
        let picture = pareto(name, &machines.keys, &machines.rows);
        output::write(path, picture)?;
    }
    let front = front(&machines.rows).into_iter();
    Ok(Swept {
        keys: grid.keys().map(str::to_owned).collect(),
        has_layers: grid.has_layers(),
        front: front.map(|at| machines.rows[at].clone()).collect(),
        rows,
        resumed,
        computed,
    })
}

/// Points of one layer and configuration.
#[derive(Default)]
struct Group {
    points: Vec<usize>,
    next: AtomicUsize,
}

/// What the threads of a sweep share.
struct Shared<'a> {
    sweeper: &'a Sweeper,
    groups: Vec<Group>,
    /// Groups that a thread has begun.
    begun: AtomicUsize,
    stop: AtomicBool,
}

impl Shared<'_> {
    /// Computes until nothing is left: a configuration that nobody has, and another while there are
    /// some, so that no thread waits for what another compiles; then what others have not begun of theirs.
    fn work(&self, done: &SyncSender<Result<Row>>) {
        loop {
            let group = self.groups.get(self.begun.fetch_add(1, Ordering::Relaxed));
            let Some(group) = group else { break };
            self.compute(group, done);
        }
        self.groups
            .iter()
            .for_each(|group| self.compute(group, done));
    }

    fn compute(&self, group: &Group, done: &SyncSender<Result<Row>>) {
        while !self.stop.load(Ordering::Relaxed) {
            let next = group.next.fetch_add(1, Ordering::Relaxed);
            let Some(&index) = group.points.get(next) else {
                return;
            };
            // Nobody listens any more.
            if done.send(self.sweeper.measure(index)).is_err() {
                return;
            }
        }
    }
}

/// Computes points on threads of their own, not those that compiling shares: a thread of these that
/// waits for its parts may begin another point meanwhile, and that one may wait for the first.
fn compute(
    sweeper: &Sweeper,
    missing: &[(usize, Point)],
    watch: &dyn Watch,
    keep: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    watch.progress(0, missing.len());
    let shared = Shared {
        sweeper,
        groups: groups(missing),
        begun: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let threads = sweeper.threads().min(missing.len());
        let found = start(scope, &shared, threads)
            .and_then(|rows| collect(&rows, missing.len(), watch, keep));
        shared.stop.store(true, Ordering::Relaxed);
        found
    })
}

fn start<'s>(
    scope: &'s Scope<'s, '_>,
    shared: &'s Shared<'_>,
    threads: usize,
) -> Result<Receiver<Result<Row>>> {
    let (done, rows) = mpsc::sync_channel(threads);
    for _ in 0..threads {
        let done = done.clone();
        let thread = thread::Builder::new().name("sweep".to_owned());
        thread.spawn_scoped(scope, move || shared.work(&done))?;
    }
    Ok(rows)
}

/// Keeps rows as they come.
fn collect(
    rows: &Receiver<Result<Row>>,
    all: usize,
    watch: &dyn Watch,
    keep: &mut dyn FnMut(Row) -> Result<()>,
) -> Result<()> {
    let mut done = 0;
    while done < all {
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        match rows.recv_timeout(WAIT) {
            Ok(row) => {
                keep(row?)?;
                done += 1;
                watch.progress(done, all);
            }
            Err(RecvTimeoutError::Timeout) => watch.waiting(),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::thread()),
        }
    }
    Ok(())
}

/// The points by configuration, in the order of each one's first point. Points without a machine are a
/// group, too.
fn groups(missing: &[(usize, Point)]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known = HashMap::new();
    for (index, point) in missing {
        let machine = point.machine.as_ref().ok();
        let config = machine.map(|(config, _)| config.to_json());
        let group = *known.entry((point.layer, config)).or_insert_with(|| {
            groups.push(Group::default());
            groups.len() - 1
        });
        groups[group].points.push(*index);
    }
    groups
}
