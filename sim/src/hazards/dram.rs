//! Who touched which DRAM bytes last: intervals in ordered maps.

use std::collections::BTreeMap;
use std::ops::Range;

use vta_isa::Module;

use super::order::{Clocks, Stamp, Turn};
use super::races::Conflicts;

/// Intervals kept before those that can't matter any more are looked for.
const FIRST_PRUNE: usize = 1 << 12;

/// Disjoint byte intervals, each with the last instruction that touched it.
#[derive(Debug, Default)]
struct Intervals(BTreeMap<u64, (u64, Stamp)>);

impl Intervals {
    /// Intervals that share a byte with `range`, cut to it, in ascending order.
    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, Stamp)> {
        let (start, end) = (range.start, range.end);
        let before = self.0.range(..start).next_back();
        before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .filter(move |(_, (to, _))| *to > start && start < end)
            .map(move |(from, (to, stamp))| ((*from).max(start)..(*to).min(end), *stamp))
    }

    /// Signs `range`, over whatever stood there.
    fn set(&mut self, range: Range<u64>, stamp: Stamp) {
        let (start, end) = (range.start, range.end);
        if start >= end {
            return;
        }
        if let Some((_, value)) = self.0.range_mut(..start).next_back() {
            let (to, old) = *value;
            if to > start {
                value.0 = start;
            }
            if to > end {
                self.0.insert(end, (to, old));
            }
        }
        while let Some((&from, &(to, old))) = self.0.range(start..end).next() {
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, (to, old));
            }
        }
        self.0.insert(start, (end, stamp));
    }
}

/// The bytes that stores write, and that load and compute read.
///
/// Only the store module writes, so a conflict is always between it and another module.
#[derive(Debug)]
pub(super) struct Dram {
    writes: Intervals,
    /// By load and by compute.
    reads: [Intervals; 2],
    prune_at: usize,
}

impl Default for Dram {
    fn default() -> Self {
        Self {
            writes: Intervals::default(),
            reads: Default::default(),
            prune_at: FIRST_PRUNE,
        }
    }
}

const READERS: [Module; 2] = [Module::Load, Module::Compute];

impl Dram {
    /// A LOAD reads these bytes, in ascending order.
    pub fn read(
        &mut self,
        turn: &Turn,
        rows: impl Iterator<Item = Range<u64>>,
        conflicts: &mut Conflicts,
    ) {
        let reader = READERS.iter().position(|m| *m == turn.module);
        for row in rows {
            self.unordered_writes(turn, &row, conflicts);
            if let Some(intervals) = reader.and_then(|r| self.reads.get_mut(r)) {
                intervals.set(row, turn.stamp);
            }
        }
    }

    /// A STORE writes these bytes, in ascending order.
    pub fn write(
        &mut self,
        turn: &Turn,
        rows: impl Iterator<Item = Range<u64>>,
        conflicts: &mut Conflicts,
    ) {
        for row in rows {
            for (module, intervals) in READERS.into_iter().zip(&self.reads) {
                for (bytes, stamp) in intervals.overlapping(&row) {
                    if !turn.follows(module, stamp) {
                        conflicts.add(stamp.insn, bytes);
                    }
                }
            }
            self.writes.set(row, turn.stamp);
        }
    }

    /// FINISH hands all of DRAM to the host.
    pub fn hand_over(&self, turn: &Turn, conflicts: &mut Conflicts) {
        self.unordered_writes(turn, &(0..u64::MAX), conflicts);
    }

    fn unordered_writes(&self, turn: &Turn, row: &Range<u64>, conflicts: &mut Conflicts) {
        for (bytes, stamp) in self.writes.overlapping(row) {
            if !turn.follows(Module::Store, stamp) {
                conflicts.add(stamp.insn, bytes);
            }
        }
    }

    /// Forgets accesses that every later instruction of the other modules follows, once there
    /// are many: memory grows with what is in flight, not with the program.
    pub fn prune(&mut self, clocks: &Clocks) {
        let len =
            |dram: &Self| dram.writes.0.len() + dram.reads.iter().map(|r| r.0.len()).sum::<usize>();
        if len(self) < self.prune_at {
            return;
        }
        self.writes.0.retain(|_, (_, stamp)| {
            !READERS
                .iter()
                .all(|m| clocks.settled(*m, Module::Store, *stamp))
        });
        for (module, intervals) in READERS.into_iter().zip(&mut self.reads) {
            intervals
                .0
                .retain(|_, (_, stamp)| !clocks.settled(Module::Store, module, *stamp));
        }
        self.prune_at = (len(self) * 2).max(FIRST_PRUNE);
    }
}

#[cfg(test)]
mod tests;
