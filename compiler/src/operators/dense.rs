//! Products of matrices.

use super::fields::{Facts, field};
use super::operator::Size::Product;
use super::operator::{Bound, Found, Given, Kind, Made, Operator, Size, Stated};
use crate::graph::{Element, MatMulForm, Op, ValueId};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gemm", Product, Kind::First).device((2, 3), matrix),
    Operator::new("MatMul", Product, Kind::First).device((2, 2), matrix),
    Operator::new("MatMulInteger", Product, Kind::Is(Element::I32)),
    Operator::new(
        "Einsum",
        Size::Computed(Bound::Stated(Stated::Letters)),
        Kind::First,
    ),
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

/// The shape of a row's product with a matrix.
fn row(given: &Given<'_>, trans_b: bool) -> Result<Vec<usize>, String> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let (&[m, k], &[r, c]) = (x, w) else {
        return Err(format!("operands {x:?} and {w:?} aren't matrices"));
    };
    let (inner, n) = if trans_b { (c, r) } else { (r, c) };
    if k != inner {
        return Err(format!("inner sizes {k} and {inner} differ"));
    }
    match given.shape(2) {
        Ok(bias) if bias.iter().product::<usize>() != n => {
            Err(format!("bias of shape {bias:?}, not [{n}]"))
        }
        _ => Ok(vec![m, n]),
    }
}

/// The shape of a product of `x` with a constant matrix `w`.
fn product(
    x: &[usize],
    w: &[usize],
    bias: Option<&[usize]>,
    form: MatMulForm,
) -> Result<Vec<usize>, String> {
    let fail = || format!("operands {x:?} and {w:?} don't fit each other");
    let (&[rows, columns], [before @ .., m, k]) = (w, x) else {
        return Err(fail());
    };
    let (inner, n) = match form {
        MatMulForm::Right | MatMulForm::Left => (rows, columns),
        MatMulForm::RightTransposed => (columns, rows),
    };
    let (fits, last) = match form {
        MatMulForm::Right => (*k == inner, [*m, n]),
        MatMulForm::RightTransposed => (*k == inner && before.is_empty(), [*m, n]),
        MatMulForm::Left => (*m == columns && before.iter().all(|&d| d == 1), [rows, *k]),
    };
    if !fits || x.contains(&0) || w.contains(&0) {
        return Err(fail());
    }
    match bias {
        None => {}
        Some([size]) | Some([1, size])
            if *size == n && before.is_empty() && form != MatMulForm::Left => {}
        Some(bias) => return Err(format!("bias of shape {bias:?}, not [{n}]")),
    }
    Ok([before, &last].concat())
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
    let [a, b] = [given.shape(0)?, given.shape(1)?];
    let constant = [0, 1].map(|i| is_constant(import, found.inputs[i]));
    if matches!(a, [1, _]) && !constant[0] {
        return Ok(found.made(Op::Gemm { trans_b }, row(&given, trans_b)?));
    }
    let bias = given.shape(2).ok();
    let right = |form| Ok(found.made(Op::MatMul { form }, product(a, b, bias, form)?));
    match [(constant[0], a), (constant[1], b)].map(|(known, of)| known && of.len() == 2) {
        [false, true] if trans_b => right(MatMulForm::RightTransposed),
        [false, true] => right(MatMulForm::Right),
        [true, false] if !trans_b && bias.is_none() => {
            let form = MatMulForm::Left;
            Ok(Made {
                op: Op::MatMul { form },
                inputs: vec![found.inputs[1], found.inputs[0]],
                shape: product(b, a, None, form)?,
            })
        }
        _ => Err("neither operand alone is a constant matrix".to_owned()),
    }
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
