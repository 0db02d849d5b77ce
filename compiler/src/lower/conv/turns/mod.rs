//! A depthwise convolution that takes turns with the convolution before it: tile by tile, in one layer.
//!
//! A pointwise convolution waits for products, and a depthwise one for the bus. In turns, the load module brings inputs of one while
//! compute multiplies for the other. Each has a part of the scratchpads. A tile of the second comes so many tiles behind the last one that it
//! reads that this is in memory by then; which tile that is the tokens of compute say (`entry`).
//!
//! Only layers whose STOREs round do so: in others ALU steps take most of the time.

mod clock;

use vta_isa::{Config, MemType};

use super::super::Lowering;
use super::super::tile::{self, ConvShape, ConvTile, LoopOrder, Order, Room};
use super::choice::Choice;
use super::parts::Parts;
use super::work::{Work, works};
use crate::qgraph::{NodeId, QOp};
use clock::{Cycles, Turn, time};

/// Tiles of each layer that are tried with each other. Those of the second come twice, in both orders.
const FIRSTS: usize = 48;
const SECONDS: usize = 8;
/// The most tiles that a layer may have, one behind the other: each is counted some thousand times.
const MOST: usize = 2048;
/// Quarters of the inputs and accumulators that the second layer has.
const SHARES: [[usize; 2]; 5] = [[1, 1], [2, 1], [2, 2], [3, 1], [3, 2]];
/// `Order::lag`: one tile is computed while the one before is stored, and what is stored then may be loaded.
const LAGS: [usize; 2] = [2, 3];

/// What a tile makes of a layer.
struct Tiled {
    tile: ConvTile,
    works: Vec<Work>,
    cycles: Vec<Cycles>,
    sums: Cycles,
}

impl Tiled {
    fn new(shape: &ConvShape, config: &Config, tile: ConvTile) -> Self {
        let works = works(shape, &tile);
        let cycles = Cycles::of(shape, config, &works);
        Self {
            tile,
            works,
            sums: Cycles::sum(&cycles),
            cycles,
        }
    }
}

impl<'a> Lowering<'a> {
    /// The depthwise convolution behind another that it takes turns with, and how, where that is cheaper.
    pub(super) fn plan_turns(
        &self,
        id: NodeId,
        (parts, choice): &(Parts<'a>, Choice),
    ) -> Option<((Parts<'a>, Choice), Order)> {
        let next = NodeId(id.0 + 1);
        let nodes = &self.graph.nodes[..self.nodes];
        let QOp::Conv(conv) = &nodes.get(next.0)?.op else {
            return None;
        };
        if conv.input != parts.output || !is_plain(parts, choice) {
            return None;
        }
        let (other_parts, other) = self.plan_conv(next, conv).ok()?;
        if !is_plain(&other_parts, &other) || other.shape.window_rows == 0 {
            return None;
        }
        let shapes = [choice.shape, other.shape];
        let known = self.orders.borrow().get(&shapes).copied();
        let order = known.unwrap_or_else(|| {
            let found = self.order([choice, &other]);
            self.orders.borrow_mut().insert(shapes, found);
            found
        })?;
        Some(((other_parts, other), order))
    }

    /// The cheapest way for two layers to take turns, if that is cheaper than one behind the other.
    fn order(&self, choices: [&Choice; 2]) -> Option<Order> {
        let shapes = choices.map(|choice| &choice.shape);
        let all = Room::all(self.config);
        let alone = choices.map(|choice| Tiled::new(&choice.shape, self.config, choice.tile));
        if alone.iter().any(|one| one.works.len() > MOST) {
            return None;
        }
        let busy = choices.map(|choice| tile::appraise(&choice.shape, &all, &choice.tile));
        let [Some(first_busy), Some(second_busy)] = busy else {
            return None;
        };
        let depth = |mem| self.config.depth(mem);
        let weights = shapes[1].co * shapes[1].weight_row();
        let cost = |pair: [&Tiled; 2], lag| {
            time(&turns(pair, shapes, lag), pair.map(|one| &one.cycles[..]))
        };
        let apart = cost(alone.each_ref(), None);
        let mut best: Option<(usize, Order)> = None;
        for [inp, acc] in SHARES {
            let [inp, acc] = [(MemType::Inp, inp), (MemType::Acc, acc)]
                .map(|(mem, quarters)| depth(mem) / 4 * quarters);
            let room = [inp, weights, acc];
            let Some(rooms) = Room::divided(self.config, room) else {
                continue;
            };
            let firsts = tile::cheapest(shapes[0], &rooms[0], second_busy, FIRSTS).into_iter();
            let firsts = firsts.map(|tile| Tiled::new(shapes[0], self.config, tile));
            let mut seconds = tile::cheapest(shapes[1], &rooms[1], first_busy, 2 * SECONDS);
            // Outputs come in the order of channels or of positions, and so they are read.
            let order = LoopOrder::PositionsOutside;
            seconds.iter_mut().for_each(|tile| tile.order = order);
            seconds.dedup();
            let of = |order| {
                let tiles = seconds.iter().map(|tile| ConvTile { order, ..*tile });
                let seconds = tiles.map(|tile| Tiled::new(shapes[1], self.config, tile));
                seconds.collect::<Vec<_>>()
            };
            let ordered = [LoopOrder::PositionsOutside, LoopOrder::ChannelsOutside].map(of);
            for first in firsts {
                let outside =
                    first.tile.order == LoopOrder::ChannelsOutside && first.tile.co < shapes[0].co;
                let seconds = ordered[usize::from(outside)].iter();
                for (second, lag) in seconds.flat_map(|one| LAGS.map(|lag| (one, lag))) {
                    let least = Cycles::least([&first.sums, &second.sums]);
                    if best.is_some_and(|(cycles, _)| cycles <= least) {
                        continue;
                    }
                    let cycles = cost([&first, second], Some(lag));
                    if best.is_none_or(|(least, _)| cycles < least) {
                        let tiles = [first.tile, second.tile];
                        best = Some((cycles, Order { tiles, room, lag }));
                    }
                }
            }
        }
        // Both are estimates.
        let (_, order) = best.filter(|(cycles, _)| cycles * 64 <= apart * 63)?;
        Some(order)
    }
}

/// Whether STOREs do all that comes behind a convolution's products.
fn is_plain(parts: &Parts<'_>, choice: &Choice) -> bool {
    parts.store.is_some()
        && parts.pool.is_none()
        && parts.residual.is_none()
        && choice.epilogue.is_empty()
        && choice.digits.is_none()
        && choice.regions.is_empty()
}

/// The tiles of two layers as they take turns; one layer behind the other without a lag.
fn turns(tiled: [&Tiled; 2], shapes: [&ConvShape; 2], lag: Option<usize>) -> Vec<Turn> {
    let [firsts, seconds] = tiled.map(|one| &one.works);
    let reads = seconds.iter().map(|work| {
        let read = shapes[1].windows_of(work.places());
        tiled[0].tile.last(shapes[0], &read)
    });
    let mut others = (0..).zip(reads).peekable();
    // As many of the second behind each of the first that all have their turn.
    let rate = seconds.len().div_ceil(firsts.len().max(1));
    let mut turns = Vec::with_capacity(firsts.len() + seconds.len());
    let turn = |(tile, reads)| Turn {
        layer: 1,
        tile,
        reads,
    };
    for tile in 0..firsts.len() {
        turns.push(Turn {
            layer: 0,
            tile,
            reads: None,
        });
        let due = |(_, reads): &(usize, Option<usize>)| {
            // What the first layer starts with comes first.
            lag.is_some_and(|lag| tile > 1 && reads.is_none_or(|reads| reads + lag <= tile))
        };
        turns.extend((0..rate).map_while(|_| others.next_if(due)).map(turn));
    }
    turns.extend(others.map(turn));
    turns
}

/// The tiles of both layers in their turns.
pub(super) fn ordered(order: &Order, shapes: [&ConvShape; 2], config: &Config) -> Vec<Work> {
    let all = [0, 1].map(|layer| Tiled::new(shapes[layer], config, order.tiles[layer]));
    let turns = turns(all.each_ref(), shapes, Some(order.lag));
    let mut all = all.map(|one| one.works.into_iter());
    let mut firsts = Vec::new();
    let mut merged: Vec<Work> = Vec::with_capacity(turns.len());
    for turn in turns {
        let reads = turn.reads.and_then(|tile: usize| firsts.get(tile).copied());
        if turn.layer == 0 {
            firsts.push(merged.len());
        }
        let layer = turn.layer;
        let work = all[layer].next();
        merged.extend(work.map(|work| Work {
            layer,
            reads,
            ..work
        }));
    }
    merged
}
