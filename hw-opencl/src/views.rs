//! Views: launches that fill the scratchpads of products, and launches that read them in another
//! [scope](crate::scopes).
//!
//! OpenCL says nothing of what a launch finds in an image or in constant memory whose buffer it
//! writes itself, barriers or not; after its end everything is there. So where a scope is not the
//! buffer, what fills it and what reads it are in launches of their own, and before the latter the
//! memory of a 2D image takes over what was filled.

use std::ops::Range;

use vta_isa::resolve::merge;

use crate::ops::{Op, Touches};
use crate::scopes::{Scope, Scopes};
use crate::versions::Scratchpad;
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
        match (any(&op.touches.writes), any(&op.touches.reads)) {
            (false, false) => Self::Either,
            (true, _) => Self::Fills,
            (false, true) => Self::Reads,
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
mod tests {
    use super::*;
    use crate::ops::Kind;

    fn op(touches: Touches) -> Op {
        Op {
            kind: Kind::Chain,
            units: 1,
            args: vec![],
            touches,
            cost: 1,
        }
    }

    #[test]
    fn only_scratchpads_with_a_view_take_sides() {
        let tiles = Touches::default;
        let load = op(tiles().writing(Scratchpad::Inp, 0..1));
        let weights = op(tiles().writing(Scratchpad::Wgt, 0..1));
        let product = op(tiles()
            .reading(Scratchpad::Inp, 0..1)
            .reading(Scratchpad::Wgt, 0..1)
            .reading(Scratchpad::Acc, 0..1)
            .writing(Scratchpad::Acc, 0..1));
        let chain = op(tiles()
            .reading(Scratchpad::Acc, 0..1)
            .writing(Scratchpad::Acc, 0..1));
        let sides = |text: &str| {
            let scopes = text.parse().unwrap();
            [&load, &weights, &product, &chain].map(|op| Side::of(op, scopes))
        };
        use Side::{Either, Fills, Reads};
        assert_eq!(sides("weights=buffer"), [Either; 4]);
        for scope in ["constant", "image", "image2d"] {
            let of = |what: &str| sides(&format!("{what}={scope}"));
            assert_eq!(of("weights"), [Either, Fills, Reads, Either]);
            assert_eq!(of("activations"), [Fills, Either, Reads, Either]);
        }
    }

    #[test]
    fn a_level_is_split_only_when_it_must_be() {
        use Side::{Either, Fills, Reads};
        let of = [Reads, Fills, Either, Fills];
        let apart = |ops: &[u32]| Side::apart(ops, |op| of[op as usize]);
        assert_eq!(
            apart(&[0, 1, 2, 3]),
            [(Fills, vec![1, 3]), (Reads, vec![0, 2])]
        );
        assert_eq!(apart(&[1, 2, 3]), [(Fills, vec![1, 2, 3])]);
        assert_eq!(apart(&[0, 2]), [(Reads, vec![0, 2])]);
        assert_eq!(apart(&[2]), [(Either, vec![2])]);
    }

    #[test]
    fn rows_are_copied_once_and_only_where_tiles_were_written() {
        let scopes = "weights=image2d".parse().unwrap();
        let copies = |written: &[(Scratchpad, Range<usize>)]| {
            let each = written.iter().flat_map(|(scratchpad, tiles)| {
                let touches = Touches::default().writing(*scratchpad, tiles.clone());
                Refresh::of(&touches, scopes, [16, 256, 64])
            });
            Refresh::merged(each.collect())
        };
        let buffers = [(Scratchpad::Inp, 0..8), (Scratchpad::Acc, 0..8)];
        assert_eq!(copies(&buffers), []);
        // A row has 64 tiles of weights.
        let rows = |rows| Refresh {
            scratchpad: Scratchpad::Wgt,
            rows,
        };
        let written = [63..65, 10..12, 256..320].map(|tiles| (Scratchpad::Wgt, tiles));
        assert_eq!(copies(&written), [rows(0..2), rows(4..5)]);
    }
}
