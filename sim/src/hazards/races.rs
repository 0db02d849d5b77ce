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

/// The last accesses to each tile of a scratchpad by each module that touches it.
///
/// What a module does to its own tiles is ordered by program order, so the last write and the last read of each other
/// module are all that can conflict. Who reads a tile before it writes it only has to say that it writes.
#[derive(Debug)]
pub(super) struct Pad {
    depth: usize,
    /// By module; nothing for one that hasn't.
    writes: [Vec<Stamp>; 3],
    reads: [Vec<Stamp>; 3],
}

impl Pad {
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            writes: Default::default(),
            reads: Default::default(),
        }
    }

    /// An instruction writes these tiles: those that others read, and those that others write.
    pub fn write(&mut self, turn: &Turn, tiles: &TileSet) -> [Conflicts; 2] {
        let conflicts = [&self.reads, &self.writes].map(|theirs| conflicts(turn, tiles, theirs));
        sign(turn, tiles, &mut self.writes, self.depth);
        conflicts
    }

    /// An instruction reads these tiles: those that others write.
    pub fn read(&mut self, turn: &Turn, tiles: &TileSet) -> Conflicts {
        let conflicts = conflicts(turn, tiles, &self.writes);
        sign(turn, tiles, &mut self.reads, self.depth);
        conflicts
    }
}

fn conflicts(turn: &Turn, tiles: &TileSet, theirs: &[Vec<Stamp>; 3]) -> Conflicts {
    let mut conflicts = Conflicts::default();
    for (module, theirs) in Module::ALL.into_iter().zip(theirs) {
        if module == turn.module || theirs.is_empty() {
            continue;
        }
        for tile in tiles.iter() {
            let Some(their) = theirs.get(tile) else { break };
            if !turn.follows(module, *their) {
                conflicts.add(their.insn, tile as u64..tile as u64 + 1);
            }
        }
    }
    conflicts
}

fn sign(turn: &Turn, tiles: &TileSet, signed: &mut [Vec<Stamp>; 3], depth: usize) {
    let mine = &mut signed[turn.module as usize];
    mine.resize(depth, Stamp::default());
    for tile in tiles.iter() {
        let Some(my) = mine.get_mut(tile) else { break };
        *my = turn.stamp;
    }
}
