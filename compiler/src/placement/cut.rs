//! Propagation: the fewest copies, as minimum cuts.
//!
//! Two devices A and B are the sides of a cut. A node fixed on one is tied to its terminal; a
//! tensor that is read on the other side than it is written costs once, however many read it
//! there. Such costs are cuts of a small network: for a tensor written by `p` and read by `r..`,
//! one extra vertex pays when `p` is on A's side and a reader on B's, another the other way
//! round.

use std::collections::VecDeque;

use super::target::TargetId;
use super::uses::{Annotation, Uses};
use crate::qgraph::NodeId;

/// Edges that no minimum cut contains.
const TIED: u128 = 1 << 120;

/// The target of every node. `targets` is how many there are.
pub(super) fn propagate(annotations: &[Annotation], uses: &Uses, targets: usize) -> Vec<TargetId> {
    let first = |a: &Annotation| match a {
        Annotation::Fixed(target) => *target,
        Annotation::Free { first, .. } => *first,
    };
    let mut placed: Vec<TargetId> = annotations.iter().map(first).collect();
    // Each round makes it cheaper, so this ends.
    loop {
        let before = uses.cost(&placed);
        for a in 0..targets {
            for b in a + 1..targets {
                let swapped = swap(annotations, uses, &placed, [a, b].map(TargetId));
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
    annotations: &[Annotation],
    uses: &Uses,
    placed: &[TargetId],
    [a, b]: [TargetId; 2],
) -> Vec<TargetId> {
    let nodes = placed.len();
    let mut flow = Flow::new(nodes);
    let mut moves = false;
    for (node, annotation) in annotations.iter().enumerate() {
        let can = |target: &TargetId| match annotation {
            Annotation::Fixed(_) => false,
            Annotation::Free { first, others } => first == target || others.contains(target),
        };
        let movable = can(&a) && can(&b);
        match placed[node] {
            at if at == a && !movable => flow.edge(Flow::SOURCE, node, TIED),
            at if at == b && !movable => flow.edge(node, Flow::SINK, TIED),
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
            Some(writer) => (writer.0, writer.0),
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
            flow.edge(to_b, reader.0, TIED);
            flow.edge(reader.0, to_a, TIED);
        }
    }
    let on_b = flow.sink_side();
    let side = |node: usize| match placed[node] {
        at if at != a && at != b => at,
        _ if on_b[node] => b,
        _ => a,
    };
    (0..nodes).map(side).collect()
}

/// A flow network.
struct Flow {
    /// By vertex, indices into `edges`.
    out: Vec<Vec<usize>>,
    /// Head and what is left; an edge and its reverse are neighbours.
    edges: Vec<(usize, u128)>,
    nodes: usize,
}

impl Flow {
    const SOURCE: usize = usize::MAX;
    const SINK: usize = usize::MAX - 1;

    fn new(nodes: usize) -> Self {
        Self {
            out: vec![Vec::new(); nodes + 2],
            edges: Vec::new(),
            nodes,
        }
    }

    fn vertex(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }

    fn index(&self, vertex: usize) -> usize {
        match vertex {
            Self::SOURCE => self.nodes,
            Self::SINK => self.nodes + 1,
            other => other,
        }
    }

    fn edge(&mut self, from: usize, to: usize, capacity: u128) {
        let (from, to) = (self.index(from), self.index(to));
        for (tail, head, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.out[tail].push(self.edges.len());
            self.edges.push((head, capacity));
        }
    }

    /// Fills the network; whether each vertex is on the sink's side of the minimum cut with the
    /// smallest such side. That side is unique, so the order of edges doesn't matter.
    fn sink_side(mut self) -> Vec<bool> {
        while let Some(levels) = self.levels() {
            self.block(&levels);
        }
        let sink = self.index(Self::SINK);
        let mut reaches = vec![false; self.out.len()];
        reaches[sink] = true;
        let mut queue = VecDeque::from([sink]);
        while let Some(vertex) = queue.pop_front() {
            for &edge in &self.out[vertex] {
                // The reverse of an edge leads here from its head.
                let (tail, back) = (self.edges[edge].0, edge ^ 1);
                if self.edges[back].1 > 0 && !reaches[tail] {
                    reaches[tail] = true;
                    queue.push_back(tail);
                }
            }
        }
        reaches
    }

    /// How many edges with room each vertex is from the source; `None` if the sink isn't reached.
    fn levels(&self) -> Option<Vec<usize>> {
        let (source, sink) = (self.index(Self::SOURCE), self.index(Self::SINK));
        let mut levels = vec![usize::MAX; self.out.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(vertex) = queue.pop_front() {
            for &edge in &self.out[vertex] {
                let (head, left) = self.edges[edge];
                if left > 0 && levels[head] == usize::MAX {
                    levels[head] = levels[vertex] + 1;
                    queue.push_back(head);
                }
            }
        }
        (levels[sink] != usize::MAX).then_some(levels)
    }

    /// Fills every shortest path: all at once, so that a network of many short paths, which is
    /// what networks of many nodes are, takes a few rounds and not one for each path.
    fn block(&mut self, levels: &[usize]) {
        let (source, sink) = (self.index(Self::SOURCE), self.index(Self::SINK));
        // Edges before these are full or lead nowhere.
        let mut next = vec![0; self.out.len()];
        let mut path: Vec<usize> = Vec::new();
        loop {
            let at = path.last().map_or(source, |&edge| self.edges[edge].0);
            if at == sink {
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
