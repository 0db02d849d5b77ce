//! Operators that give values another place: what is read, what it means, and written again.

use super::*;
use crate::graph::{Data, DepthMode, Entries, Value, ValueId};
use crate::qgraph::window::Window;
use crate::qgraph::{QNode, QOp};
use crate::zoo::Rng;

/// A graph of one node that reads `x` and constants.
fn graph(op: Op, x: &[usize], constants: Vec<(Vec<usize>, Data)>) -> Graph {
    let mut graph = Graph::default();
    let mut value = |name: &str, shape: Vec<usize>, data| {
        graph.values.push(Value::new(name, shape, data));
        ValueId(graph.values.len() - 1)
    };
    let mut inputs = vec![value("x", x.to_vec(), None)];
    for (index, (shape, data)) in constants.into_iter().enumerate() {
        inputs.push(value(&format!("c{index}"), shape, Some(data)));
    }
    let output = value("y", vec![], None);
    let name = "node".to_owned();
    let node = Node {
        name,
        op,
        inputs,
        output,
    };
    (graph.inputs, graph.outputs) = (vec![node.inputs[0]], vec![output]);
    graph.nodes.push(node);
    // A file says no shape of what nodes make: the reader does.
    let read = load(&crate::onnx::save(&graph)).unwrap();
    graph.values[output.0].shape = read.values[read.outputs[0].0].shape.clone();
    graph
}

/// What is written is what is read; the values of a graph of `x = 0, 1, 2 ..`.
fn values(graph: &Graph) -> Vec<f32> {
    let again = load(&crate::onnx::save(graph)).unwrap();
    assert_eq!(again.nodes[0].op, graph.nodes[0].op);
    let shape = |g: &Graph| g.values[g.outputs[0].0].shape.clone();
    assert_eq!(shape(&again), shape(graph));
    let count: usize = graph.values[0].shape.iter().product();
    let x: Vec<f32> = (0..count).map(|i| i as f32).collect();
    let [first, second] = [graph, &again].map(|g| float::run(g, &x).unwrap().remove(0));
    assert_eq!(first, second);
    first
}

#[test]
fn entries_are_taken_in_their_order() {
    let slice = |axis, start, len, step| Entries {
        axis,
        start,
        len,
        step,
    };
    let x = [1, 4, 1, 2];
    for (entries, expected) in [
        (vec![slice(1, 1, 2, 1)], &[2.0, 3.0, 4.0, 5.0][..]),
        (vec![slice(1, 0, 2, 3)], &[0.0, 1.0, 6.0, 7.0]),
        (vec![slice(3, 1, 1, 1)], &[1.0, 3.0, 5.0, 7.0]),
        (vec![slice(3, 1, 1, 1), slice(1, 1, 2, 2)], &[3.0, 7.0]),
    ] {
        let found = values(&graph(Op::Slice { entries }, &x, vec![]));
        assert_eq!(found, expected);
    }
    let list = (vec![3], Data::I64(vec![3, 0, 3]));
    let found = values(&graph(Op::Gather { axis: 1 }, &x, vec![list]));
    assert_eq!(found, [6.0, 7.0, 0.0, 1.0, 6.0, 7.0]);
}

#[test]
fn tensors_follow_each_other_along_any_dimension() {
    let more = || vec![(vec![1, 2, 1, 2], Data::F32(vec![-1.0, -2.0, -3.0, -4.0]))];
    let found = values(&graph(Op::Concat { axis: 1 }, &[1, 2, 1, 2], more()));
    assert_eq!(found, [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, -4.0]);
    let found = values(&graph(Op::Concat { axis: 3 }, &[1, 2, 1, 2], more()));
    assert_eq!(found, [0.0, 1.0, -1.0, -2.0, 2.0, 3.0, -3.0, -4.0]);
}

#[test]
fn blocks_become_channels_and_channels_blocks() {
    let to = |mode| Op::DepthToSpace { block: 2, mode };
    let found = values(&graph(to(DepthMode::Dcr), &[1, 8, 1, 1], vec![]));
    assert_eq!(found, [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0]);
    let found = values(&graph(to(DepthMode::Crd), &[1, 8, 1, 1], vec![]));
    assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let back = Op::SpaceToDepth { block: 2 };
    let found = values(&graph(back, &[1, 2, 2, 2], vec![]));
    assert_eq!(found, [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]);
    let found = values(&graph(
        Op::Resize { factors: [2, 1] },
        &[1, 2, 1, 2],
        vec![],
    ));
    assert_eq!(found, [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0]);
}

#[test]
fn one_position_is_everywhere_what_it_is() {
    let resized = |pool: &str, attributes: &[proto::Attribute]| {
        Model::default()
            .floats("scales", &[4], vec![1.0, 1.0, 3.0, 4.0])
            .node(pool, &["x"], "m", &[])
            .node("Resize", &["m", "", "scales"], "y", attributes)
            .read(17)
    };
    let place = |value: &str| text("coordinate_transformation_mode", value);
    let linear = || text("mode", "linear");
    for attributes in [vec![linear()], vec![linear(), place("align_corners")]] {
        let graph = resized("GlobalAveragePool", &attributes).unwrap();
        assert_eq!(graph.nodes[1].op, Op::Resize { factors: [3, 4] });
        let x: Vec<f32> = (0..60).map(|i| i as f32).collect();
        let found = float::run(&graph, &x).unwrap().remove(0);
        assert_eq!(found, [vec![14.5; 12], vec![44.5; 12]].concat());
    }
    // What lies beyond the only value may be another, and so may what lies between two.
    let cropped = [linear(), place("tf_crop_and_resize")];
    for (pool, attributes) in [("GlobalAveragePool", &cropped[..]), ("Relu", &[linear()])] {
        let is_nearest = |graph: Graph| matches!(graph.nodes[1].op, Op::Resize { .. });
        assert!(!resized(pool, attributes).is_ok_and(is_nearest), "{pool}");
    }
}

#[test]
fn operands_are_broadcast() {
    let operand = || vec![(vec![2, 1, 1], Data::F32(vec![2.0, 4.0]))];
    for (op, expected) in [
        (Op::Mul, [0.0, 2.0, 8.0, 12.0]),
        (Op::Sub, [-2.0, -1.0, -2.0, -1.0]),
        (Op::Div, [0.0, 0.5, 0.5, 0.75]),
    ] {
        let graph = graph(op, &[1, 2, 1, 2], operand());
        assert_eq!(
            float::run(&graph, &[0.0, 1.0, 2.0, 3.0]).unwrap()[0],
            expected
        );
    }
    let graph = graph(Op::PRelu, &[1, 2, 1, 2], operand());
    let found = float::run(&graph, &[-1.0, 1.0, -2.0, 3.0]).unwrap();
    assert_eq!(found[0], [-2.0, 1.0, -8.0, 3.0]);
}

/// Every output by its definition: `y[o][i * s + k * d - p] += x[c][i] * w[c][o][k]`.
#[test]
fn transposed_convolutions_spread_their_inputs() {
    let mut rng = Rng::new(5);
    let mut below = |n: usize| (rng.next_u64() % n as u64) as usize;
    let mut tried = 0;
    while tried < 60 {
        let [group, inputs, outputs] = [1 + below(3), 1 + below(3), 1 + below(3)];
        let mut pair = |least: usize, n: usize| [least + below(n), least + below(n)];
        let (kernel, stride, dilation) = (pair(1, 4), pair(1, 3), pair(1, 2));
        let (size, before, after) = (pair(1, 4), pair(0, 2), pair(0, 2));
        let more = [0, 1].map(|a| below(stride[a].max(dilation[a])));
        let window = Window {
            kernel,
            stride,
            dilation,
            pads: [before[0], before[1], after[0], after[1]].into(),
        };
        let Some(out) = window.transposed(size, more) else {
            continue;
        };
        tried += 1;
        let (ci, co, area) = (group * inputs, group * outputs, window.area());
        let weights: Vec<f32> = (0..ci * outputs * area).map(|i| (i % 7) as f32).collect();
        let bias: Vec<f32> = (0..co).map(|i| i as f32).collect();
        let mut expected: Vec<f32> = bias
            .iter()
            .flat_map(|b| vec![*b; out[0] * out[1]])
            .collect();
        for index in 0..ci * outputs * area * size[0] * size[1] {
            let (at, rest) = (index % (size[0] * size[1]), index / (size[0] * size[1]));
            let (k, rest) = (rest % area, rest / area);
            let (o, c) = (rest % outputs, rest / outputs);
            let (place, tap) = ([at / size[1], at % size[1]], [k / kernel[1], k % kernel[1]]);
            let to = [0, 1]
                .map(|a| (place[a] * stride[a] + tap[a] * dilation[a]).checked_sub(before[a]));
            if let [Some(y), Some(x)] = to
                && y < out[0]
                && x < out[1]
            {
                let o = c / inputs * outputs + o;
                let weight = weights[(c * outputs + o % outputs) * area + k];
                expected[(o * out[0] + y) * out[1] + x] +=
                    weight * (c * size[0] * size[1] + at) as f32;
            }
        }
        let op = Op::ConvTranspose {
            window,
            group,
            output_padding: more,
        };
        let constants = vec![
            (vec![ci, outputs, kernel[0], kernel[1]], Data::F32(weights)),
            (vec![co], Data::F32(bias)),
        ];
        let graph = graph(op, &[1, ci, size[0], size[1]], constants);
        assert_eq!(values(&graph), expected, "{window} {more:?} {size:?}");
    }
}

#[test]
fn a_split_is_a_slice_for_each_output() {
    let pieces = |sizes: &[i64], outputs: &[&str]| {
        let mut model = Model::default().longs("sizes", sizes);
        model = model.node("Split", &["x", "sizes"], "y", &[int("axis", 3)]);
        model.0.node[0].output = outputs.iter().map(|o| (*o).to_owned()).collect();
        model
    };
    let graph = pieces(&[1, 2, 3], &["a", "y", "b"]).read(13).unwrap();
    let slice = |start, len| Op::from(Entries::run(3, start, len));
    let ops: Vec<Op> = graph.nodes.iter().map(|n| n.op.clone()).collect();
    assert_eq!(ops, [slice(1, 2)], "what nothing reads is dropped");
    let joined = pieces(&[1, 2, 3], &["a", "b", "c"]);
    let graph = joined
        .node("Concat", &["c", "b", "a"], "y", &[int("axis", 3)])
        .read(13)
        .unwrap();
    let ops: Vec<Op> = graph.nodes.iter().map(|n| n.op.clone()).collect();
    assert_eq!(ops[..3], [slice(0, 1), slice(1, 2), slice(3, 3)]);
    for sizes in [
        &[1, 2, 2][..],
        &[6, 0, 0],
        &[3, 3],
        &[i64::MAX; 3],
        &[-1, 4, 3],
    ] {
        let found = pieces(sizes, &["a", "y", "b"]).refused(13);
        assert!(found.contains("Split y"), "{found}");
    }
}

#[test]
fn output_shapes_become_pads() {
    let w: Vec<f32> = (0..2 * 3 * 9).map(|i| i as f32).collect();
    let read = |attribute: &[proto::Attribute]| {
        let model = Model::default().floats("w", &[2, 3, 3, 3], w.clone());
        let graph = model.node("ConvTranspose", &["x", "w"], "y", attribute);
        let graph = graph.read(13).unwrap();
        let shape = graph.values[graph.outputs[0].0].shape[2..].to_vec();
        let Op::ConvTranspose {
            window,
            output_padding,
            ..
        } = graph.nodes[0].op
        else {
            panic!("{:?}", graph.nodes[0]);
        };
        (shape, window.pads.to_array(), output_padding)
    };
    let strides = ints("strides", &[2, 2]);
    let upper = read(&[strides.clone(), text("auto_pad", "SAME_UPPER")]);
    assert_eq!(upper, (vec![10, 12], [0, 0, 1, 1], [0, 0]));
    let lower = read(&[strides.clone(), text("auto_pad", "SAME_LOWER")]);
    assert_eq!(lower, (vec![10, 12], [1, 1, 0, 0], [0, 0]));
    let shape = read(&[strides, ints("output_shape", &[9, 14])]);
    assert_eq!(shape, (vec![9, 14], [1, 0, 1, 0], [0, 1]));
}

#[test]
fn hostile_sizes_are_refused() {
    for (op, inputs, attributes) in [
        ("DepthToSpace", &["x"][..], vec![int("blocksize", i64::MAX)]),
        ("DepthToSpace", &["x"], vec![int("blocksize", -1)]),
        ("DepthToSpace", &["x"], vec![]),
        ("SpaceToDepth", &["x"], vec![int("blocksize", 1 << 40)]),
        ("SpaceToDepth", &["x"], vec![int("blocksize", 0)]),
        ("Concat", &["x", "x"], vec![int("axis", 9)]),
        ("Concat", &["x", "one"], vec![int("axis", -4)]),
        ("Gather", &["x", "one"], vec![int("axis", i64::MIN)]),
        ("Gather", &["x", "far"], vec![int("axis", 1)]),
        ("Slice", &["x", "one", "far", "far"], vec![]),
        ("Split", &["x", "one"], vec![int("axis", 4)]),
        ("ConvTranspose", &["x", "one"], vec![]),
        ("ConvTranspose", &["x", "w"], vec![ints("strides", &[0, 1])]),
        (
            "ConvTranspose",
            &["x", "w"],
            vec![
                ints("strides", &[65535; 2]),
                ints("dilations", &[65535; 2]),
                ints("output_shape", &[i64::MAX, i64::MAX]),
            ],
        ),
        (
            "ConvTranspose",
            &["x", "w"],
            vec![ints("output_padding", &[1, 0])],
        ),
        ("ConvTranspose", &["x", "w"], vec![ints("pads", &[9; 4])]),
        ("PRelu", &["x", "wide"], vec![]),
    ] {
        let model = Model::default()
            .longs("one", &[1])
            .longs("far", &[i64::MIN])
            .floats("wide", &[2, 5, 12], vec![1.0; 120])
            .floats("w", &[2, 3, 3, 3], vec![1.0; 54]);
        let found = model.node(op, inputs, "y", &attributes).refused(13);
        assert!(
            found.contains(&format!("{op} y")),
            "{op} {inputs:?}: {found}"
        );
    }
}

/// A shuffle of six channels in `groups`, rounded in between if it says so.
fn shuffle(groups: i64, perm: &[i64], rounded: bool) -> Model {
    let each = 6 / groups;
    let mut model = Model::default()
        .floats("s", &[], vec![0.125])
        .int8("z", &[], &[0])
        .longs("divided", &[1, groups, each, 5, 6])
        .longs("whole", &[1, -1, 5, 6])
        .node("Concat", &["x", "x", "x"], "wide", &[int("axis", 1)])
        .rounded("wide", "from")
        .node("Reshape", &["from", "divided"], "a", &[]);
    let mut last = "a";
    if rounded {
        model = model.rounded("a", "a2");
        last = "a2";
    }
    model = model.node("Transpose", &[last], "b", &[ints("perm", perm)]);
    last = "b";
    if rounded {
        model = model.rounded("b", "b2");
        last = "b2";
    }
    model.node("Reshape", &[last, "whole"], "y", &[])
}

#[test]
fn a_shuffle_of_channels_is_a_gather() {
    for (groups, rounded) in [(2, false), (3, false), (2, true)] {
        let graph = shuffle(groups, &[0, 2, 1, 3, 4], rounded).read(13).unwrap();
        let last = graph.nodes.last().unwrap();
        assert_eq!(last.op, Op::Gather { axis: 1 });
        let list = &graph.values[last.inputs[1].0].data;
        let expected: &[i64] = match groups {
            2 => &[0, 3, 1, 4, 2, 5],
            _ => &[0, 2, 4, 1, 3, 5],
        };
        assert_eq!(list, &Some(Data::I64(expected.to_vec())));
        // Nothing else is left of it.
        assert!(
            graph.nodes.iter().all(|n| !matches!(n.op, Op::Onnx(_))),
            "{graph}"
        );
    }
    // Another permutation is none.
    let graph = shuffle(2, &[0, 2, 1, 4, 3], false).read(13);
    let kept = |graph: Graph| matches!(graph.nodes.last().unwrap().op, Op::Onnx(_));
    assert!(graph.map_or(true, kept));
}

#[test]
fn channels_are_padded_and_dimensions_are_cut() {
    // What is before and behind each dimension, of the model's input `[1, 2, 5, 6]`.
    for (pads, is_device) in [
        ([[0, 0], [1, 2], [0, 0], [0, 0]], true),
        ([[0, 0], [0, 3], [0, 0], [0, 0]], true),
        ([[0, 0], [-1, 0], [0, 0], [0, 0]], true),
        ([[0, 0], [0, 0], [-1, -2], [0, 0]], true),
        ([[0, 0], [0, 0], [0, 0], [0, -3]], true),
        ([[0, 0], [-1, 0], [-2, 0], [-1, -3]], true),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], true),
        ([[0, 0], [1, 0], [2, 0], [0, 1]], false),
    ] {
        let all: Vec<i64> = (0..8).map(|i| pads[i % 4][i / 4]).collect();
        let reversed: Vec<i64> = (0..8).map(|i| pads[3 - i % 4][i / 4]).collect();
        let whole = Model::default()
            .longs("pads", &all)
            .node("Pad", &["x", "pads"], "p", &[]);
        let by_axis = Model::default()
            .longs("pads", &reversed)
            .longs("axes", &[-1, 2, 1, 0])
            .node("Pad", &["x", "pads", "", "axes"], "p", &[]);
        // The engine has no axes: what is left to it has none.
        let is_mixed = pads[1] != [0, 0] && pads[2] != [0, 0];
        for model in [Some(whole), Some(by_axis).filter(|_| !is_mixed)] {
            let Some(model) = model else {
                continue;
            };
            // Of what is refused, too, the engine says what it is.
            let graph = model.node("Relu", &["p"], "y", &[]).read(18).unwrap();
            let sizes = [1usize, 2, 5, 6];
            let out = [0, 1, 2, 3].map(|i| (sizes[i] as i64 + pads[i][0] + pads[i][1]) as usize);
            assert_eq!(graph.values[graph.outputs[0].0].shape, out);
            let x = image();
            let expected = (0..out.iter().product::<usize>()).map(|mut at| {
                let (mut from, mut stride, mut inside) = (0, 1, true);
                for i in (0..4).rev() {
                    let place = (at % out[i]) as i64 - pads[i][0];
                    at /= out[i];
                    inside &= (0..sizes[i] as i64).contains(&place);
                    from += place * stride;
                    stride *= sizes[i] as i64;
                }
                if inside {
                    x[from as usize].max(0.0)
                } else {
                    0.0
                }
            });
            assert_eq!(run(&graph), expected.collect::<Vec<_>>(), "{pads:?}");
            let images = [image(), vec![0.25; 60]];
            let quantized = quantize::quantize(&graph, &images, quantize::Mode::Multiply);
            let network = passes::quantized(&quantized.unwrap()).unwrap();
            let host = |node: &QNode| matches!(node.op, QOp::Host { .. });
            let device = !network.nodes.iter().any(host) && network.ends.is_none();
            assert_eq!(device, is_device, "{pads:?}: {network}");
        }
    }
}
