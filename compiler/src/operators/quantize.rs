//! Between reals and integers.

use super::fields::count;
use super::operator::{Bound, Facts, Inputs, Kind, Operator, Size};
use crate::graph::{Element, Op};
use crate::passes::import::layout::Role;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("QuantizeLinear", Size::First, Kind::Third).device((2, 3), |_, node, _, _| {
        let axis = node.count("axis", 1)?;
        Ok(Op::QuantizeLinear { axis })
    }),
    Operator::new("DequantizeLinear", Size::First, Kind::Is(Element::F32)).device(
        (2, 3),
        |_, node, _, _| {
            let axis = node.count("axis", 1)?;
            Ok(Op::DequantizeLinear { axis })
        },
    ),
    Operator::new(
        "DynamicQuantizeLinear",
        Size::Computed(Bound::First),
        Kind::Is(Element::U8),
    ),
];

const AXIS: &str = "axis of several scales";

pub(super) fn quantize(axis: usize) -> Facts<'static> {
    Facts::new("QuantizeLinear", shape, move |reading, node| {
        reading.quantize(node, axis)
    })
    .fields([count("axis", axis, AXIS)])
    .role(Role::Each)
}

pub(super) fn dequantize(axis: usize) -> Facts<'static> {
    Facts::new("DequantizeLinear", shape, move |reading, node| {
        reading.dequantize(node, axis)
    })
    .fields([count("axis", axis, AXIS)])
    .role(Role::Each)
}

fn shape(inputs: &Inputs<'_>) -> Result<Vec<usize>, String> {
    let scales = inputs.shape(1)?;
    match scales.contains(&0) {
        true => Err(format!("scales of shape {scales:?}: there is none")),
        false => inputs.shape(0).map(<[usize]>::to_vec),
    }
}
