use super::*;
use crate::engine::model;
use crate::graph::{Data, Graph, Node, OnnxAttribute, OnnxOp, Op, Value, ValueId};

/// The one-unit RNN of an input of one value a step, and what it reads.
fn steps(w: f32, r: f32, x: &[f32]) -> Vec<f32> {
    let mut state = 0f32;
    let next = |x: &f32| {
        state = (w * x + r * state).tanh();
        state
    };
    x.iter().map(next).collect()
}

/// `x -> Relu -> RNN -> Neg -> RNN -> y`, of which the Relu and the Neg are the library's; `z` is the sum of the
/// Relu and the first RNN.
fn network() -> Graph {
    let shape = [3, 1, 1, 1];
    let value = |(name, shape, data): (&str, &[usize], Option<f32>)| {
        let data = data.map(|v| Data::F32(vec![v]));
        Value::new(name, shape.to_vec(), data)
    };
    let values = [
        ("x", &shape[..3], None),
        ("w", &[1, 1, 1], Some(0.5)),
        ("r", &[1, 1, 1], Some(-0.7)),
        ("a", &shape[..3], None),
        ("b", &shape, None),
        ("c", &shape, None),
        ("d", &shape[..3], None),
        ("y", &shape, None),
        ("z", &shape, None),
    ];
    let rnn = || {
        OnnxOp::new(
            "RNN",
            3,
            vec![("hidden_size".to_owned(), OnnxAttribute::Int(1))],
        )
    };
    let squeeze = |kind| OnnxOp::new(kind, 2, Vec::new());
    let onnx = |op| Op::Onnx(Box::new(op));
    let nodes: [(&str, Op, &[usize], usize); 6] = [
        ("relu", Op::Relu, &[0], 3),
        ("first", onnx(rnn()), &[3, 1, 2], 4),
        ("neg", onnx(OnnxOp::new("Neg", 1, Vec::new())), &[4], 5),
        ("squeeze", onnx(squeeze("Squeeze")), &[5, 9], 6),
        ("second", onnx(rnn()), &[6, 1, 2], 7),
        ("sum", Op::Add, &[3, 4], 8),
    ];
    let node = |(name, op, inputs, output): (&str, Op, &[usize], usize)| Node {
        name: name.to_owned(),
        op,
        inputs: inputs.iter().map(|&i| ValueId(i)).collect(),
        output: ValueId(output),
    };
    let axis = Value::new("axis", vec![1], Some(Data::I64(vec![1])));
    Graph {
        values: values.into_iter().map(value).chain([axis]).collect(),
        nodes: nodes.into_iter().map(node).collect(),
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId(7), ValueId(8)],
        ..Graph::default()
    }
}

const X: [f32; 3] = [0.4, -0.3, 1.1];

fn run(
    inputs: &[(&str, &[usize], &[f32])],
    outputs: &[&str],
) -> Result<Vec<Vec<f32>>, EngineError> {
    let graph = network();
    let engine = Engine::new(model(&graph, &graph.outputs))?;
    let data: Vec<Data> = inputs.iter().map(|(.., v)| Data::F32(v.to_vec())).collect();
    let given = inputs.iter().zip(&data);
    let given = given.map(|(&(name, shape, _), data)| Lent { name, shape, data });
    let given: Vec<Lent<'_>> = given.collect();
    let floats = |tensor: Tensor| match tensor.data {
        Data::F32(v) => v,
        other => panic!("{other:?}"),
    };
    Ok(engine
        .run(&given, outputs)?
        .into_iter()
        .map(floats)
        .collect())
}

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let mut pairs = found.iter().zip(expected);
    assert!(
        pairs.all(|(a, b)| (a - b).abs() < 1e-6),
        "{found:?} {expected:?}"
    );
}

#[test]
fn operators_stand_before_between_and_behind_those_of_the_library() {
    let a = X.map(|v| v.max(0.0));
    let b = steps(0.5, -0.7, &a);
    let negated: Vec<f32> = b.iter().map(|v| -v).collect();
    let found = run(&[("x", &[3, 1, 1], &X)], &["y", "a", "y", "x", "w"]).unwrap();
    let y = steps(0.5, -0.7, &negated);
    for (found, expected) in found.iter().zip([&y[..], &a, &y, &X, &[0.5]]) {
        near(found, expected);
    }
}

#[test]
fn what_is_given_is_not_computed() {
    let b = [0.1, 0.2, 0.3];
    let found = run(&[("b", &[3, 1, 1, 1], &b)], &["y", "b"]).unwrap();
    near(&found[0], &steps(0.5, -0.7, &b.map(|v| -v)));
    near(&found[1], &b);
}

#[test]
fn a_fault_is_named() {
    let missing = run(&[], &["y"]).unwrap_err().to_string();
    assert!(missing.contains("can't compute it"), "{missing}");
    let unknown = run(&[("x", &[3, 1, 1], &X)], &["other"]);
    assert_eq!(unknown, Err(EngineError::Name("other".to_owned())));
    let short = run(&[("a", &[3, 1, 1], &X[..2])], &["b"]).unwrap_err();
    assert!(matches!(short, EngineError::Length { .. }), "{short}");
    let other = run(&[("a", &[3, 1, 2], &[0.0; 6])], &["b"]).unwrap_err();
    assert!(
        other.to_string().contains("input 1 has the shape"),
        "{other}"
    );
}

#[test]
fn a_tensor_in_a_larger_one_keeps_its_places() {
    let tensor = |shape: &[usize], data| Tensor {
        shape: shape.to_vec(),
        data: Data::I32(data),
    };
    let own = tensor(&[2, 1, 2], vec![1, 2, 3, 4]);
    let expected = [1, 2, -1, -1, -1, -1, 3, 4, -1, -1, -1, -1];
    let larger = own.clone().within(&[2, 2, 3]);
    assert_eq!(larger, Some(tensor(&[2, 2, 3], expected.to_vec())));
    let none = tensor(&[0, 1, 2], Vec::new()).within(&[1, 1, 2]);
    assert_eq!(none, Some(tensor(&[1, 1, 2], vec![-1, -1])));
    assert_eq!(own.clone().within(&[2, 1, 1]), None);
    assert_eq!(own.within(&[4]), None);
}
