use proptest::prelude::*;
use vta_isa::Config;
use vta_program::Step;

use super::*;
use std::sync::Arc;

use crate::graph::{Element, Graph, Node, Op, Value, ValueId};
use crate::host::Segment;
use crate::lower::{LowerError, LowerOptions};
use crate::qgraph::{QConv, QNode, QOp, QPair, QTensor, TensorId, Window};
use crate::{passes, zoo};

fn targets(n: usize) -> Vec<Target> {
    let target = |i| Target::new(format!("d{i}"), Config::default());
    (0..n).map(target).collect()
}

fn rules(text: &str) -> Rules {
    Rules::from_toml(text).unwrap()
}

/// A node for tests of placement alone: reads one or two tensors, writes the next.
fn node(name: &str, kind: &str, inputs: &[usize], output: usize) -> QNode {
    let [first, last] = [inputs[0], inputs[inputs.len() - 1]].map(TensorId);
    let window = Window {
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        pads: [0; 4].into(),
    };
    let op = match kind {
        "conv" => QOp::Conv(QConv {
            store: None,
            input: first,
            window,
            weights: vec![1; 256].into(),
            group: 1,
            residual: (inputs.len() > 1).then_some((last, vec![])),
            epilogue: vec![],
            dense: false,
        }),
        "add" => QOp::Add(QPair {
            store: None,
            a: first,
            a_ops: vec![],
            b: last,
            b_ops: vec![],
            epilogue: vec![],
        }),
        "maxpool" => QOp::MaxPool {
            input: first,
            window,
            ops: vec![],
        },
        _ => QOp::Eltwise {
            input: first,
            ops: vec![],
        },
    };
    QNode {
        name: name.to_owned(),
        op,
        output: TensorId(output),
        saturate: false,
    }
}

/// Tensor 0 is the input, the last the output.
fn graph(nodes: Vec<QNode>) -> QGraph {
    let tensor = |i| QTensor {
        name: format!("t{i}"),
        chw: [16, 2, 2],
        scale: 1.0,
        zero: 0,
        range: (-128, 127),
    };
    QGraph {
        tensors: (0..=nodes.len()).map(tensor).collect(),
        inputs: vec![TensorId(0)],
        outputs: vec![TensorId(nodes.len())],
        nodes,
        ..QGraph::default()
    }
}

#[test]
fn candidates_are_what_is_known() {
    let graph = graph(vec![
        node("c", "conv", &[0], 1),
        node("p", "maxpool", &[1], 2),
        node("a", "add", &[1, 2], 3),
        node("d", "conv", &[3], 4),
    ]);
    let mut targets = targets(3);
    targets[0].lacks.insert("maxpool".into());
    let found = candidates(&graph, &targets, &rules("d = \"d2\"")).unwrap();
    let expected = [&[0][..], &[1, 2], &[0, 1, 2], &[2]];
    assert_eq!(
        found,
        expected.map(|can| can.iter().copied().map(TargetId).collect::<Vec<_>>())
    );
    targets[2].lacks.insert("conv".into());
    for (rules, says) in [
        (
            "d = \"d2\"",
            "node d (conv): a rule wants d2, which can't run it",
        ),
        (
            "d = \"fpga\"",
            "placement rules: \"d\" = \"fpga\", but the devices are d0, d1, d2",
        ),
    ] {
        let error = candidates(&graph, &targets, &Rules::from_toml(rules).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
    for target in &mut targets {
        target.lacks.insert("add".into());
    }
    let error = place(&graph, &targets, &Rules::default())
        .unwrap_err()
        .to_string();
    assert_eq!(error, "node a (add): no device can run it");
    let error = place(&graph, &[], &Rules::default()).unwrap_err();
    assert_eq!(error, PlacementError::NoDevice);
}

/// A block whose sum has two operands: `conv` on one device, the shortcut on another.
fn block(operands: [usize; 2]) -> QGraph {
    let mut block = graph(vec![
        node("stem", "conv", &[0], 1),
        node("pool", "maxpool", &[1], 2),
        node("a", "conv", &[2], 3),
        node("shortcut", "conv", &[2], 4),
        node("sum", "add", &operands, 5),
        node("relu", "relu", &[5], 6),
        node("next", "conv", &[6], 7),
    ]);
    // What the stem writes is larger than what the pool makes of it.
    block.tensors[1].chw = [16, 4, 4];
    block
}

#[test]
fn a_sum_follows_its_neighbours_whatever_the_order_of_its_operands() {
    for (text, expected, copies) in [
        ("", [0; 7], 0),
        ("shortcut = \"d1\"", [0, 0, 0, 1, 0, 0, 0], 2),
        ("a = \"d1\"", [0, 0, 1, 0, 0, 0, 0], 2),
        ("next = \"d1\"", [0, 0, 0, 0, 0, 0, 1], 1),
        ("a = \"d1\"\nshortcut = \"d1\"", [0, 0, 1, 1, 1, 0, 0], 2),
        ("shortcut = \"d1\"\nnext = \"d1\"", [0, 0, 0, 1, 1, 1, 1], 2),
        ("stem = \"d1\"", [1, 1, 0, 0, 0, 0, 0], 1),
        ("relu = \"d1\"\nnext = \"d1\"", [0, 0, 0, 0, 0, 1, 1], 1),
    ] {
        for operands in [[3, 4], [4, 3]] {
            let placed = place(&block(operands), &targets(2), &rules(text)).unwrap();
            assert_eq!(placed.copies.len(), copies, "{text} {operands:?}");
            assert_eq!(
                placed.targets,
                expected.map(TargetId),
                "{text} {operands:?}"
            );
        }
    }
}

/// ResNet-50 with the first block's sum as given, or with its operands exchanged.
fn resnet50(exchanged: bool) -> QGraph {
    let mut graph = zoo::graph("resnet50").unwrap();
    let sum = graph
        .nodes
        .iter_mut()
        .find(|n| matches!(n.op, Op::Add))
        .unwrap();
    assert_eq!(sum.inputs.len(), 2);
    if exchanged {
        sum.inputs.reverse();
    }
    passes::quantized(&graph).unwrap()
}

#[test]
fn the_first_block_of_resnet50_is_placed_alike_with_the_shortcut_first_or_last() {
    let graphs = [resnet50(false), resnet50(true)];
    let names = |g: &QGraph| -> Vec<String> { g.nodes.iter().map(|n| n.name.clone()).collect() };
    let downsample = names(&graphs[0]);
    let downsample = downsample
        .iter()
        .find(|n| n.contains("downsample"))
        .unwrap();
    for (text, copies) in [
        (String::new(), 0),
        // The sum was fused into the shortcut's convolution: the block's input and the other
        // operand travel there, the result travels back.
        (format!("\"{downsample}\" = \"d1\""), 3),
        ("\"layer1.0.conv3\" = \"d1\"".to_owned(), 2),
        ("\"layer1.0.*\" = \"d1\"".to_owned(), 2),
        ("\"layer*\" = \"d1\"\nfc = \"d1\"".to_owned(), 1),
    ] {
        let placed = graphs.each_ref().map(|g| {
            let placed = place(g, &targets(2), &rules(&text)).unwrap();
            let mut named: Vec<_> = names(g).into_iter().zip(placed.targets).collect();
            named.sort();
            (named, placed.copies.len())
        });
        assert_eq!(placed[0], placed[1], "{text}");
        assert_eq!(placed[0].1, copies, "{text}");
    }
}

#[test]
fn layers_of_a_device_stand_together() {
    // Two branches on two devices, interleaved in the graph.
    let graph = graph(vec![
        node("a1", "conv", &[0], 1),
        node("b1", "conv", &[0], 2),
        node("a2", "conv", &[1], 3),
        node("b2", "conv", &[2], 4),
        node("sum", "add", &[3, 4], 5),
    ]);
    let targets = targets(2);
    let placed = place(&graph, &targets, &rules("\"b*\" = \"d1\"")).unwrap();
    assert_eq!(placed.targets, [0, 1, 0, 1, 0].map(TargetId));
    let multi = compile(&graph, &targets, &placed, &LowerOptions::default()).unwrap();
    multi.validate().unwrap();
    let runs: Vec<_> = (multi.steps.iter())
        .map(|s| match s {
            Step::Run { part, layers } => (*part, layers.len()),
            Step::Copy { .. } | Step::Host(_) => (9, 0),
        })
        .collect();
    assert_eq!(runs, [(0, 2), (1, 2), (9, 0), (0, 1)]);
    assert_eq!(multi.inputs.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
}

#[test]
fn what_cannot_be_split_is_refused() {
    let mut wide = targets(2);
    wide[1].config = Config::from_json(r#"{"LOG_BATCH": 1}"#).unwrap();
    let graph = block([3, 4]);
    let placed = place(&graph, &wide, &rules("a = \"d1\"")).unwrap();
    let error = compile(&graph, &wide, &placed, &LowerOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "placement: d0 has a batch of 1, d1 of 2");
    let mut disordered = graph.clone();
    disordered.nodes.swap(0, 1);
    let error = place(&disordered, &wide, &Rules::default()).unwrap_err();
    assert_eq!(
        error,
        PlacementError::Order {
            node: "pool".into()
        }
    );
    let mut short = placed.clone();
    short.targets.pop();
    let error = compile(&graph, &targets(2), &short, &LowerOptions::default()).unwrap_err();
    assert!(matches!(error, PlacementError::Order { .. }));
}

/// Whether a node is a sum, and which earlier tensors it reads.
type Drawn = (bool, usize, usize);

/// Random networks: nodes, and for each a device that a rule wants, or none.
fn network(devices: usize) -> impl Strategy<Value = (Vec<Drawn>, Vec<Option<usize>>)> {
    (1..9usize).prop_flat_map(move |n| {
        let node = (any::<bool>(), any::<usize>(), any::<usize>());
        let fixed = prop::option::weighted(0.4, 0..devices);
        (
            prop::collection::vec(node, n),
            prop::collection::vec(fixed, n),
        )
    })
}

fn build(nodes: &[Drawn], exchanged: bool) -> QGraph {
    let make = |(i, &(two, a, b)): (usize, &Drawn)| {
        let (a, b) = (a % (i + 1), b % (i + 1));
        let inputs = match (two, exchanged) {
            (false, _) => vec![a],
            (true, false) => vec![a, b],
            (true, true) => vec![b, a],
        };
        node(
            &format!("n{i}"),
            if two { "add" } else { "relu" },
            &inputs,
            i + 1,
        )
    };
    graph(nodes.iter().enumerate().map(make).collect())
}

fn fixing(fixed: &[Option<usize>]) -> Rules {
    let rule = |(i, d): (usize, &Option<usize>)| d.map(|d| format!("n{i} = \"d{d}\"\n"));
    rules(
        &fixed
            .iter()
            .enumerate()
            .filter_map(rule)
            .collect::<String>(),
    )
}

/// Every placement that keeps the fixed nodes, by exhaustion: the smallest cost.
fn fewest(uses: &Uses, fixed: &[Option<usize>], devices: usize) -> u128 {
    let all = (0..devices.pow(fixed.len() as u32)).map(|code| {
        let digit = |i: usize| code / devices.pow(i as u32) % devices;
        (0..fixed.len())
            .map(|i| TargetId(digit(i)))
            .collect::<Vec<_>>()
    });
    let kept = all.filter(|p| p.iter().zip(fixed).all(|(a, f)| f.is_none_or(|f| f == a.0)));
    kept.map(|placed| uses.cost(&placed)).min().unwrap()
}

proptest! {
    #[test]
    fn two_devices_exchange_the_fewest_tensors((nodes, fixed) in network(2)) {
        let targets = targets(2);
        let rules = fixing(&fixed);
        let one = build(&nodes, false);
        let placed = place(&one, &targets, &rules).unwrap();
        for (at, fixed) in placed.targets.iter().zip(&fixed) {
            prop_assert!(fixed.is_none_or(|f| f == at.0));
        }
        let uses = Uses::of(&one).unwrap();
        prop_assert_eq!(uses.cost(&placed.targets), fewest(&uses, &fixed, 2));
        // Copies are exactly the differences between neighbours.
        for node in &one.nodes {
            let at = placed.targets[node.output.0 - 1];
            for input in node.op.inputs().into_iter().filter(|i| i.0 > 0) {
                let from = placed.targets[input.0 - 1];
                let copy = TensorCopy { tensor: input, from, to: at };
                prop_assert_eq!(placed.copies.contains(&copy), from != at);
            }
        }
        let other = place(&build(&nodes, true), &targets, &rules).unwrap();
        prop_assert_eq!(placed, other);
    }

    #[test]
    fn three_devices_keep_rules_and_come_close((nodes, fixed) in network(3)) {
        let targets = targets(3);
        let one = build(&nodes, false);
        let placed = place(&one, &targets, &fixing(&fixed)).unwrap();
        for (at, fixed) in placed.targets.iter().zip(&fixed) {
            prop_assert!(fixed.is_none_or(|f| f == at.0));
        }
        let uses = Uses::of(&one).unwrap();
        let cost = uses.cost(&placed.targets);
        // A local optimum under exchanges of two devices is within twice the best.
        prop_assert!(cost <= 2 * fewest(&uses, &fixed, 3));
        let other = place(&build(&nodes, true), &targets, &fixing(&fixed)).unwrap();
        prop_assert_eq!(placed, other);
    }
}

#[test]
fn a_device_s_part_takes_the_tiles_that_are_known() {
    let graph = passes::quantized(&zoo::graph("resnet18").unwrap()).unwrap();
    let (targets, config) = (targets(2), Config::default());
    let options = LowerOptions::default();
    let cache = crate::tune::shipped().unwrap();
    let known =
        |part: &QGraph, config: &Config| crate::tune::tiles(&cache, part, config, &options, "pynq");
    let placement = place(&graph, &targets, &Rules::default()).unwrap();
    let tuned = compile_with(&graph, &targets, &placement, &options, &known).unwrap();
    let tiles = known(&graph, &config).unwrap();
    let whole = crate::lower::compile_with(&graph, &config, &options, &tiles).unwrap();
    assert!(!tiles.is_empty());
    assert_eq!(*tuned.parts[0].program, whole);
    let plain = compile(&graph, &targets, &placement, &options).unwrap();
    assert_ne!(plain, tuned);
    // Tiles that can't be told are the device's error.
    let fail = |_: &QGraph, _: &Config| Err(LowerError::Network("no tiles".to_owned()));
    let error = compile_with(&graph, &targets, &placement, &options, &fail).unwrap_err();
    assert_eq!(error.to_string(), "device d0: no tiles");
}

/// A segment that gives its input.
fn segment() -> Segment {
    let mut graph = Graph::default();
    for name in ["x", "y"] {
        let mut value = Value::new(name, vec![1, 16, 2, 2], None);
        value.element = Element::I8;
        graph.values.push(value);
    }
    graph.nodes.push(Node {
        name: "n".to_owned(),
        op: Op::Identity,
        inputs: vec![ValueId(0)],
        output: ValueId(1),
    });
    (graph.inputs, graph.outputs) = (vec![ValueId(0)], vec![ValueId(1)]);
    Segment::new(graph, &[("n".to_owned(), "Tanh".to_owned())]).unwrap()
}

#[test]
fn the_host_reads_a_tensor_where_it_lies() {
    let mut graph = graph(vec![
        node("before", "conv", &[0], 1),
        node("host", "relu", &[1], 2),
        node("after", "conv", &[2], 3),
    ]);
    graph.nodes[1].op = QOp::Host {
        segment: Arc::new(segment()),
        inputs: vec![TensorId(1)],
        output: 0,
    };
    let mut targets = targets(1);
    targets.push(Target::host(Config::default()));
    let placed = place(&graph, &targets, &Rules::default()).unwrap();
    assert_eq!(placed.targets, [0, 1, 0].map(TargetId));
    let multi = compile(&graph, &targets, &placed, &LowerOptions::default()).unwrap();
    multi.validate().unwrap();
    assert_eq!(
        (multi.host_ops(), multi.copies(), multi.steps.len()),
        (1, 0, 3)
    );
}
