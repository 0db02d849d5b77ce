//! Where tensors lie: channels that are taken as they are lie in the memory of both tensors.
//!
//! Blocks of channels that a tensor has from another, whole, lane by lane and unchanged, needn't be
//! copied: if the one tensor's memory is a part of the other's, its producer stores where they
//! are read. Tensors that lie in one piece of memory are a body; every such run of blocks asks
//! that two tensors lie at a distance from each other, so that their bodies become one, unless two
//! blocks that are written would then lie in one place. Later nodes go first: a tensor that
//! everything before is joined to has room for what earlier nodes join.

use std::collections::{BTreeMap, BTreeSet};

use crate::qgraph::lane::LaneOp;
use crate::qgraph::{ChannelOf, QGraph, QOp, Spread, TensorId};
use crate::semantics;

/// The most blocks, those of all tensors counted, that bodies are joined for.
const MAX_BLOCKS: usize = 1 << 14;

/// A block of a tensor.
type Block = (TensorId, usize);

/// Where all tensors lie.
pub(super) struct Places {
    /// The tensors of each body, which lie in one buffer; in the order of their first ones.
    pub bodies: Vec<Vec<TensorId>>,
    /// The body of each tensor, and its first block there.
    pub of: Vec<(usize, usize)>,
    /// Blocks of tensors that needn't be written, since they lie where they come from.
    shared: BTreeMap<TensorId, Vec<bool>>,
}

impl Places {
    /// The places of a graph's tensors with `block` channels in a block.
    pub fn of(graph: &QGraph, block: usize) -> Self {
        let mut join = Join::new(graph, block);
        let plane = |id: TensorId| &graph.tensors[id.0].chw[1..];
        for node in graph.nodes.iter().rev() {
            if let QOp::Channels {
                inputs,
                map,
                spread: Spread::NONE,
                gain,
                ops,
            } = &node.op
                && inputs
                    .first()
                    .is_some_and(|id| plane(*id) == plane(node.output))
            {
                let kept = kept(graph, (inputs, map), (*gain, ops), block);
                join.node(node.output, &kept);
            }
        }
        join.finish()
    }

    /// Whether a block of a tensor lies where it comes from.
    pub fn is_shared(&self, id: TensorId, block: usize) -> bool {
        let blocks = self.shared.get(&id);
        blocks
            .and_then(|all| all.get(block))
            .copied()
            .unwrap_or(false)
    }
}

/// Which block each output block is, whole and unchanged.
pub(super) fn kept(
    graph: &QGraph,
    (inputs, map): (&[TensorId], &[Option<ChannelOf>]),
    (gain, ops): (i8, &[LaneOp]),
    block: usize,
) -> Vec<Option<Block>> {
    let whole = |(index, lanes): (usize, &[Option<ChannelOf>])| {
        let first = (*lanes.first()?)?;
        let id = *inputs.get(first.input)?;
        let from = first
            .channel
            .is_multiple_of(block)
            .then_some(first.channel)?;
        let same = |(lane, of): (usize, &Option<ChannelOf>)| {
            let channel = from + lane;
            *of == Some(ChannelOf {
                input: first.input,
                channel,
            }) && keeps(graph, id, (gain, ops), index * block + lane)
        };
        let all = lanes.iter().enumerate().all(same);
        all.then_some((id, from / block))
    };
    map.chunks(block).enumerate().map(whole).collect()
}

/// Whether operations leave all values of a tensor as they are, in an output channel.
fn keeps(graph: &QGraph, id: TensorId, (gain, ops): (i8, &[LaneOp]), channel: usize) -> bool {
    if gain == 1 && ops.is_empty() {
        return true;
    }
    let (low, high) = graph.tensors[id.0].range;
    let values: Vec<i32> = (i32::from(low)..=high.into()).collect();
    let mut lanes: Vec<i32> = values.iter().map(|v| v * i32::from(gain)).collect();
    if ops.iter().any(|op| op.plane().is_some()) {
        return false;
    }
    for op in ops {
        if semantics::apply(op, channel, &mut lanes).is_err() {
            return false;
        }
    }
    lanes == values
}

/// Bodies that are being joined.
struct Join<'g> {
    graph: &'g QGraph,
    /// The body of each tensor, and where its first block lies; bodies that were joined are empty.
    of: Vec<(usize, i64)>,
    bodies: Vec<Vec<TensorId>>,
    /// Blocks of each tensor.
    blocks: Vec<usize>,
    shared: BTreeMap<TensorId, Vec<bool>>,
}

impl<'g> Join<'g> {
    fn new(graph: &'g QGraph, block: usize) -> Self {
        let ids = || (0..graph.tensors.len()).map(TensorId);
        Self {
            graph,
            of: ids().map(|id| (id.0, 0)).collect(),
            bodies: ids().map(|id| vec![id]).collect(),
            blocks: ids()
                .map(|id| graph.tensors[id.0].chw[0].div_ceil(block))
                .collect(),
            shared: BTreeMap::new(),
        }
    }

    /// The runs of blocks that a node's output has from others.
    fn node(&mut self, output: TensorId, kept: &[Option<Block>]) {
        // The host writes inputs in its own way.
        let graph = self.graph;
        let fixed = |id: TensorId| graph.inputs.contains(&id);
        if fixed(output) || kept.len() != self.blocks[output.0] {
            return;
        }
        // The output's first block would be as many blocks behind the other tensor's.
        let asked = |(at, from): (usize, &Option<Block>)| {
            let (id, block) = from.filter(|(id, _)| !fixed(*id) && *id != output)?;
            Some((at, id, block as i64 - at as i64))
        };
        let asked: Vec<_> = kept.iter().enumerate().filter_map(asked).collect();
        // Neighbours mostly ask for the same.
        let mut last = None;
        for &(_, id, distance) in &asked {
            if last != Some((id, distance)) {
                last = Some((id, distance));
                self.joins(output, kept, id, distance);
            }
        }
        let mut shared = vec![false; kept.len()];
        for (at, id, distance) in asked {
            shared[at] = self.lies(output, id, distance);
        }
        self.shared.insert(output, shared);
    }

    /// Whether a tensor lies at a distance from another.
    fn lies(&self, id: TensorId, other: TensorId, distance: i64) -> bool {
        let ((body, at), (of, from)) = (self.of[id.0], self.of[other.0]);
        body == of && at == from + distance
    }

    /// Joins two bodies so that it does, if no two blocks that are written meet. Those that the
    /// tensor is `kept` of aren't, if they then lie where they come from.
    fn joins(&mut self, id: TensorId, kept: &[Option<Block>], other: TensorId, distance: i64) {
        let ((body, at), (of, from)) = (self.of[id.0], self.of[other.0]);
        if body == of {
            return;
        }
        let both = self.bodies[body].iter().chain(&self.bodies[of]);
        if both.map(|id| self.blocks[id.0]).sum::<usize>() > MAX_BLOCKS {
            return;
        }
        let shift = from + distance - at;
        let lies = |block: usize| {
            kept[block].is_some_and(|(source, b)| {
                let (body, first) = self.of[source.0];
                body == of && first + b as i64 == at + shift + block as i64
            })
        };
        let taken: BTreeSet<i64> = self.written(of).map(|(_, _, at)| at).collect();
        let mut written = self.written(body);
        if written.any(|(tensor, block, at)| {
            taken.contains(&(at + shift)) && !(tensor == id && lies(block))
        }) {
            return;
        }
        drop(written);
        let moved = std::mem::take(&mut self.bodies[body]);
        for id in &moved {
            self.of[id.0] = (of, self.of[id.0].1 + shift);
        }
        self.bodies[of].extend(moved);
    }

    /// The blocks of a body that nodes write, and where each lies.
    fn written(&self, body: usize) -> impl Iterator<Item = (TensorId, usize, i64)> {
        self.bodies[body].iter().flat_map(|&id| {
            let (first, shared) = (self.of[id.0].1, self.shared.get(&id));
            let writes = move |block: &usize| shared.is_none_or(|shared| !shared[*block]);
            let all = (0..self.blocks[id.0]).filter(writes);
            all.map(move |block| (id, block, first + block as i64))
        })
    }

    fn finish(self) -> Places {
        let mut of = vec![(0, 0); self.of.len()];
        let mut bodies: Vec<Vec<TensorId>> = Vec::new();
        // In the order of the first tensors, so that one alone has its tensor's place.
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, &(body, _)) in self.of.iter().enumerate() {
            let least = self.bodies[body].iter().map(|id| self.of[id.0].1).min();
            let number = *numbers.entry(body).or_insert_with(|| {
                bodies.push(Vec::new());
                bodies.len() - 1
            });
            let first = (self.of[index].1 - least.unwrap_or(0)) as usize;
            bodies[number].push(TensorId(index));
            of[index] = (number, first);
        }
        Places {
            bodies,
            of,
            shared: self.shared,
        }
    }
}
