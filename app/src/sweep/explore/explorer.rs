//! An exploration as one asks and is told: which points are wanted, what they took, and what was found.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;
use vta_sim::views::{LayerCycles, Verdict};

use super::search::Search;
use super::space;
use crate::device::machine::Machine;
use crate::error::{Context, Error, Result, ensure};
use crate::options::Target;
use crate::options::names::{AREA, OBJECTIVE, POINTS, SEARCHES, SHARD};
use crate::sweep::grid::{Grid, MAX_POINTS};
use crate::sweep::layers::together;
use crate::sweep::objective::{Objective, front};
use crate::sweep::row::{Measured, Row};
use crate::sweep::shard::Shard;
use crate::sweep::sweeper::Sweeper;
use crate::sweep::threads::compute;
use crate::sweep::topology::Workload;
use crate::watch::{Part, Watch};

/// Of so many searches the last one leaves out extensions, so that what they bring shows.
const PLAIN_EVERY: usize = 4;

/// How machines are chosen.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The largest machine, in square millimetres.
    pub area_mm2: Option<f64>,
    /// What is to be small, one or more.
    pub objectives: Vec<Objective>,
    /// How many machines are measured at most.
    pub points: usize,
    /// Searches that the points are divided among. They know nothing of each other.
    pub searches: usize,
    /// The part of the searches to do, `I/N`; `None` is all.
    pub shard: Option<String>,
    /// Another seed chooses other machines.
    pub seed: u64,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            area_mm2: None,
            objectives: vec![Objective::Cycles, Objective::Energy],
            points: 1000,
            searches: 4,
            shard: None,
            seed: 1,
        }
    }
}

/// A machine of the front.
pub struct Best {
    /// Its values of the axes, and what it took: of several networks the sums.
    pub row: Row,
    /// The same as figures.
    pub measured: Measured,
    /// The machine.
    pub config: Config,
    /// Its memory.
    pub timing: TimingConfig,
    /// How many times as fast it is as the fastest one that was found of at most its area without extensions.
    pub gain: Option<f64>,
    /// What it waits for.
    pub verdict: Verdict,
}

impl Best {
    /// The figures by their names in tables, and behind them `point`, its values of the axes, `gain`, `limited_by` and
    /// `why`.
    pub fn json(&self, keys: &[String]) -> Map<String, Value> {
        let pairs = keys.iter().cloned().zip(self.row.values.iter());
        let point: Map<String, Value> = pairs.map(|(key, value)| (key, json!(value))).collect();
        let mut object = self.measured.figures();
        object.insert("point".to_owned(), point.into());
        object.insert("gain".to_owned(), json!(self.gain));
        object.insert("limited_by".to_owned(), json!(self.verdict.resource));
        object.insert("why".to_owned(), json!(self.verdict.words));
        object
    }
}

/// One search, and the machines that it waits for.
struct Walker {
    search: Search,
    wanted: Vec<usize>,
}

/// An exploration. What it wants depends on its options and on what it is told, not on when.
pub struct Explorer {
    sweeper: Sweeper,
    objectives: Vec<Objective>,
    most_mm2: f64,
    walkers: Vec<Walker>,
    /// Points that searches have asked for, and may ask for.
    asked: (usize, usize),
    found: HashMap<usize, Result<Measured, String>>,
}

impl Explorer {
    /// Reads what is measured, the machine and the axes: `vary` and, where it doesn't name them, all that matters.
    ///
    /// # Errors
    /// As for [`Sweeper::open`]; an option without sense; an area that no machine has.
    pub fn open(
        work: &Workload,
        vary: &[String],
        target: &Target,
        walk: &Walk,
        watch: &dyn Watch,
    ) -> Result<Self> {
        check(walk)?;
        let shard = walk.shard.as_deref().map(str::parse::<Shard>).transpose()?;
        let fewer = shard.is_none_or(|shard| shard.of() <= walk.searches);
        ensure!(fewer, "{} of {} searches: there are more shards than {}"; SHARD, walk.searches, SEARCHES);
        let machine = Machine::read(target)?;
        let vary = space::axes(&machine, vary)?;
        let sweeper = Sweeper::within(work, &vary, target, watch, space::MAX_SPACE)?;
        let grid = sweeper.grid();
        let most_mm2 = walk.area_mm2.unwrap_or(f64::INFINITY);
        let first = space::first(grid, &machine);
        let search = |at: usize, points: usize| -> Result<Search> {
            let mut genes = space::genes(grid)?;
            let has_plain = walk.searches >= PLAIN_EVERY && at % PLAIN_EVERY == PLAIN_EVERY - 1;
            if let Some((axis, choice)) = space::plain(grid).filter(|_| has_plain) {
                genes[axis].only(choice);
            }
            let seed = walk
                .seed
                .wrapping_mul(walk.searches as u64)
                .wrapping_add(at as u64);
            Ok(Search::new(
                genes,
                first.clone().filter(|_| at == 0),
                walk.objectives.len(),
                seed,
                points,
            ))
        };
        fits(&sweeper, &mut search(0, 1)?, most_mm2)?;
        let mut walkers = Vec::new();
        let mut points = 0;
        for at in (0..walk.searches).filter(|&at| shard.is_none_or(|shard| shard.has(at))) {
            let of_search = (walk.points + walk.searches - 1 - at) / walk.searches;
            points += of_search;
            let wanted = Vec::new();
            walkers.push(Walker {
                search: search(at, of_search)?,
                wanted,
            });
        }
        Ok(Self {
            asked: (0, points * grid.layers()),
            objectives: walk.objectives.clone(),
            most_mm2,
            walkers,
            found: HashMap::new(),
            sweeper,
        })
    }

    /// The keys of the machines' axes.
    pub fn keys(&self) -> Vec<String> {
        let axes = self.sweeper.grid().of_machine();
        axes.map(|(key, _)| key.to_owned()).collect()
    }

    /// Measures points.
    pub fn sweeper(&self) -> &Sweeper {
        &self.sweeper
    }

    /// The points that are wanted next, as indices into the sweeper's grid, in its order; none when it is over.
    pub fn next_points(&mut self) -> Vec<usize> {
        let grid = self.sweeper.grid();
        let area = |index| area_mm2(&self.sweeper, index);
        let excess = space::excess(&area, grid, self.most_mm2);
        let mut missing = BTreeSet::new();
        for walker in &mut self.walkers {
            loop {
                if walker.wanted.is_empty() {
                    let asked = walker.search.ask(&*excess).iter();
                    walker.wanted = asked.map(|genome| space::index(grid, genome)).collect();
                    self.asked.0 += walker.wanted.len() * grid.layers();
                }
                let wanted = walker.wanted.iter();
                let mut points: Vec<usize> = wanted.flat_map(|at| grid.points_of(*at)).collect();
                points.retain(|point| !self.found.contains_key(point));
                if walker.wanted.is_empty() || !points.is_empty() {
                    missing.extend(points);
                    break;
                }
                let told = |&at: &usize| {
                    let measured = machine(grid, &self.found, at)?.outcome.ok()?;
                    Some(self.objectives.iter().map(|o| o.of(&measured)).collect())
                };
                walker.search.tell(walker.wanted.iter().map(told).collect());
                walker.wanted.clear();
            }
        }
        missing.into_iter().collect()
    }

    /// Takes what a point took, or why it can't be computed.
    pub fn tell(&mut self, point: usize, outcome: Result<Measured, String>) {
        self.found.insert(point, outcome);
    }

    /// Points that have been asked for, and those that will be at most.
    pub fn progress(&self) -> (usize, usize) {
        self.asked
    }

    /// The machines that are known, in the grid's order: of several networks the sums. Those that are larger than asked for
    /// are left out.
    pub fn machines(&self) -> Vec<(usize, Row)> {
        let grid = self.sweeper.grid();
        let points = self.found.keys();
        let known: BTreeSet<usize> = points.map(|point| grid.machine_of(*point)).collect();
        let rows = known
            .into_iter()
            .filter_map(|at| Some((at, machine(grid, &self.found, at)?)));
        let fits = |row: &Row| {
            row.outcome
                .as_ref()
                .map_or(true, |m| m.area_mm2 <= self.most_mm2)
        };
        rows.filter(|(_, row)| fits(row)).collect()
    }

    /// The machines that no other beats, by the first objective.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when `watch` says so.
    pub fn best(&self, watch: &dyn Watch) -> Result<Vec<Best>> {
        let (indices, rows): (Vec<usize>, Vec<Row>) = self.machines().into_iter().unzip();
        let best = front(&rows, &self.objectives);
        let mut verdicts: BTreeMap<usize, Verdict> = BTreeMap::new();
        compute(
            best.iter().map(|&at| vec![at]).collect(),
            self.sweeper.threads(),
            &|at| Ok((at, self.verdict(indices[at])?)),
            (0, best.len()),
            &Part(watch),
            &mut |(at, verdict)| {
                verdicts.insert(at, verdict);
                Ok(())
            },
        )?;
        let plain = plain(self.sweeper.grid(), &rows);
        let found = best.into_iter().map(|at| {
            let measured = rows[at].outcome.clone().map_err(Error::input)?;
            let (config, timing) = self
                .sweeper
                .grid()
                .point(indices[at])?
                .machine
                .map_err(Error::input)?;
            let smaller = plain.iter().filter(|m| m.area_mm2 <= measured.area_mm2);
            let fastest = smaller.map(|m| m.cycles_per_image()).min_by(f64::total_cmp);
            Ok(Best {
                gain: fastest.map(|cycles| cycles / measured.cycles_per_image()),
                row: rows[at].clone(),
                measured,
                config,
                timing,
                verdict: verdicts.remove(&at).context("a machine without cycles")?,
            })
        });
        found.collect()
    }

    /// What a machine waits for, with all networks together.
    fn verdict(&self, at: usize) -> Result<Verdict> {
        let mut total = LayerCycles::default();
        for point in self.sweeper.grid().points_of(at) {
            total.add(&self.sweeper.total(point)?);
        }
        Ok(Verdict::of(&total))
    }
}

fn check(walk: &Walk) -> Result<()> {
    let area = walk.area_mm2.is_none_or(|mm2| mm2 > 0.0);
    ensure!(area, "{} must be more than 0 square millimetres"; AREA);
    ensure!(walk.points > 0, "{} must be at least 1"; POINTS);
    ensure!(walk.points <= MAX_POINTS, "{} must be at most {}"; POINTS, MAX_POINTS);
    ensure!((1..=walk.points).contains(&walk.searches), "{} must be from 1 to {}"; SEARCHES, walk.points);
    for (at, objective) in walk.objectives.iter().enumerate() {
        let twice = walk.objectives[..at].contains(objective);
        ensure!(!twice, "{} {} is given twice"; OBJECTIVE, objective.name());
    }
    ensure!(!walk.objectives.is_empty(), "{} must name one or more"; OBJECTIVE);
    Ok(())
}

/// Whether there is a machine at all.
fn fits(sweeper: &Sweeper, search: &mut Search, most_mm2: f64) -> Result<()> {
    let smallest = Cell::new(f64::INFINITY);
    let area = |index| {
        let mm2 = area_mm2(sweeper, index);
        smallest.set(smallest.get().min(mm2.unwrap_or(f64::INFINITY)));
        mm2
    };
    let found = !search
        .ask(&*space::excess(&area, sweeper.grid(), most_mm2))
        .is_empty();
    let smallest = smallest.get();
    if !found && smallest.is_infinite() {
        let why = sweeper.grid().point(0)?.machine.err().unwrap_or_default();
        return Err(Error::input(format!(
            "no machine that was tried can be built: {why}"
        )));
    }
    ensure!(
        found,
        "{} {}: no machine that was tried is so small; the smallest takes {} mm2";
        AREA, most_mm2, format!("{smallest:.3}")
    );
    Ok(())
}

/// The area of a machine, where there is one.
fn area_mm2(sweeper: &Sweeper, index: usize) -> Option<f64> {
    let (config, timing) = sweeper.grid().point(index).ok()?.machine.ok()?;
    Some(sweeper.costs().area_mm2(&config, &timing))
}

/// A machine's row, if all its layers are known: of several the sums.
fn machine(
    grid: &Grid,
    found: &HashMap<usize, Result<Measured, String>>,
    at: usize,
) -> Option<Row> {
    let row = |index: usize| {
        let values = grid.point(index).ok()?.values;
        let outcome = found.get(&index)?.clone();
        Some(Row { values, outcome })
    };
    let mut rows: Vec<Row> = grid.points_of(at).map(row).collect::<Option<_>>()?;
    if grid.has_layers() {
        return Some(together(&rows.iter().collect::<Vec<_>>()));
    }
    rows.pop()
}

/// The machines without more extensions than the base's, if others have more.
fn plain<'r>(grid: &Grid, rows: &'r [Row]) -> Vec<&'r Measured> {
    let Some((axis, choice)) = space::plain(grid) else {
        return Vec::new();
    };
    let value = grid
        .of_machine()
        .nth(axis)
        .map(|(_, values)| &values[choice]);
    let without = rows.iter().filter(|row| row.values.get(axis) == value);
    without
        .filter_map(|row| row.outcome.as_ref().ok())
        .collect()
}
