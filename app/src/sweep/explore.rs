//! A sweep whose points are chosen: machines that no other one beats.

mod explorer;
mod search;
mod space;

pub use self::explorer::{Best, Explorer, Walk};

use std::path::PathBuf;

use vta_files::output;

use super::objective::Objective;
use super::picture::pareto;
use super::row::Row;
use super::table::Table;
use super::threads::{compute, configurations};
use super::topology::Workload;
use crate::error::Result;
use crate::options::Target;
use crate::watch::Watch;

/// What is explored, and where the results go.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// What runs on each machine.
    pub work: Workload,
    /// `KEY=V1,V2,..`, an axis each, in place of those that are walked without being named.
    pub vary: Vec<String>,
    /// What isn't varied, and how many points are computed side by side.
    pub target: Target,
    /// How machines are chosen.
    pub walk: Walk,
    /// The table; rows that are there already are not computed again.
    pub output: PathBuf,
    /// A picture of the first two objectives to write; of a single one beside area.
    pub picture: Option<PathBuf>,
}

/// A finished exploration.
pub struct Explored {
    /// The keys of the machines' axes.
    pub keys: Vec<String>,
    /// The machines that were measured, or why one can't be.
    pub rows: Vec<Row>,
    /// Those that no other one beats, by the first objective.
    pub front: Vec<Best>,
    /// Points that were in the table already.
    pub resumed: usize,
    /// Points that were computed now.
    pub computed: usize,
}

/// Explores. The table is that of a [`sweep`](super::sweep) of the same axes, so that each goes on with the other's, and it
/// holds all that an exploration needs to go on: the same points are asked for again, and are there.
///
/// # Errors
/// As for [`Explorer::open`], a table or picture that can't be written, [`Error::Cancelled`](crate::Error::Cancelled) when
/// `watch` says so.
pub fn explore(args: &ExploreOptions, watch: &dyn Watch) -> Result<Explored> {
    let mut explorer = Explorer::open(&args.work, &args.vary, &args.target, &args.walk, watch)?;
    let name = &args.work.name;
    let mut table = Table::open(&args.output, name, explorer.sweeper().grid(), None)?;
    let mut resumed = 0;
    for row in table.rows() {
        if let Some(point) = explorer.sweeper().grid().index_of(&row.values) {
            explorer.tell(point, row.outcome.clone());
            resumed += 1;
        }
    }
    let mut computed = 0;
    loop {
        let points = explorer.next_points();
        if points.is_empty() {
            break;
        }
        computed += points.len();
        let (asked, all) = explorer.progress();
        let mut told = Vec::with_capacity(points.len());
        let sweeper = explorer.sweeper();
        compute(
            configurations(sweeper.grid(), &points),
            sweeper.threads(),
            &|point| Ok((point, sweeper.measure(point)?)),
            (asked.saturating_sub(points.len()), all),
            watch,
            &mut |(point, row): (usize, Row)| {
                told.push((point, row.outcome.clone()));
                table.append(row)
            },
        )?;
        told.into_iter()
            .for_each(|(point, outcome)| explorer.tell(point, outcome));
    }
    let grid = explorer.sweeper().grid();
    table.finish(grid)?;
    let keys = explorer.keys();
    let rows: Vec<Row> = explorer
        .machines()
        .into_iter()
        .map(|(_, row)| row)
        .collect();
    let front = explorer.best(watch)?;
    if let Some(path) = &args.picture {
        let axes = match args.walk.objectives[..] {
            [up, across, ..] => [across, up],
            [Objective::Area] | [] => [Objective::Area, Objective::Cycles],
            [up] => [Objective::Area, up],
        };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let title = format!("vta explore of {name}");
        output::write(path, pareto(&title, name, &keys, &rows, axes))?;
    }
    Ok(Explored {
        keys,
        rows,
        front,
        resumed,
        computed,
    })
}
