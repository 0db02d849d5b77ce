//! Every kind, one after another.

use super::*;
use std::sync::Arc;

use crate::graph::{
    DepthMode, Element, Entries, MatMulForm, Node, OnnxAttribute, OnnxOp, Value, ValueId,
};
use crate::host::Segment;
use crate::qgraph::window::Pads;
use crate::qgraph::{Spread, Weights};
use crate::semantics::{Curve, Join};

const WINDOW: Window = Window {
    kernel: [3, 2],
    stride: [1, 2],
    dilation: [1, 1],
    pads: Pads {
        top: 0,
        left: 1,
        bottom: 2,
        right: 3,
    },
};
const ID: TensorId = TensorId(0);

/// The kind after another: a new one doesn't compile until it stands here.
fn next_op(op: &Op) -> Option<Op> {
    Some(match op {
        Op::Conv { .. } => Op::Relu,
        Op::Relu => Op::Clip { min: 0.0, max: 6.0 },
        Op::Clip { .. } => Op::Add,
        Op::Add => Op::MaxPool { window: WINDOW },
        Op::MaxPool { .. } => Op::AveragePool {
            window: WINDOW,
            count_include_pad: true,
        },
        Op::AveragePool { .. } => Op::GlobalAveragePool,
        Op::GlobalAveragePool => Op::Flatten,
        Op::Flatten => Op::Gemm { trans_b: true },
        Op::Gemm { .. } => Op::BatchNormalization { epsilon: 1e-5 },
        Op::BatchNormalization { .. } => Op::QuantizeLinear { axis: 1 },
        Op::QuantizeLinear { .. } => Op::DequantizeLinear { axis: 0 },
        Op::DequantizeLinear { .. } => Op::Identity,
        Op::Identity => Op::Pad {
            pads: Pads::from([1, 2, 3, 4]),
        },
        Op::Pad { .. } => {
            let axis = ("axis".to_owned(), OnnxAttribute::Int(1));
            Op::Onnx(Box::new(OnnxOp::new("Erf", 1, vec![axis])))
        }
        Op::Onnx(_) => Op::ConvTranspose {
            window: WINDOW,
            group: 2,
            output_padding: [0, 1],
        },
        Op::ConvTranspose { .. } => {
            let (axis, start, len, step) = (1, 2, 3, 4);
            let entries = Entries {
                axis,
                start,
                len,
                step,
            };
            entries.into()
        }
        Op::Slice { .. } => Op::Gather { axis: 1 },
        Op::Gather { .. } => Op::DepthToSpace {
            block: 2,
            mode: DepthMode::Crd,
        },
        Op::DepthToSpace { .. } => Op::SpaceToDepth { block: 2 },
        Op::SpaceToDepth { .. } => Op::Div,
        Op::Div => Op::PRelu,
        Op::PRelu => Op::Concat { axis: 1 },
        Op::Concat { .. } => Op::Mul,
        Op::Mul => Op::Sub,
        Op::Sub => Op::MatMul {
            form: MatMulForm::Left,
        },
        Op::MatMul { .. } => Op::LeakyRelu { alpha: 0.1 },
        Op::LeakyRelu { .. } => Op::HardSwish,
        Op::HardSwish => Op::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
        Op::HardSigmoid { .. } => Op::Resize { factors: [2, 3] },
        Op::Resize { .. } => return None,
    })
}

fn next_net(op: &NetOp) -> Option<NetOp> {
    Some(match op {
        NetOp::Conv(_) => NetOp::Pair {
            join: Join::Sum,
            a: ID,
            b: ID,
        },
        NetOp::Pair { .. } => NetOp::Constants {
            join: Join::Difference,
            input: ID,
            constants: Arc::new([0.5]),
        },
        NetOp::Constants { .. } => NetOp::Curve {
            input: ID,
            curve: Curve::HardSwish,
        },
        NetOp::Curve {
            curve: Curve::HardSwish,
            ..
        } => NetOp::Curve {
            input: ID,
            curve: Curve::Slopes(vec![0.1]),
        },
        NetOp::Curve { .. } => NetOp::Eltwise { input: ID },
        NetOp::Eltwise { .. } => NetOp::MaxPool {
            input: ID,
            window: WINDOW,
        },
        NetOp::MaxPool { .. } => NetOp::AvgPool {
            input: ID,
            window: WINDOW,
            count_include_pad: false,
        },
        NetOp::AvgPool { .. } => NetOp::Channels {
            inputs: vec![ID],
            map: vec![None],
            spread: Spread::NONE,
        },
        NetOp::Channels { .. } => NetOp::Host {
            part: Arc::new(Graph::default()),
            inputs: vec![ID, ID],
        },
        NetOp::Host { .. } => return None,
    })
}

fn next_integer(op: &QOp) -> Option<QOp> {
    let ops = vec![LaneOp::add(3), LaneOp::shr(4)];
    Some(match op {
        QOp::Conv(_) => QOp::Add(QPair {
            store: None,
            a: ID,
            a_ops: ops.clone(),
            b: ID,
            b_ops: vec![],
            epilogue: ops,
        }),
        QOp::Add(_) => QOp::Mul(QPair {
            store: None,
            a: ID,
            a_ops: vec![],
            b: ID,
            b_ops: ops.clone(),
            epilogue: ops,
        }),
        QOp::Mul(_) => QOp::Eltwise { input: ID, ops },
        QOp::Eltwise { .. } => QOp::MaxPool {
            input: ID,
            window: WINDOW,
            ops,
        },
        QOp::MaxPool { .. } => QOp::AvgPool {
            input: ID,
            window: WINDOW,
            count_include_pad: true,
            ops_by_count: vec![(4, ops)],
        },
        QOp::AvgPool { .. } => QOp::Channels {
            inputs: vec![ID],
            map: vec![None],
            spread: Spread::NONE,
            gain: 1,
            ops,
        },
        QOp::Channels { .. } => QOp::Host {
            segment: segment(),
            inputs: vec![ID],
            output: 0,
        },
        QOp::Host { .. } => return None,
    })
}

/// Checks a kind and all after it; how many there are.
fn check<T: Reflect>(first: T, next: fn(&T) -> Option<T>) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    let mut now = Some(first);
    while let Some(op) = now {
        let (kind, attributes) = (op.kind(), op.attributes());
        assert!(!kind.is_empty() && !kinds.contains(&kind), "{kind}");
        for (index, attribute) in attributes.iter().enumerate() {
            let Attribute { name, meaning, .. } = attribute;
            assert!(!name.is_empty() && !meaning.is_empty(), "{kind} {name}");
            let twice = attributes[..index].iter().any(|a| a.name == *name);
            assert!(!twice, "{kind} has {name} twice");
        }
        kinds.push(kind);
        now = next(&op);
    }
    kinds
}

#[test]
fn every_kind_of_every_network_describes_itself() {
    let conv = Op::Conv {
        window: WINDOW,
        group: 2,
    };
    let attributes = conv.attributes();
    let names: Vec<&str> = attributes.iter().map(|a| &*a.name).collect();
    assert_eq!(names, ["kernel", "stride", "dilation", "pads", "group"]);
    assert_eq!(check(conv, next_op).len(), 15 + 15);
    let conv = NetOp::Conv(NetConv {
        input: ID,
        window: WINDOW,
        weights: Weights::default(),
        group: 1,
        weight_scale: vec![],
        bias: vec![],
        residual: Some(ID),
        dense: false,
    });
    assert_eq!(check(conv, next_net).len(), 10);
    let conv = QOp::Conv(QConv {
        store: None,
        input: ID,
        window: WINDOW,
        weights: Weights::default(),
        group: 1,
        residual: Some((ID, vec![LaneOp::shl(2)])),
        epilogue: vec![LaneOp::min(127)],
        dense: false,
    });
    assert_eq!(check(conv, next_integer).len(), 8);
}

#[test]
fn attributes_are_json_with_their_types() {
    let op = Op::HardSigmoid {
        alpha: 0.5,
        beta: 0.25,
    };
    let json = serde_json::to_value(op.attributes()).unwrap();
    let expected = serde_json::json!([
        {"name": "alpha", "kind": "float", "value": 0.5, "meaning": "slope"},
        {"name": "beta", "kind": "float", "value": 0.25, "meaning": "value at 0"},
    ]);
    assert_eq!(json, expected);
    let kinds = [
        AttributeValue::Flag(true),
        AttributeValue::Int(1),
        AttributeValue::Ints(vec![]),
        AttributeValue::Float(1.0),
        AttributeValue::Texts(vec![]),
    ];
    for value in kinds {
        let attribute = Attribute::new("a", value, "b");
        let json = serde_json::to_value(&attribute).unwrap();
        assert_eq!(json["kind"], attribute.value.kind());
        let back: Attribute = serde_json::from_value(json).unwrap();
        assert_eq!(back, attribute);
    }
}

/// A Relu of the host.
fn segment() -> Arc<Segment> {
    let mut graph = Graph::default();
    for (name, element) in [("x", Element::I8), ("y", Element::I8)] {
        let mut value = Value::new(name, vec![1, 4], None);
        value.element = element;
        graph.values.push(value);
    }
    graph.nodes.push(Node {
        name: "n".to_owned(),
        op: Op::Identity,
        inputs: vec![ValueId(0)],
        output: ValueId(1),
    });
    (graph.inputs, graph.outputs) = (vec![ValueId(0)], vec![ValueId(1)]);
    Arc::new(Segment::new(graph, &[("gate".to_owned(), "Sigmoid".to_owned())]).unwrap())
}

#[test]
fn what_the_host_computes_lists_its_nodes() {
    let op = QOp::Host {
        segment: segment(),
        inputs: vec![ID],
        output: 1,
    };
    let texts: Vec<String> = op.attributes().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["nodes {gate (Sigmoid)}", "output 1"]);
}
