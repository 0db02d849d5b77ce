//! Element-wise layers go from bytes to bytes.
//!
//! Pattern: a STORE of tiles; before it ALU steps on them; before these a LOAD ACC8 of them. One of the steps may have
//! an operand tile for each tile or for as many that follow each other, all of which another LOAD ACC8 and steps with
//! immediates wrote.
//!
//! Condition: the rows of loads and of the store lie side by side, without padding, and sums aren't rounded by the
//! store, which may clamp them. A step goes over all of the tiles once, and nothing else touches them between the load and the store. Nothing
//! between a load and the store writes what is loaded, which isn't stored to either. Nobody reads the tiles later.
//!
//! Proof: every lane depends on one byte, or two, alone. They are still what the loads found when the store is done, and
//! nobody sees that the accumulators hold something else.

use std::rc::Rc;

use vta_driver::Span;
use vta_isa::resolve::{Interval, TileSet};
use vta_isa::{AluOp, MemType};

use super::super::super::run::ops::{LoadOp, MapOp, Narrow};
use super::super::draft::{AluDraft, Draft, Kind};
use super::list::{Pass, Passed, Slot, WINDOW, join};
use crate::kernels::Step;
use crate::kernels::lanes::{Map, With};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        let lanes = context.config.lanes();
        let mut live = TileSet::ALL;
        for at in (0..list.slots.len()).rev() {
            let found = find(&list.slots[..=at], &live, lanes);
            if let Some((op, parts)) = found
                && let Some(mut store) = list.slots[at].take()
            {
                for part in parts {
                    join(&mut list.slots[part], &mut store.origin, NAME);
                }
                list.slots[at] = Some(Draft {
                    kind: Kind::Map(Box::new(op)),
                    reads: Rc::default(),
                    writes: Rc::default(),
                    origin: store.origin,
                });
            }
            if let Some(draft) = &list.slots[at] {
                draft.read_before(&mut live);
            }
        }
    },
};

const NAME: &str = "maps";

/// Tiles on the way from the store back to their load.
struct Side {
    tiles: TileSet,
    /// The last one first.
    steps: Vec<Step>,
    loaded: Option<Span>,
}

/// What the last of some operations stores, as a map, and the operations before that it takes the place of. `live` are
/// the tiles that are read later.
fn find(slots: &[Slot], live: &TileSet, lanes: usize) -> Option<(MapOp, Vec<usize>)> {
    let (last, before) = slots.split_last()?;
    let store = last.as_ref()?;
    let Kind::Store(op) = &store.kind else {
        return None;
    };
    let steps = match op.how {
        Narrow::Low => Vec::new(),
        // The last one first.
        Narrow::Saturate => [(AluOp::Max, -128), (AluOp::Min, 127)]
            .map(|(op, y)| Step::immediate(op, y))
            .into(),
        Narrow::Requantize(_) => return None,
    };
    if !op.shape.is_dense() || store.reads.meets(live) {
        return None;
    }
    let mut sides = vec![Side {
        steps,
        ..Side::new(TileSet::clone(&store.reads))
    }];
    let (mut after, mut with) = (Vec::new(), None);
    let (mut passed, mut parts) = (Passed::default(), Vec::new());
    for (at, slot) in (0..before.len()).zip(before).rev().take(WINDOW) {
        let Some(draft) = slot else { continue };
        let waits = |side: &&mut Side| side.loaded.is_none() && draft.touches(&side.tiles);
        let Some(side) = sides.iter_mut().find(waits) else {
            passed.pass(draft);
            continue;
        };
        match &draft.kind {
            _ if *draft.writes != side.tiles => return None,
            Kind::Load(load) if is_plain(load) && !passed.stored(&load.span) => {
                side.loaded = Some(load.span);
            }
            Kind::Alu(alu) if alu.steps.pairs.len() == side.tiles.len() => match alu.imm {
                Some(imm) => side.steps.push(Step::immediate(alu.op, imm)),
                None => {
                    let sources = &alu.steps.sources;
                    let free = !sources.meets(live) && !passed.touches(sources);
                    let free = free && lanes <= Map::MOST_LANES;
                    let tiles = shared_by(alu, [&side.tiles, sources]).filter(|_| free)?;
                    after = std::mem::take(&mut side.steps);
                    // Of two sides the one behind has a step with tiles, too, or there is a third.
                    if with.replace((alu.op, tiles)).is_some() {
                        return None;
                    }
                    sides.push(Side::new(sources.clone()));
                }
            },
            _ => return None,
        }
        parts.push(at);
        if sides.iter().all(|side| side.loaded.is_some()) {
            break;
        }
    }
    let out = op.span;
    let read = |side: &Side| side.loaded.filter(|span| !span.overlaps(&out));
    let spans: Vec<Span> = sides.iter().map(read).collect::<Option<_>>()?;
    let (&from, second) = spans.split_first()?;
    let second = second.first().copied();
    let mut steps = sides.into_iter().map(|side| in_order(side.steps));
    let map = Map {
        first: steps.next()?,
        with: with.zip(steps.next()).map(|((op, tiles), first)| With {
            op,
            first,
            lanes,
            tiles,
        }),
        after: in_order(after),
        table: None,
    };
    let each = second.is_none_or(|second| second == from);
    let op = MapOp {
        map: if each { map.of_each() } else { map },
        from,
        with: second,
        out,
    };
    Some((op, parts))
}

impl Side {
    fn new(tiles: TileSet) -> Self {
        Self {
            tiles,
            steps: Vec::new(),
            loaded: None,
        }
    }
}

fn in_order(mut steps: Vec<Step>) -> Vec<Step> {
    steps.reverse();
    steps
}

/// Whether a load fills its tiles with bytes that lie side by side.
fn is_plain(load: &LoadOp) -> bool {
    load.mem == MemType::Acc8 && load.shape.is_dense() && load.padding == [0; 4]
}

/// How many tiles that follow each other each operand tile is for, if these follow each other, too, and are others. A load
/// writes neither tiles apart.
fn shared_by(alu: &AluDraft, [tiles, sources]: [&TileSet; 2]) -> Option<usize> {
    let [dst, src] = [tiles, sources].map(|set| set.runs().next());
    let (dst, src) = (dst?, src?);
    let shared = dst.len().checked_div(src.len()).filter(|&n| n > 0)?;
    let pairs = alu.steps.pairs.iter();
    let mut pairs = pairs.map(|&(to, from)| [usize::from(to) - dst.start, usize::from(from)]);
    let in_turn = pairs.all(|[to, from]| from == src.start + to / shared);
    (in_turn && !tiles.meets(sources)).then_some(shared)
}
