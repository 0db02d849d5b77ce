//! How much a node computes.

use std::collections::HashMap;

use super::{Graph, MatMulForm, Node, Op, ValueId};

impl Graph {
    /// Multiply-adds of a node for one image, by the values' shapes: of convolutions and products of
    /// matrices, 0 of any other.
    pub fn node_macs(&self, node: &Node) -> u64 {
        let (Some(&first), Some(&second)) = (node.inputs.first(), node.inputs.get(1)) else {
            return 0;
        };
        let shape = |id: &ValueId| &self.values[id.0].shape[..];
        let x = shape(&first);
        let sizes = match node.op.facts().kind {
            // Every weight meets every position behind the batch and the channels.
            "Conv" => [self.size(second), self.positions(node.output)],
            // Here the positions are those that are read.
            "ConvTranspose" => [self.size(second), self.positions(first)],
            // Every value of the output is a sum over a dimension that it lacks.
            "MatMul" | "Gemm" => {
                let before_last = match &node.op {
                    Op::MatMul { form } => *form == MatMulForm::Left,
                    Op::Onnx(op) => op.int("transA", 0) != 0,
                    _ => false,
                };
                let inner = x.iter().rev().nth(usize::from(before_last));
                [self.size(node.output), inner.map_or(1, |&d| d as u64)]
            }
            "Einsum" => match &node.op {
                Op::Onnx(op) => {
                    let equation = op.text("equation").unwrap_or_default();
                    [
                        letters(equation.as_bytes(), node.inputs.iter().map(shape)),
                        1,
                    ]
                }
                _ => [0, 0],
            },
            _ => [0, 0],
        };
        sizes[0].saturating_mul(sizes[1])
    }

    /// Values that a node gives.
    pub fn node_values(&self, node: &Node) -> u64 {
        self.size(node.output)
    }

    fn size(&self, id: ValueId) -> u64 {
        elements(&self.values[id.0].shape)
    }

    fn positions(&self, id: ValueId) -> u64 {
        elements(self.values[id.0].shape.get(2..).unwrap_or(&[]))
    }
}

/// What stands for the same index of several operands is counted once.
fn letters<'s>(equation: &[u8], shapes: impl Iterator<Item = &'s [usize]>) -> u64 {
    let inputs = equation.split(|&c| c == b'>').next().unwrap_or(&[]);
    let mut sizes: HashMap<u8, u64> = HashMap::new();
    for (operand, shape) in inputs.split(|&c| c == b',').zip(shapes) {
        let named = operand.iter().filter(|c| c.is_ascii_alphabetic());
        for (letter, &size) in named.zip(shape) {
            sizes.insert(*letter, size as u64);
        }
    }
    sizes
        .values()
        .fold(1, |all, &size| all.saturating_mul(size))
}

fn elements(shape: &[usize]) -> u64 {
    shape.iter().map(|&d| d as u64).fold(1, u64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{OnnxAttribute, OnnxOp, Value};
    use crate::window::Window;

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
        let text = |t: &str| OnnxAttribute::Text(t.as_bytes().to_vec());
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
}
