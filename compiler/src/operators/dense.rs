//! Products of matrices.

use std::collections::HashSet;

use super::elementwise::broadcast;
use super::fields::{Facts, field};
use super::operator::Size::Product;
use super::operator::{Bound, Found, Given, Kind, Made, Operator};
use crate::graph::{Element, MatMulForm, Op, ValueId};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gemm", Product, Kind::First).device((2, 3), matrix),
    Operator::new("MatMul", Product, Kind::First).device((2, 2), matrix),
    Operator::new("MatMulInteger", Product, Kind::Is(Element::I32)),
    Operator::computed("Einsum", Bound::Letters),
];

pub(super) fn gemm(trans_b: bool) -> Facts<'static> {
    let meaning = "whether weights are [N][K], not [K][N]";
    Facts::new("Gemm", Role::Other).fields([field(
        ("transB", "transB"),
        AttributeValue::Flag(trans_b),
        meaning,
    )])
}

pub(super) fn mat_mul(form: MatMulForm) -> Facts<'static> {
    let side = AttributeValue::Texts(vec![form.name().to_owned()]);
    Facts::new("MatMul", Role::Other)
        .fields([field(("form", ""), side, "the side of the constant")])
        .write(move |node| match form {
            MatMulForm::RightTransposed => {
                node.kind = "Gemm";
                node.attributes.push(("transB", AttributeValue::Int(1)));
            }
            // A product of dimensions before the last two has no bias.
            MatMulForm::Right if node.inputs.len() > 2 => node.kind = "Gemm",
            MatMulForm::Right => {}
            MatMulForm::Left => node.inputs.swap(0, 1),
        })
}

/// The shape of a MatMul or a Gemm.
///
/// # Errors
/// Operands that don't fit each other.
pub(crate) fn shape(given: &Given<'_>) -> Result<Vec<usize>, String> {
    let (op, a, b) = (given.op, given.shape(0)?, given.shape(1)?);
    if op.kind == "Gemm" {
        let (&[mut m, mut k], &[mut inner, mut n]) = (a, b) else {
            return Err(format!("operands {a:?} and {b:?} aren't matrices"));
        };
        if op.int("transA", 0) != 0 {
            (m, k) = (k, m);
        }
        if op.int("transB", 0) != 0 {
            (inner, n) = (n, inner);
        }
        if k != inner {
            return Err(format!("inner sizes {k} and {inner} differ"));
        }
        return Ok(vec![m, n]);
    }
    let fail = || format!("operands {a:?} and {b:?} don't fit each other");
    let (rows, k, before) = match a {
        [] => return Err(fail()),
        [k] => (None, *k, &[][..]),
        [before @ .., m, k] => (Some(*m), *k, before),
    };
    let (inner, columns, others) = match b {
        [] => return Err(fail()),
        [k] => (*k, None, &[][..]),
        [others @ .., k, n] => (*k, Some(*n), others),
    };
    if k != inner {
        return Err(fail());
    }
    let mut shape = broadcast(before, others)?;
    shape.extend(rows.into_iter().chain(columns));
    Ok(shape)
}

/// A MatMul or Gemm, whose inputs become what is computed and then the constant.
///
/// # Errors
/// Attributes that aren't supported, and two operands that are computed.
fn matrix(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let op = &found.op;
    // A MatMul has none of these.
    if op.float("alpha", 1.0) != 1.0 || op.float("beta", 1.0) != 1.0 || op.int("transA", 0) != 0 {
        return Err("alpha and beta must be 1 and transA 0".to_owned());
    }
    let trans_b = op.int("transB", 0) != 0;
    let given = import.given(found);
    let (a, b, shape) = (given.shape(0)?, given.shape(1)?, shape(&given)?);
    if a.contains(&0) || b.contains(&0) {
        return Err(format!("operands {a:?} and {b:?}, of which one is empty"));
    }
    let n = shape.last().copied().unwrap_or(1);
    let bias = given.shape(2).ok();
    if let Some(bias) = bias
        && bias != [n]
        && bias != [1, n]
    {
        return Err(format!("bias of shape {bias:?}, not [{n}]"));
    }
    let constant = [0, 1].map(|i| is_constant(import, found.inputs[i]));
    if let ([1, _], [_, _]) = (a, b)
        && !constant[0]
        && !is_computed(import, found.inputs[1])
    {
        return Ok(found.made(Op::Gemm { trans_b }, shape));
    }
    let matrix = [(constant[0], a), (constant[1], b)].map(|(known, of)| known && of.len() == 2);
    let (form, inputs) = match (matrix, a, b) {
        ([false, true], [.., _, _], _) if trans_b => {
            (MatMulForm::RightTransposed, found.inputs.clone())
        }
        ([false, true], [.., _, _], _) => (MatMulForm::Right, found.inputs.clone()),
        ([true, false], _, [before @ .., _, _])
            if !trans_b && bias.is_none() && before.iter().all(|&d| d == 1) =>
        {
            (MatMulForm::Left, vec![found.inputs[1], found.inputs[0]])
        }
        _ => return Err("neither operand alone is a constant matrix".to_owned()),
    };
    Ok(Made {
        op: Op::MatMul { form },
        inputs,
        shape,
    })
}

/// Whether a value depends on an input of the model.
fn is_computed(import: &Import<'_>, id: ValueId) -> bool {
    let (mut seen, mut left) = (HashSet::from([id]), vec![id]);
    while let Some(id) = left.pop() {
        if import.graph.inputs.contains(&id) {
            return true;
        }
        let read = import.maker(id).map_or(&[][..], |node| &node.inputs);
        left.extend(read.iter().copied().filter(|id| seen.insert(*id)));
    }
    false
}

/// Whether a value is an initializer, or one that is rounded and dequantised, or transposed.
fn is_constant(import: &Import<'_>, mut id: ValueId) -> bool {
    let rounds = |op: &Op| match op {
        Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } | Op::Identity => true,
        Op::Onnx(op) => op.kind == "Transpose",
        _ => false,
    };
    while import.graph.values[id.0].data.is_none() {
        match import.maker(id).filter(|node| rounds(&node.op)) {
            Some(node) => id = node.inputs[0],
            None => return false,
        }
    }
    true
}
