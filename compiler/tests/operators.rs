//! Operators of a quantised model: what is computed is what the model's real arithmetic rounds
//! to, within a step where its result lies beside a tie.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use proptest::prelude::*;
use vta_compiler::float::FloatNetwork;
use vta_compiler::graph::{Data, DepthMode, Entries, Graph, Node, Op, Value, ValueId};
use vta_compiler::qgraph::{QGraph, QOp, QTensor, Window};
use vta_compiler::quantize::{self, Activations, Mode};
use vta_compiler::{onnx, passes, reference};

/// What a value may be off by, beyond half a step: in steps.
const BOUND: f64 = 1.0 / 256.0 + 1e-4;
/// The same of int16, whose steps are 256 times finer: what multipliers of 13 and 14 bits leave where a sum's steps are
/// at least half of what it adds has. The multipliers count as often more as they are less.
const WIDE_BOUND: f64 = 8.5;

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

    fn floats(&mut self, shape: &[usize], data: Vec<f32>) -> ValueId {
        let name = format!("c{}", self.0.values.len());
        self.value(&name, shape, Some(Data::F32(data)))
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

    /// Quantised through a file; how far a value of any tensor lies beyond half a step from what the
    /// model computes of the int8 values before it, in steps.
    fn compare(mut self, output: ValueId, image: &[f32]) -> f64 {
        self.0.outputs.push(output);
        let graph = onnx::load(&onnx::save(&self.0)).unwrap();
        let wide = compared(&graph, Activations::Int16, image);
        assert!(
            wide.is_none_or(|off| off <= WIDE_BOUND),
            "{wide:?} of int16"
        );
        compared(&graph, Activations::Int8, image).unwrap()
    }
}

/// How far values of a float network that is quantised lie from what it computes, less for sums of int16 with steps
/// much finer than what they add; `None` for a HardSwish of int16 that is left to the host, as its steps are too fine.
fn compared(graph: &Graph, activations: Activations, image: &[f32]) -> Option<f64> {
    let options = quantize::Options::new(Mode::Multiply).with_activations(activations);
    let quantized = quantize::quantize_network(graph, &&[image.to_vec()][..], &options);
    let quantized = onnx::load(&onnx::save(&quantized.unwrap().graph)).unwrap();
    let network = passes::quantized(&quantized).unwrap();
    let host = |op: &QOp| matches!(op, QOp::Host { .. });
    if network.nodes.iter().any(|n| host(&n.op)) {
        let swishes = graph.nodes.iter().any(|n| n.op == Op::HardSwish);
        assert!(swishes && activations == Activations::Int16, "{network}");
        return None;
    }
    let numbers = network.numbers;
    let (least, most) = numbers.bounds();
    let scale = network.tensors[network.inputs[0].0].scale;
    let round = |v: &f32| {
        (v / scale)
            .round_ties_even()
            .clamp(least.into(), most.into()) as i16
    };
    let steps: Vec<i16> = image.iter().map(round).collect();
    let ours = reference::run(&network, &steps).unwrap();
    let real = Given::new(quantized, &network, &ours).run();
    let (mut farthest, mut compared) = (0f64, 0);
    for node in &network.nodes {
        let tensor = &network.tensors[node.output.0];
        // Phases of a transposed convolution are no tensor of the model; they move, as they are.
        let Some(real) = real.get(&tensor.name) else {
            continue;
        };
        assert_eq!(ours[node.output.0].len(), real.len());
        compared += 1;
        let steps = node
            .op
            .inputs()
            .into_iter()
            .map(|x| network.tensors[x.0].scale);
        let coarsest = steps.fold(0.0, f32::max) / tensor.scale;
        let finer = match &node.op {
            QOp::Add(_) | QOp::Eltwise { .. } if activations == Activations::Int16 => {
                (coarsest / 2.0).max(1.0)
            }
            _ => 1.0,
        };
        for (&found, &real) in ours[node.output.0].iter().zip(real) {
            let real = f64::from(real) / f64::from(tensor.scale) + f64::from(tensor.zero);
            let off = (f64::from(found) - real.clamp(least.into(), most.into())).abs() - 0.5;
            farthest = farthest.max(off / f64::from(finer));
        }
    }
    assert!(compared > 0);
    Some(farthest)
}

/// A quantised network whose dequantised values are given.
struct Given {
    graph: Graph,
    /// The value that is rounded to each tensor, by the tensor's name.
    real: Vec<(String, ValueId)>,
}

impl Given {
    fn new(mut graph: Graph, network: &QGraph, ours: &[Vec<i16>]) -> Self {
        let (mut real, mut quantized) = (Vec::new(), HashMap::new());
        let outputs: Vec<ValueId> = graph.outputs.clone();
        let nodes = std::mem::take(&mut graph.nodes);
        for node in &nodes {
            if matches!(node.op, Op::QuantizeLinear { .. }) {
                quantized.insert(node.output, node.inputs[0]);
            }
        }
        for node in nodes {
            let from = matches!(node.op, Op::DequantizeLinear { .. })
                .then(|| quantized.get(&node.inputs[0]))
                .flatten();
            let name = from.map(|&from| {
                let made = if outputs.contains(&node.output) {
                    node.output
                } else {
                    from
                };
                graph.values[made.0].name.clone()
            });
            let tensor = name.and_then(|name| network.tensors.iter().position(|t| t.name == name));
            match (from, tensor) {
                (Some(&from), Some(tensor)) => {
                    let QTensor {
                        name, scale, zero, ..
                    } = &network.tensors[tensor];
                    let value = |&q: &i16| (i32::from(q) - zero) as f32 * scale;
                    let values = ours[tensor].iter().map(value).collect();
                    graph.values[node.output.0].data = Some(Data::F32(values));
                    real.push((name.clone(), from));
                }
                _ => graph.nodes.push(node),
            }
        }
        Self { graph, real }
    }

    fn run(mut self) -> HashMap<String, Vec<f32>> {
        self.graph.inputs.clear();
        let wanted: Vec<ValueId> = self.real.iter().map(|(_, id)| *id).collect();
        self.graph.outputs.clone_from(&wanted);
        let network = FloatNetwork::new(&self.graph, wanted).unwrap();
        let found = network.run(&[]).unwrap();
        let names = self.real.iter().map(|(name, _)| name.clone());
        names.zip(found).collect()
    }
}

fn image(len: usize, seed: u64, range: f32) -> Vec<f32> {
    let value = |i: usize| (((i as u64 + 1) * (seed | 1) * 2_654_435_761) >> 7) % 2001;
    (0..len)
        .map(|i| (value(i) as f32 / 1000.0 - 1.0) * range)
        .collect()
}

fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(60)
}

/// How far a tensor of `c` channels beside a constant of positions is off, by the kind of operator and the constant's
/// shape.
fn beside_constants(
    c: usize,
    hw: [usize; 2],
    [kind, shape]: [usize; 2],
    relu: bool,
    range: f32,
    seed: u64,
) -> f64 {
    let [h, w] = hw;
    let x_shape = [1, c, h, w];
    let (mut net, x) = Net::new(&x_shape);
    let shape = [
        vec![h, w],
        vec![1, h, w],
        vec![c, h, w],
        vec![1, c, h, w],
        vec![c, 1, w],
        vec![h, 1],
        vec![w],
        vec![1, 1, h, w],
    ][shape]
        .clone();
    let value = |i: usize| 0.3 + ((i as u64 * 7 + seed) % 11) as f32 / 4.0;
    let signed = |i: usize| {
        if (i as u64 + seed).is_multiple_of(3) {
            -value(i)
        } else {
            value(i)
        }
    };
    let constant = net.floats(&shape, (0..shape.iter().product()).map(signed).collect());
    // Another node between, or what is rounded would be the input.
    let x = net.push(
        Op::Clip {
            min: -0.7 * range,
            max: range,
        },
        &[x],
        &x_shape,
    );
    let mut y = match kind {
        0 => net.push(Op::Add, &[x, constant], &x_shape),
        1 => net.push(Op::Sub, &[x, constant], &x_shape),
        2 => net.push(Op::Sub, &[constant, x], &x_shape),
        3 => net.push(Op::Mul, &[constant, x], &x_shape),
        _ => net.push(Op::Div, &[x, constant], &x_shape),
    };
    if relu {
        y = net.push(Op::Relu, &[y], &x_shape);
    }
    net.compare(y, &image(c * h * w, seed, range))
}

#[test]
fn what_is_left_of_a_wide_range_has_multipliers_of_fewer_bits() {
    // Relu leaves a sixth of what the constants are taken off.
    let off = beside_constants(13, [2, 3], [1, 5], true, 0.67424995, 49);
    assert!(off <= BOUND, "{off}");
}

proptest! {
    #![proptest_config(cases())]

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
        let slice = Entries { axis: 1, start, len, step };
        let slice = net.push(slice.into(), &[joined], &[1, len, h, w]);
        let list: Vec<i64> = (0..len as i64).rev().chain([0]).collect();
        let list = net.value("list", &[len + 1], Some(Data::I64(list)));
        let last = net.push(Op::Gather { axis: 1 }, &[slice, list], &[1, len + 1, h, w]);
        let off = net.compare(last, &image(c * h * w, seed, 2.0));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn entries_of_all_dimensions_keep_their_values(
        sizes in [1usize..40, 1usize..12, 1usize..12], start in [0usize..40, 0usize..6, 0usize..6],
        step in [1usize..4, 1usize..4, 1usize..4], cut in [0usize..3, 0usize..3, 0usize..3], pad in 0usize..20,
        twice in any::<bool>(), seed in 1u64..1000,
    ) {
        let [c, h, w] = sizes;
        let shape = [1, c, h, w];
        let (mut net, x) = Net::new(&shape);
        let bounded = net.push(Op::Clip { min: -0.7, max: 1.5 }, &[x], &shape);
        let of = |axis: usize| {
            let start = start[axis].min(sizes[axis] - 1);
            let len = (sizes[axis] - start).div_ceil(step[axis]);
            Entries { axis: axis + 1, start, len: len.saturating_sub(cut[axis]).max(1), step: step[axis] }
        };
        let entries = [of(0), of(1), of(2)];
        let [c, rows, columns] = entries.map(|of| of.len);
        let mut taken = bounded;
        if twice {
            let half = |entries: &[Entries]| Op::Slice { entries: entries.to_vec() };
            taken = net.push(half(&entries[1..2]), &[taken], &[1, sizes[0], rows, w]);
            taken = net.push(half(&[entries[2], entries[0]]), &[taken], &[1, c, rows, columns]);
        } else {
            taken = net.push(Op::Slice { entries: entries.to_vec() }, &[taken], &[1, c, rows, columns]);
        }
        if pad > 0 {
            let zeros = Some(Data::F32(vec![0.0; pad * rows * columns]));
            let zeros = net.value("zeros", &[1, pad, rows, columns], zeros);
            let all = [1, c + 2 * pad, rows, columns];
            taken = net.push(Op::Concat { axis: 1 }, &[zeros, taken, zeros], &all);
        }
        let off = net.compare(taken, &image(sizes.iter().product(), seed, 2.0));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn constants_scale_and_shift_channels(
        c in 1usize..40, hw in [1usize..5, 1usize..5], kind in 0usize..7, shape in 0usize..3, range in 0.05f32..3.0,
        seed in 1u64..1000,
    ) {
        let [h, w] = hw;
        let x_shape = [1, c, h, w];
        let (mut net, x) = Net::new(&x_shape);
        let value = |i: usize| 0.3 + ((i as u64 * 7 + seed) % 11) as f32 / 4.0;
        let signed = |i: usize| if (i as u64 + seed).is_multiple_of(3) { -value(i) } else { value(i) };
        let count = if shape == 0 { 1 } else { c };
        let shape = [vec![], vec![c, 1, 1], vec![1, c, 1, 1]][shape].clone();
        let constant = net.floats(&shape, (0..count).map(signed).collect());
        // Another node between, or the product would be read as a convolution.
        let x = net.push(Op::Relu, &[x], &x_shape);
        let y = match kind {
            0 => net.push(Op::Add, &[x, constant], &x_shape),
            1 => net.push(Op::Sub, &[x, constant], &x_shape),
            2 => net.push(Op::Sub, &[constant, x], &x_shape),
            3 => net.push(Op::Mul, &[x, constant], &x_shape),
            4 => net.push(Op::Div, &[x, constant], &x_shape),
            5 => {
                let alpha = 1.0 / value(0) / 4.0;
                net.push(Op::HardSigmoid { alpha, beta: 0.4 }, &[x], &x_shape)
            }
            _ => {
                let channels = |f: &dyn Fn(usize) -> f32| (0..c).map(f).collect::<Vec<_>>();
                let gamma = net.floats(&[c], channels(&signed));
                let beta = net.floats(&[c], channels(&|i| signed(i + 3)));
                let mean = net.floats(&[c], channels(&|i| signed(i + 5)));
                let var = net.floats(&[c], channels(&value));
                net.push(Op::BatchNormalization { epsilon: 1e-5 }, &[x, gamma, beta, mean, var], &x_shape)
            }
        };
        let off = net.compare(y, &image(c * h * w, seed, range));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn constants_may_differ_from_position_to_position(
        c in 1usize..40, hw in [1usize..6, 2usize..6], kind in 0usize..5, shape in 0usize..8, relu in any::<bool>(),
        range in 0.05f32..3.0, seed in 1u64..1000,
    ) {
        let off = beside_constants(c, hw, [kind, shape], relu, range, seed);
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn two_tensors_meet_value_by_value_or_by_channel(
        c in 1usize..40, hw in [1usize..5, 1usize..5], kind in 0usize..3, spread in 0usize..5, range in 0.05f32..3.0,
        seed in 1u64..1000,
    ) {
        let [h, w] = hw;
        let x_shape = [1, c, h, w];
        let (mut net, x) = Net::new(&x_shape);
        let clip = net.push(Op::Clip { min: -0.6 * range, max: 0.4 * range }, &[x], &x_shape);
        let mean = net.push(Op::GlobalAveragePool, &[x], &[1, c, 1, 1]);
        let op = [Op::Mul, Op::Add, Op::Sub][kind].clone();
        let one = Entries::run(1, c - 1, 1).into();
        let one = net.push(one, &[clip], &[1, 1, h, w]);
        let y = match spread {
            0 => net.push(op, &[clip, x], &x_shape),
            1 => net.push(op, &[clip, mean], &x_shape),
            2 => net.push(op, &[x, one], &x_shape),
            3 => net.push(op, &[one, x], &x_shape),
            _ => net.push(op, &[mean, clip], &x_shape),
        };
        let off = net.compare(y, &image(c * h * w, seed, range));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn functions_of_one_tensor_are_the_model_s(
        c in 1usize..40, hw in [1usize..5, 1usize..5], kind in 0usize..4, range in 0.05f32..9.0, alpha in -0.5f32..1.5,
        seed in 1u64..1000,
    ) {
        let [h, w] = hw;
        let x_shape = [1, c, h, w];
        let (mut net, x) = Net::new(&x_shape);
        let y = match kind {
            0 => net.push(Op::HardSwish, &[x], &x_shape),
            1 => net.push(Op::LeakyRelu { alpha }, &[x], &x_shape),
            kind => {
                let count = if kind == 2 { 1 } else { c };
                let slopes = (0..count).map(|i| alpha * (i % 5) as f32 - 0.4).collect();
                let slopes = net.floats(&[count, 1, 1], slopes);
                net.push(Op::PRelu, &[x, slopes], &x_shape)
            }
        };
        let off = net.compare(y, &image(c * h * w, seed, range));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn transposed_convolutions_are_the_model_s(
        group in 1usize..4, sizes in [1usize..6, 1usize..6], hw in [1usize..6, 1usize..6], kernel in [1usize..5, 1usize..5],
        stride in [1usize..4, 1usize..4], dilation in [1usize..3, 1usize..3], cut in prop::array::uniform4(0usize..4),
        more in [0usize..3, 0usize..3], norm in any::<bool>(), seed in 1u64..1000,
    ) {
        let (ci, co) = (group * sizes[0], group * sizes[1]);
        let window = Window { kernel, stride, dilation, pads: cut.into() };
        let more = [0, 1].map(|a| more[a] % stride[a].max(dilation[a]));
        let Some([oh, ow]) = window.transposed(hw, more) else { return Ok(()); };
        let (mut net, x) = Net::new(&[1, ci, hw[0], hw[1]]);
        let value = |i: usize| ((i as u64 * 37 + seed) % 29) as f32 / 14.0 - 1.0;
        let count = ci * sizes[1] * window.area();
        let weights = net.floats(&[ci, sizes[1], kernel[0], kernel[1]], (0..count).map(value).collect());
        let bias = net.floats(&[co], (0..co).map(value).collect());
        let op = Op::ConvTranspose { window, group, output_padding: more };
        let shape = [1, co, oh, ow];
        let mut y = net.push(op, &[x, weights, bias], &shape);
        if norm {
            let channels = |f: &dyn Fn(usize) -> f32| (0..co).map(f).collect::<Vec<_>>();
            let gamma = net.floats(&[co], channels(&|i| value(i + 7) + 0.01));
            let beta = net.floats(&[co], channels(&value));
            let var = net.floats(&[co], channels(&|i| value(i + 2).abs() + 0.5));
            y = net.push(Op::BatchNormalization { epsilon: 1e-5 }, &[y, gamma, beta, beta, var], &shape);
        }
        let off = net.compare(y, &image(ci * hw[0] * hw[1], seed, 1.0));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn channels_and_positions_change_places(
        c in 1usize..20, hw in [1usize..5, 1usize..5], block in 1usize..4, kind in 0usize..4, seed in 1u64..1000,
    ) {
        let [h, w] = hw;
        let (op, from, to) = match kind {
            0 => (Op::Resize { factors: [block, 1 + block % 3] }, [c, h, w], [c, h * block, w * (1 + block % 3)]),
            1 => (Op::SpaceToDepth { block }, [c, h * block, w * block], [c * block * block, h, w]),
            _ => {
                let mode = if kind == 2 { DepthMode::Dcr } else { DepthMode::Crd };
                (Op::DepthToSpace { block, mode }, [c * block * block, h, w], [c, h * block, w * block])
            }
        };
        let shape = |[c, h, w]: [usize; 3]| [1, c, h, w];
        let (mut net, x) = Net::new(&shape(from));
        let y = net.push(op, &[x], &shape(to));
        let off = net.compare(y, &image(from.iter().product(), seed, 2.0));
        prop_assert!(off <= BOUND, "{}", off);
    }

    #[test]
    fn bounds_may_lie_on_either_side_of_0(
        c in 1usize..20, bounds in [-1.5f32..1.5, -1.5f32..1.5], relu in any::<bool>(), conv in any::<bool>(), seed in 1u64..1000,
    ) {
        let shape = [1, c, 3, 3];
        let (mut net, x) = Net::new(&shape);
        let mut y = x;
        if conv {
            let weights = net.floats(&[c, 1, 1, 1], (0..c).map(|i| 0.3 + i as f32 / 20.0).collect());
            let window = Window::whole([1, 1]);
            y = net.push(Op::Conv { window, group: c }, &[y, weights], &shape);
        }
        if relu {
            y = net.push(Op::Relu, &[y], &shape);
        }
        let [a, b] = bounds;
        let y = net.push(Op::Clip { min: a.min(b), max: a.max(b) }, &[y], &shape);
        let off = net.compare(y, &image(c * 9, seed, 2.0));
        prop_assert!(off <= BOUND, "{}", off);
    }
}
