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
            // Every weight meets every position but those along the channels.
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
            // Every weight of both inputs meets every step of each row, whichever outputs are read.
            "LSTM" | "GRU" | "RNN" => match (&node.op, node.inputs.get(2)) {
                (Op::Onnx(op), Some(&third)) if op.output == 0 => {
                    let steps = x.iter().take(2).map(|&d| d as u64);
                    let steps = steps.fold(1, u64::saturating_mul);
                    [self.size(second).saturating_add(self.size(third)), steps]
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
        let shape = &self.values[id.0].shape[..];
        let batch = shape.first().map_or(1, |&d| d as u64);
        batch.saturating_mul(elements(shape.get(2..).unwrap_or(&[])))
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
mod tests;
