//! The affine loops of GEMM and ALU: which tiles an index of their micro-ops goes through.

use std::ops::Range;

use super::{Interval, TileSet};
use crate::{Alu, AluOperand, Depthwise, Gemm, Uop};

/// The two loops of an instruction around one tile index: trip `i` of the outer and `j` of the
/// inner loop add `i * factors[0] + j * factors[1]` to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loops {
    /// Trips of the outer and of the inner loop.
    pub trips: [u16; 2],
    /// Tiles per trip of each.
    pub factors: [u16; 2],
}

impl Loops {
    /// How far the loops take an index beyond where it starts, in tiles; `None` if they never
    /// run.
    #[inline]
    pub fn reach(&self) -> Option<u64> {
        let axis = |d: usize| {
            let last = self.trips[d].checked_sub(1)?;
            Some(u64::from(last) * u64::from(self.factors[d]))
        };
        Some(axis(0)? + axis(1)?)
    }

    /// What each trip adds, in the order in which they run; up to 2^32 of them, made as they are
    /// asked for.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        let ([outer, inner], [per_outer, per_inner]) = (self.trips, self.factors.map(u64::from));
        (0..u64::from(outer))
            .flat_map(move |i| (0..u64::from(inner)).map(move |j| i * per_outer + j * per_inner))
    }

    /// The loops without the trips that only go over the same tiles again: one that doesn't move
    /// the index has a single trip.
    #[must_use]
    pub fn without_repeats(&self) -> Self {
        let once = |d: usize| match self.factors[d] {
            0 => self.trips[d].min(1),
            _ => self.trips[d],
        };
        Self {
            trips: [once(0), once(1)],
            ..*self
        }
    }
}

/// Which index of a micro-op is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UopIndex {
    /// [`Uop::dst`].
    Dst,
    /// [`Uop::src`].
    Src,
    /// [`Uop::wgt`].
    Wgt,
}

impl UopIndex {
    /// The index of a micro-op.
    pub const fn of(self, uop: Uop) -> u16 {
        match self {
            Self::Dst => uop.dst,
            Self::Src => uop.src,
            Self::Wgt => uop.wgt,
        }
    }

    /// The field's name, as errors say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dst => "dst",
            Self::Src => "src",
            Self::Wgt => "wgt",
        }
    }
}

/// The tiles that one index of an instruction's micro-ops goes through: micro-ops inside the
/// inner loop inside the outer loop. Nothing is listed until it is asked for.
///
/// ```
/// use vta_isa::{Gemm, Uop};
///
/// let gemm = Gemm { iter_out: 2, iter_in: 3, dst_factor_out: 10, dst_factor_in: 1, ..Gemm::default() };
/// let uops = [Uop { dst: 4, ..Uop::default() }];
/// let dst = gemm.dst(&uops);
/// assert!(dst.steps().eq([4, 5, 6, 14, 15, 16]));
/// assert_eq!(dst.span(), 4..17);
/// assert!(dst.set().runs().eq([4..7, 14..17]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AffineTiles<'u> {
    /// The micro-ops of the instruction.
    pub uops: &'u [Uop],
    /// Which of their indices.
    pub index: UopIndex,
    /// The loops around it.
    pub loops: Loops,
}

impl<'u> AffineTiles<'u> {
    /// Where each micro-op starts.
    pub fn starts(&self) -> impl Iterator<Item = u16> + use<'u> {
        let index = self.index;
        self.uops.iter().map(move |uop| index.of(*uop))
    }

    /// The tile of each step, in the order of execution; a tile comes as often as it is touched.
    pub fn steps(&self) -> impl Iterator<Item = u64> + use<'u> {
        let (uops, index) = (self.uops, self.index);
        let add = move |offset| uops.iter().map(move |u| u64::from(index.of(*u)) + offset);
        self.loops.offsets().flat_map(add)
    }

    /// The tiles that each micro-op alone goes through, from the lowest to the highest; none if
    /// the loops never run.
    pub fn spans(&self) -> impl Iterator<Item = Range<u64>> + use<'u> {
        let reach = self.loops.reach();
        let span = move |start| Some(u64::from(start)..u64::from(start) + reach? + 1);
        self.starts().filter_map(span)
    }

    /// From the lowest tile to the highest; empty when there is no step.
    pub fn span(&self) -> Range<u64> {
        self.spans().reduce(|a, b| a.hull(&b)).unwrap_or(0..0)
    }

    /// The set of the tiles, all of which must be below [`MAX_TILES`](super::MAX_TILES): others
    /// are left out. The cost is that of the micro-ops, not of the trips.
    pub fn set(&self) -> TileSet {
        let mut set: TileSet = self.starts().collect();
        let Loops { trips, factors } = self.loops;
        // What the loops add is summed up: one after the other shifts all that is there.
        for (count, step) in trips.into_iter().zip(factors) {
            set.repeat(count, step);
        }
        set
    }

    /// Whether no tile is that of two steps.
    pub fn is_apart(&self) -> bool {
        let trips = self.loops.trips.map(u64::from);
        self.set().len() as u64 == self.uops.len() as u64 * trips[0] * trips[1]
    }
}

/// What GEMM and ALU have in common: the fields that [`looped!`](crate::looped) declares.
macro_rules! looped {
    ($($Kind:ident)*) => {$(
        impl $Kind {
            #[inline]
            const fn loops(&self, factors: [u16; 2]) -> Loops {
                let trips = [self.iter_out, self.iter_in];
                Loops { trips, factors }
            }

            /// The loops around the accumulator tile that is written.
            #[inline]
            pub const fn dst_loops(&self) -> Loops {
                self.loops([self.dst_factor_out, self.dst_factor_in])
            }

            /// The loops around the source tile: of a GEMM an input, of an ALU the second operand.
            #[inline]
            pub const fn src_loops(&self) -> Loops {
                self.loops([self.src_factor_out, self.src_factor_in])
            }

            /// The accumulator tiles that it writes, and reads unless it is a reset, overwrites or moves.
            pub const fn dst<'u>(&self, uops: &'u [Uop]) -> AffineTiles<'u> {
                AffineTiles { uops, index: UopIndex::Dst, loops: self.dst_loops() }
            }
        }
    )*};
}

looped!(Gemm Alu Depthwise);

impl Gemm {
    /// The loops around the weight tile.
    #[inline]
    pub const fn wgt_loops(&self) -> Loops {
        self.loops([self.wgt_factor_out, self.wgt_factor_in])
    }

    /// The input and the weight tiles that it reads; `None` for a reset.
    pub fn operands<'u>(&self, uops: &'u [Uop]) -> Option<[AffineTiles<'u>; 2]> {
        let tiles = |index, loops| AffineTiles { uops, index, loops };
        let src = tiles(UopIndex::Src, self.src_loops());
        (!self.reset).then(|| [src, tiles(UopIndex::Wgt, self.wgt_loops())])
    }
}

impl Depthwise {
    /// The first input tile of each window, and the weight tile.
    pub const fn operands<'u>(&self, uops: &'u [Uop]) -> [AffineTiles<'u>; 2] {
        let [src, wgt] = [self.src_loops(), self.loops([0, 0])];
        [
            AffineTiles {
                uops,
                index: UopIndex::Src,
                loops: src,
            },
            AffineTiles {
                uops,
                index: UopIndex::Wgt,
                loops: wgt,
            },
        ]
    }
}

impl Alu {
    /// The accumulator tiles that are its second operand; `None` for an immediate.
    pub fn src<'u>(&self, uops: &'u [Uop]) -> Option<AffineTiles<'u>> {
        let (index, loops) = (UopIndex::Src, self.src_loops());
        match self.operand {
            AluOperand::Imm(_) => None,
            AluOperand::Acc => Some(AffineTiles { uops, index, loops }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tiles_are_those_that_the_loops_step_through(
            starts in prop::collection::vec(0u16..700, 0..20),
            trips in [0u16..30, 0u16..30],
            factors in [0u16..20, 0u16..20],
        ) {
            let uops: Vec<_> = starts.iter().map(|&src| Uop { dst: 1, src, wgt: 2 }).collect();
            let loops = Loops { trips, factors };
            let tiles = AffineTiles { uops: &uops, index: UopIndex::Src, loops };
            let mut expected = Vec::new();
            for i in 0..u64::from(trips[0]) {
                for j in 0..u64::from(trips[1]) {
                    for start in &starts {
                        let [outer, inner] = factors.map(u64::from);
                        expected.push(u64::from(*start) + i * outer + j * inner);
                    }
                }
            }
            prop_assert_eq!(tiles.steps().collect::<Vec<_>>(), expected.clone());
            let all: BTreeSet<_> = expected.into_iter().collect();
            let ends = all.first().map_or(0..0, |f| *f..all.last().map_or(0, |l| l + 1));
            prop_assert_eq!(tiles.span(), ends);
            let set: BTreeSet<_> = tiles.set().iter().map(|t| t as u64).collect();
            prop_assert_eq!(&set, &all);
            let once = AffineTiles { loops: loops.without_repeats(), ..tiles };
            prop_assert_eq!(once.steps().collect::<BTreeSet<_>>(), all);
            for (span, start) in tiles.spans().zip(&starts) {
                let reach = loops.offsets().max().unwrap_or(0);
                prop_assert_eq!(span, u64::from(*start)..u64::from(*start) + reach + 1);
            }
        }
    }

    #[test]
    fn the_longest_loops_cost_nothing_until_they_are_walked() {
        let loops = Loops {
            trips: [u16::MAX; 2],
            factors: [u16::MAX; 2],
        };
        assert_eq!(loops.reach(), Some(2 * 65534 * 65535));
        let uops = vec![Uop::default(); 8192];
        let tiles = AffineTiles {
            uops: &uops,
            index: UopIndex::Wgt,
            loops,
        };
        assert_eq!(tiles.steps().take(8193).last(), Some(65535));
        assert_eq!(tiles.set().len(), 1);
    }
}
