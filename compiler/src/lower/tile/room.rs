//! What layers have of the scratchpads.

use std::ops::Range;

use vta_isa::{Config, MemType};

/// What a layer has of the scratchpads: all, or a part where it takes turns with another.
#[derive(Clone, Debug)]
pub(in crate::lower) struct Room<'c> {
    pub config: &'c Config,
    /// Tiles of inputs, weights and accumulators.
    tiles: [Range<usize>; 3],
    /// Weights and entries of STOREs are those of all blocks, and stay.
    pub stays: bool,
}

/// What rooms divide.
const DIVIDED: [MemType; 3] = [MemType::Inp, MemType::Wgt, MemType::Acc];

impl<'c> Room<'c> {
    /// All that a machine has.
    pub fn all(config: &'c Config) -> Self {
        Self {
            config,
            tiles: DIVIDED.map(|mem| 0..config.depth(mem)),
            stays: false,
        }
    }

    /// Rooms of two layers. The second has so many tiles of inputs, weights and accumulators, in which its constants stay.
    pub fn divided(config: &'c Config, second: [usize; 3]) -> Option<[Self; 2]> {
        let mut rooms = [Self::all(config), Self::all(config)];
        for (at, count) in second.into_iter().enumerate() {
            let between = rooms[0].tiles[at].end.checked_sub(count)?;
            rooms[0].tiles[at].end = between;
            rooms[1].tiles[at].start = between;
        }
        rooms[1].stays = true;
        Some(rooms)
    }

    /// How many tiles of a scratchpad it has.
    pub fn depth(&self, mem: MemType) -> usize {
        self.part(mem)
            .map_or_else(|| self.config.depth(mem), Range::len)
    }

    /// The first of them.
    pub fn first(&self, mem: MemType) -> usize {
        self.part(mem).map_or(0, |tiles| tiles.start)
    }

    const fn part(&self, mem: MemType) -> Option<&Range<usize>> {
        let [inp, wgt, acc] = &self.tiles;
        match mem {
            MemType::Inp => Some(inp),
            MemType::Wgt | MemType::Wgt4 => Some(wgt),
            MemType::Acc | MemType::Acc8 | MemType::Out => Some(acc),
            MemType::Uop => None,
        }
    }
}
