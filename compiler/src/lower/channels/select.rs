//! Which input blocks have a part in each output block, by which selection tiles, and when those
//! are loaded.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use vta_isa::{Config, MemType};

use crate::lower::stage::Weights;
use crate::lower::vector::lanes::Piece;
use crate::qgraph::ChannelOf;

/// An input block's part in an output block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    /// Which input.
    pub input: usize,
    pub block: usize,
    /// Which selection tile, in the order of the constant.
    pub tile: usize,
}

/// What a layer takes from where.
///
/// Its tiles lie in the constant in the order of their first use. Where the scratchpad holds all,
/// they are one set; else every set fills half of it, and a tile is in every set that needs it. A set
/// goes to the other half than the one before, so that what it takes the place of was last used
/// before that.
pub(super) struct Selection {
    picks: Vec<Pick>,
    /// The picks of each output block.
    of_block: Vec<Range<usize>>,
    /// First and end of each set in the constant.
    sets: Vec<Range<usize>>,
    /// Scratchpad tiles of a set.
    room: usize,
    tiles: Vec<Vec<u8>>,
    /// The set that was loaded last, and its half.
    loaded: usize,
    half: usize,
}

impl Selection {
    /// Output blocks are those of all phases, which have `channels` each.
    pub fn new(map: &[Option<ChannelOf>], channels: usize, gain: i8, config: &Config) -> Self {
        let block = config.block();
        let mut all = Vec::new();
        let mut of_block = Vec::new();
        let phases = map.chunks(channels.max(1));
        for lanes in phases.flat_map(|phase| phase.chunks(block)) {
            let mut parts: BTreeMap<(usize, usize), Vec<u8>> = BTreeMap::new();
            for (lane, from) in lanes.iter().enumerate() {
                if let Some(ChannelOf { input, channel }) = *from {
                    let part = parts.entry((input, channel / block));
                    let tile = part.or_insert_with(|| vec![0; block * block]);
                    tile[lane * block + channel % block] = gain as u8;
                }
            }
            let begin = all.len();
            all.extend(parts);
            of_block.push(begin..all.len());
        }
        let distinct: std::collections::HashSet<&Vec<u8>> = all.iter().map(|(_, t)| t).collect();
        let depth = config.depth(MemType::Wgt);
        let room = if distinct.len() <= depth {
            depth
        } else {
            depth / 2
        };
        let mut selection = Self {
            picks: Vec::with_capacity(all.len()),
            of_block,
            sets: vec![Range::default()],
            room: room.max(1),
            tiles: Vec::new(),
            loaded: 0,
            half: 0,
        };
        let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
        for ((input, block), tile) in all {
            let tile = selection.add(tile, &mut known);
            selection.picks.push(Pick { input, block, tile });
        }
        if selection.tiles.is_empty() {
            // Nothing is taken, but a layer has its constant.
            selection.add(vec![0; block * block], &mut known);
        }
        selection
    }

    /// The place of a tile in the constant; `known` are those of the last set.
    fn add(&mut self, tile: Vec<u8>, known: &mut HashMap<Vec<u8>, usize>) -> usize {
        if let Some(&at) = known.get(&tile) {
            return at;
        }
        let at = self.tiles.len();
        if known.len() == self.room {
            known.clear();
            self.sets.push(at..at);
        }
        if let Some(set) = self.sets.last_mut() {
            set.end = at + 1;
        }
        known.insert(tile.clone(), at);
        self.tiles.push(tile);
        at
    }

    /// The constant's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.tiles.concat()
    }

    /// The picks of an output block.
    pub fn picks(&self, block: usize) -> Range<usize> {
        self.of_block[block].clone()
    }

    pub fn pick(&self, index: usize) -> Pick {
        self.picks[index]
    }

    /// The set that is loaded.
    pub fn loaded(&self) -> Weights {
        let set = &self.sets[self.loaded];
        Weights {
            from: set.start,
            count: set.len(),
            place: self.half * self.room,
        }
    }

    /// The set that a tile is in.
    pub fn set(&self, tile: usize) -> usize {
        self.sets.partition_point(|set| set.end <= tile)
    }

    /// The set of a tile, if it must be loaded before.
    pub fn renew(&mut self, tile: usize) -> Option<Weights> {
        let set = self.set(tile);
        if set == self.loaded {
            return None;
        }
        (self.loaded, self.half) = (set, 1 - self.half);
        Some(self.loaded())
    }

    /// Where a tile of the set that was loaded last lies in the scratchpad.
    pub fn place(&self, tile: usize) -> usize {
        self.half * self.room + tile - self.sets[self.loaded].start
    }

    /// Pieces of at most `together` whole blocks and `most` tiles of all blocks but shared ones. Blocks go together where each
    /// takes one block with the same tile, the one behind that of its neighbour.
    pub fn pieces(
        &self,
        shared: &[bool],
        plane: usize,
        [together, most]: [usize; 2],
    ) -> Vec<Piece> {
        let blocks = self.of_block.len();
        let single = |block: usize| match self.of_block.get(block).cloned() {
            Some(picks) if picks.len() == 1 => Some(self.picks[picks.start]),
            _ => None,
        };
        let follows = |end: usize| match (single(end - 1), single(end)) {
            (Some(a), Some(b)) => (b.input, b.tile) == (a.input, a.tile) && b.block == a.block + 1,
            _ => false,
        };
        let mut pieces = Vec::new();
        let mut block = 0;
        while block < blocks {
            if shared[block] {
                block += 1;
                continue;
            }
            let mut end = block + 1;
            while end < blocks && !shared[end] && follows(end) {
                end += 1;
            }
            pieces.extend(Piece::of_blocks(block..end, plane, [together, most]));
            block = end;
        }
        pieces
    }
}
