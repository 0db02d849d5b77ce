//! Convolutions over several sequences, against their definition.

use proptest::prelude::*;

use super::model::{Model, int, ints};
use super::{Op, load};
use crate::float;
use crate::graph::Graph;
use crate::reflect::Reflect;

/// A sequence's convolution.
#[derive(Clone, Debug)]
struct Conv {
    group: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pads: [usize; 2],
}

fn noise(count: usize, by: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * by) % 23) as f32 / 8.0 - 1.4)
        .collect()
}

impl Conv {
    fn width(&self, width: usize) -> Option<usize> {
        let wide = (self.kernel - 1) * self.dilation + 1;
        let room = (width + self.pads[0] + self.pads[1]).checked_sub(wide)?;
        Some(room / self.stride + 1)
    }

    /// Of channels to as many, which `noise` weighs.
    fn defined(&self, x: &[f32], [count, channels, width]: [usize; 3]) -> Vec<f32> {
        let each = channels / self.group;
        let weights = noise(channels * each * self.kernel, 7);
        let mut made = Vec::new();
        for (n, out) in (0..count).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            for at in 0..self.width(width).unwrap() {
                let mut sum = 0.0;
                for (inner, tap) in (0..each).flat_map(|c| (0..self.kernel).map(move |t| (c, t))) {
                    let place = (at * self.stride + tap * self.dilation).checked_sub(self.pads[0]);
                    if let Some(place) = place.filter(|place| *place < width) {
                        let channel = out / each * each + inner;
                        let weight = weights[(out * each + inner) * self.kernel + tap];
                        sum += x[(n * channels + channel) * width + place] * weight;
                    }
                }
                made.push(sum);
            }
        }
        made
    }

    fn node(&self, model: Model, [from, to]: [&str; 2], channels: usize) -> Model {
        let each = channels / self.group;
        let weights = noise(channels * each * self.kernel, 7);
        let sizes = [channels, each, self.kernel].map(|d| d as i64);
        let attributes = [
            int("group", self.group as i64),
            ints("strides", &[self.stride as i64]),
            ints("dilations", &[self.dilation as i64]),
            ints("pads", &self.pads.map(|p| p as i64)),
        ];
        let name = format!("{to} weights");
        model
            .floats(&name, &sizes, weights)
            .node("Conv", &[from, &name], to, &attributes)
    }
}

fn conv() -> impl Strategy<Value = Conv> {
    let sizes = (1..4usize, 1..4usize, 1..3usize, 1..3usize);
    (sizes, [0..3usize, 0..3usize]).prop_map(|((group, kernel, stride, dilation), pads)| Conv {
        group,
        kernel,
        stride,
        dilation,
        pads,
    })
}

fn count(graph: &Graph, wanted: impl Fn(&Op) -> bool) -> usize {
    graph.nodes.iter().filter(|node| wanted(&node.op)).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Between two of them nothing is turned, but for what another one reads, or what isn't computed value by value.
    #[test]
    fn sequences_are_rows_of_a_plane(
        first in conv(), second in conv(), each in 1..3usize, batch in 1..5usize, width in 1..9usize,
        turns in any::<bool>(), beside in any::<bool>(),
    ) {
        let channels = each * first.group * second.group;
        let Some(middle) = first.width(width) else { return Ok(()) };
        let Some(last) = second.width(middle) else { return Ok(()) };
        let model = first.node(Model::default(), ["x", "a"], channels);
        let model = match turns {
            // Of each row of values.
            true => model.node("Softmax", &["a"], "b", &[int("axis", 2)]),
            false => model.floats("half", &[], vec![0.5]).node("Relu", &["a"], "r", &[]).node("Mul", &["r", "half"], "b", &[]),
        };
        let model = second.node(model, ["b", if beside { "c" } else { "y" }], channels);
        let model = if beside { model.node("Softmax", &["c"], "y", &[int("axis", 2)]) } else { model };
        let sizes = [batch, channels, width];
        let graph = load(&model.with_input(17, &sizes.map(|d| Some(d as i64)))).unwrap();
        let x = noise(sizes.iter().product(), 5);
        let softmax = |values: Vec<f32>, width: usize| -> Vec<f32> {
            let row = |row: &[f32]| {
                let most = row.iter().copied().fold(f32::MIN, f32::max);
                let sum: f32 = row.iter().map(|v| (v - most).exp()).sum();
                row.iter().map(|v| (v - most).exp() / sum).collect::<Vec<_>>()
            };
            values.chunks(width).flat_map(row).collect()
        };
        let mut expected = first.defined(&x, sizes);
        expected = match turns {
            true => softmax(expected, middle),
            false => expected.into_iter().map(|v| v.max(0.0) / 2.0).collect(),
        };
        expected = second.defined(&expected, [batch, channels, middle]);
        if beside {
            expected = softmax(expected, last);
        }
        let found = float::run(&graph, &x).unwrap().remove(0);
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{} {}", found, expected);
        }
        prop_assert_eq!(count(&graph, |op| matches!(op, Op::Conv { .. })), 2);
        let turned = count(&graph, |op| op.kind() == "Transpose");
        prop_assert_eq!(turned, if batch == 1 { 0 } else if turns { 4 } else { 2 });
    }
}
