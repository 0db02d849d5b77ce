//! Operators that the library lacks, written by others.

use super::parts::{Parts, onnx};
use super::{exact, interpolate};
use crate::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::qgraph::window::{Pads, Window};

/// The largest window over channels.
const MAX_WINDOW: usize = 1024;

/// Whether an operator is written by others.
pub(super) fn is_composed(graph: &Graph, node: &Node, op: &OnnxOp) -> bool {
    match op.kind {
        "Celu" | "GroupNormalization" | "LRN" | "Mish" | "Selu" => true,
        "Resize" => interpolate::is_own(op),
        "BatchNormalization" => op.int("training_mode", 0) != 0,
        _ => exact::is_inexact(graph, node, op),
    }
}

/// Writes a node by others; `None` for one that can't be, which the engine then refuses.
pub(super) fn compose(graph: &mut Graph, node: &Node, op: &OnnxOp) -> Option<()> {
    let (mut parts, x) = Parts::of(graph, node)?;
    match op.kind {
        "Celu" => parts.celu(x, op.float("alpha", 1.0)),
        "Selu" => {
            let alpha = op.float("alpha", 1.673_263_2);
            let attribute = ("alpha".to_owned(), OnnxAttribute::Float(alpha));
            let elu = parts.push(onnx("Elu", 1, vec![attribute]), &[x], "elu");
            let gamma = parts.constant("gamma", &[], vec![op.float("gamma", 1.050_701)]);
            parts.last(Op::Mul, &[elu, gamma])
        }
        "Mish" => {
            let plus = parts.push(onnx("Softplus", 1, vec![]), &[x], "plus");
            let gate = parts.push(onnx("Tanh", 1, vec![]), &[plus], "gate");
            parts.last(Op::Mul, &[x, gate])
        }
        "LRN" => parts.across_channels(x, op),
        "GroupNormalization" => parts.by_groups(x, op),
        "Resize" => parts.interpolated(x, op),
        "BatchNormalization" if op.output == 0 => parts.by_channels(x, op),
        "BatchNormalization" => None,
        _ => exact::compose(&mut parts, x, op),
    }
}

/// `[1, C, H*B, W*B]` to `[1, B, B, C, H, W]`, of which the channels are one dimension.
pub(super) fn blocks_to_channels(graph: &mut Graph, node: &Node, block: usize) -> Option<()> {
    let (mut parts, x) = Parts::of(graph, node)?;
    let [_, channels, height, width] = parts.shape[..] else {
        return None;
    };
    let (rows, columns) = (height / block.max(1), width / block.max(1));
    let cut = [1, channels, rows, block, columns, block];
    let cut = parts.reshaped(x, &cut, "cut");
    let order = OnnxAttribute::Ints(vec![0, 3, 5, 1, 2, 4]);
    let turn = onnx("Transpose", 1, vec![("perm".to_owned(), order)]);
    let turned = vec![1, block, block, channels, rows, columns];
    let turned = parts.shaped(turn, &[cut], "turned", turned);
    parts.last_reshaped(turned, &[1, channels * block * block, rows, columns])
}

impl Parts<'_> {
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
            named.map(|(name, default)| self.constant(name, &[], vec![op.float(name, default)]));
        let scaled = self.push(Op::Mul, &[mean, alpha], "scaled");
        let sum = self.push(Op::Add, &[scaled, bias], "sum");
        let power = self.push(onnx("Pow", 2, vec![]), &[sum, beta], "power");
        self.last(Op::Div, &[x, power])
    }

    /// Rows and columns by matrices of weights.
    fn interpolated(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let &[batch, channels, h, w] = &self.shape[..] else {
            return None;
        };
        let data = |graph: &Graph, argument: usize| {
            let id = self.node.inputs.get(op.place(argument)?)?;
            graph.values[id.0].data.clone()
        };
        let [(rows, down), (columns, right)] = match (data(self.graph, 2), data(self.graph, 3)) {
            (_, Some(Data::I64(sizes))) => {
                let size = |at: usize, from: usize| {
                    let to = usize::try_from(*sizes.get(at)?).ok()?;
                    Some((to, to as f64 / from as f64))
                };
                [size(2, h)?, size(3, w)?]
            }
            (Some(Data::F32(scales)), None) => {
                let size = |at: usize, from: usize| {
                    let scale = f64::from(*scales.get(at)?);
                    Some(((from as f64 * scale) as usize, scale))
                };
                [size(2, h)?, size(3, w)?]
            }
            _ => return None,
        };
        let across = interpolate::weights(op, w, columns, right)?;
        // A product with it from the right: `[input][output]`.
        let turned = (0..w * columns).map(|i| across[i % columns * w + i / columns]);
        let across = self.constant("across", &[w, columns], turned.collect());
        let along = self.constant(
            "along",
            &[rows, h],
            interpolate::weights(op, h, rows, down)?,
        );
        let wide = vec![batch, channels, h, columns];
        let wide = self.shaped(onnx("MatMul", 2, vec![]), &[x, across], "wide", wide);
        self.last(onnx("MatMul", 2, vec![]), &[along, wide])
    }

    /// Each channel by its own mean and variance, as in training.
    fn by_channels(&mut self, x: ValueId, op: &OnnxOp) -> Option<()> {
        let &[batch, channels, ref inner @ ..] = &self.shape.clone()[..] else {
            return None;
        };
        let &[_, scale, bias, ..] = &self.node.inputs[..] else {
            return None;
        };
        let count = batch * inner.iter().product::<usize>();
        let mut own = vec![1; self.shape.len()];
        own[1] = channels;
        let axes: Vec<i64> = (0..own.len() as i64).filter(|&axis| axis != 1).collect();
        let axes = self.value("axes", &[axes.len()], Some(Data::I64(axes)));
        let share = self.constant("share", &[], vec![1.0 / count as f32]);
        let mean = |parts: &mut Self, of: ValueId, what: &str| {
            let sum = format!("{what}.sum");
            let sum = parts.shaped(onnx("ReduceSum", 2, vec![]), &[of, axes], &sum, own.clone());
            parts.shaped(Op::Mul, &[sum, share], what, own.clone())
        };
        let middle = mean(self, x, "mean");
        let off = self.push(Op::Sub, &[x, middle], "off");
        let squares = self.push(Op::Mul, &[off, off], "squares");
        let variance = mean(self, squares, "variance");
        let epsilon = self.constant("epsilon", &[], vec![op.float("epsilon", 1e-5)]);
        let sum = self.shaped(Op::Add, &[variance, epsilon], "more", own.clone());
        let root = self.shaped(onnx("Sqrt", 1, vec![]), &[sum], "root", own.clone());
        let normal = self.push(Op::Div, &[off, root], "normal");
        let [scale, bias] = [(scale, "scale"), (bias, "bias")].map(|(id, what)| {
            let own = own.clone();
            self.reshaped(id, &own, what)
        });
        let scaled = self.push(Op::Mul, &[normal, scale], "scaled");
        self.last(Op::Add, &[scaled, bias])
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
        let epsilon = OnnxAttribute::Float(op.float("epsilon", 1e-5));
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
        let shape = self.shape.clone();
        self.last_reshaped(now, &shape)
    }
}
