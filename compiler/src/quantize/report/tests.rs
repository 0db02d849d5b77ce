//! Reports against errors that are worked out directly.

use super::*;
use crate::float;
use crate::graph::{Node, Op, Value};
use crate::quantize::{Mode, Options, Scale, quantize_network};

/// A value as QuantizeLinear and DequantizeLinear give it.
fn stepped(value: f32, scale: Scale) -> f32 {
    let zero = f32::from(scale.zero);
    let q = (value / scale.step).round_ties_even() + zero;
    (q.clamp(-128.0, 127.0) - zero) * scale.step
}

/// Two dense layers with a sum around the second.
fn graph() -> Graph {
    let mut graph = Graph::default();
    let data = |from: usize, len: usize| {
        let one = |i: usize| ((i + from) * 7919 % 211) as f32 / 211.0 - 0.45;
        Some(Data::F32((0..len).map(one).collect()))
    };
    let mut define = |name: &str, shape: &[usize], data: Option<Data>| {
        graph.values.push(Value::new(name, shape.to_vec(), data));
        ValueId(graph.values.len() - 1)
    };
    let x = define("x", &[1, 12], None);
    let [w1, w2] = [1, 2].map(|k| define(&format!("w{k}"), &[12, 12], data(31 * k, 144)));
    let [a, b, c, y] = ["a", "b", "c", "y"].map(|name| define(name, &[1, 12], None));
    let gemm = || Op::Gemm { trans_b: true };
    let nodes = [
        (gemm(), vec![x, w1], a),
        (Op::Relu, vec![a], b),
        (gemm(), vec![b, w2], c),
        (Op::Add, vec![c, b], y),
    ];
    let node = |(op, inputs, output): (Op, Vec<ValueId>, ValueId)| Node {
        name: format!("node{}", output.0),
        op,
        inputs,
        output,
    };
    graph.nodes = nodes.into_iter().map(node).collect();
    graph.inputs = vec![x];
    graph.outputs = vec![y];
    graph
}

fn images() -> Vec<Vec<f32>> {
    let one = |k: usize| {
        (0..12)
            .map(|i| ((i * 37 + k * 101) % 64) as f32 / 32.0 - 1.0)
            .collect()
    };
    (0..5).map(one).collect()
}

/// Signal to noise in dB of pairs of values.
fn ratio(pairs: &[(Vec<f32>, Vec<f32>)]) -> f64 {
    let mut sums = [0f64; 2];
    for (a, b) in pairs.iter().flat_map(|(a, b)| a.iter().zip(b)) {
        sums[0] += f64::from(*a).powi(2);
        sums[1] += f64::from(a - b).powi(2);
    }
    10.0 * (sums[0] / sums[1]).log10()
}

#[test]
fn errors_are_those_of_one_layer_and_of_all() {
    let (graph, images) = (graph(), images());
    let options = Options::new(Mode::Multiply);
    let quantized = quantize_network(&graph, &&images[..], &options).unwrap();
    let told = std::sync::Mutex::new(Vec::new());
    let watch = |done, all| {
        told.lock().unwrap().push((done, all));
        true
    };
    let report = report(&quantized, &images, &watch).unwrap().unwrap();
    assert_eq!(
        super::report(&quantized, &images, &|done, _| done < 3),
        Ok(None)
    );
    let names: Vec<(&str, &str)> = report
        .layers
        .iter()
        .map(|l| (&l.name[..], &l.kind[..]))
        .collect();
    assert_eq!(
        names,
        [
            ("x", "Input"),
            ("node4", "Relu"),
            ("node5", "Gemm"),
            ("node6", "Add")
        ]
    );
    assert_eq!(told.lock().unwrap().iter().max(), Some(&(20, 20)));
    let run = |g: &Graph, image: &Vec<f32>| float::run(g, image).unwrap().remove(0);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-3, "{a} {b}");
    // All layers together, twice the same.
    let all: Vec<_> = images
        .iter()
        .map(|i| (run(&graph, i), run(&quantized.graph, i)))
        .collect();
    near(report.output_db, ratio(&all));
    near(report.layers[3].so_far_db, ratio(&all));
    // The input alone.
    let scale = quantized.scales[0].unwrap();
    let rounded = |i: &Vec<f32>| -> Vec<f32> { i.iter().map(|v| stepped(*v, scale)).collect() };
    let pairs: Vec<_> = images.iter().map(|i| (i.clone(), rounded(i))).collect();
    near(report.layers[0].own_db, ratio(&pairs));
    near(report.layers[0].so_far_db, ratio(&pairs));
    let pairs: Vec<_> = images
        .iter()
        .map(|i| (run(&graph, i), run(&graph, &rounded(i))))
        .collect();
    near(report.layers[0].output_db, ratio(&pairs));
    // The last layer alone rounds the sum; nothing stands behind it.
    let scale = quantized.scales[graph.outputs[0].0].unwrap();
    let last =
        |i: &Vec<f32>| -> Vec<f32> { run(&graph, i).iter().map(|v| stepped(*v, scale)).collect() };
    let pairs: Vec<_> = images.iter().map(|i| (run(&graph, i), last(i))).collect();
    near(report.layers[3].own_db, ratio(&pairs));
    near(report.layers[3].output_db, ratio(&pairs));
    // The rounded dense layer between them, by a network in which it alone is.
    assert!(report.layers[2].own_db > report.layers[2].so_far_db);
    assert!(
        report.output_db
            < report
                .layers
                .iter()
                .map(|l| l.output_db)
                .fold(f64::INFINITY, f64::min)
    );
}

#[test]
fn what_is_exact_has_no_noise() {
    let none = Noise {
        signal: 1.0,
        noise: 0.0,
    };
    assert_eq!(decibel(none.ratio()), f64::INFINITY);
    assert_eq!(
        decibel(
            Noise {
                signal: 100.0,
                noise: 1.0
            }
            .ratio()
        ),
        20.0
    );
}
