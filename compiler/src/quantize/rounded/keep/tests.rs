//! Nodes in float against the definition of what is rounded then.

use super::super::super::{Calibrated, LayerError, Quantized};
use super::*;
use crate::float;
use crate::graph::{Data, Value};
use crate::onnx;
use crate::passes;
use crate::quantize::{Mode, Options};

/// Two dense layers with a sum around the second.
fn graph() -> Graph {
    let mut graph = Graph::default();
    let data = |from: usize| {
        let one = |i: usize| ((i + from) * 7919 % 211) as f32 / 211.0 - 0.45;
        Some(Data::F32((0..144).map(one).collect()))
    };
    let mut define = |name: &str, shape: &[usize], data: Option<Data>| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let x = define("x", &[1, 12], None);
    let [w1, w2] = [1, 2].map(|k| define(&format!("w{k}"), &[12, 12], data(31 * k)));
    let [a, b, c, y] = ["a", "b", "c", "y"].map(|name| define(name, &[1, 12], None));
    let gemm = || Op::Gemm { trans_b: true };
    for (name, op, inputs, output) in [
        ("first", gemm(), vec![x, w1], a),
        ("relu", Op::Relu, vec![a], b),
        ("second", gemm(), vec![b, w2], c),
        ("sum", Op::Add, vec![c, b], y),
    ] {
        graph.push(name, op, inputs, output);
    }
    graph.inputs = vec![x];
    graph.outputs = vec![y];
    graph
}

fn image(k: usize) -> Vec<f32> {
    let one = |i: usize| ((i * 37 + k * 101) % 64) as f32 / 32.0 - 1.0;
    (0..12).map(one).collect()
}

fn kept(names: &[&str]) -> Quantized {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let images: Vec<Vec<f32>> = (0..5).map(image).collect();
    let calibrated = Calibrated::new(
        graph(),
        &images.as_slice(),
        &Options::new(Mode::Multiply),
        &names,
    );
    let calibrated = calibrated.unwrap();
    calibrated
        .quantize(&Options::new(Mode::Multiply), &Kept::new())
        .unwrap()
}

#[test]
fn every_choice_of_nodes_rounds_what_is_between_and_compiles() {
    let all = ["first", "relu", "second", "sum"];
    for choice in 0..16usize {
        let mut is_kept: Vec<bool> = (0..4).map(|node| choice >> node & 1 == 1).collect();
        let names: Vec<&str> = (0..4)
            .filter(|node| is_kept[*node])
            .map(|node| all[node])
            .collect();
        let quantized = kept(&names);
        // What alone reads a kept product, as its activation function, is kept, too.
        is_kept[1] |= is_kept[0];
        let rounded = |name: &str| {
            quantized
                .graph
                .values
                .iter()
                .any(|v| v.name == format!("{name}.int8"))
        };
        let [first, relu, second, sum] = is_kept[..] else {
            unreachable!()
        };
        assert_eq!(rounded("a"), !first && relu, "{names:?}");
        assert_eq!(rounded("b"), !(relu && second && sum), "{names:?}");
        assert_eq!(rounded("c"), !(second && sum), "{names:?}");
        assert_eq!(rounded("y"), !sum, "{names:?}");
        // The host may begin with the input where something is rounded behind it, and an output needs int8.
        let begins = first && !(relu && second && sum);
        assert_eq!(rounded("x"), !begins, "{names:?}");
        // A file says the same.
        let read = onnx::load(&onnx::save(&quantized.graph)).unwrap();
        for graph in [&quantized.graph, &read] {
            passes::quantized(graph).unwrap();
            let [found, of_file] =
                [&quantized.graph, graph].map(|g| float::run(g, &image(9)).unwrap());
            assert_eq!(found, of_file);
        }
    }
}

#[test]
fn kept_weights_are_those_of_the_model() {
    let quantized = kept(&["second"]);
    let weights = |node: &str| {
        let node = quantized
            .graph
            .nodes
            .iter()
            .find(|n| n.name == node)
            .unwrap();
        quantized.graph.values[node.inputs[1].0].data.clone()
    };
    assert_eq!(weights("second"), graph().values[2].data);
    assert_eq!(weights("first"), None);
}

#[test]
fn nodes_go_by_their_outputs_too_and_unknown_ones_are_refused() {
    assert_eq!(kept(&["c"]).kept, kept(&["second"]).kept);
    let named = named(&graph(), &["third".to_owned()]);
    assert!(named.unwrap_err().to_string().contains("third"));
}

#[test]
fn groups_hold_what_makes_a_layer_and_what_reads_it() {
    let quantized = kept(&[]);
    let images: Vec<Vec<f32>> = (0..3).map(image).collect();
    let report = crate::quantize::report(&quantized, &images, &|_, _| true)
        .unwrap()
        .unwrap();
    let groups = quantized.groups(&report);
    let mut layers: Vec<&LayerError> = report.layers.iter().collect();
    layers.sort_by(|a, b| a.output_db.total_cmp(&b.output_db));
    assert_eq!(groups.len(), layers.len());
    for (group, layer) in groups.iter().zip(layers) {
        let expected: &[usize] = match &layer.name[..] {
            "x" => &[0, 1],
            "relu" => &[0, 1, 2, 3],
            "second" => &[2, 3],
            "sum" => &[3],
            other => panic!("no layer {other}"),
        };
        assert!(group.iter().eq(expected), "{}", layer.name);
    }
}

/// Two layers of the input that meet in a sum, one of them with another layer behind it, and a last layer.
fn fork() -> Graph {
    let mut graph = Graph::default();
    let data = |from: usize| {
        let one = |i: usize| ((i + from) * 7919 % 211) as f32 / 211.0 - 0.45;
        Some(Data::F32((0..144).map(one).collect()))
    };
    let x = graph.value("x", vec![1, 12], None);
    let weights: Vec<ValueId> = (0..4)
        .map(|k| graph.value(format!("w{k}"), vec![12, 12], data(31 * k)))
        .collect();
    let [a, b, c, sum, y] =
        ["a", "b", "c", "d", "y"].map(|name| graph.value(name, vec![1, 12], None));
    let gemm = || Op::Gemm { trans_b: true };
    for (name, op, inputs, output) in [
        ("short", gemm(), vec![x, weights[0]], a),
        ("long", gemm(), vec![x, weights[1]], b),
        ("longer", gemm(), vec![b, weights[2]], c),
        ("sum", Op::Add, vec![a, c], sum),
        ("last", gemm(), vec![sum, weights[3]], y),
    ] {
        graph.push(name, op, inputs, output);
    }
    (graph.inputs, graph.outputs) = (vec![x], vec![y]);
    graph
}

#[test]
fn what_meets_an_input_stays_a_float_for_it_to_stay_one() {
    let images: Vec<Vec<f32>> = (0..5).map(image).collect();
    let options = Options::new(Mode::Multiply);
    let calibrated = Calibrated::new(fork(), &images.as_slice(), &options, &[]).unwrap();
    let none = calibrated.quantize(&options, &Kept::new()).unwrap();
    for choice in 0..32usize {
        let chosen: Kept = (0..5).filter(|node| choice >> node & 1 == 1).collect();
        let kept = none.with_inputs(chosen.clone());
        assert!(chosen.is_subset(&kept));
        let reads_input = [0, 1].iter().all(|node| chosen.contains(node));
        // The sum would be computed of the input's floats and of an int8 tensor, and rounded.
        let meets = reads_input && chosen.contains(&3) && !chosen.contains(&4);
        assert_eq!(
            kept.contains(&2),
            chosen.contains(&2) || meets,
            "{chosen:?}"
        );
        let quantized = calibrated.quantize(&options, &kept).unwrap();
        let is_int8 = |quantized: &Quantized| {
            let mut values = quantized.graph.values.iter();
            values.any(|value| value.name == "x.int8")
        };
        let any_left = kept.len() < 5;
        assert_eq!(
            is_int8(&quantized),
            !(reads_input && any_left),
            "{chosen:?}"
        );
        passes::quantized(&quantized.graph).unwrap();
        if meets && !chosen.contains(&2) {
            assert!(is_int8(&calibrated.quantize(&options, &chosen).unwrap()));
        }
    }
}
