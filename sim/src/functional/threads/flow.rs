//! What flows between units through the scratchpads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::plan::unplanned::GoOn;
use super::super::run::ops::Op;
use super::cells::{Cells, Dims};
use super::cut::Cutter;
use super::unit::Unit;
use crate::kernels::shared::Footprint;

/// Units of a schedule: bounds the time that making one takes.
const MOST_UNITS: usize = 1 << 17;
/// Nobody has written the cell yet.
const BEFORE: u32 = u32::MAX;

/// Units with what flows between them through the scratchpads.
pub(crate) struct Flow {
    pub units: Vec<Unit>,
    pub footprints: Vec<Footprint>,
    /// Units whose results each reads.
    pub sources: Vec<Vec<u32>>,
    /// Cells that each reads as they were before the batch.
    pub before: Vec<Cells>,
    /// Cells that each wrote last.
    pub after: BTreeMap<u32, Cells>,
}

impl Flow {
    /// Cuts all operations, products that take longer than the grain into more than one unit,
    /// for so many threads; `None` if there are too many, or at the word of `go_on`.
    pub fn new(
        ops: &[Op],
        dims: Dims,
        grain_ns: u64,
        threads: usize,
        go_on: GoOn<'_>,
    ) -> Option<Self> {
        let mut cutter = Cutter::new(dims, grain_ns, threads);
        // Who wrote each cell last.
        let mut owners = vec![BEFORE; dims.cells];
        let mut units = Vec::with_capacity(ops.len());
        let (mut sources, mut before) = (Vec::new(), Vec::new());
        for (index, op) in ops.iter().enumerate() {
            cutter.cut(index, op, |cell| owners[cell], &mut units);
            if units.len() > MOST_UNITS || !go_on() {
                return None;
            }
            for (number, unit) in units.iter().enumerate().skip(sources.len()) {
                let (mut from, mut held) = (BTreeSet::new(), Vec::new());
                for cell in unit.reads.iter() {
                    match owners[cell] {
                        BEFORE => held.push(cell..cell + 1),
                        owner => {
                            from.insert(owner);
                        }
                    }
                }
                sources.push(from.into_iter().collect());
                before.push(Cells::new(held));
                for cell in unit.writes.iter() {
                    owners[cell] = number as u32;
                }
            }
        }
        let mut after: BTreeMap<u32, Vec<Range<usize>>> = BTreeMap::new();
        for (cell, owner) in owners.into_iter().enumerate().filter(|o| o.1 != BEFORE) {
            after.entry(owner).or_default().push(cell..cell + 1);
        }
        let after = after
            .into_iter()
            .map(|(unit, runs)| (unit, Cells::new(runs)));
        let span = |u: &Unit| Footprint::new(u.dram_reads.clone(), u.dram_writes.clone());
        Some(Self {
            footprints: units.iter().map(span).collect(),
            units,
            sources,
            before,
            after: after.collect(),
        })
    }
}
