//! Operators of a quantised model: what is computed is what the model's real arithmetic rounds
//! to, within a step where its result lies beside a tie.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use vta_compiler::graph::{Data, Graph, Node, Op, Value, ValueId};
use vta_compiler::qgraph::QOp;
use vta_compiler::quantize::{self, Mode};
use vta_compiler::{float, onnx, passes, reference};

/// A float network, a node at a time.
struct Net(Graph);

impl Net {
    fn new(shape: &[usize]) -> (Self, ValueId) {
        let mut net = Self(Graph::default());
        let input = net.value("x", shape, None);
        net.0.inputs.push(input);
        (net, input)
    }

    fn value(&mut self, name: &str, shape: &[usize], data: Option<Data>) -> ValueId {
        let value = Value::new(name, shape.to_vec(), data);
        self.0.values.push(value);
        ValueId(self.0.values.len() - 1)
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], shape: &[usize]) -> ValueId {
        let name = format!("n{}", self.0.nodes.len());
        let output = self.value(&format!("{name}.out"), shape, None);
        self.0.nodes.push(Node {
            name,
            op,
            inputs: inputs.to_vec(),
            output,
        });
        output
    }

    /// Quantised through a file; how many values are a step off, of all, by the largest distance.
    fn compare(mut self, output: ValueId, image: &[f32]) -> (usize, usize, f32) {
        self.0.outputs.push(output);
        let graph = onnx::load(&onnx::save(&self.0)).unwrap();
        let quantized = quantize::quantize(&graph, &[image.to_vec()], Mode::Multiply).unwrap();
        let quantized = onnx::load(&onnx::save(&quantized)).unwrap();
        let real = float::run(&quantized, image).unwrap().remove(0);
        let network = passes::quantized(&quantized).unwrap();
        let host = |op: &QOp| matches!(op, QOp::Host { .. });
        assert!(!network.nodes.iter().any(|n| host(&n.op)), "{network}");
        let scale = network.tensors[network.inputs[0].0].scale;
        let round = |v: &f32| (v / scale).round_ties_even().clamp(-128.0, 127.0) as i8;
        let int8: Vec<i8> = image.iter().map(round).collect();
        let last = network.outputs[0].0;
        let found = reference::run(&network, &int8).unwrap().swap_remove(last);
        let scale = network.tensors[last].scale;
        assert_eq!(found.len(), real.len());
        let far = |(q, r): (&i8, &f32)| (f32::from(*q) - r / scale).abs();
        let distances: Vec<f32> = found.iter().zip(&real).map(far).collect();
        let off = distances.iter().filter(|d| **d > 0.01).count();
        (off, found.len(), distances.into_iter().fold(0.0, f32::max))
    }
}

fn image(len: usize, seed: u64, range: f32) -> Vec<f32> {
    let value = |i: usize| (((i as u64 + 1) * (seed | 1) * 2_654_435_761) >> 7) % 2001;
    (0..len)
        .map(|i| (value(i) as f32 / 1000.0 - 1.0) * range)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn channels_keep_their_values(
        c in 1usize..40, hw in [1usize..5, 1usize..5], start in 0usize..20, step in 1usize..4, factor in 0.05f32..3.0,
        seed in 1u64..1000,
    ) {
        let [h, w] = hw;
        let (mut net, x) = Net::new(&[1, c, h, w]);
        // Another scale than the input's.
        let bounded = net.push(Op::Clip { min: -0.1 * factor, max: factor }, &[x], &[1, c, h, w]);
        let joined = net.push(Op::Concat { axis: 1 }, &[bounded, x, bounded], &[1, 3 * c, h, w]);
        let start = start.min(3 * c - 1);
        let len = (3 * c - start).div_ceil(step);
        let slice = Op::Slice { axis: 1, start, len, step };
        let slice = net.push(slice, &[joined], &[1, len, h, w]);
        let list: Vec<i64> = (0..len as i64).rev().chain([0]).collect();
        let list = net.value("list", &[len + 1], Some(Data::I64(list)));
        let last = net.push(Op::Gather { axis: 1 }, &[slice, list], &[1, len + 1, h, w]);
        let (off, all, largest) = net.compare(last, &image(c * h * w, seed, 2.0));
        prop_assert!(largest < 1.01 && off * 20 <= all + 19, "{} of {}: {}", off, all, largest);
    }
}
