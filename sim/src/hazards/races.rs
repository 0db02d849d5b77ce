//! Which accesses of one instruction nothing orders with which others.

use std::collections::BTreeMap;
use std::ops::Range;

use vta_isa::Module;
use vta_isa::resolve::TileSet;

use super::order::{Stamp, Turn};

/// Ranges that a race names; more are only counted.
pub(super) const MAX_RANGES: usize = 16;

/// Tiles or bytes that two instructions both touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    pub ranges: Vec<Range<u64>>,
    pub count: u64,
}

/// The other instructions of the races of one instruction, by index.
#[derive(Debug, Default)]
pub(super) struct Conflicts(pub BTreeMap<u32, Shared>);

impl Conflicts {
    /// Ranges come in ascending order; those that touch become one.
    pub fn add(&mut self, insn: u32, range: Range<u64>) {
        let shared = self.0.entry(insn).or_default();
        shared.count += range.end - range.start;
        let room = shared.ranges.len() < MAX_RANGES;
        match shared.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if room => shared.ranges.push(range),
            _ => {}
        }
    }
}

/// The last accesses to each tile of a scratchpad that is written by one module and read by
/// another.
///
/// What the writer reads of its own tiles is ordered by its program order, so the last write
/// and the last read of the other module are all that can conflict.
#[derive(Debug)]
pub(super) struct Pad {
    writer: Module,
    reader: Module,
    writes: Vec<Stamp>,
    reads: Vec<Stamp>,
}

impl Pad {
    pub fn new(writer: Module, reader: Module, depth: usize) -> Self {
        Self {
            writer,
            reader,
            writes: vec![Stamp::default(); depth],
            reads: vec![Stamp::default(); depth],
        }
    }

    /// The writer module writes these tiles.
    pub fn write(&mut self, turn: &Turn, tiles: &TileSet) -> Conflicts {
        touch(turn, tiles, self.reader, &self.reads, &mut self.writes)
    }

    /// The reader module reads these tiles.
    pub fn read(&mut self, turn: &Turn, tiles: &TileSet) -> Conflicts {
        touch(turn, tiles, self.writer, &self.writes, &mut self.reads)
    }
}

fn touch(
    turn: &Turn,
    tiles: &TileSet,
    other: Module,
    theirs: &[Stamp],
    mine: &mut [Stamp],
) -> Conflicts {
    let mut conflicts = Conflicts::default();
    for tile in tiles.iter() {
        let (Some(their), Some(my)) = (theirs.get(tile), mine.get_mut(tile)) else {
            break;
        };
        if !turn.follows(other, *their) {
            conflicts.add(their.insn, tile as u64..tile as u64 + 1);
        }
        *my = turn.stamp;
    }
    conflicts
}
