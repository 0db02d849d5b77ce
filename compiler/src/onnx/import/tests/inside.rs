//! Nodes that have others inside.

use super::model::{Model, int, ints};
use super::{image, run};
use crate::onnx::proto;

/// A graph inside a node.
fn graph(name: &str, graph: proto::Graph) -> proto::Attribute {
    proto::Attribute {
        name: name.to_owned(),
        g: Some(graph),
        kind: 5,
        ..Default::default()
    }
}

fn node(op: &str, input: &[&str], output: &str) -> proto::Node {
    proto::Node {
        input: input.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.to_owned()],
        op_type: op.to_owned(),
        name: output.to_owned(),
        ..Default::default()
    }
}

fn named(name: &str) -> proto::ValueInfo {
    proto::ValueInfo {
        name: name.to_owned(),
        ..Default::default()
    }
}

/// `a` of a body is taken times two and less the trip's number, and stacked before that.
fn body(condition: &str) -> proto::Attribute {
    let to = proto::Attribute {
        kind: proto::ATTRIBUTE_INT,
        name: "to".to_owned(),
        i: 1,
        ..Default::default()
    };
    let cast = proto::Node {
        attribute: vec![to],
        ..node("Cast", &["trip"], "number")
    };
    let inside = proto::Graph {
        node: vec![
            node("Less", &["trip", "last"], "below"),
            node("Abs", &["x"], "some"),
            node("Greater", &["some", "x"], "unknown"),
            cast,
            node("Mul", &["a", "doubled"], "more"),
            node("Sub", &["more", "number"], "b"),
            node("Identity", &["a"], "each"),
        ],
        input: ["trip", "on", "a"].map(named).into(),
        output: [condition, "b", "each"].map(named).into(),
        ..Default::default()
    };
    graph("body", inside)
}

fn looped(trips: &str, condition: &str) -> Model {
    let mut model = Model::default()
        .long("three", 3)
        .long("many", i64::MAX)
        .long("last", 4)
        .floats("doubled", &[], vec![2.0])
        .node("Relu", &["x"], "start", &[])
        .node("Loop", &[trips, "", "start"], "end", &[body(condition)])
        .node("ReduceSum", &["rows"], "sum", &[int("keepdims", 0)])
        .node("Add", &["end", "sum"], "y", &[]);
    model.0.node[1].output.push("rows".to_owned());
    model
}

#[test]
fn a_loop_whose_trips_are_known_is_its_body_as_often() {
    for (trips, condition, count) in [("three", "on", 3), ("many", "below", 5), ("", "below", 5)] {
        let graph = looped(trips, condition).read(17).unwrap();
        let mut values: Vec<f32> = image().iter().map(|v| v.max(0.0)).collect();
        let mut sum = 0.0;
        for trip in 0..count {
            sum += values.iter().sum::<f32>();
            values.iter_mut().for_each(|v| *v = *v * 2.0 - trip as f32);
        }
        let expected: Vec<f32> = values.iter().map(|v| v + sum).collect();
        let scale = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
        let ones = |all: &[f32]| all.iter().map(|v| v / scale).collect::<Vec<f32>>();
        let all = ones(&run(&graph)).into_iter().zip(ones(&expected));
        all.for_each(|(found, expected)| assert!((found - expected).abs() < 1e-4));
    }
}

#[test]
fn loops_are_refused_with_the_reason() {
    for (trips, condition, says) in [
        ("many", "on", "unrolled, the model's loops have more than"),
        ("three", "unknown", "depends on its input"),
    ] {
        let error = looped(trips, condition).read(17).unwrap_err().to_string();
        assert!(error.contains("Loop"), "{error}");
        assert!(error.contains(says), "{error}");
    }
}

/// `sum` takes an entry, of which the body gives twice that and the sum before.
fn scan(attributes: &[proto::Attribute]) -> Model {
    let inside = proto::Graph {
        node: vec![
            node("Add", &["entry", "entry"], "twice"),
            node("Identity", &["before"], "kept"),
            node("Add", &["before", "twice"], "after"),
        ],
        input: ["before", "entry"].map(named).into(),
        output: ["after", "kept"].map(named).into(),
        ..Default::default()
    };
    let own = [int("num_scan_inputs", 1), graph("body", inside)];
    let mut model = Model::default()
        .floats("none", &[1, 2, 6], vec![0.0; 12])
        .node("Scan", &["none", "x"], "sum", &[&own, attributes].concat());
    model.0.node[0].output.push("y".to_owned());
    model
}

#[test]
fn a_scan_is_its_body_for_each_entry() {
    let x = image();
    for is_backward in [false, true] {
        let attributes = [
            ints("scan_input_axes", &[2]),
            ints("scan_input_directions", &[is_backward.into()]),
            ints("scan_output_axes", &[-1]),
            ints("scan_output_directions", &[is_backward.into()]),
        ];
        let graph = scan(&attributes).read(17).unwrap();
        assert_eq!(graph.values[graph.outputs[0].0].shape, [1, 2, 6, 5]);
        let mut expected = vec![0.0; 60];
        for (c, column) in (0..2).flat_map(|c| (0..6).map(move |column| (c, column))) {
            let mut sum = 0f32;
            for trip in 0..5 {
                let row = if is_backward { 4 - trip } else { trip };
                expected[(c * 6 + column) * 5 + row] = sum;
                sum += 2.0 * x[c * 30 + row * 6 + column];
            }
        }
        let found = run(&graph);
        let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        assert!(off.fold(0f32, f32::max) < 1e-4, "{found:?}");
    }
    let error = scan(&[ints("scan_input_axes", &[7])]).read(17).unwrap_err();
    assert!(error.to_string().contains("axis 7"), "{error}");
    let error = scan(&[]).read(8).unwrap_err().to_string();
    assert!(error.contains("opset 9"), "{error}");
}

/// An If by whether the largest of `x` is above a bound: its branches are of these nodes, and give `made`.
fn chosen(bound: f32, then: Vec<proto::Node>, other: Vec<proto::Node>) -> Model {
    let branch = |node| proto::Graph {
        node,
        output: vec![named("made")],
        ..Default::default()
    };
    let branches = [
        graph("then_branch", branch(then)),
        graph("else_branch", branch(other)),
    ];
    Model::default()
        .floats("bound", &[], vec![bound])
        .floats("weights", &[6], (0..6).map(|i| i as f32).collect())
        .longs("zeroth", &[0])
        .node("ReduceMax", &["x"], "most", &[int("keepdims", 0)])
        .node("Greater", &["most", "bound"], "condition", &[])
        .node("If", &["condition"], "y", &branches)
}

#[test]
fn of_branches_that_an_input_chooses_both_are_computed() {
    let (x, most) = (image(), image().into_iter().fold(f32::MIN, f32::max));
    for (bound, is_then) in [(most + 0.5, false), (most - 0.5, true)] {
        let then = vec![
            node("Mul", &["x", "weights"], "inner"),
            node("Relu", &["inner"], "made"),
        ];
        let other = vec![node("Neg", &["x"], "made")];
        let graph = chosen(bound, then, other).read(17).unwrap();
        let one = |(at, v): (usize, &f32)| {
            if is_then {
                (v * (at % 6) as f32).max(0.0)
            } else {
                -v
            }
        };
        assert_eq!(
            run(&graph),
            x.iter().enumerate().map(one).collect::<Vec<_>>()
        );
    }
}

#[test]
fn branches_that_an_input_chooses_are_refused_where_one_may_fail_or_differs() {
    let neg = || vec![node("Neg", &["x"], "made")];
    let mut cast = node("Cast", &["most"], "place");
    cast.attribute.push(int("to", 7));
    let by_input = vec![cast, node("Gather", &["weights", "place"], "made")];
    let single = vec![node("Neg", &["most"], "made")];
    for (then, other, says) in [
        (neg(), single.clone(), "other shapes or types"),
        (by_input, single, "may fail"),
    ] {
        let error = chosen(0.0, then, other).read(17).unwrap_err().to_string();
        assert!(
            error.contains("depends on its input") && error.contains(says),
            "{error}"
        );
    }
}
