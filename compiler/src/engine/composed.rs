//! Operators that the library lacks, written by others.

use super::parts::{onnx, push, value};
use crate::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::window::{Pads, Window};

/// The largest window over channels.
const MAX_WINDOW: usize = 1024;

/// Whether an operator is written by others.
pub(super) fn is_composed(op: &OnnxOp) -> bool {
    let kinds = ["Celu", "GroupNormalization", "LRN", "Mish", "Selu"];
    op.domain.is_empty() && kinds.contains(&op.kind)
}

/// Writes a node by others; `None` for one that can't be, which the engine then refuses.
pub(super) fn compose(graph: &mut Graph, node: &Node, op: &OnnxOp) -> Option<()> {
    let x = *node.inputs.first()?;
    let shape = graph.values[x.0].shape.clone();
    let mut parts = Parts { graph, node, shape };
    match op.kind {
        "Celu" => parts.celu(x, number(op, "alpha", 1.0)),
        "Selu" => {
            let alpha = number(op, "alpha", 1.673_263_2);
            let attribute = ("alpha".to_owned(), OnnxAttribute::Float(alpha));
            let elu = parts.push(onnx("Elu", 1, vec![attribute]), &[x], "elu");
            let gamma = parts.constant("gamma", &[], vec![number(op, "gamma", 1.050_701)]);
            parts.last(Op::Mul, &[elu, gamma])
        }
        "Mish" => {
            let plus = parts.push(onnx("Softplus", 1, vec![]), &[x], "plus");
            let gate = parts.push(onnx("Tanh", 1, vec![]), &[plus], "gate");
            parts.last(Op::Mul, &[x, gate])
        }
        "LRN" => parts.across_channels(x, op),
        "GroupNormalization" => parts.by_groups(x, op),
        _ => None,
    }
}

fn number(op: &OnnxOp, name: &str, default: f32) -> f32 {
    match op.attribute(name) {
        Some(OnnxAttribute::Float(value)) => *value,
        _ => default,
    }
}

/// The nodes that stand for one.
struct Parts<'a> {
    graph: &'a mut Graph,
    node: &'a Node,
    /// Its first input's.
    shape: Vec<usize>,
}

impl Parts<'_> {
    /// A node whose output has the first input's shape.
    fn push(&mut self, op: Op, inputs: &[ValueId], what: &str) -> ValueId {
        let shape = self.shape.clone();
        self.shaped(op, inputs, what, shape)
    }

    fn shaped(&mut self, op: Op, inputs: &[ValueId], what: &str, shape: Vec<usize>) -> ValueId {
        let output = value(self.graph, self.node, what, shape, None);
        push(self.graph, self.node, op, inputs.to_vec(), output);
        output
    }

    /// The node that gives the output.
    fn last(&mut self, op: Op, inputs: &[ValueId]) -> Option<()> {
        push(self.graph, self.node, op, inputs.to_vec(), self.node.output);
        Some(())
    }

    fn constant(&mut self, what: &str, shape: &[usize], data: Vec<f32>) -> ValueId {
        let data = Some(Data::F32(data));
        value(self.graph, self.node, what, shape.to_vec(), data)
    }

    fn reshaped(&mut self, x: ValueId, shape: &[usize], what: &str) -> ValueId {
        let sizes = Data::I64(shape.iter().map(|&d| d as i64).collect());
        let name = format!("{what}.sizes");
        let sizes = value(self.graph, self.node, &name, vec![shape.len()], Some(sizes));
        let reshape = onnx("Reshape", 2, vec![]);
        self.shaped(reshape, &[x, sizes], what, shape.to_vec())
    }

    /// `max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`.
    fn celu(&mut self, x: ValueId, alpha: f32) -> Option<()> {
        let [by, one, zero] = [("alpha", alpha), ("one", 1.0), ("zero", 0.0)]
            .map(|(what, number)| self.constant(what, &[], vec![number]));
        let above = self.push(Op::Relu, &[x], "above");
        let steps = self.push(Op::Div, &[x, by], "steps");
        let power = self.push(onnx("Exp", 1, vec![]), &[steps], "power");
        let less = self.push(Op::Sub, &[power, one], "less");
        let scaled = self.push(Op::Mul, &[less, by], "scaled");
        let below = self.push(onnx("Min", 2, vec![]), &[scaled, zero], "below");
        self.last(Op::Add, &[above, below])
    }

    /// `x / (bias + alpha * mean)^beta` with the mean of the squares of `size` neighbouring channels, of which
    /// those that there aren't are 0.
    fn across_channels(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let &[batch, channels, ref inner @ ..] = &self.shape.clone()[..] else {
            return None;
        };
        let size = usize::try_from(op.int("size", 0)).ok();
        let size = size.filter(|size| (1..=MAX_WINDOW).contains(size))?;
        let squares = self.push(Op::Mul, &[x, x], "squares");
        let plane = [batch, 1, channels, inner.iter().product()];
        let squares = self.reshaped(squares, &plane, "plane");
        let window = Window {
            pads: Pads {
                top: (size - 1) / 2,
                bottom: size / 2,
                ..Pads::NONE
            },
            stride: [1, 1],
            ..Window::whole([size, 1])
        };
        let pool = Op::AveragePool {
            window,
            count_include_pad: true,
        };
        let mean = self.shaped(pool, &[squares], "mean", plane.to_vec());
        let shape = self.shape.clone();
        let mean = self.reshaped(mean, &shape, "means");
        let named = [("alpha", 0.0001), ("bias", 1.0), ("beta", 0.75)];
        let [alpha, bias, beta] =
            named.map(|(name, default)| self.constant(name, &[], vec![number(op, name, default)]));
        let scaled = self.push(Op::Mul, &[mean, alpha], "scaled");
        let sum = self.push(Op::Add, &[scaled, bias], "sum");
        let power = self.push(onnx("Pow", 2, vec![]), &[sum, beta], "power");
        self.last(Op::Div, &[x, power])
    }

    /// Each group normalised, times a scale and with a bias: those of its group, as opset 18 has it, or
    /// of the channel.
    fn by_groups(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let &[batch, channels, ref inner @ ..] = &self.shape.clone()[..] else {
            return None;
        };
        let groups = usize::try_from(op.int("num_groups", 0)).ok()?;
        let each = channels.checked_div(groups)?;
        let [_, scale, bias] = self.node.inputs[..] else {
            return None;
        };
        let [count, other] = [scale, bias].map(|id| self.graph.values[id.0].shape.clone());
        let by_channel = count == [channels];
        if each * groups != channels || count != other || !(by_channel || count == [groups]) {
            return None;
        }
        let grouped = [batch, groups, each * inner.iter().product::<usize>()];
        let rows = self.reshaped(x, &grouped, "grouped");
        let ones = self.constant("ones", &[groups], vec![1.0; groups]);
        let zeros = self.constant("zeros", &[groups], vec![0.0; groups]);
        let epsilon = OnnxAttribute::Float(number(op, "epsilon", 1e-5));
        let normalize = onnx(
            "InstanceNormalization",
            3,
            vec![("epsilon".to_owned(), epsilon)],
        );
        let inputs = [rows, ones, zeros];
        let mut now = self.shaped(normalize, &inputs, "normal", grouped.to_vec());
        let mut shape = grouped.to_vec();
        if by_channel {
            shape = self.shape.clone();
            now = self.reshaped(now, &shape, "channels");
        }
        let mut own = vec![1; shape.len()];
        own[1] = shape[1];
        let scale = self.reshaped(scale, &own, "scale");
        let bias = self.reshaped(bias, &own, "bias");
        now = self.shaped(Op::Mul, &[now, scale], "scaled", shape.clone());
        if by_channel {
            return self.last(Op::Add, &[now, bias]);
        }
        now = self.shaped(Op::Add, &[now, bias], "sum", shape);
        let sizes = Data::I64(self.shape.iter().map(|&d| d as i64).collect());
        let rank = self.shape.len();
        let sizes = value(self.graph, self.node, "sizes", vec![rank], Some(sizes));
        self.last(onnx("Reshape", 2, vec![]), &[now, sizes])
    }
}
