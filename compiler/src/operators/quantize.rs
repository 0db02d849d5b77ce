//! Between reals and integers.

use super::fields::{Facts, count};
use super::operator::{Bound, Found, Kind, Made, Operator, Size};
use crate::graph::{Element, Op};
use crate::onnx::import::state::Import;
use crate::onnx::proto::UINT8;
use crate::onnx::{data_type, element};
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
    let rank = given.shape(0)?.len();
    let mut axis = found.op.int("axis", 1);
    if axis < 0 {
        axis += rank as i64;
    }
    let axis = usize::try_from(axis).map_err(|_| format!("axis {axis} of {rank} dimensions"))?;
    if found.op.int("block_size", 0) != 0 {
        return Err("steps of blocks".to_owned());
    }
    if scales.len() > 1 {
        return Err(format!("scales of shape {scales:?}"));
    }
    let made = found.op.int("output_dtype", 0);
    let fits = match (found.op.kind, given.get(2)) {
        _ if made == 0 => true,
        ("QuantizeLinear", Some(zero)) => made == i64::from(data_type(zero.element)),
        ("QuantizeLinear", None) => made == i64::from(UINT8),
        _ => element(made as i32) == Ok(Element::F32),
    };
    if !fits {
        return Err(format!("output_dtype {made}"));
    }
    import.same(found, op(axis))
}
