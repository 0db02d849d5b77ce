//! Propagation: the fewest copies, as minimum cuts.
//!
//! Two devices A and B are the sides of a cut. A node fixed on one is tied to its terminal; a
//! tensor that is read on the other side than it is written costs once, however many read it
//! there. Such costs are cuts of a small network: for a tensor written by `p` and read by `r..`,
//! one extra vertex pays when `p` is on A's side and a reader on B's, another the other way
//! round.

use std::collections::VecDeque;

use super::target::TargetId;
use super::uses::Uses;
use crate::qgraph::NodeId;

/// Edges that no minimum cut contains.
const TIED: u128 = 1 << 120;

/// The target of every node, of those that it `can` run on: at least one, on the first of which it starts.
/// `targets` is how many there are.
pub(super) fn propagate(can: &[Vec<TargetId>], uses: &Uses, targets: usize) -> Vec<TargetId> {
    let mut placed: Vec<TargetId> = can.iter().map(|can| can[0]).collect();
    // Each round makes it cheaper, so this ends.
    loop {
        let before = uses.cost(&placed);
        for a in 0..targets {
            for b in a + 1..targets {
                let swapped = swap(can, uses, &placed, [a, b].map(TargetId));
                if uses.cost(&swapped) <= uses.cost(&placed) {
                    placed = swapped;
                }
            }
        }
        if uses.cost(&placed) >= before {
            return placed;
        }
    }
}

/// The best placement that moves free nodes of two devices between these.
fn swap(
    can: &[Vec<TargetId>],
    uses: &Uses,
    placed: &[TargetId],
    [a, b]: [TargetId; 2],
) -> Vec<TargetId> {
    let nodes = placed.len();
    let mut flow = Flow::new(nodes);
    let mut moves = false;
    for (node, can) in can.iter().enumerate() {
        let movable = can.contains(&a) && can.contains(&b);
        match placed[node] {
            at if at == a && !movable => flow.edge(Flow::SOURCE, Flow::of(node), TIED),
            at if at == b && !movable => flow.edge(Flow::of(node), Flow::SINK, TIED),
            at => moves |= at == a || at == b,
        }
    }
    // As between a device and the host, which nothing can choose between.
    if !moves {
        return placed.to_vec();
    }
    let here = |node: &NodeId| placed[node.0] == a || placed[node.0] == b;
    for (tensor, readers) in uses.readers.iter().enumerate() {
        let elsewhere = readers.iter().any(|r| !here(r));
        let readers: Vec<NodeId> = readers.iter().copied().filter(here).collect();
        if readers.is_empty() {
            continue;
        }
        let writer = uses.writer[tensor];
        // A writer on a third device sends one copy to each side that reads. An input is
        // written by the host, to one device for free: a second side costs, or either if a
        // third device has it already.
        let (from_a, from_b) = match writer.filter(here) {
            Some(writer) => (Flow::of(writer.0), Flow::of(writer.0)),
            None if writer.is_none() && !elsewhere => {
                let host = flow.vertex();
                (host, host)
            }
            None => (Flow::SOURCE, Flow::SINK),
        };
        let [to_b, to_a] = [flow.vertex(), flow.vertex()];
        flow.edge(from_a, to_b, uses.cost[tensor]);
        flow.edge(to_a, from_b, uses.cost[tensor]);
        for reader in readers {
            flow.edge(to_b, Flow::of(reader.0), TIED);
            flow.edge(Flow::of(reader.0), to_a, TIED);
        }
    }
    let on_b = flow.sink_side();
    let side = |node: usize| match placed[node] {
        at if at != a && at != b => at,
        _ if on_b[Flow::of(node)] => b,
        _ => a,
    };
    (0..nodes).map(side).collect()
}

/// A flow network between a source and a sink.
struct Flow {
    /// By vertex, indices into `edges`.
    out: Vec<Vec<usize>>,
    /// Head and what is left; an edge and its reverse are neighbours.
    edges: Vec<(usize, u128)>,
}

impl Flow {
    const SOURCE: usize = 0;
    const SINK: usize = 1;

    /// The vertex of a node.
    const fn of(node: usize) -> usize {
        node + 2
    }

    /// That of so many nodes.
    fn new(nodes: usize) -> Self {
        Self {
            out: vec![Vec::new(); Self::of(nodes)],
            edges: Vec::new(),
        }
    }

    fn vertex(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize, capacity: u128) {
        for (tail, head, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.out[tail].push(self.edges.len());
            self.edges.push((head, capacity));
        }
    }

    /// Fills the network; whether each vertex is on the sink's side of the minimum cut with the
    /// smallest such side. That side is unique, so the order of edges doesn't matter.
    fn sink_side(mut self) -> Vec<bool> {
        loop {
            let levels = self.distances(Self::SOURCE, |edge| edge);
            if levels[Self::SINK] == usize::MAX {
                break;
            }
            self.block(&levels);
        }
        // The reverse of an edge leads here from its head.
        let distances = self.distances(Self::SINK, |edge| edge ^ 1);
        distances.into_iter().map(|d| d < usize::MAX).collect()
    }

    /// How many edges each vertex is from one, by edges of which `way` has room; the largest number for
    /// vertices that none leads to.
    fn distances(&self, from: usize, way: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut distances = vec![usize::MAX; self.out.len()];
        distances[from] = 0;
        let mut queue = VecDeque::from([from]);
        while let Some(vertex) = queue.pop_front() {
            for &edge in &self.out[vertex] {
                let head = self.edges[edge].0;
                if self.edges[way(edge)].1 > 0 && distances[head] == usize::MAX {
                    distances[head] = distances[vertex] + 1;
                    queue.push_back(head);
                }
            }
        }
        distances
    }

    /// Fills every shortest path: all at once, so that a network of many short paths, which is
    /// what networks of many nodes are, takes a few rounds and not one for each path.
    fn block(&mut self, levels: &[usize]) {
        // Edges before these are full or lead nowhere.
        let mut next = vec![0; self.out.len()];
        let mut path: Vec<usize> = Vec::new();
        loop {
            let at = path.last().map_or(Self::SOURCE, |&edge| self.edges[edge].0);
            if at == Self::SINK {
                // Source and sink differ, so that there is an edge, and one of least room is full
                // afterwards.
                let room = path.iter().map(|&edge| self.edges[edge].1);
                let room = room.fold(u128::MAX, u128::min);
                for &edge in &path {
                    self.edges[edge].1 -= room;
                    self.edges[edge ^ 1].1 += room;
                }
                let open = path.iter().take_while(|&&edge| self.edges[edge].1 > 0);
                path.truncate(open.count());
                continue;
            }
            let forward = |edge: &usize| {
                let (head, left) = self.edges[*edge];
                left > 0 && levels[head] == levels[at] + 1
            };
            match self.out[at][next[at]..].iter().position(forward) {
                Some(skipped) => {
                    next[at] += skipped;
                    path.push(self.out[at][next[at]]);
                }
                None => {
                    next[at] = self.out[at].len();
                    match path.pop() {
                        // The edge that led here leads nowhere.
                        Some(edge) => next[self.edges[edge ^ 1].0] += 1,
                        None => return,
                    }
                }
            }
        }
    }
}
