//! The convolution or product of matrices whose channels a node scales, perhaps behind views of what that gives.

use std::collections::BTreeMap;

use crate::graph::{Data, Graph, MatMulForm, Node, Op, ValueId};
use crate::quantize::rounded::is_bias;

/// What scales and biases become part of.
pub(super) struct Producer {
    /// The node with the weights.
    pub node: usize,
    /// The sum of a product of matrices with its bias.
    pub sum: Option<usize>,
}

impl Producer {
    /// The producer of a value whose channels are a dimension, through sums with a bias and views, if nothing else reads
    /// what lies between.
    pub fn of(
        graph: &Graph,
        uses: &BTreeMap<ValueId, usize>,
        makers: &BTreeMap<ValueId, usize>,
        (mut id, mut axis): (ValueId, usize),
    ) -> Option<Self> {
        let mut sum = None;
        loop {
            let index = makers
                .get(&id)
                .copied()
                .filter(|_| uses.get(&id) == Some(&1))?;
            let node = &graph.nodes[index];
            let rank = graph.values[id.0].shape.len();
            let channels = match &node.op {
                Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } => Some(1),
                Op::MatMul { form } => rank.checked_sub(1 + behind(*form)),
                _ => None,
            };
            if let Some(channels) = channels {
                let has_floats =
                    |id: &ValueId| matches!(graph.values[id.0].data, Some(Data::F32(_)));
                let is_sound = channels == axis && node.inputs[1..].iter().all(has_floats);
                return is_sound.then_some(Self { node: index, sum });
            }
            if node.op == Op::Add {
                let bias = bias(graph, makers, node)?;
                (id, sum) = (node.inputs[1 - bias], Some(index));
                continue;
            }
            (id, axis) = (node.inputs[0], seen(graph, node, axis)?);
        }
    }

    /// Whether weights of a channel follow each other.
    pub fn has_rows(&self, graph: &Graph) -> bool {
        !matches!(
            graph.nodes[self.node].op,
            Op::MatMul {
                form: MatMulForm::Right
            } | Op::Gemm { trans_b: false }
                | Op::ConvTranspose { .. }
        )
    }

    /// The constant that is added to its channels.
    pub fn bias(&self, graph: &Graph) -> Option<ValueId> {
        match self.sum {
            Some(sum) => {
                let product = graph.nodes[self.node].output;
                let inputs = &graph.nodes[sum].inputs;
                inputs.iter().find(|id| **id != product).copied()
            }
            None => graph.nodes[self.node].inputs.get(2).copied(),
        }
    }
}

/// Dimensions behind that of a product's channels.
pub(super) const fn behind(form: MatMulForm) -> usize {
    match form {
        MatMulForm::Left => 1,
        MatMulForm::Right | MatMulForm::RightTransposed => 0,
    }
}

/// Which input of an Add is the bias of a product of matrices that the other one is.
fn bias(graph: &Graph, makers: &BTreeMap<ValueId, usize>, add: &Node) -> Option<usize> {
    [0, 1].into_iter().find(|&at| {
        let (bias, product) = (add.inputs[at], add.inputs[1 - at]);
        let form = makers.get(&product).map(|&maker| &graph.nodes[maker].op);
        let shapes = [product, add.output].map(|id| &graph.values[id.0].shape);
        matches!(form, Some(Op::MatMul { form }) if is_bias(&graph.values[bias.0], *form))
            && matches!(graph.values[bias.0].data, Some(Data::F32(_)))
            && shapes[0] == shapes[1]
    })
}

/// The dimension of a view's input that is a dimension of its output; `None` for other nodes, and where it is a part of
/// one or several.
fn seen(graph: &Graph, node: &Node, axis: usize) -> Option<usize> {
    let from = *node.inputs.first()?;
    let [from, to] = [from, node.output].map(|id| &graph.values[id.0].shape[..]);
    match &node.op {
        Op::Onnx(op) if op.kind == "Transpose" => {
            let order = op
                .ints("perm")
                .map_or(from.len() as i64 - 1 - axis as i64, |o| o[axis]);
            return usize::try_from(order).ok();
        }
        Op::Flatten | Op::Identity => {}
        Op::Onnx(op) if matches!(op.kind, "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze") => {}
        _ => return None,
    }
    let inner = |shape: &[usize], axis: usize| shape[axis + 1..].iter().product::<usize>();
    let is_same = |at: &usize| from[*at] == to[axis] && inner(from, *at) == inner(to, axis);
    (0..from.len()).find(is_same)
}

#[cfg(test)]
mod tests;
