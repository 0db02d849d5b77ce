//! Padding with zeros.

use super::fields::{Facts, Steps, field};
use super::moves::cut;
use super::operator::{Bound, Found, Given, Made, Operator, axis};
use super::planes::{PADS, nchw};
use crate::graph::{Data, Entries, Op, ValueId};
use crate::onnx::elements;
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::qgraph::window::Pads;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] =
    &[Operator::computed("Pad", Bound::Pads).device((1, 4), read)];

pub(super) fn pad(pads: Pads) -> Facts<'static> {
    let sides = AttributeValue::ints(&pads.to_array());
    Facts::new("Pad", Role::Channels)
        .fields([field(("pads", ""), sides, PADS)])
        .steps(Steps::Input)
        .write(move |node| {
            let [top, left, bottom, right] = pads.to_array();
            let all = [0, 0, top, left, 0, 0, bottom, right].map(|p| p as i64);
            node.constant("pads", &[8], Data::I64(all.into()));
        })
}

/// The largest pad that is read.
const MAX_PAD: i64 = 65535;

/// What a Pad of zeros is: nothing, zeros around rows and columns, which the next operator may take over,
/// some entries of a dimension where pads are negative, or channels joined with constants of zeros.
///
/// # Errors
/// Any other padding, by what is not supported.
fn read(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let shape = given.shape(0)?.to_vec();
    let pads = padding(&given, shape.len())?;
    let padded = |axis: &usize| pads[*axis] != [0, 0];
    let axes: Vec<usize> = (0..shape.len()).filter(padded).collect();
    let positive = pads.iter().flatten().all(|p| (0..=MAX_PAD).contains(p));
    match (&axes[..], shape.len()) {
        ([], _) => Ok(found.unary(Op::Identity, shape)),
        (_, 4) if positive && axes[0] > 1 => {
            let [n, c, h, w] = nchw(&shape)?;
            let [[top, bottom], [left, right]] =
                [2, 3].map(|axis| pads[axis].map(|p: i64| p as usize));
            let pads = Pads::from([top, left, bottom, right]);
            Ok(found.unary(
                Op::Pad { pads },
                vec![n, c, h + top + bottom, w + left + right],
            ))
        }
        ([1], 2 | 4) if positive => {
            let around = pads[1].map(|p| p as usize);
            let mut zeros = |channels: usize, side: &str| -> Result<Option<ValueId>, String> {
                let mut shape = shape.clone();
                shape[1] = channels;
                let name = format!("{}.{side}", found.name);
                let made = elements(&name, &shape).and_then(|elements| {
                    let data = Some(Data::F32(vec![0.0; elements]));
                    let made = (channels > 0).then(|| import.define(&name, shape, data));
                    made.transpose()
                });
                made.map_err(|e| e.to_string())
            };
            let (before, behind) = (zeros(around[0], "before")?, zeros(around[1], "behind")?);
            let inputs = before.into_iter().chain([found.inputs[0]]).chain(behind);
            let inputs = inputs.collect();
            let mut shape = shape;
            shape[1] += around[0] + around[1];
            Ok(Made {
                op: Op::Concat { axis: 1 },
                inputs,
                shape,
            })
        }
        _ if pads.iter().flatten().all(|p| *p <= 0) => {
            let left = |&axis: &usize| {
                let [start, end] = pads[axis].map(|p| p.unsigned_abs() as usize);
                let len = shape[axis].checked_sub(start.saturating_add(end));
                let len = len.filter(|len| *len > 0)?;
                Some(Entries::run(axis, start, len))
            };
            let entries: Option<Vec<Entries>> = axes.iter().map(left).collect();
            let entries =
                entries.ok_or_else(|| format!("pads {pads:?} leave nothing of {shape:?}"))?;
            let shape = cut(&shape, &entries);
            Ok(found.unary(Op::Slice { entries }, shape))
        }
        _ => Err(format!(
            "pads {pads:?}; only rows and columns, or channels, may be padded, or dimensions cut"
        )),
    }
}

/// Pads before and behind each dimension, of zeros.
fn padding(given: &Given<'_>, rank: usize) -> Result<Vec<[i64; 2]>, String> {
    match given.op.text("mode") {
        None | Some("constant") => {}
        Some(mode) => return Err(format!("mode {mode}; only constant is supported")),
    }
    let zero = given.get(2).is_none_or(|value| match &value.data {
        Some(Data::F32(v)) => v.first() == Some(&0.0),
        Some(Data::I8(v)) => v.first() == Some(&0),
        _ => false,
    });
    if !zero {
        return Err("only zeros are supported".to_owned());
    }
    let pads = given.integers(1, "pads")?.ok_or("pads are missing")?;
    let axes = given.integers(3, "axes")?;
    let axes = axes.unwrap_or_else(|| (0..rank as i64).collect());
    let mut all = vec![[0, 0]; rank];
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} pads for {} dimensions", pads.len(), axes.len()));
    }
    for (i, &at) in axes.iter().enumerate() {
        all[axis(at, rank)?] = [pads[i], pads[axes.len() + i]];
    }
    Ok(all)
}
