//! Shapes of products with a constant matrix.

use crate::graph::MatMulForm;

/// The shape of a product of `x` and the matrix `w`, to which `bias` is added.
///
/// # Errors
/// Operands that don't fit each other, in words.
pub(super) fn infer(
    form: MatMulForm,
    x: &[usize],
    w: &[usize],
    bias: Option<&[usize]>,
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
