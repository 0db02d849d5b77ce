//! Operations of the throughput structure, whose units don't depend on each other, and the tables
//! that they share. The words are those that `vta_throughput.cl` reads.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::Uop;
use vta_isa::resolve::{meet, merge};

use crate::plan::versions::Scratchpad;
pub(crate) use crate::words::{Kind, OP_WORDS};

/// Tiles of a scratchpad, whose indices have 16 bits at most.
pub(crate) fn narrow(tiles: &Range<usize>) -> Range<u32> {
    tiles.start as u32..tiles.end as u32
}

/// Adds a range to a list, to its last one where they touch: less for [`merge`] to sort.
pub(crate) fn add_range(list: &mut Vec<Range<usize>>, range: Range<usize>) {
    match list.last_mut() {
        Some(last) if last.start <= range.start && range.start <= last.end => {
            last.end = last.end.max(range.end);
        }
        _ => list.push(range),
    }
}

/// What an operation reads and writes: tiles of the scratchpads in [`Scratchpad`]'s order, and bytes of
/// DRAM from the first of the device's buffer on, all ascending and apart. Ranges may be wider than
/// what is touched; that only orders more than necessary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    pub reads: [Vec<Range<usize>>; 3],
    pub writes: [Vec<Range<usize>>; 3],
    pub reads_dram: Vec<Range<usize>>,
    pub writes_dram: Vec<Range<usize>>,
}

impl Touches {
    /// Also reads these tiles.
    pub fn reading(mut self, scratchpad: Scratchpad, tiles: Range<usize>) -> Self {
        self.reads[scratchpad as usize].push(tiles);
        merge(&mut self.reads[scratchpad as usize]);
        self
    }

    /// Also writes these tiles.
    pub fn writing(mut self, scratchpad: Scratchpad, tiles: Range<usize>) -> Self {
        self.writes[scratchpad as usize].push(tiles);
        merge(&mut self.writes[scratchpad as usize]);
        self
    }

    /// Touches the other's tiles, too.
    pub fn add(&mut self, other: &Self) {
        let mine = self.reads.iter_mut().chain(&mut self.writes);
        for (mine, more) in mine.zip(other.reads.iter().chain(&other.writes)) {
            mine.extend_from_slice(more);
            merge(mine);
        }
    }

    /// Whether the order of the two matters.
    pub fn conflicts(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.memories(), other.memories());
        mine.zip(theirs)
            .any(|((reads, writes), (others_reads, others_writes))| {
                meet(writes, others_writes)
                    || meet(writes, others_reads)
                    || meet(reads, others_writes)
            })
    }

    /// What is read and written of each scratchpad, and of DRAM.
    fn memories(&self) -> impl Iterator<Item = (&Vec<Range<usize>>, &Vec<Range<usize>>)> {
        let reads = self.reads.iter().chain([&self.reads_dram]);
        reads.zip(self.writes.iter().chain([&self.writes_dram]))
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub kind: Kind,
    pub units: u32,
    /// The kind's own words.
    pub args: Vec<u32>,
    pub touches: Touches,
    /// Work in products, roughly; other work is counted as if it were.
    pub cost: u64,
}

/// Lists of words that operations share.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Micro-ops, groups of micro-ops, chains, products.
    pub words: Vec<u32>,
    lists: HashMap<Vec<u32>, u32>,
}

impl Tables {
    /// Where a list is; equal lists are stored once.
    pub fn list(&mut self, words: &[u32]) -> u32 {
        if let Some(&at) = self.lists.get(words) {
            return at;
        }
        let at = self.words.len() as u32;
        self.words.extend_from_slice(words);
        self.lists.insert(words.to_vec(), at);
        at
    }

    /// Where a list of micro-ops is, as words that the kernel decodes.
    pub fn uops(&mut self, uops: &[Uop]) -> u32 {
        let words: Vec<u32> = uops.iter().filter_map(|uop| uop.encode().ok()).collect();
        debug_assert_eq!(
            words.len(),
            uops.len(),
            "decoded micro-ops fit their fields"
        );
        self.list(&words)
    }
}
