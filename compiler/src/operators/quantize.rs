//! Between reals and integers.

use super::fields::{Facts, count};
use super::operator::{Bound, Found, Kind, Made, Operator, Size};
use crate::graph::{Element, Op};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("QuantizeLinear", Size::First, Kind::Third).device((2, 3), |import, found| {
        scaled(import, found, |axis| Op::QuantizeLinear { axis })
    }),
    Operator::new("DequantizeLinear", Size::First, Kind::Is(Element::F32))
        .device((2, 3), |import, found| {
            scaled(import, found, |axis| Op::DequantizeLinear { axis })
        }),
    Operator::new(
        "DynamicQuantizeLinear",
        Size::Computed(Bound::First),
        Kind::Is(Element::U8),
    ),
];

/// What is known of either, by its name.
pub(super) fn linear(kind: &'static str, axis: usize) -> Facts<'static> {
    Facts::new(kind, Role::Each).fields([count("axis", axis, "axis of several scales")])
}

fn scaled(import: &Import<'_>, found: &Found<'_>, op: fn(usize) -> Op) -> Result<Made, String> {
    let given = import.given(found);
    let scales = given.shape(1)?;
    if scales.contains(&0) {
        return Err(format!("scales of shape {scales:?}: there is none"));
    }
    import.same(found, op(found.op.count("axis", 1)?))
}
