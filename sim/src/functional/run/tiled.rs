//! Neighbouring lane-wise operations on runs of equally many tiles, done piece by piece, so that each finds in the first
//! cache what the one before left there.

use std::ops::Range;

use vta_driver::{DeviceMemory, Span};
use vta_isa::MemType;
use vta_isa::resolve::Interval;

use super::ops::{LoadOp, Op, StoreOp};
use super::scratchpads::Scratchpads;
use crate::kernels::lanes::{self, Gather, TileOp, TileRun};

/// int32 of a piece of a run: 4 KiB.
const PIECE: usize = 1024;
/// Operations that are done together at most: bounds the search for those that don't go together.
const MOST: usize = 32;

/// Operations of a plan on runs of so many int32, lane by lane: none needs other lanes of what one before it leaves.
pub(crate) struct Tiled {
    pub ops: Range<usize>,
    parts: Vec<Part>,
    len: usize,
}

/// What an operation of such touches: first int32 of runs of the accumulators, and bytes in DRAM.
#[derive(Clone, Copy)]
enum Part {
    /// int8 from DRAM.
    Load(usize, Span),
    Chain(usize),
    /// The second run is operand of the first.
    Pair(usize, usize),
    /// One tile is operand of all.
    Spread(usize, usize),
    Store(usize, Span),
}

impl Part {
    /// An operation on one run, with its length; a tile has so many lanes.
    fn of(op: &Op, lanes: usize) -> Option<(Self, usize)> {
        match op {
            Op::Load(op) => Self::load(op, lanes),
            Op::Store(StoreOp { first, span, shape }) if shape.is_dense() => {
                Some((Self::Store(*first, *span), span.len))
            }
            Op::Chain { runs, .. } => match **runs {
                [(first, len)] => Some((Self::Chain(first as usize), len as usize)),
                _ => None,
            },
            Op::Gather { table, .. } => Self::gather(table, lanes),
            _ => None,
        }
    }

    fn load(op: &LoadOp, lanes: usize) -> Option<(Self, usize)> {
        let dense = op.mem == MemType::Acc8 && op.padding == [0; 4] && op.shape.is_dense();
        dense.then(|| (Self::Load(op.entries.start * lanes, op.span), op.span.len))
    }

    /// Tiles with one operand each: a run beside another, or beside one tile.
    fn gather(table: &Gather, lanes: usize) -> Option<(Self, usize)> {
        let [(_, 1)] = table.runs[..] else {
            return None;
        };
        let step = |all: &[u32], step: usize| {
            all.windows(2)
                .all(|pair| pair[0] as usize + step == pair[1] as usize)
        };
        let (&dst, &src) = (table.tiles.first()?, table.operands.first()?);
        let (dst, src) = (dst as usize, src as usize);
        let part = if step(&table.operands, lanes) {
            Self::Pair(dst, src)
        } else if step(&table.operands, 0) {
            Self::Spread(dst, src)
        } else {
            return None;
        };
        step(&table.tiles, lanes).then_some((part, table.tiles.len() * lanes))
    }

    /// Whether it loads what is behind a store: other bytes of DRAM, far from those before.
    fn begins_behind(self, last: Option<&Self>) -> bool {
        matches!((self, last), (Self::Load(..), Some(Self::Store(..))))
    }

    /// The run that it writes.
    fn written(self) -> Option<usize> {
        match self {
            Self::Load(run, _) | Self::Chain(run) | Self::Pair(run, _) | Self::Spread(run, _) => {
                Some(run)
            }
            Self::Store(..) => None,
        }
    }

    /// Whether its pieces and those of another part may take turns. Runs have so many int32, tiles so many lanes.
    fn goes_with(self, other: Self, len: usize, lanes: usize) -> bool {
        let apart = |a: usize, [b, len_b]: [usize; 2]| a + len <= b || b + len_b <= a;
        // What is written is the same run, or elsewhere.
        let lets_write = |run: usize, part: Self| match part {
            Self::Load(b, _) | Self::Chain(b) | Self::Store(b, _) => {
                run == b || apart(run, [b, len])
            }
            Self::Pair(a, b) => [a, b].into_iter().all(|b| run == b || apart(run, [b, len])),
            Self::Spread(a, b) => (run == a || apart(run, [a, len])) && apart(run, [b, lanes]),
        };
        let both = [(self, other), (other, self)];
        both.into_iter().all(|(a, b)| {
            let stored = match (a, b) {
                (Self::Store(_, a), Self::Store(_, b) | Self::Load(_, b)) => a.overlaps(&b),
                _ => false,
            };
            !stored && a.written().is_none_or(|run| lets_write(run, b))
        })
    }
}

impl Tiled {
    /// Those of a plan, in order; tiles have so many lanes.
    pub fn all(ops: &[Op], lanes: usize) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            // A piece alone is no better than the whole.
            let Some((part, len)) = Part::of(op, lanes).filter(|(_, len)| *len > PIECE) else {
                continue;
            };
            if !part.goes_with(part, len, lanes) {
                continue;
            }
            if let Some(last) = all.last_mut()
                && last.ops.end == at
                && last.len == len
                && last.parts.len() < MOST
                && !part.begins_behind(last.parts.last())
                && last
                    .parts
                    .iter()
                    .all(|other| part.goes_with(*other, len, lanes))
            {
                last.ops.end += 1;
                last.parts.push(part);
            } else {
                let (ops, parts) = (at..at + 1, vec![part]);
                all.push(Self { ops, parts, len });
            }
        }
        all.retain(|tiled| tiled.parts.len() > 1);
        all
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&self.parts[..])
    }

    /// Runs its operations, which are those of the plan.
    pub fn run(&self, ops: &[Op], pads: &mut Scratchpads, memory: &mut DeviceMemory) {
        let piece = (PIECE / pads.lanes).max(1) * pads.lanes;
        for from in (0..self.len).step_by(piece) {
            let range = from..self.len.min(from + piece);
            for (part, op) in self.parts.iter().zip(&ops[self.ops.clone()]) {
                part.run(op, range.clone(), pads, memory);
            }
        }
    }
}

impl Part {
    fn run(self, op: &Op, range: Range<usize>, pads: &mut Scratchpads, memory: &mut DeviceMemory) {
        let kernel = pads.kernel;
        let at = |first: usize| first + range.start..first + range.end;
        match (self, op) {
            (Self::Load(run, span), _) => {
                let bytes = &memory.region(span.region)[at(span.start)];
                lanes::widen(kernel, bytes, &mut pads.acc[at(run)]);
            }
            (Self::Store(run, span), _) => {
                let bytes = &mut memory.region_mut(span.region)[at(span.start)];
                lanes::narrow(kernel, &pads.acc[at(run)], bytes);
            }
            (Self::Chain(run), Op::Chain { steps, .. }) => {
                lanes::chain(kernel, steps, &mut pads.acc[at(run)]);
            }
            (Self::Pair(dst, src) | Self::Spread(dst, src), Op::Gather { op, .. }) => {
                let (op, lanes) = (*op, pads.lanes);
                let (src, src_step) = match self {
                    Self::Pair(..) => (src + range.start, lanes),
                    _ => (src, 0),
                };
                let runs = [TileRun {
                    dst: (dst + range.start) as u32,
                    src: src as u32,
                    dst_step: lanes as i32,
                    src_step: src_step as i32,
                    tiles: (range.len() / lanes) as u32,
                }];
                let on = &runs[..];
                lanes::zip(kernel, TileOp { op, on, lanes }, &mut pads.acc);
            }
            (Self::Chain(_) | Self::Pair(..) | Self::Spread(..), _) => {}
        }
    }
}
