//! Operators of files that people brought: each against its definition, written out here.

use super::model::{Model, int, ints, text};
use super::{image, quantizes, run};
use crate::graph::{Graph, Op};
use crate::onnx::{ReadOptions, load, load_part, proto};
use crate::qgraph::QOp;
use crate::{passes, quantize};

/// `x[c][y][x]` of the image, `[1, 2, 5, 6]`.
fn at(c: usize, y: usize, x: usize) -> f32 {
    image()[c * 30 + y * 6 + x]
}

/// Whether the device computes all of a graph once it is quantised.
fn is_of_device(graph: &Graph) -> bool {
    let images = [image()];
    let quantized = quantize::quantize(graph, &images, quantize::Mode::Multiply).unwrap();
    let network = passes::quantized(&quantized).unwrap();
    let host = |op: &QOp| matches!(op, QOp::Host { .. });
    !network.nodes.iter().any(|node| host(&node.op))
}

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() < 1e-4,
            "{i}: {found} for {expected}"
        );
    }
}

#[test]
fn a_bound_that_follows_an_absent_one_is_kept() {
    let graph = Model::default()
        .floats("most", &[], vec![0.25])
        .node("Clip", &["x", "", "most"], "y", &[])
        .read(17)
        .unwrap();
    let (min, max) = (f32::NEG_INFINITY, 0.25);
    assert_eq!(graph.nodes[0].op, Op::Clip { min, max });
    let expected: Vec<f32> = image().iter().map(|v| v.min(0.25)).collect();
    assert_eq!(run(&graph), expected);
}

/// Keys' cubic function with a = -0.75, by its two cases.
fn weight(distance: f32) -> f32 {
    let (d, a) = (distance.abs(), -0.75);
    match d {
        _ if d <= 1.0 => (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0,
        _ if d < 2.0 => a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a,
        _ => 0.0,
    }
}

#[test]
fn a_cubic_resize_is_cubic() {
    let resize = |attributes: &[proto::Attribute]| {
        let all = [&[text("mode", "cubic")], attributes].concat();
        Model::default()
            .floats("by", &[4], vec![1.0, 1.0, 2.0, 2.0])
            .node("Resize", &["x", "", "by"], "y", &all)
            .read(17)
    };
    let graph = resize(&[]).unwrap();
    let one = |c: usize, y: usize, x: usize| {
        let [from_y, from_x] = [y, x].map(|at| (at as f32 + 0.5) / 2.0 - 0.5);
        let mut sum = 0.0;
        for j in -2..8i32 {
            for i in -2..9i32 {
                let (row, column) = (j.clamp(0, 4) as usize, i.clamp(0, 5) as usize);
                sum += weight(from_y - j as f32) * weight(from_x - i as f32) * at(c, row, column);
            }
        }
        sum
    };
    let all = (0..2).flat_map(|c| (0..10).flat_map(move |y| (0..12).map(move |x| (c, y, x))));
    let expected: Vec<f32> = all.map(|(c, y, x)| one(c, y, x)).collect();
    near(&run(&graph), &expected);
    let place = "coordinate_transformation_mode";
    let error = resize(&[text(place, "tf_crop_and_resize")]).unwrap_err();
    assert!(error.to_string().contains("cubic"), "{error}");
}

#[test]
fn a_resize_that_counts_all_that_becomes_one_value_has_their_mean() {
    let graph = Model::default()
        .longs("to", &[1, 2, 5, 2])
        .node(
            "Resize",
            &["x", "", "", "to"],
            "y",
            &[text("mode", "linear"), int("antialias", 1)],
        )
        .read(18)
        .unwrap();
    // Triangles of three columns on both sides of 1 and 4, cut off by the border value.
    let one = |c: usize, y: usize, x: usize| {
        let weight = |tap: i32| (1.0 - (tap as f32 - (1 + 3 * x) as f32).abs() / 3.0).max(0.0);
        let value = |tap: i32| at(c, y, tap.clamp(0, 5) as usize);
        (-3..9).map(|tap| weight(tap) * value(tap)).sum::<f32>() / 3.0
    };
    let rows = (0..2).flat_map(|c| (0..5).map(move |y| (c, y)));
    let expected: Vec<f32> = rows
        .flat_map(|(c, y)| [0, 1].map(|x| one(c, y, x)))
        .collect();
    near(&run(&graph), &expected);
}

#[test]
fn constants_that_are_normalised_as_in_training_are_folded() {
    let weights: Vec<f32> = (0..12).map(|i| ((i * 5) % 7) as f32 - 2.0).collect();
    let graph = Model::default()
        .floats("w", &[1, 3, 4], weights.clone())
        .floats("gain", &[3], vec![1.0, 0.5, 2.0])
        .floats("zero", &[3], vec![0.0; 3])
        .longs("shape", &[3, 2, 1, 2])
        .node(
            "BatchNormalization",
            &["w", "gain", "zero", "zero", "gain"],
            "n",
            &[int("training_mode", 1)],
        )
        .node("Reshape", &["n", "shape"], "v", &[])
        .node("Conv", &["x", "v"], "y", &[])
        .read(17)
        .unwrap();
    assert_eq!(graph.nodes.len(), 1);
    let mut expected = Vec::new();
    for (row, gain) in weights.chunks(4).zip([1.0, 0.5, 2.0]) {
        let mean = row.iter().sum::<f32>() / 4.0;
        let variance = row.iter().map(|w| (w - mean).powi(2)).sum::<f32>() / 4.0;
        expected.extend(
            row.iter()
                .map(|w| gain * (w - mean) / (variance + 1e-5).sqrt()),
        );
    }
    let found = graph.values[graph.nodes[0].inputs[1].0].data.clone();
    assert!(matches!(found, Some(crate::graph::Data::F32(v)) if {
        near(&v, &expected);
        true
    }));
    let inputs = ["x", "two", "two", "two", "two"];
    let training = [int("training_mode", 1)];
    let graph = Model::default()
        .floats("two", &[2], vec![2.0; 2])
        .node("BatchNormalization", &inputs, "y", &training)
        .read(17)
        .unwrap();
    assert!(matches!(graph.nodes[0].op, Op::Onnx(_)));
}

#[test]
fn a_hint_says_the_sizes_that_a_model_has() {
    let model = Model::default().node("Relu", &["x"], "y", &[]);
    let bytes = model.with_input(17, &[Some(2), None, Some(4)]);
    let error = load(&bytes).unwrap_err().to_string();
    assert!(error.contains("x=2xNx4"), "{error}");
}

#[test]
fn steps_over_rows_and_columns_are_of_the_device() {
    let slice = |starts: [i64; 2], steps: [i64; 2]| {
        Model::default()
            .longs("from", &starts)
            .longs("to", &[i64::MAX; 2])
            .longs("axes", &[2, 3])
            .longs("by", &steps)
            .node("Slice", &["x", "from", "to", "axes", "by"], "y", &[])
            .read(17)
            .unwrap()
    };
    for (starts, steps) in [
        ([0, 0], [2, 2]),
        ([1, 0], [2, 2]),
        ([1, 1], [2, 3]),
        ([2, 1], [1, 1]),
    ] {
        let graph = slice(starts, steps);
        let taken = |axis: usize, size: usize| {
            let start = usize::try_from(starts[axis]).unwrap();
            (start..size).step_by(usize::try_from(steps[axis]).unwrap())
        };
        let rows = (0..2).flat_map(|c| taken(0, 5).map(move |y| (c, y)));
        let all = rows.flat_map(|(c, y)| taken(1, 6).map(move |x| at(c, y, x)));
        assert_eq!(run(&graph), all.collect::<Vec<_>>(), "{starts:?} {steps:?}");
        quantizes(&graph);
        assert!(is_of_device(&graph), "{starts:?} {steps:?}");
    }
}

#[test]
fn a_maximum_over_windows_with_gaps_is_computed_in_floats() {
    let attributes = [
        ints("kernel_shape", &[2, 3]),
        ints("dilations", &[2, 2]),
        ints("strides", &[1, 2]),
        ints("pads", &[0, 1, 1, 2]),
    ];
    let graph = Model::default()
        .node("MaxPool", &["x"], "y", &attributes)
        .read(13)
        .unwrap();
    let mut expected = Vec::new();
    for (c, y, x) in (0..2).flat_map(|c| (0..4).flat_map(move |y| (0..3).map(move |x| (c, y, x)))) {
        let rows = [y, y + 2].into_iter().filter(|&y| y < 5);
        let taps = rows.flat_map(|y| (0..3).map(move |tap| (y, (2 * x + 2 * tap) as i64 - 1)));
        let inside = taps.filter(|&(_, x)| (0..6).contains(&x));
        let values = inside.map(|(y, x)| at(c, y, x as usize));
        expected.push(values.fold(f32::NEG_INFINITY, f32::max));
    }
    assert_eq!(run(&graph), expected);
}

#[test]
fn windows_of_four_axes_are_refused_when_the_file_is_read() {
    let model = Model::default()
        .longs("shape", &[1, 2, 5, 6, 1, 1])
        .floats("w", &[2, 2, 1, 1, 1, 1], vec![1.0; 4])
        .node("Reshape", &["x", "shape"], "a", &[])
        .node("Conv", &["a", "w"], "y", &[]);
    let error = model.read(17).unwrap_err().to_string();
    assert!(error.contains("1 or 2 axes"), "{error}");
}

/// The states of an LSTM of two units over the image as 10 steps of 6 values, by its definition.
fn states(w: &[f32], r: &[f32]) -> Vec<f32> {
    let sigmoid = |v: f32| 1.0 / (1.0 + (-v).exp());
    let (mut h, mut c, mut all) = ([0f32; 2], [0f32; 2], Vec::new());
    for x in image().chunks(6) {
        let gate = |gate: usize, unit: usize, h: &[f32; 2]| {
            let row = gate * 2 + unit;
            let x: f32 = x.iter().zip(&w[row * 6..]).map(|(x, w)| x * w).sum();
            x + h[0] * r[row * 2] + h[1] * r[row * 2 + 1]
        };
        let before = h;
        for unit in 0..2 {
            let [i, o, f, g] = [0, 1, 2, 3].map(|at| gate(at, unit, &before));
            c[unit] = sigmoid(f) * c[unit] + sigmoid(i) * g.tanh();
            h[unit] = sigmoid(o) * c[unit].tanh();
        }
        all.extend(h);
    }
    all
}

#[test]
fn a_recurrent_network_is_the_hosts() {
    let noise = |count: usize, by: usize| -> Vec<f32> {
        let one = |i: usize| ((i * by) % 13) as f32 / 13.0 - 0.5;
        (0..count).map(one).collect()
    };
    let (w, r) = (noise(48, 5), noise(16, 7));
    let mut activations = text("activations", "");
    activations.kind = proto::ATTRIBUTE_STRINGS;
    activations.strings = ["Sigmoid", "Tanh", "Tanh"].map(bytes::Bytes::from).into();
    let graph = Model::default()
        .longs("steps", &[10, 1, 6])
        .floats("w", &[1, 8, 6], w.clone())
        .floats("r", &[1, 8, 2], r.clone())
        .node("Reshape", &["x", "steps"], "a", &[])
        .node(
            "LSTM",
            &["a", "w", "r"],
            "y",
            &[int("hidden_size", 2), activations],
        )
        .read(17)
        .unwrap();
    assert_eq!(graph.values[graph.outputs[0].0].shape, [10, 1, 1, 2]);
    near(&run(&graph), &states(&w, &r));
    // 10 steps of 8 gates with 6 values and 2 states.
    assert_eq!(graph.macs(), 10 * 8 * (6 + 2));
}

#[test]
fn a_model_is_read_up_to_what_nothing_computes() {
    let model = Model::default()
        .node("Relu", &["x"], "a", &[])
        .conv("a", "b", &[])
        .node("Frobnicate", &["b"], "c", &[])
        .node("Add", &["c", "a"], "y", &[])
        .encoded(17);
    let part = load_part(model, &ReadOptions::default()).unwrap();
    assert_eq!((part.refused.len(), part.behind), (1, 1));
    assert_eq!(part.ends, ["a", "b"]);
    assert_eq!(part.graph.nodes.len(), 2);
    assert!(part.whole().is_err());
}

#[test]
fn a_model_of_opset_6_is_read_where_it_means_the_same() {
    let sum = |attributes: &[proto::Attribute]| {
        Model::default()
            .floats("c", &[2], vec![1.0, 2.0])
            .floats("row", &[6], vec![1.0; 6])
            .node("Relu", &["x"], "a", &[])
            .node("Add", &["a", "row"], "b", &[int("broadcast", 1)])
            .node("Add", &["b", "c"], "y", attributes)
            .read(6)
    };
    let error = sum(&[int("broadcast", 1), int("axis", 1)]).unwrap_err();
    assert!(error.to_string().contains("axis 1"), "{error}");
    let graph = Model::default()
        .floats("row", &[6], vec![1.0; 6])
        .node("Relu", &["x"], "a", &[])
        .node("Add", &["a", "row"], "y", &[int("broadcast", 1)])
        .read(6)
        .unwrap();
    let expected: Vec<f32> = image().iter().map(|v| v.max(0.0) + 1.0).collect();
    assert_eq!(run(&graph), expected);
    let statistics = ["x", "two", "two", "two", "two"];
    let error = Model::default()
        .floats("two", &[2], vec![2.0; 2])
        .node("BatchNormalization", &statistics, "y", &[])
        .read(6);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("training"), "{error}");
}

#[test]
fn an_operator_may_leave_its_first_output_out() {
    let mut model = Model::default()
        .longs("one", &[1])
        .node("TopK", &["x", "one"], "", &[int("axis", 3)])
        .node("Cast", &["places"], "y", &[int("to", 1)]);
    model.0.node[0].output.push("places".to_owned());
    let image = image();
    let rows = image.chunks(6).map(|row| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter().position(|v| *v == largest).unwrap() as f32
    });
    assert_eq!(run(&model.read(17).unwrap()), rows.collect::<Vec<_>>());
}

#[test]
fn what_an_input_decides_how_many_there_are_is_refused_and_said_where() {
    let model = Model::default()
        .node("Relu", &["x"], "a", &[])
        .node("Unique", &["a"], "y", &[]);
    let part = load_part(model.encoded(17), &ReadOptions::default()).unwrap();
    let error = part.refused[0].to_string();
    assert!(error.contains("cut the model before it"), "{error}");
    assert_eq!(part.ends, ["a"]);
    // Of a constant they are known.
    let graph = Model::default()
        .longs("marks", &[0, 7, 0, 0, 2, 0])
        .longs("shape", &[-1])
        .node("NonZero", &["marks"], "places", &[])
        .node("Reshape", &["places", "shape"], "list", &[])
        .node("Gather", &["x", "list"], "y", &[int("axis", 3)])
        .read(17)
        .unwrap();
    let rows = (0..2).flat_map(|c| (0..5).map(move |y| (c, y)));
    let expected = rows.flat_map(|(c, y)| [1, 4].map(|x| at(c, y, x)));
    assert_eq!(run(&graph), expected.collect::<Vec<_>>());
}

#[test]
fn what_is_chosen_has_room_for_the_most() {
    // Places of the image above a bound, and how many there are.
    let graph = |last: &str| {
        let model = Model::default()
            .floats("least", &[], vec![0.3])
            .long("second", 1)
            .longs("shape", &[-1])
            .node("Greater", &["x", "least"], "truth", &[])
            .node("NonZero", &["truth"], "places", &[])
            .node("Shape", &["places"], "size", &[])
            .node("Gather", &["size", "second"], "count", &[])
            .node("Relu", &["x"], "a", &[])
            .node("Reshape", &["a", "shape"], "all", &[])
            .node("Reshape", &["truth", "shape"], "truths", &[])
            .node("Compress", &["all", "truths"], "chosen", &[])
            .node("Neg", &["chosen"], "negated", &[]);
        model.node("Identity", &[last], "y", &[]).read(17).unwrap()
    };
    let places = (0..60).filter(|&i| image()[i] > 0.3);
    let places: Vec<usize> = places.collect();
    let filled = |values: Vec<f32>| {
        let rest = 60 - values.len();
        [values, vec![-1.0; rest]].concat()
    };
    assert!((1..60).contains(&places.len()));
    let row =
        |of: fn(usize) -> usize| filled(places.iter().map(|&place| of(place) as f32).collect());
    let rows = [
        row(|_| 0),
        row(|i| i / 30),
        row(|i| i / 6 % 5),
        row(|i| i % 6),
    ];
    assert_eq!(run(&graph("places")), rows.concat());
    assert_eq!(run(&graph("count")), [places.len() as f32]);
    let negated = places.iter().map(|&place| -image()[place]);
    let negated = filled(negated.collect());
    assert_eq!(run(&graph("negated")), negated);
    let read = graph("negated");
    let hosted = |node: &crate::graph::Node| matches!(node.op, Op::Onnx(_));
    assert!(
        hosted(read.nodes.last().unwrap()),
        "a value of no known size is the host's"
    );
    assert_eq!(read.values[read.outputs[0].0].shape, [60]);
}

#[test]
fn a_branch_that_is_known_is_read_in_place() {
    // Both branches read `a`, which another node makes; what they give is the output's name.
    let branch = |name: &str, op: &str| proto::Attribute {
        name: name.to_owned(),
        g: Some(proto::Graph {
            node: vec![proto::Node {
                input: vec!["a".to_owned()],
                output: vec![format!("{name} out")],
                name: name.to_owned(),
                op_type: op.to_owned(),
                ..Default::default()
            }],
            output: vec![proto::ValueInfo {
                name: format!("{name} out"),
                ..Default::default()
            }],
            ..Default::default()
        }),
        kind: 5,
        ..Default::default()
    };
    for (size, op) in [(5, Op::Relu), (6, Op::HardSwish)] {
        let branches = [
            branch("then_branch", "Relu"),
            branch("else_branch", "HardSwish"),
        ];
        let graph = Model::default()
            .long("two", 2)
            .long("five", size)
            .node("Shape", &["x"], "shape", &[])
            .node("Gather", &["shape", "two"], "rows", &[])
            .node("Equal", &["rows", "five"], "c", &[])
            .node("If", &["c"], "y", &branches)
            .node("Relu", &["x"], "a", &[])
            .read(17)
            .unwrap();
        let kinds: Vec<&Op> = graph.nodes.iter().map(|node| &node.op).collect();
        assert_eq!(kinds, [&Op::Relu, &op]);
        assert_eq!(graph.values[graph.outputs[0].0].name, "y");
    }
}
