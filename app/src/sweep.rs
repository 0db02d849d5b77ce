//! Cycles over a grid of configurations and boards.

mod certificate;
mod explore;
mod grid;
mod labels;
mod layers;
mod merge;
mod objective;
mod picture;
mod row;
mod shard;
mod sweeper;
mod table;
mod threads;
mod topology;
mod tune;

pub use self::certificate::{Certificate, Certified, Limit, certify, median_gap};
pub use self::explore::{Best, ExploreOptions, Explored, Explorer, Walk, explore};
pub use self::merge::merge;
pub use self::objective::Objective;
pub use self::row::{Measured, Row};
pub use self::sweeper::Sweeper;
pub use self::topology::{Shape, Workload};
pub use self::tune::{Tuner, pass};

use std::path::PathBuf;

use vta_files::output;

use self::grid::Point;
use self::layers::Machines;
use self::objective::front;
use self::picture::pareto;
use self::shard::Shard;
use self::table::Table;
use self::threads::{compute, configurations};
use crate::error::{Result, ensure};
use crate::options::Target;
use crate::options::names::{PICTURE, SHARD};
use crate::watch::Watch;

/// What a sweep's machines are compared by: across, and up.
const AXES: [Objective; 2] = [Objective::Area, Objective::Cycles];

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
/// [`Error::Cancelled`](crate::Error::Cancelled) when `watch` says so: what the table has then is found again.
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
    let all: Vec<(usize, Point)> = (0..)
        .zip(grid.points())
        .filter(|(at, _)| wanted(*at))
        .collect();
    let missing = all.iter().filter(|(_, point)| !table.has(&point.values));
    let missing: Vec<usize> = missing.map(|(index, _)| *index).collect();
    let (resumed, computed) = (all.len() - missing.len(), missing.len());
    compute(
        configurations(grid, &missing),
        sweeper.threads(),
        &|index| sweeper.measure(index),
        (0, computed),
        watch,
        &mut |row| table.append(row),
    )?;
    let rows = table.finish(grid)?;
    let machines = Machines::of(grid, &rows);
    if let Some(path) = &args.picture {
        let title = format!("vta sweep of {name}");
        let picture = pareto(&title, name, &machines.keys, &machines.rows, AXES);
        output::write(path, picture)?;
    }
    let front = front(&machines.rows, &AXES).into_iter();
    Ok(Swept {
        keys: grid.keys().map(str::to_owned).collect(),
        has_layers: grid.has_layers(),
        front: front.map(|at| machines.rows[at].clone()).collect(),
        rows,
        resumed,
        computed,
    })
}
