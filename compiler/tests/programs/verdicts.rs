//! What becomes of each node: the verdicts are those of the compiler.

use std::collections::BTreeSet;

use crate::builder::Builder;
use vta_compiler::graph::{Data, Graph, OnnxAttribute, Op, Value, ValueId};
use vta_compiler::lower::{self, LowerError, LowerOptions};
use vta_compiler::passes::{self, Verdict};
use vta_compiler::qgraph::{QGraph, QOp};
use vta_compiler::quantize::{self, Mode};
use vta_isa::Config;

/// The verdicts, with measured scales and with stand-ins for them, name the nodes that the network has
/// in segments, but for those that lead to no output.
fn judged_alike(float: &Graph, quantized: &Graph, network: &QGraph) {
    let inside = network.nodes.iter().filter_map(|node| match &node.op {
        QOp::Host { segment, .. } => Some(segment.nodes()),
        _ => None,
    });
    let inside: BTreeSet<&str> = inside.flatten().map(|(name, _)| &name[..]).collect();
    let stand_in = quantize::stand_in(float).unwrap();
    for graph in [quantized, &stand_in] {
        let judged = passes::judged(graph);
        judged.network.unwrap();
        let uses = graph.uses();
        let mut host = BTreeSet::new();
        for (node, verdict) in graph.nodes.iter().zip(&judged.nodes) {
            match verdict {
                Verdict::Device => {}
                Verdict::Host { reason } if uses.contains_key(&node.output) => {
                    assert!(!reason.is_empty());
                    host.insert(&node.name[..]);
                }
                Verdict::Host { .. } => {}
                other => panic!("{}: {other:?}", node.name),
            }
        }
        assert_eq!(host, inside);
    }
}

/// Networks of which the host computes a part: between convolutions, on two sides of one, and at the
/// end in floats.
fn networks() -> Vec<Graph> {
    let mut gated = Builder::default();
    let x = gated.input(&[1, 3, 4, 4]);
    let sum = gated.conv(x, [3, 8], 4);
    let gate = gated.kept("Erf", &[sum], &[1, 8, 4, 4], &[]);
    let axis = OnnxAttribute::Int(-1);
    let rows = gated.kept("Softmax", &[gate], &[1, 8, 4, 4], &[("axis", axis)]);
    let both = gated.kept("Mul", &[rows, sum], &[1, 8, 4, 4], &[]);
    let y = gated.conv(both, [8, 4], 4);
    let mut twice = Builder::default();
    let x = twice.input(&[1, 3, 4, 4]);
    let early = twice.kept("Erf", &[x], &[1, 3, 4, 4], &[]);
    let sum = twice.conv(early, [3, 3], 4);
    let joined = twice.kept("Atan", &[sum], &[1, 3, 4, 4], &[]);
    let late = twice.kept("Max", &[early, joined], &[1, 3, 4, 4], &[]);
    let z = twice.conv(late, [3, 4], 4);
    let mut silu = Builder::default();
    let x = silu.input(&[1, 3, 4, 4]);
    let sum = silu.conv(x, [3, 8], 4);
    let gate = silu.kept("Sigmoid", &[sum], &[1, 8, 4, 4], &[]);
    let both = silu.push(Op::Mul, &[sum, gate], &[1, 8, 4, 4]);
    let above = silu.push(Op::Relu, &[both], &[1, 8, 4, 4]);
    let w = silu.conv(above, [8, 4], 4);
    let mut plain = Builder::default();
    let x = plain.input(&[1, 3, 4, 4]);
    let sum = plain.conv(x, [3, 8], 4);
    let last = plain.conv(sum, [8, 4], 4);
    vec![
        gated.finish(&[y]),
        twice.finish(&[z]),
        silu.finish(&[w]),
        plain.finish(&[last]),
    ]
}

#[test]
fn verdicts_are_what_is_compiled() {
    let image: Vec<f32> = (0..48)
        .map(|i| ((i * 7) % 31) as f32 / 15.0 - 1.0)
        .collect();
    let mut segments = 0;
    for float in networks() {
        let graph =
            quantize::quantize(&float, std::slice::from_ref(&image), Mode::Multiply).unwrap();
        let network = passes::quantized(&graph).unwrap();
        judged_alike(&float, &graph, &network);
        segments += network
            .nodes
            .iter()
            .filter(|n| matches!(n.op, QOp::Host { .. }))
            .count();
    }
    assert!(segments >= 4, "the host computes {segments} tensors");
}

#[test]
fn verdicts_say_why() {
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let sum = b.conv(x, [3, 8], 4);
    let gate = b.kept("Erf", &[sum], &[1, 8, 4, 4], &[]);
    let y = b.conv(gate, [8, 4], 4);
    let float = b.finish(&[y]);
    let graph = quantize::stand_in(&float).unwrap();
    let judged = passes::judged(&graph);
    let named = graph.nodes.iter().zip(&judged.nodes);
    let named = named.filter(|(node, _)| !node.name.contains("quantize"));
    let found: Vec<_> = named
        .map(|(node, verdict)| (&node.name[..], verdict))
        .collect();
    let reason = "the device has no such operator".to_owned();
    let expected = [
        ("n0", &Verdict::Device),
        ("n1", &Verdict::Host { reason }),
        ("n2", &Verdict::Device),
    ];
    assert_eq!(found, expected);
}

/// What becomes of a sum or product with a constant, and why.
fn beside(x: &[usize], constant: &[usize], output: &[usize], first: f32) -> Verdict {
    let mut b = Builder::default();
    let x = b.input(x);
    let mut values: Vec<f32> = (0..constant.iter().product())
        .map(|i| i as f32 / 8.0 + 0.5)
        .collect();
    values[0] = first;
    let constant = b.value("constant", constant, Some(Data::F32(values)));
    let y = b.push(Op::Add, &[x, constant], output);
    let graph = quantize::stand_in(&b.finish(&[y])).unwrap();
    let judged = passes::judged(&graph);
    let at = graph.nodes.iter().position(|node| node.name == "n0");
    judged.nodes[at.unwrap()].clone()
}

#[test]
fn constants_that_meet_no_position_of_a_tensor_are_the_hosts() {
    let plane = [1, 3, 2, 4];
    assert_eq!(beside(&plane, &[2, 4], &plane, 0.5), Verdict::Device);
    let reason = |verdict: Verdict| match verdict {
        Verdict::Host { reason } => reason,
        other => panic!("{other:?}"),
    };
    // It would give the tensor more rows, or isn't finite.
    let more = beside(&[1, 3, 1, 4], &[2, 4], &plane, 0.5);
    assert_eq!(
        reason(more),
        "a constant of shape [2, 4] beside [1, 3, 1, 4], which is neither one value nor one for each channel"
    );
    let infinite = reason(beside(&plane, &[2, 4], &plane, f32::INFINITY));
    assert_eq!(infinite, "a constant isn't finite");
    let large = [1, 1, 2048, 2049];
    assert_eq!(
        reason(beside(&large, &[2048, 1], &large, 0.5)),
        "a constant beside 4196352 values; at most 4194304 have one each"
    );
    let most = [1, 1, 2048, 2048];
    assert_eq!(beside(&most, &[2048, 1], &most, 0.5), Verdict::Device);
}

/// Of two branches each ends with other steps than its QuantizeLinear has, and one goes on.
#[test]
fn every_node_that_is_refused_is_told() {
    let mut b = Builder::default();
    let x = b.input(&[1, 3, 4, 4]);
    let (left, right) = (b.conv(x, [3, 3], 4), b.conv(x, [3, 3], 4));
    let (left, right) = (b.conv(left, [3, 4], 4), b.conv(right, [3, 4], 4));
    let float = b.finish(&[left, right]);
    let mut graph = quantize::stand_in(&float).unwrap();
    let other = ValueId(graph.values.len());
    let scale = Data::F32(vec![3.0]);
    graph.values.push(Value::new("other", vec![], Some(scale)));
    for node in &mut graph.nodes {
        let is_branch = ["n0.dequantize", "n1.dequantize"].contains(&&node.name[..]);
        if is_branch {
            node.inputs[1] = other;
        }
    }
    let judged = passes::judged(&graph);
    let error = judged.network.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nodes n0.dequantize, n1.dequantize (DequantizeLinear): its scale or zero point differs \
         from its QuantizeLinear's"
    );
    let count = |wanted: fn(&Verdict) -> bool| judged.nodes.iter().filter(|v| wanted(v)).count();
    assert_eq!(count(|v| matches!(v, Verdict::Refused { .. })), 2);
    // Their convolutions, and the roundings behind these.
    assert_eq!(count(|v| matches!(v, Verdict::Behind)), 6);
    assert_eq!(passes::quantized(&graph).unwrap_err(), error);
}

/// On a machine without MUL every convolution with scales of its own is refused.
#[test]
fn every_node_that_a_machine_lacks_an_extension_for_is_told() {
    let mut b = Builder::default();
    let mut x = b.input(&[1, 3, 4, 4]);
    for _ in 0..3 {
        x = b.conv(x, [3, 3], 4);
    }
    let float = b.finish(&[x]);
    let network = passes::quantized(&quantize::stand_in(&float).unwrap()).unwrap();
    let config = Config::from_json(r#"{"EXTENSIONS": ["ACC8", "SHL"]}"#).unwrap();
    let error = lower::compile(&network, &config, &LowerOptions::default()).unwrap_err();
    let names: Vec<_> = error.each().iter().filter_map(LowerError::node).collect();
    assert_eq!(names, ["n0", "n1", "n2"]);
    assert!(
        error.to_string().starts_with("nodes n0, n1, n2: "),
        "{error}"
    );
}
