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
mod tests {
    use proptest::prelude::*;
    use vta_isa::asm;

    use super::*;

    fn stamp(seq: u32) -> Stamp {
        Stamp { seq, insn: seq }
    }

    #[test]
    fn pruning_forgets_what_is_ordered_and_keeps_what_may_still_race() {
        let insns =
            asm::parse("load.inp push_next\nload.acc pop_prev push_next\nstore pop_prev\nload.inp")
                .unwrap();
        let (mut clocks, mut dram) = (Clocks::default(), Dram::default());
        let mut conflicts = Conflicts::default();
        // Single bytes with gaps, so that none join: the store follows the first load's.
        let bytes = |first: u64| {
            let starts = (0..FIRST_PRUNE as u64).map(move |i| first + 2 * i);
            starts.map(|start| start..start + 1)
        };
        for (index, insn) in insns.iter().enumerate() {
            let turn = clocks.start(index, insn);
            match index {
                0 => dram.read(&turn, bytes(0), &mut conflicts),
                3 => dram.read(&turn, bytes(1 << 20), &mut conflicts),
                _ => {}
            }
            clocks.done(insn);
        }
        dram.prune(&clocks);
        assert_eq!(dram.reads[0].0.len(), FIRST_PRUNE);
        assert!(dram.reads[0].0.keys().all(|start| *start >= 1 << 20));
        let store = asm::parse("store").unwrap()[0];
        let turn = clocks.start(4, &store);
        dram.write(&turn, std::iter::once(1 << 20..2 << 20), &mut conflicts);
        assert_eq!(conflicts.0.keys().copied().collect::<Vec<_>>(), [3]);
        assert_eq!(conflicts.0[&3].count, FIRST_PRUNE as u64);
    }

    proptest! {
        #[test]
        fn intervals_hold_the_last_stamp_of_every_byte(
            sets in prop::collection::vec((0u64..60, 0u64..20), 0..30),
            query in (0u64..70, 0u64..30),
        ) {
            let (mut intervals, mut bytes) = (Intervals::default(), [None; 128]);
            for (seq, (start, len)) in (1..).zip(sets) {
                intervals.set(start..start + len, stamp(seq));
                bytes[start as usize..(start + len) as usize].fill(Some(seq));
            }
            let range = query.0..query.0 + query.1;
            let mut found = [None; 128];
            let mut end = 0;
            for (part, stamp) in intervals.overlapping(&range) {
                prop_assert!(part.start >= end && part.end <= range.end && part.start < part.end);
                end = part.end;
                found[part.start as usize..part.end as usize].fill(Some(stamp.seq));
            }
            for byte in 0..128 {
                let expected = bytes[byte].filter(|_| range.contains(&(byte as u64)));
                prop_assert_eq!(found[byte], expected, "byte {}", byte);
            }
        }
    }
}
