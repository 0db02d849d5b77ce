//! Operators on integers, with scales of their own.

use super::model::{Model, int, ints};
use crate::graph::Graph;
use crate::onnx::{OnnxError, proto};
use crate::passes;
use crate::reflect::Reflect;

/// `x` as integers `q`, a node that makes `r` of constants and it, and `r` as `y`.
fn model(op: &str, inputs: &[&str], attributes: &[proto::Attribute]) -> Model {
    let model = Model::default()
        .floats("s", &[], vec![0.5])
        .floats("t", &[], vec![0.25])
        .floats("by channel", &[3], vec![0.1, 0.2, 0.3])
        .int8("z", &[], &[-7])
        .int8("u", &[], &[5])
        .int8("w", &[3, 2, 3, 3], &[3; 54])
        .int8("matrix", &[60, 4], &[-2; 240])
        .int8("other", &[1, 2, 5, 6], &[9; 60])
        .longs("flat", &[1, 60])
        .node("QuantizeLinear", &["x", "s", "z"], "q", &[])
        .node("Reshape", &["q", "flat"], "row", &[])
        .node(op, inputs, "r", attributes);
    let output = match op.contains("Integer") {
        true => model
            .node("Cast", &["r"], "real", &[int("to", 1)])
            .node("Mul", &["t", "real"], "product", &[])
            .node("QuantizeLinear", &["product", "t", "u"], "rq", &[]),
        false => model.node("Identity", &["r"], "rq", &[]),
    };
    output.node("DequantizeLinear", &["rq", "t", "u"], "y", &[])
}

fn kinds(graph: &Graph) -> Vec<&'static str> {
    graph.nodes.iter().map(|node| node.op.kind()).collect()
}

const WINDOW: &str = "kernel_shape";

/// Every operator with sound inputs, and the kind that it becomes.
fn operators() -> Vec<(
    &'static str,
    Vec<&'static str>,
    Vec<proto::Attribute>,
    &'static str,
)> {
    let (x, unary) = (["q", "s", "z"], vec!["q", "s", "z", "t", "u"]);
    let pair = |a: [&'static str; 3], b: [&'static str; 3]| [&a[..], &b, &["t", "u"]].concat();
    let conv = pair(x, ["w", "by channel", "u"]);
    let dense = pair(["row", "s", "z"], ["matrix", "t", "u"]);
    let window = || vec![ints(WINDOW, &[2, 2])];
    vec![
        ("QLinearConv", conv, vec![ints("pads", &[1; 4])], "Conv"),
        ("QLinearMatMul", dense.clone(), vec![], "Gemm"),
        (
            "QGemm",
            [&dense[..6], &["", "t", "u"]].concat(),
            vec![],
            "Gemm",
        ),
        ("QLinearAdd", pair(x, x), vec![], "Add"),
        ("QLinearMul", pair(x, x), vec![], "Mul"),
        (
            "QLinearConcat",
            [&["t", "u"], &x[..], &x].concat(),
            vec![int("axis", 1)],
            "Concat",
        ),
        (
            "QLinearGlobalAveragePool",
            unary.clone(),
            vec![],
            "GlobalAveragePool",
        ),
        ("QLinearAveragePool", unary.clone(), window(), "AveragePool"),
        (
            "QLinearReduceMean",
            unary.clone(),
            vec![ints("axes", &[2, 3])],
            "GlobalAveragePool",
        ),
        ("QLinearLeakyRelu", unary.clone(), vec![], "LeakyRelu"),
        ("QLinearSigmoid", unary.clone(), vec![], "Sigmoid"),
        (
            "QLinearSoftmax",
            unary,
            vec![int("axis", 1), int("opset", 13)],
            "Softmax",
        ),
        ("ConvInteger", vec!["q", "w", "z", "u"], vec![], "Conv"),
        ("MatMulInteger", vec!["row", "matrix", "z"], vec![], "Gemm"),
    ]
}

#[test]
fn operators_on_integers_are_those_between_scales() {
    for (op, inputs, attributes, kind) in operators() {
        for domain in ["", "com.microsoft"] {
            let mut model = model(op, &inputs, &attributes);
            model.0.node[2].domain = domain.to_owned();
            let graph = model.read(13).unwrap();
            let kinds = kinds(&graph);
            let at = kinds.iter().position(|k| *k == kind);
            let at = at.unwrap_or_else(|| panic!("{op}: {kinds:?}"));
            assert_eq!(graph.nodes[at].name, format!("{op} r"));
            let reals = &kinds[at + 1..];
            assert!(reals.starts_with(&["QuantizeLinear"]), "{op}: {kinds:?}");
            assert!(
                !kinds
                    .iter()
                    .any(|k| k.contains("Linear") && k.starts_with('Q') && *k != "QuantizeLinear")
            );
            // What the device and the host compute is compiled with the zero points.
            let planned = passes::quantized(&graph);
            let planned = planned.unwrap_or_else(|e| panic!("{op}: {e}"));
            assert_eq!(planned.tensors[planned.outputs[0].0].zero, 5, "{op}");
        }
    }
}

#[test]
fn what_moves_integers_keeps_their_steps() {
    let window = || vec![ints(WINDOW, &[2, 2])];
    for (op, inputs, attributes) in [
        ("MaxPool", &["q"][..], window()),
        ("Flatten", &["q"], vec![]),
        ("Concat", &["q", "q"], vec![int("axis", 1)]),
    ] {
        let mut model = model(op, inputs, &attributes);
        // They have the input's.
        for node in &mut model.0.node[3..] {
            node.input = match node.op_type == "DequantizeLinear" {
                true => ["rq", "s", "z"].map(str::to_owned).to_vec(),
                false => vec!["r".to_owned()],
            };
        }
        let planned = passes::quantized(&model.read(13).unwrap()).unwrap();
        assert_eq!(planned.tensors[planned.outputs[0].0].zero, -7, "{op}");
    }
}

#[test]
fn forms_that_lack_something_are_refused_by_name() {
    for (op, inputs, attributes, _) in operators() {
        for count in 0..inputs.len() {
            // A zero point of the operands may be left out, and so may what follows the last.
            for gap in [false, true] {
                let given: Vec<&str> = match gap {
                    false => inputs[..count].to_vec(),
                    true => inputs
                        .iter()
                        .enumerate()
                        .map(|(i, x)| if i == count { "" } else { x })
                        .collect(),
                };
                match model(op, &given, &attributes).read(13) {
                    Ok(graph) => drop(passes::quantized(&graph)),
                    Err(error) => assert!(matches!(error, OnnxError::Node { .. }), "{op}: {error}"),
                }
            }
        }
        let last = model(op, &inputs[..inputs.len() - 1], &attributes).read(13);
        if op.starts_with("QLinear") && op != "QLinearConcat" {
            let error = last.unwrap_err().to_string();
            assert!(error.contains(op), "{op}: {error}");
        }
        let mut otherwise = attributes.clone();
        otherwise.push(int("channels_last", 1));
        if op.starts_with('Q') {
            assert!(model(op, &inputs, &otherwise).read(13).is_err(), "{op}");
        }
    }
}

#[test]
fn names_that_exist_are_not_taken() {
    let mut model = model("QLinearAdd", &["q", "s", "z", "q", "s", "z", "t", "u"], &[]);
    for name in ["r/operand0", "r/real", "r/real'"] {
        model = model.node("Relu", &["x"], name, &[]);
    }
    assert!(model.read(13).is_ok());
}
