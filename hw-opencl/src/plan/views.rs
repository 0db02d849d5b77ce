//! Views: launches that fill the scratchpads of products, and launches that read them in another
//! [scope](crate::scopes).
//!
//! OpenCL says nothing of what a launch finds in an image or in constant memory whose buffer it
//! writes itself, barriers or not; after its end everything is there. So where a scope is not the
//! buffer, what fills it and what reads it are in launches of their own, and before the latter the
//! memory of a 2D image takes over what was filled.

use std::ops::Range;

use vta_isa::resolve::merge;

use crate::plan::ops::{Op, Touches};
use crate::plan::versions::Scratchpad;
use crate::scopes::{Scope, Scopes};
use crate::words::{TEXEL_BYTES, TEXTURE_WIDTH};

/// Bytes of a row of a 2D image.
pub(crate) const ROW_BYTES: u64 = TEXTURE_WIDTH as u64 * TEXEL_BYTES as u64;

/// What a launch may do to the scratchpads whose scope is not the buffer: not both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Neither.
    Either,
    Fills,
    Reads,
}

impl Side {
    /// Of an operation.
    pub fn of(op: &Op, scopes: Scopes) -> Self {
        let views = Scratchpad::ALL.map(|scratchpad| scopes.of(scratchpad) != Scope::Buffer);
        let any = |tiles: &[Vec<Range<usize>>; 3]| {
            let mut touched = views.iter().zip(tiles);
            touched.any(|(view, tiles)| *view && !tiles.is_empty())
        };
        // No operation both loads and multiplies.
        if any(&op.touches.writes) {
            Self::Fills
        } else if any(&op.touches.reads) {
            Self::Reads
        } else {
            Self::Either
        }
    }

    /// Of a launch that has the operations of two; `None` when they can't share one.
    pub fn with(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Either, side) | (side, Self::Either) => Some(side),
            (one, other) => (one == other).then_some(one),
        }
    }

    /// A level's operations by launches: those that fill first, since the order within a level is
    /// free.
    pub fn apart(ops: &[u32], side: impl Fn(u32) -> Self) -> Vec<(Self, Vec<u32>)> {
        let mut both = ops.iter().map(|&op| side(op));
        let whole = both.try_fold(Self::Either, Self::with);
        if let Some(whole) = whole {
            return vec![(whole, ops.to_vec())];
        }
        let (fill, rest) = ops.iter().partition(|&&op| side(op) == Self::Fills);
        vec![(Self::Fills, fill), (Self::Reads, rest)]
    }
}

/// Rows of the 2D image of a scratchpad that must be copied from its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refresh {
    pub scratchpad: Scratchpad,
    pub rows: Range<usize>,
}

impl Refresh {
    /// What an operation writes to the buffers of 2D images. `tile_bytes` is of each scratchpad.
    pub fn of(touches: &Touches, scopes: Scopes, tile_bytes: [u64; 3]) -> Vec<Self> {
        let mut all = Vec::new();
        for scratchpad in Scratchpad::ALL {
            if scopes.of(scratchpad) != Scope::Image2d {
                continue;
            }
            let n = scratchpad as usize;
            let byte = |tile: usize| tile as u64 * tile_bytes[n];
            all.extend(touches.writes[n].iter().map(|tiles| Self {
                scratchpad,
                rows: (byte(tiles.start) / ROW_BYTES) as usize
                    ..byte(tiles.end).div_ceil(ROW_BYTES) as usize,
            }));
        }
        all
    }

    /// The same rows, each once.
    pub fn merged(all: Vec<Self>) -> Vec<Self> {
        let mut rows: [Vec<Range<usize>>; 3] = Default::default();
        for refresh in all {
            rows[refresh.scratchpad as usize].push(refresh.rows);
        }
        let each = Scratchpad::ALL.into_iter().zip(rows);
        let merged = each.flat_map(|(scratchpad, mut rows)| {
            merge(&mut rows);
            rows.into_iter().map(move |rows| Self { scratchpad, rows })
        });
        merged.collect()
    }
}

#[cfg(test)]
mod tests;
