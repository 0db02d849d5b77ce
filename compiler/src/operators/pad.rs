//! Padding with zeros.

use super::fields::field;
use super::operator::{Bound, Facts, Kind, Operator, Size, Stated, Steps};
use super::planes::{PADS, nchw};
use crate::graph::{Data, Entries, Op, ValueId};
use crate::onnx::elements;
use crate::onnx::import::attributes::{Attributes, axis};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::passes::import::values::error;
use crate::qgraph::window::Pads;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] = &[Operator::new(
    "Pad",
    Size::Computed(Bound::Stated(Stated::Pads)),
    Kind::First,
)
.device((1, 4), |import, node, name, inputs| {
    import.pad(node, name, inputs)
})];

pub(super) fn pad(pads: Pads) -> Facts<'static> {
    let sides = AttributeValue::ints(&pads.to_array());
    Facts::new(
        "Pad",
        move |inputs| {
            let [n, c, h, w] = nchw(inputs.shape(0)?)?;
            let [top, left, bottom, right] = pads.to_array();
            Ok(vec![n, c, h + top + bottom, w + left + right])
        },
        |_, node| Err(error(node, "no convolution takes its zeros over")),
    )
    .fields([field(("pads", ""), sides, PADS)])
    .steps(Steps::Input)
    .write(move |node| {
        let [top, left, bottom, right] = pads.to_array();
        let all = [0, 0, top, left, 0, 0, bottom, right].map(|p| p as i64);
        node.constant("pads", &[8], Data::I64(all.into()));
    })
    .role(Role::Channels)
}

/// The largest pad that is read.
const MAX_PAD: i64 = 65535;

impl Import<'_> {
    /// What a Pad of zeros is: nothing, zeros around rows and columns, which the next operator may take over,
    /// some entries of a dimension where pads are negative, or channels joined with constants of zeros.
    ///
    /// # Errors
    /// Any other padding, by what is not supported.
    fn pad(
        &mut self,
        node: &Attributes<'_>,
        name: &str,
        inputs: &mut Vec<ValueId>,
    ) -> Result<Op, String> {
        let x = inputs[0];
        let shape = self.graph.values[x.0].shape.clone();
        let pads = self.padding(node, shape.len())?;
        *inputs = vec![x];
        let padded = |axis: &usize| pads[*axis] != [0, 0];
        let axes: Vec<usize> = (0..shape.len()).filter(padded).collect();
        let positive = pads.iter().flatten().all(|p| (0..=MAX_PAD).contains(p));
        match (&axes[..], shape.len()) {
            ([], _) => Ok(Op::Identity),
            (_, 4) if positive && axes[0] > 1 => {
                let [[top, bottom], [left, right]] = [2, 3].map(|axis| pads[axis]);
                let pads = [top, left, bottom, right].map(|p| p as usize);
                Ok(Op::Pad { pads: pads.into() })
            }
            ([1], 2 | 4) if positive => {
                let around = pads[1].map(|p| p as usize);
                let mut zeros = |count: usize, side: &str| -> Result<Option<ValueId>, String> {
                    let mut shape = shape.clone();
                    shape[1] = count;
                    let elements = elements(name, &shape).map_err(|e| e.to_string())?;
                    let data = Some(Data::F32(vec![0.0; elements]));
                    let made =
                        (count > 0).then(|| self.define(&format!("{name}.{side}"), shape, data));
                    made.transpose().map_err(|e| e.to_string())
                };
                let (before, behind) = (zeros(around[0], "before")?, zeros(around[1], "behind")?);
                *inputs = before.into_iter().chain([x]).chain(behind).collect();
                Ok(Op::Concat { axis: 1 })
            }
            _ if pads.iter().flatten().all(|p| *p <= 0) => {
                let cut = |&axis: &usize| {
                    let [start, end] = pads[axis].map(|p| p.unsigned_abs() as usize);
                    let len = shape[axis].checked_sub(start.saturating_add(end));
                    let len = len.filter(|len| *len > 0)?;
                    Some(Entries::run(axis, start, len))
                };
                let entries: Option<Vec<Entries>> = axes.iter().map(cut).collect();
                let entries =
                    entries.ok_or_else(|| format!("pads {pads:?} leave nothing of {shape:?}"))?;
                Ok(Op::Slice { entries })
            }
            _ => Err(format!(
                "pads {pads:?}; only rows and columns, or channels, may be padded, or dimensions cut"
            )),
        }
    }

    /// Pads before and behind each dimension, of zeros.
    fn padding(&self, node: &Attributes<'_>, rank: usize) -> Result<Vec<[i64; 2]>, String> {
        match node.text("mode").as_deref() {
            None | Some("constant") => {}
            Some(mode) => return Err(format!("mode {mode}; only constant is supported")),
        }
        let value = match node.input(2) {
            None => Some(node.float("value", 0.0)),
            Some(name) => match self.data(name) {
                Some(Data::F32(v)) => v.first().copied(),
                Some(Data::I8(v)) => v.first().map(|&v| v.into()),
                _ => None,
            },
        };
        if value != Some(0.0) {
            return Err("only zeros are supported".to_owned());
        }
        let pads = self.integers(node, 1, "pads")?.ok_or("pads are missing")?;
        let axes = self.integers(node, 3, "axes")?;
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
}
