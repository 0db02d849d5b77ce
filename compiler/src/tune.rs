//! Schedules chosen by measuring: candidates of the analytic search, timed one by one.
//!
//! [`tune`] takes the cheapest tiles of [`lower::candidates`] for every distinct convolution of a
//! network, has a caller's function count the cycles of each one's program, and keeps the best in
//! a [`Cache`]: text that can be shipped, keyed by shape, configuration and timing. The compiler
//! knows no simulator; the function is the caller's.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use vta_isa::{Config, Extensions, MemType};
use vta_program::Program;
use vta_program::listing::ResidualBy;

use crate::lower::{self, ConvShape, ConvTile, LowerError, LowerOptions, Tiles};
use crate::qgraph::{NodeId, QGraph};

/// The version of the cache's text and of what its cycles mean.
const VERSION: u32 = 1;

/// Tuning that can't be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A network or layer that can't be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A program that couldn't be measured.
    #[error("node {node}: {reason}")]
    Measure {
        /// The node.
        node: String,
        /// Why, from the measuring function.
        reason: String,
    },
    /// A cache whose text isn't one.
    #[error("not a tuning cache: {0}")]
    Text(#[from] serde_json::Error),
    /// A cache of another version.
    #[error("the tuning cache has version {found}, this program reads {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
}

/// What was measured for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The fastest tile.
    pub tile: ConvTile,
    /// Cycles of the layer with it: those with the search's tile, less what it saves between its neighbours.
    pub cycles: u64,
    /// Cycles of the layer alone with the tile of the analytic search.
    pub untuned_cycles: u64,
}

/// Measured tiles by machine (configuration and timing) and shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    version: u32,
    machines: BTreeMap<String, BTreeMap<String, Entry>>,
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Self {
        Self {
            version: VERSION,
            machines: BTreeMap::new(),
        }
    }

    /// Reads a cache's JSON.
    ///
    /// # Errors
    /// [`TuneError::Text`] and [`TuneError::Version`].
    pub fn from_json(text: &str) -> Result<Self, TuneError> {
        let cache: Self = serde_json::from_str(text)?;
        match cache.version {
            VERSION => Ok(cache),
            found => Err(TuneError::Version { found }),
        }
    }

    /// The cache as JSON, shapes in order: the same bytes for the same entries.
    ///
    /// # Errors
    /// [`TuneError::Text`], which no cache causes.
    pub fn to_json(&self) -> Result<String, TuneError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// What is known of a shape on a machine.
    pub fn get(&self, machine: &str, shape: &ConvShape) -> Option<&Entry> {
        self.machines.get(machine)?.get(&shape_key(shape))
    }

    /// How many shapes are known of all machines.
    pub fn len(&self) -> usize {
        self.machines.values().map(BTreeMap::len).sum()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds what another cache knows. Of a shape that both know the entry of fewer cycles stays,
    /// this cache's if they are equal.
    pub fn merge(&mut self, other: &Self) {
        for (machine, shapes) in &other.machines {
            let own = self.machines.entry(machine.clone()).or_default();
            for (shape, entry) in shapes {
                let known = own.entry(shape.clone()).or_insert(*entry);
                if entry.cycles < known.cycles {
                    *known = *entry;
                }
            }
        }
    }

    fn insert(&mut self, machine: &str, shape: &ConvShape, entry: Entry) {
        let shapes = self.machines.entry(machine.to_owned()).or_default();
        shapes.insert(shape_key(shape), entry);
    }
}

/// The cache that comes with the compiler: the zoo's networks, the demo and the layers of
/// ResNet-18, for the default configuration and the timing `pynq`.
///
/// # Errors
/// None that a test wouldn't find: those of [`Cache::from_json`].
pub fn shipped() -> Result<Cache, TuneError> {
    Cache::from_json(include_str!("../data/tuned.json"))
}

/// A machine as caches name it: what of a configuration changes a schedule, and the timing.
pub fn machine(config: &Config, timing: &str) -> String {
    let depth = |mem: MemType| config.depth(mem);
    let extensions = match config.extensions() {
        // Keys of machines as they come stay as they are when an extension is added.
        Extensions::DEFAULT => String::new(),
        some => format!("extensions {some} "),
    };
    format!(
        "{}x{} uop {} inp {} wgt {} acc {} {extensions}{timing}",
        config.batch(),
        config.block(),
        depth(MemType::Uop),
        depth(MemType::Inp),
        depth(MemType::Wgt),
        depth(MemType::Acc)
    )
}

/// A shape as caches name it.
fn shape_key(shape: &ConvShape) -> String {
    let pair = |[a, b]: [usize; 2]| format!("{a}x{b}");
    let window = &shape.window;
    let [top, left, bottom, right] = window.pads.to_array();
    let residual = match shape.residual {
        ResidualBy::None => "none".to_owned(),
        ResidualBy::Load => "load".to_owned(),
        ResidualBy::Store => "store".to_owned(),
        ResidualBy::Product { .. } => format!("product {}", shape.diagonals()),
    };
    let groups = shape.groups.map_or(String::new(), |g| {
        format!(" groups {} of {} to {}", g.count, g.inputs, g.outputs)
    });
    let entry = match shape.entry {
        0 => String::new(),
        tiles => format!(" entry {tiles}"),
    };
    let ones = if shape.ones { " ones" } else { "" };
    let anew = if shape.anew { " anew" } else { "" };
    let windows = if shape.window_rows > 0 {
        " windows"
    } else {
        ""
    };
    let wgt4 = if shape.wgt4 { " wgt4" } else { "" };
    let parts = match shape.weight_parts {
        1 => String::new(),
        count => format!(" parts {count}"),
    };
    let regions = match shape.regions {
        0 => String::new(),
        count if shape.plain == 0 => format!(" regions {count}"),
        count => format!(" regions {count} beside {}", shape.plain),
    };
    format!(
        "ci {} {} co {} {} kernel {} stride {} dilation {} pads {top},{left},{bottom},{right} \
         lanes {} vectors {} residual {residual} bias {} pool {}{entry}{groups}{ones}{anew}{windows}{regions}{parts}{wgt4}",
        shape.ci,
        pair(shape.input),
        shape.co,
        pair(shape.output),
        pair(window.kernel),
        pair(window.stride),
        pair(window.dilation),
        shape.alu_steps,
        shape.vectors,
        match shape.bias {
            0 => "lanes".to_owned(),
            1 => "product".to_owned(),
            steps => format!("product {steps}"),
        },
        shape.pool.map_or("none".to_owned(), pair),
    )
}

/// The tiles that a cache knows for a network's convolutions on a machine.
///
/// # Errors
/// [`LowerError`] when the network can't be lowered.
pub fn tiles(
    cache: &Cache,
    graph: &QGraph,
    config: &Config,
    options: &LowerOptions,
    timing: &str,
) -> Result<Tiles, LowerError> {
    let machine = machine(config, timing);
    let mut tiles = Tiles::default();
    // Shapes are known once the network is lowered, which an unknown machine is spared.
    if cache.machines.contains_key(&machine) {
        for (_, shape, _) in lower::conv_tiles(graph, config, options, &tiles)? {
            if let Some(entry) = cache.get(&machine, &shape) {
                tiles.insert(shape, entry.tile);
            }
        }
    }
    Ok(tiles)
}

/// What to tune, and how hard.
pub struct Job<'a> {
    /// The network.
    pub graph: &'a QGraph,
    /// For which instance.
    pub config: &'a Config,
    /// How it is lowered.
    pub options: &'a LowerOptions,
    /// The timing's name, part of the cache's key.
    pub timing: &'a str,
    /// Candidates to measure for each shape, at least 1.
    pub candidates: usize,
}

impl Job<'_> {
    /// Cycles of nodes from one on.
    fn cycles(
        &self,
        tiles: &Tiles,
        nodes: Range<usize>,
        measure: &Measure<'_>,
    ) -> Result<u64, TuneError> {
        let first = NodeId(nodes.start);
        let program = lower::compile_nodes(self.graph, self.config, self.options, tiles, nodes)?;
        measure(&program).map_err(|reason| self.fault(first, reason))
    }

    fn fault(&self, node: NodeId, reason: String) -> TuneError {
        let graph = lower::for_machine(self.graph, self.config);
        let node = graph.nodes[node.0].name.clone();
        TuneError::Measure { node, reason }
    }
}

/// One candidate of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The tile.
    pub tile: ConvTile,
    /// The analytic cost, in cycles.
    pub estimate: u64,
    /// What it took, with its neighbours.
    pub cycles: u64,
}

/// Counts the cycles of a program.
pub type Measure<'a> = dyn Fn(&Program) -> Result<u64, String> + Sync + 'a;

/// The candidates of a convolution, each measured with the nodes before and behind, where these can be lowered: layers
/// overlap. Fastest first; ties go to the cheaper estimate. The first of the analytic search is among them.
///
/// # Errors
/// [`TuneError::Measure`] with the measuring function's reason.
pub fn explain(
    job: &Job<'_>,
    node: NodeId,
    shape: &ConvShape,
    measure: &Measure<'_>,
) -> Result<Vec<Measured>, TuneError> {
    let candidates = lower::candidates(shape, job.config, job.candidates.max(1));
    let (near, alone) = (node.0.saturating_sub(1)..node.0 + 2, node.0..node.0 + 1);
    let lowered =
        |nodes| lower::compile_nodes(job.graph, job.config, job.options, &Tiles::default(), nodes);
    let nodes = if lowered(near.clone()).is_ok() {
        near
    } else {
        alone
    };
    let one = |&(estimate, tile): &(u64, ConvTile)| {
        let tiles = Tiles::from([(*shape, tile)]);
        Ok(Measured {
            tile,
            estimate,
            cycles: job.cycles(&tiles, nodes.clone(), measure)?,
        })
    };
    let mut all: Vec<Measured> = candidates
        .par_iter()
        .map(one)
        .collect::<Result<_, TuneError>>()?;
    all.sort_by_key(|m| (m.cycles, m.estimate));
    Ok(all)
}

/// Measures every distinct convolution that the cache doesn't know yet and adds it; `observe` is
/// told how many are done of how many. How many were measured.
///
/// # Errors
/// As for [`explain`]; what was measured before stays in the cache.
pub fn tune(
    job: &Job<'_>,
    cache: &mut Cache,
    measure: &Measure<'_>,
    observe: &mut dyn FnMut(usize, usize),
) -> Result<usize, TuneError> {
    let machine = machine(job.config, job.timing);
    let mut todo = subjects(job)?;
    todo.retain(|subject| cache.get(&machine, &subject.shape).is_none());
    for (done, subject) in todo.iter().enumerate() {
        observe(done, todo.len());
        add(job, subject, cache, measure)?;
    }
    observe(todo.len(), todo.len());
    Ok(todo.len())
}

/// A convolution that tiles are chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    node: NodeId,
    shape: ConvShape,
    /// The tile of the analytic search.
    searched: ConvTile,
}

/// The distinct convolutions of a network, in the order of its nodes.
///
/// # Errors
/// [`TuneError::Lower`] when the network can't be lowered.
pub fn subjects(job: &Job<'_>) -> Result<Vec<Subject>, TuneError> {
    let mut seen = HashSet::new();
    let all = lower::conv_tiles(job.graph, job.config, job.options, &Tiles::default())?;
    let subject = |(node, shape, searched)| {
        seen.insert(shape).then_some(Subject {
            node,
            shape,
            searched,
        })
    };
    Ok(all.into_iter().filter_map(subject).collect())
}

/// Measures one of a network's [`subjects`] and adds it to the cache.
///
/// # Errors
/// As for [`explain`].
pub fn add(
    job: &Job<'_>,
    subject: &Subject,
    cache: &mut Cache,
    measure: &Measure<'_>,
) -> Result<(), TuneError> {
    let Subject {
        node,
        shape,
        searched,
    } = subject;
    let all = explain(job, *node, shape, measure)?;
    let untuned = all.iter().find(|m| m.tile == *searched);
    let (Some(best), Some(untuned)) = (all.first(), untuned) else {
        let reason = "internal error: the search's own tile is no candidate";
        return Err(job.fault(*node, reason.to_owned()));
    };
    let tiles = Tiles::from([(*shape, *searched)]);
    let alone = job.cycles(&tiles, node.0..node.0 + 1, measure)?;
    let entry = Entry {
        tile: best.tile,
        cycles: alone.saturating_sub(untuned.cycles - best.cycles),
        untuned_cycles: alone,
    };
    cache.insert(&machine(job.config, job.timing), shape, entry);
    Ok(())
}

#[cfg(test)]
mod tests;
