//! Sums, differences, products and quotients, with ONNX's broadcasting.

use super::elementwise::broadcast;
use super::operator::{Found, Made, Operator};
use crate::graph::{Element, Op};
use crate::onnx::import::state::Import;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::broadcast("Add").device((2, 2), sum),
    Operator::broadcast("Sub").device((2, 2), |import, found| pair(import, found, Op::Sub)),
    Operator::broadcast("Mul").device((2, 2), |import, found| pair(import, found, Op::Mul)),
    Operator::broadcast("Div").device((2, 2), |import, found| pair(import, found, Op::Div)),
];

fn pair(import: &Import<'_>, found: &Found<'_>, op: Op) -> Result<Made, String> {
    let given = import.given(found);
    if given
        .values
        .iter()
        .any(|value| value.element != Element::F32)
    {
        return Err("an operand is not a float".to_owned());
    }
    Ok(found.made(op, broadcast(given.shape(0)?, given.shape(1)?)?))
}

/// One operand may be a constant for each channel; what remains of those is refused later.
fn sum(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let (x, y) = (given.shape(0)?, given.shape(1)?);
    let is_vector = |shape: &[usize]| shape.iter().filter(|&&d| d != 1).count() <= 1;
    let (large, small) = if x.len() >= y.len() { (x, y) } else { (y, x) };
    let (large, small) = if large.len() == small.len() && is_vector(large) {
        (small, large)
    } else {
        (large, small)
    };
    let channels = large.get(1).copied();
    if x == y || is_vector(small) && Some(small.iter().product()) == channels {
        return Ok(found.made(Op::Add, large.to_vec()));
    }
    pair(import, found, Op::Add)
}
