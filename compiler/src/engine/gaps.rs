//! Windows that the library lacks, by slices: pools over windows with gaps, and all over three dimensions.

use super::parts::{Parts, onnx};
use crate::graph::{Data, Entries, Graph, Node, OnnxAttribute, OnnxOp, Op, ValueId};
use crate::onnx::elements;
use crate::operators::planes::{Span, volume};
use crate::qgraph::window::Window;

/// The most taps that a window has along a dimension.
const MAX_TAPS: usize = 1024;

/// What is taken of a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// The largest value.
    Most,
    /// The mean, whose divisor counts padding or doesn't.
    Mean { count_include_pad: bool },
}

/// Writes a pool over rows and columns.
pub(super) fn plane(graph: &mut Graph, node: &Node, window: &Window, taken: Taken) -> Option<()> {
    let (mut parts, x) = Parts::of(graph, node)?;
    let axes = parts
        .shape
        .len()
        .checked_sub(2)
        .filter(|n| (1..=2).contains(n))?;
    let count = |axis: usize| {
        let size =
            parts.shape[axis + axes] + window.pads.before()[axis] + window.pads.after()[axis];
        Some(size.checked_sub(window.span(axis))? / window.stride[axis] + 1)
    };
    let counts: Vec<usize> = (2 - axes..2).map(count).collect::<Option<_>>()?;
    parts.pool(x, &window.spans(axes, &counts), taken)
}

/// Whether an operator goes over three dimensions.
pub(super) fn is_volume(op: &OnnxOp, rank: usize) -> bool {
    rank == 5 && matches!(op.kind, "Conv" | "MaxPool" | "AveragePool")
}

/// Writes a convolution or pool over three dimensions.
pub(super) fn volumes(parts: &mut Parts<'_>, x: ValueId, op: &OnnxOp) -> Option<()> {
    let space = parts.shape[2..].to_vec();
    if op.kind == "Conv" {
        let weights = *parts.node.inputs.get(1)?;
        let shape = parts.graph.values[weights.0].shape.clone();
        let spans = volume(op, &space, shape.get(2..)?).ok()?;
        return parts.convolved(x, op, &spans, (weights, &shape));
    }
    let kernel = op
        .ints("kernel_shape")?
        .iter()
        .map(|&d| usize::try_from(d).ok());
    let kernel: Vec<usize> = kernel.collect::<Option<_>>()?;
    let spans = volume(op, &space, &kernel).ok()?;
    let count_include_pad = op.int("count_include_pad", 0) != 0;
    let taken = match op.kind {
        "MaxPool" if op.output == 0 => Taken::Most,
        // What lies behind the padding counts in no way.
        "AveragePool" if !(count_include_pad && op.int("ceil_mode", 0) != 0) => {
            Taken::Mean { count_include_pad }
        }
        _ => return None,
    };
    parts.pool(x, &spans, taken)
}

impl Parts<'_> {
    /// The first input with values before and behind its last dimensions, if there are any.
    fn padded(&mut self, x: ValueId, pads: &[[usize; 2]], value: f32) -> Option<ValueId> {
        let first = self.shape.len() - pads.len();
        if pads.iter().all(|around| *around == [0, 0]) {
            return Some(x);
        }
        let side = |at: usize| {
            let own = pads.iter().map(move |around| around[at] as i64);
            std::iter::repeat_n(0, first).chain(own)
        };
        for (size, around) in self.shape[first..].iter_mut().zip(pads) {
            *size += around[0] + around[1];
        }
        let all: Vec<i64> = side(0).chain(side(1)).collect();
        let pads = self.value("pads", &[all.len()], Some(Data::I64(all)));
        let outside = self.constant("outside", &[], vec![value]);
        // What is padded is held, however little is left of it.
        elements("padded", &self.shape).ok()?;
        Some(self.push(onnx("Pad", 3, vec![]), &[x, pads, outside], "padded"))
    }

    /// One tap of every window along a dimension.
    fn tap(&mut self, x: ValueId, axis: usize, span: &Span, tap: usize) -> ValueId {
        let entries = Entries {
            axis,
            start: tap * span.dilation,
            len: span.count,
            step: span.stride,
        };
        self.push(entries.into(), &[x], &format!("tap{axis}.{tap}"))
    }

    fn pool(&mut self, x: ValueId, spans: &[Span], taken: Taken) -> Option<()> {
        let whole = self.shape.clone();
        let first = whole.len() - spans.len();
        let outside = match taken {
            Taken::Most => f32::NEG_INFINITY,
            Taken::Mean { .. } => 0.0,
        };
        let pads: Vec<[usize; 2]> = spans.iter().map(|span| span.pads).collect();
        let mut x = self.padded(x, &pads, outside)?;
        let joined = match taken {
            Taken::Most => "Max",
            Taken::Mean { .. } => "Sum",
        };
        for (axis, span) in (first..).zip(spans) {
            if span.kernel > MAX_TAPS {
                return None;
            }
            self.shape[axis] = span.count;
            let taps = (0..span.kernel).map(|tap| self.tap(x, axis, span, tap));
            let taps: Vec<ValueId> = taps.collect();
            x = self.push(
                onnx(joined, taps.len(), vec![]),
                &taps,
                &format!("joined{axis}"),
            );
        }
        let Taken::Mean { count_include_pad } = taken else {
            return self.last(Op::Identity, &[x]);
        };
        // How many taps of each window count: a product of those along each dimension.
        let mut counts = vec![1f32];
        for (axis, span) in (first..).zip(spans) {
            let inside = span.pads[0]..span.pads[0] + whole[axis];
            let of = |at: usize| {
                let taps = (0..span.kernel).map(|tap| at * span.stride + tap * span.dilation);
                let counted = taps.filter(|tap| count_include_pad || inside.contains(tap));
                counted.count().max(1) as f32
            };
            let own: Vec<f32> = (0..span.count).map(of).collect();
            counts = counts
                .iter()
                .flat_map(|c| own.iter().map(move |n| c * n))
                .collect();
        }
        let mut sizes = vec![1; first];
        sizes.extend(spans.iter().map(|span| span.count));
        let counts = self.constant("counts", &sizes, counts);
        self.last(Op::Div, &[x, counts])
    }

    /// A sum of convolutions of planes, one for each tap of the first dimension: the planes of all places along it are a
    /// batch.
    fn convolved(
        &mut self,
        x: ValueId,
        op: &OnnxOp,
        spans: &[Span],
        (weights, of): (ValueId, &[usize]),
    ) -> Option<()> {
        let &[batch, channels, _, h, w] = &self.shape[..] else {
            return None;
        };
        let (&[deep, rows, columns], &[out, inner, taps, kh, kw]) = (spans, of) else {
            return None;
        };
        if taps > MAX_TAPS {
            return None;
        }
        let x = self.padded(x, &[deep.pads, [0, 0], [0, 0]], 0.0)?;
        let list = |name: &str, values: &[usize]| {
            let values = values.iter().map(|&v| v as i64).collect();
            (name.to_owned(), OnnxAttribute::Ints(values))
        };
        let pads = [rows.pads[0], columns.pads[0], rows.pads[1], columns.pads[1]];
        let attributes = vec![
            list("strides", &[rows.stride, columns.stride]),
            list("dilations", &[rows.dilation, columns.dilation]),
            list("pads", &pads),
            ("group".to_owned(), OnnxAttribute::Int(op.int("group", 1))),
        ];
        let turn = || {
            let order = OnnxAttribute::Ints(vec![0, 2, 1, 3, 4]);
            onnx("Transpose", 1, vec![("perm".to_owned(), order)])
        };
        let count = deep.count;
        self.shape[2] = count;
        let made = [batch * count, out, rows.count, columns.count];
        let mut sums = Vec::with_capacity(taps);
        for tap in 0..taps {
            let own = self.tap(x, 2, &deep, tap);
            let turned = vec![batch, count, channels, h, w];
            let own = self.shaped(turn(), &[own], &format!("turned{tap}"), turned);
            let own = self.reshaped(
                own,
                &[batch * count, channels, h, w],
                &format!("planes{tap}"),
            );
            let cut = Entries::run(2, tap, 1).into();
            let kernel = self.shaped(
                cut,
                &[weights],
                &format!("cut{tap}"),
                vec![out, inner, 1, kh, kw],
            );
            let kernel = self.reshaped(kernel, &[out, inner, kh, kw], &format!("kernel{tap}"));
            let conv = onnx("Conv", 2, attributes.clone());
            sums.push(self.shaped(conv, &[own, kernel], &format!("sum{tap}"), made.to_vec()));
        }
        let sum = self.shaped(onnx("Sum", taps, vec![]), &sums, "sum", made.to_vec());
        let apart = [batch, count, out, rows.count, columns.count];
        let sum = self.reshaped(sum, &apart, "apart");
        let Some(bias) = op.place(2).map(|at| self.node.inputs[at]) else {
            return self.last(turn(), &[sum]);
        };
        let back = vec![batch, out, count, rows.count, columns.count];
        let sum = self.shaped(turn(), &[sum], "back", back);
        let bias = self.reshaped(bias, &[1, out, 1, 1, 1], "bias");
        self.last(Op::Add, &[sum, bias])
    }
}
