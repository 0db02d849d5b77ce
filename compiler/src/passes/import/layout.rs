//! In which order tensors have the model's values.
//!
//! A tensor is `[C][H][W]`, and so are most values of a model. Where rows are tokens, or images have their
//! channels last, a value is `[H][W][C]`: as one matrix, positions by channels, instead of channels by positions.
//! Both may stand for one tensor, so that a Reshape that keeps that matrix and a Transpose of it compute nothing.
//! A product with a matrix wants the dimension that it sums over to be the channels; what is added to it must
//! lie as it does. [`Layouts`] says that of values before they are read, since the host, whose results can have
//! either order, comes first.

use std::collections::{HashMap, HashSet};

use crate::graph::{Data, Element, Graph, MatMulForm, Node, OnnxAttribute, OnnxOp, Op, ValueId};

/// Where the channels of a tensor are among a value's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// In front of the positions, as in the tensor.
    First,
    /// Behind them.
    Last,
}

impl Order {
    /// The order itself, but where there is one channel or one position: then both are the first.
    pub(crate) const fn of(self, [c, h, w]: [usize; 3]) -> Self {
        if c == 1 || h * w == 1 {
            Self::First
        } else {
            self
        }
    }

    /// Whether a value's dimensions are a tensor's: all of them, or one of all its values.
    pub(crate) fn fits(self, shape: &[usize], [c, h, w]: [usize; 3]) -> bool {
        let own = match *shape {
            [1, a, b, d] => [a, b, d] == [c, h, w],
            [1, a, d] => [a, 1, d] == [c, h, w],
            [1, n] => n == c * h * w,
            _ => false,
        };
        own && self == Self::First
    }

    /// The order of a value of dimensions `shape` once they are permuted; `None` where that is none.
    pub(crate) fn turned(
        self,
        shape: &[usize],
        perm: &[usize],
        [c, h, w]: [usize; 3],
    ) -> Option<Self> {
        let Some([front, _]) = swapped(shape, perm)? else {
            return Some(self);
        };
        match self {
            Self::First if front == c => Some(Self::Last.of([c, h, w])),
            Self::Last if front == h * w => Some(Self::First),
            Self::First | Self::Last => None,
        }
    }

    /// The dimensions of a value that are its channels; `None` where they aren't whole dimensions.
    pub(crate) fn channels(
        self,
        shape: &[usize],
        channels: usize,
    ) -> Option<std::ops::Range<usize>> {
        let of = |range: &std::ops::Range<usize>| {
            shape[range.clone()].iter().product::<usize>() == channels
        };
        let n = shape.len();
        match self {
            Self::First => (0..=n).rev().map(|end| 0..end).find(of),
            Self::Last => (0..=n).map(|start| start..n).find(of),
        }
    }
}

/// What a permutation does: nothing (`Some(None)`), or it swaps the dimensions in front, of so many
/// values, with those behind. `None` for any other.
fn swapped(shape: &[usize], perm: &[usize]) -> Option<Option<[usize; 2]>> {
    let mut seen = vec![false; shape.len()];
    for &at in perm {
        if std::mem::replace(seen.get_mut(at)?, true) {
            return None;
        }
    }
    // Dimensions of 1 have no order.
    let wide: Vec<usize> = perm.iter().copied().filter(|&at| shape[at] != 1).collect();
    let Some(cut) = wide.windows(2).position(|pair| pair[0] > pair[1]) else {
        return (perm.len() == shape.len()).then_some(None);
    };
    let (behind, front) = wide.split_at(cut + 1);
    let rising = front.is_sorted() && front.last() < behind.first();
    let size = |dims: &[usize]| dims.iter().map(|&at| shape[at]).product();
    (rising && perm.len() == shape.len()).then(|| Some([size(front), size(behind)]))
}

/// The permutation of a Transpose of so many dimensions; `None` where it is none.
pub(crate) fn permutation(op: &OnnxOp, rank: usize) -> Option<Vec<usize>> {
    match op.ints("perm") {
        None => Some((0..rank).rev().collect()),
        Some(perm) => perm.iter().map(|&at| usize::try_from(at).ok()).collect(),
    }
}

/// What orders values should have, from what reads and makes them.
pub(crate) struct Layouts {
    /// Values that lie alike: each says one that stands for all of them.
    parent: Vec<usize>,
    /// By the one that stands for them: how many channels are to be last.
    last: HashMap<usize, usize>,
    /// Those whose channels are to be in front.
    first: HashSet<usize>,
    /// Rows and columns of values of four dimensions.
    planes: HashMap<usize, [usize; 2]>,
    /// Values whose dimensions something reads: rows and columns, or channels one by one.
    pub(crate) dimensions: HashSet<ValueId>,
}

/// How an operator reads and makes values.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    /// Value by value.
    Each,
    /// Value by value, in other dimensions.
    Regroups,
    /// By their dimensions: rows and columns behind channels.
    Plane,
    /// By their dimensions, if channels are in front.
    Channels,
    /// None of these.
    Other,
}

fn role(graph: &Graph, node: &Node) -> Role {
    let rank = graph.values[node.output.0].shape.len();
    match (node.op.facts().role, &node.op) {
        (Role::Channels, _) if !matches!(rank, 2 | 4) => Role::Other,
        (_, Op::Onnx(op)) if regroups(op) || stays(graph, node, op) => Role::Regroups,
        (role, _) => role,
    }
}

/// Whether an operator that is kept gives the same values other dimensions.
pub(crate) fn regroups(op: &OnnxOp) -> bool {
    matches!(op.kind, "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze")
}

/// Whether an operator is a Transpose that swaps only dimensions of 1 with others.
fn stays(graph: &Graph, node: &Node, op: &OnnxOp) -> bool {
    let shape = &graph.values[node.inputs[0].0].shape;
    let perm = || permutation(op, shape.len());
    transposes(op) && perm().is_some_and(|perm| swapped(shape, &perm) == Some(None))
}

pub(crate) fn transposes(op: &OnnxOp) -> bool {
    op.kind == "Transpose"
}

impl Layouts {
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut all = Self {
            parent: (0..graph.values.len()).collect(),
            last: HashMap::new(),
            first: HashSet::new(),
            planes: HashMap::new(),
            dimensions: HashSet::new(),
        };
        let shape = |id: ValueId| &graph.values[id.0].shape[..];
        let size = |id: ValueId| shape(id).iter().product::<usize>();
        for node in &graph.nodes {
            if let Role::Each | Role::Regroups = role(graph, node) {
                let alike = node
                    .inputs
                    .iter()
                    .filter(|id| size(**id) == size(node.output));
                alike.for_each(|id| all.join(*id, node.output));
            }
        }
        // No more are joined: from here on a value's parent is its root.
        for id in 0..graph.values.len() {
            all.parent[id] = all.find(id);
        }
        for (id, value) in graph.values.iter().enumerate() {
            if let [1, h, w, _] = value.shape[..] {
                let root = all.root(ValueId(id));
                all.planes.entry(root).or_insert([h, w]);
            }
        }
        for node in &graph.nodes {
            all.mark(graph, node);
        }
        // Integers are given and taken in the model's order.
        for &id in graph.outputs.iter().chain(&graph.inputs) {
            if graph.values[id.0].element != Element::F32 {
                let root = all.root(id);
                all.first.insert(root);
            }
        }
        // Readers before what they read.
        for node in graph.nodes.iter().rev() {
            all.backwards(graph, node);
        }
        all
    }

    /// The value that stands for those that lie alike.
    fn root(&self, id: ValueId) -> usize {
        self.parent[id.0]
    }

    /// The root, while values are joined; ways to it are halved.
    fn find(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn join(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.find(a.0), self.find(b.0));
        self.parent[b] = a;
    }

    fn mark(&mut self, graph: &Graph, node: &Node) {
        let shape = |id: ValueId| &graph.values[id.0].shape[..];
        match (&node.op, &role(graph, node)) {
            (Op::MatMul { form }, _) => {
                for id in [node.inputs[0], node.output] {
                    let root = self.root(id);
                    match (form, shape(id).last()) {
                        (MatMulForm::Left, _) | (_, None) => {
                            self.first.insert(root);
                        }
                        (_, Some(&channels)) => {
                            self.last.entry(root).or_insert(channels);
                        }
                    }
                }
            }
            (_, Role::Plane) => {
                for id in [node.inputs[0], node.output] {
                    let root = self.root(id);
                    self.first.insert(root);
                }
            }
            _ => {}
        }
    }

    /// What a node's output says of its input.
    fn backwards(&mut self, graph: &Graph, node: &Node) {
        let read = match role(graph, node) {
            Role::Plane | Role::Channels => true,
            Role::Each => self.dimensions.contains(&node.output),
            Role::Regroups | Role::Other => false,
        };
        if read {
            self.dimensions.extend(&node.inputs);
        }
        let Op::Onnx(op) = &node.op else {
            return;
        };
        let shape = &graph.values[node.inputs[0].0].shape;
        if let (true, Some(perm)) = (transposes(op), permutation(op, shape.len()))
            && let Some(Some([_, behind])) = swapped(shape, &perm)
        {
            let [from, to] = [node.inputs[0], node.output].map(|id| self.root(id));
            if self.first.contains(&to) {
                self.last.entry(from).or_insert(behind);
            }
        }
    }

    /// Whether the channels of a value are in front, as something wants it.
    pub(crate) fn is_first(&self, id: ValueId) -> bool {
        self.first.contains(&self.root(id))
    }

    /// The tensor of a value whose channels should be last; `None` of any other.
    pub(crate) fn last_of(&self, id: ValueId, shape: &[usize]) -> Option<[usize; 3]> {
        let root = self.root(id);
        let channels = *self
            .last
            .get(&root)
            .filter(|_| !self.first.contains(&root))?;
        let size: usize = shape.iter().product();
        let dims = Order::Last.channels(shape, channels)?;
        let positions: usize = shape[..dims.start].iter().product();
        let plane = self.planes.get(&root).filter(|[h, w]| h * w == positions);
        let [h, w] = plane.copied().unwrap_or([1, positions]);
        let chw = [channels, h, w];
        (size > 0 && Order::Last.of(chw) == Order::Last).then_some(chw)
    }
}

/// The values of a tensor, which `id` are in the model's order: nodes without a name, which aren't the
/// network's.
pub(crate) fn to_tensor(part: &mut Graph, id: ValueId, [c, h, w]: [usize; 3]) -> ValueId {
    let matrix = value(part, "matrix", &[h * w, c], None);
    reshape(part, id, matrix);
    let turned = value(part, "turned", &[c, h * w], None);
    transpose(part, matrix, turned);
    turned
}

/// A new value of a part, a tensor's, of which the model's `to` is made.
pub(crate) fn from_tensor(part: &mut Graph, [c, h, w]: [usize; 3], to: ValueId) -> ValueId {
    let from = value(part, "tensor", &[c, h * w], None);
    let matrix = value(part, "turned", &[h * w, c], None);
    transpose(part, from, matrix);
    reshape(part, matrix, to);
    from
}

fn value(part: &mut Graph, what: &str, shape: &[usize], data: Option<Data>) -> ValueId {
    let name = format!("{what}.{}", part.values.len());
    part.value(name, shape.to_vec(), data)
}

/// A Reshape to the shape of a value.
pub(crate) fn reshape(part: &mut Graph, from: ValueId, to: ValueId) {
    let shape = part.values[to.0].shape.clone();
    let sizes = Data::I64(shape.iter().map(|&d| d as i64).collect());
    let sizes = value(part, "sizes", &[shape.len()], Some(sizes));
    let op = OnnxOp::new("Reshape", 2, vec![]);
    part.push("", Op::Onnx(Box::new(op)), vec![from, sizes], to);
}

/// Gives a matrix rows for columns.
fn transpose(part: &mut Graph, from: ValueId, to: ValueId) {
    let perm = ("perm".to_owned(), OnnxAttribute::Ints(vec![1, 0]));
    let op = OnnxOp::new("Transpose", 1, vec![perm]);
    part.push("", Op::Onnx(Box::new(op)), vec![from], to);
}
