//! Products of matrices.

use super::fields::field;
use super::operator::Size::Product;
use super::operator::{Bound, Facts, Inputs, Kind, Operator, Size, Stated};
use crate::graph::{Element, MatMulForm, Op, ValueId};
use crate::onnx::import::attributes::Attributes;
use crate::onnx::import::state::Import;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gemm", Product, Kind::First).device((2, 3), |import, node, _, inputs| {
        import.matrix(node, inputs)
    }),
    Operator::new("MatMul", Product, Kind::First).device((2, 2), |import, node, _, inputs| {
        import.matrix(node, inputs)
    }),
    Operator::new("MatMulInteger", Product, Kind::Is(Element::I32)),
    Operator::new(
        "Einsum",
        Size::Computed(Bound::Stated(Stated::Letters)),
        Kind::First,
    ),
];

pub(super) fn gemm(trans_b: bool) -> Facts<'static> {
    let meaning = "whether weights are [N][K], not [K][N]";
    Facts::new(
        "Gemm",
        move |inputs| row_shape(inputs, trans_b),
        move |reading, node| reading.gemm(node, trans_b),
    )
    .fields([field(
        ("transB", "transB"),
        AttributeValue::Flag(trans_b),
        meaning,
    )])
}

pub(super) fn mat_mul(form: MatMulForm) -> Facts<'static> {
    let side = AttributeValue::Texts(vec![form.name().to_owned()]);
    Facts::new(
        "MatMul",
        move |inputs| shape(inputs, form),
        move |reading, node| reading.product(node, form),
    )
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

fn row_shape(inputs: &Inputs<'_>, trans_b: bool) -> Result<Vec<usize>, String> {
    let (x, w) = (inputs.shape(0)?, inputs.shape(1)?);
    let (&[m, k], &[r, c]) = (x, w) else {
        return Err(format!("operands {x:?} and {w:?} aren't matrices"));
    };
    let (inner, n) = if trans_b { (c, r) } else { (r, c) };
    if k != inner {
        return Err(format!("inner sizes {k} and {inner} differ"));
    }
    if m != 1 {
        return Err(format!("operand of shape {x:?}: the batch must be 1"));
    }
    match inputs.shape(2) {
        Ok(bias) if bias.iter().product::<usize>() != n => {
            Err(format!("bias of shape {bias:?}, not [{n}]"))
        }
        _ => Ok(vec![m, n]),
    }
}

fn shape(inputs: &Inputs<'_>, form: MatMulForm) -> Result<Vec<usize>, String> {
    let (x, w, bias) = (inputs.shape(0)?, inputs.shape(1)?, inputs.shape(2).ok());
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

impl Import<'_> {
    /// The operator of a MatMul or Gemm, whose inputs become what is computed and then the constant.
    ///
    /// # Errors
    /// Attributes that aren't supported, and two operands that are computed.
    fn matrix(&self, node: &Attributes<'_>, inputs: &mut [ValueId]) -> Result<Op, String> {
        let is_gemm = node.op_type() == "Gemm";
        if is_gemm
            && (node.float("alpha", 1.0) != 1.0
                || node.float("beta", 1.0) != 1.0
                || node.int("transA", 0) != 0)
        {
            return Err("alpha and beta must be 1 and transA 0".to_owned());
        }
        let trans_b = is_gemm && node.int("transB", 0) != 0;
        let rank = |id: ValueId| self.graph.values[id.0].shape.len();
        let one_row = matches!(self.graph.values[inputs[0].0].shape[..], [1, _]);
        let constant = [0, 1].map(|i| self.is_constant(inputs[i]));
        if one_row && !constant[0] {
            return Ok(Op::Gemm { trans_b });
        }
        let form = match [0, 1].map(|i| constant[i] && rank(inputs[i]) == 2) {
            [false, true] if trans_b => MatMulForm::RightTransposed,
            [false, true] => MatMulForm::Right,
            [true, false] if !trans_b && inputs.len() == 2 => {
                inputs.swap(0, 1);
                MatMulForm::Left
            }
            _ => return Err("neither operand alone is a constant matrix".to_owned()),
        };
        Ok(Op::MatMul { form })
    }

    /// Whether a value is an initializer, or one that is rounded and dequantised, or transposed.
    fn is_constant(&self, mut id: ValueId) -> bool {
        while self.graph.values[id.0].data.is_none() {
            let rounds = |op: &Op| {
                let rounds = matches!(
                    op,
                    Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. } | Op::Identity
                );
                rounds
                    || matches!(op, Op::Onnx(op) if op.domain.is_empty() && op.kind == "Transpose")
            };
            match self.maker(id).filter(|node| rounds(&node.op)) {
                Some(node) => id = node.inputs[0],
                None => return false,
            }
        }
        true
    }
}
