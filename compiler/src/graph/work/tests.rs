use super::*;
use crate::graph::{OnnxAttribute, OnnxOp, Value};
use crate::qgraph::window::Window;

/// A node of two inputs.
fn macs(op: Op, shapes: [&[usize]; 3]) -> u64 {
    let values = shapes.iter().map(|s| Value::new("", s.to_vec(), None));
    let node = Node {
        name: String::new(),
        op,
        inputs: vec![ValueId(0), ValueId(1)],
        output: ValueId(2),
    };
    let graph = Graph {
        values: values.collect(),
        ..Graph::default()
    };
    graph.node_macs(&node)
}

fn written(kind: &'static str, attributes: Vec<(String, OnnxAttribute)>) -> Op {
    Op::Onnx(Box::new(OnnxOp::new(kind, 2, attributes)))
}

#[test]
fn products_count_each_pair_once() {
    let window = Window::whole([3, 3]);
    let conv = Op::Conv { window, group: 2 };
    assert_eq!(
        macs(conv, [&[1, 4, 8, 8], &[6, 2, 3, 3], &[1, 6, 6, 6]]),
        6 * 2 * 9 * 36
    );
    let up = Op::ConvTranspose {
        window,
        group: 1,
        output_padding: [0; 2],
    };
    assert_eq!(
        macs(up, [&[1, 4, 5, 5], &[4, 6, 3, 3], &[1, 6, 7, 7]]),
        4 * 6 * 9 * 25
    );
    let dense = Op::Gemm { trans_b: true };
    assert_eq!(macs(dense, [&[1, 7], &[5, 7], &[1, 5]]), 35);
    for (form, shapes) in [
        (
            MatMulForm::Right,
            [&[1, 2, 9, 7][..], &[7, 5], &[1, 2, 9, 5]],
        ),
        (MatMulForm::RightTransposed, [&[18, 7], &[5, 7], &[18, 5]]),
        (MatMulForm::Left, [&[1, 7, 18], &[5, 7], &[1, 5, 18]]),
    ] {
        assert_eq!(macs(Op::MatMul { form }, shapes), 2 * 9 * 7 * 5);
    }
    let tokens: [&[usize]; 3] = [&[1, 2, 9, 7], &[1, 2, 7, 5], &[1, 2, 9, 5]];
    assert_eq!(macs(written("MatMul", vec![]), tokens), 2 * 9 * 7 * 5);
    let text = |t: &str| OnnxAttribute::Text(t.to_owned());
    let sum = written(
        "Einsum",
        vec![("equation".to_owned(), text("bhid,bhdj->bhij"))],
    );
    assert_eq!(macs(sum, tokens), 2 * 9 * 7 * 5);
    let turned = written("Gemm", vec![("transA".to_owned(), OnnxAttribute::Int(1))]);
    assert_eq!(macs(turned, [&[7, 3], &[7, 5], &[3, 5]]), 3 * 7 * 5);
    let line = written("Conv", vec![]);
    assert_eq!(
        macs(line, [&[1, 4, 8], &[6, 4, 3], &[1, 6, 6]]),
        6 * 4 * 3 * 6
    );
    assert_eq!(macs(Op::Add, [&[1, 7], &[1, 7], &[1, 7]]), 0);
}
