//! Operators over rows and columns: padding that the next operator takes over, means over all
//! positions, and enlarging by whole factors.

use super::Attributes;
use super::state::Import;
use crate::graph::{Data, Op, ValueId};
use crate::onnx::shape;

/// The largest pad that is read.
const MAX_PAD: i64 = 65535;

impl Import<'_> {
    /// What a Pad of zeros is: nothing, zeros around rows and columns, which the next operator may take over,
    /// some entries of a dimension where pads are negative, or channels joined with constants of zeros.
    ///
    /// # Errors
    /// Any other padding, by what is not supported.
    pub(super) fn pad(
        &mut self,
        node: &Attributes<'_>,
        name: &str,
        inputs: &mut Vec<ValueId>,
    ) -> Result<Op, String> {
        let x = *inputs.first().ok_or("it has no input")?;
        if inputs.len() > 4 {
            return Err(format!("{} inputs, not 1 to 4", inputs.len()));
        }
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
                    let elements = shape::elements(name, &shape).map_err(|e| e.to_string())?;
                    let data = Some(Data::F32(vec![0.0; elements]));
                    let made =
                        (count > 0).then(|| self.define(&format!("{name}.{side}"), shape, data));
                    made.transpose().map_err(|e| e.to_string())
                };
                let (before, behind) = (zeros(around[0], "before")?, zeros(around[1], "behind")?);
                *inputs = before.into_iter().chain([x]).chain(behind).collect();
                Ok(Op::Concat { axis: 1 })
            }
            (&[axis], _) if pads[axis].iter().all(|p| *p <= 0) => {
                let [start, end] = pads[axis].map(|p| usize::try_from(-p).unwrap_or(usize::MAX));
                let len = shape[axis].checked_sub(start.saturating_add(end));
                let len = len.filter(|len| *len > 0);
                let len = len.ok_or_else(|| format!("pads {pads:?} leave nothing of {shape:?}"))?;
                let step = 1;
                Ok(Op::Slice {
                    axis,
                    start,
                    len,
                    step,
                })
            }
            _ => Err(format!(
                "pads {pads:?}; only rows and columns, or channels, may be padded, or one dimension cut"
            )),
        }
    }

    /// Pads before and behind each dimension, of zeros.
    fn padding(&self, node: &Attributes<'_>, rank: usize) -> Result<Vec<[i64; 2]>, String> {
        match node.text("mode").as_deref() {
            None | Some("constant") => {}
            Some(mode) => return Err(format!("mode {mode}; only constant is supported")),
        }
        let name = |i: usize| node.0.input.get(i).filter(|n| !n.is_empty());
        let value = match name(2) {
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
        let integers = |name: &String, what: &str| {
            let data = self.data(name).and_then(Data::integers);
            data.ok_or_else(|| format!("its {what} must be a constant"))
        };
        let pads = match (name(1), node.find("pads")) {
            (Some(name), _) => integers(name, "pads")?,
            (None, Some(attribute)) => attribute.ints.clone(),
            (None, None) => return Err("pads are missing".to_owned()),
        };
        let axes = match name(3) {
            None => (0..rank as i64).collect(),
            Some(name) => integers(name, "axes")?,
        };
        let mut all = vec![[0, 0]; rank];
        if pads.len() != 2 * axes.len() {
            return Err(format!("{} pads for {} dimensions", pads.len(), axes.len()));
        }
        for (i, axis) in axes.iter().enumerate() {
            let at = if *axis < 0 {
                axis.saturating_add(rank as i64)
            } else {
                *axis
            };
            let own = usize::try_from(at).ok().and_then(|at| all.get_mut(at));
            let own = own.ok_or_else(|| format!("axis {axis} of {rank} dimensions"))?;
            *own = [pads[i], pads[axes.len() + i]];
        }
        Ok(all)
    }

    /// Checks that a ReduceMean goes over rows and columns.
    ///
    /// # Errors
    /// Other axes.
    pub(super) fn check_mean(
        &self,
        node: &Attributes<'_>,
        inputs: &[ValueId],
    ) -> Result<(), String> {
        let rank = 2 + self.plane(inputs[0])?.axes.count();
        let given = inputs.get(1).map(|id| &self.graph.values[id.0].data);
        let mut axes = match (given, node.find("axes")) {
            (Some(Some(Data::I64(axes))), _) => axes.clone(),
            (Some(_), _) => return Err("its axes must be a constant".to_owned()),
            (None, Some(attribute)) => attribute.ints.clone(),
            (None, None) => Vec::new(),
        };
        axes.iter_mut()
            .filter(|a| **a < 0)
            .for_each(|a| *a = a.saturating_add(rank as i64));
        axes.sort_unstable();
        match (axes.as_slice(), rank) {
            ([2, 3], 4) | ([2], 3) => Ok(()),
            _ => Err("only a mean over all positions, axes 2 and 3, is supported".to_owned()),
        }
    }

    /// Resize and Upsample to the nearest value, by whole factors.
    ///
    /// # Errors
    /// Other ways to enlarge.
    pub(super) fn resize(&self, node: &Attributes<'_>, input: ValueId) -> Result<Op, String> {
        let [_, _, h, w] = self.spatial(input)?;
        let upsample = node.op_type() == "Upsample";
        let text = |name: &str, default: &str| node.text(name).unwrap_or(default.to_owned());
        let place = text("coordinate_transformation_mode", "half_pixel");
        let mode = text("mode", "nearest");
        // What lies between a value and itself is that value, however it is weighted; beyond the
        // edges one way has a value of its own.
        let one = [h, w] == [1, 1] && mode == "linear" && place != "tf_crop_and_resize";
        if mode != "nearest" && !one {
            return Err(format!("mode {mode}; only nearest is supported"));
        }
        if node.find("axes").is_some() || node.int("antialias", 0) != 0 {
            return Err("axes and antialias are not supported".to_owned());
        }
        // Before opset 11 there are no sizes and only one way to choose.
        let old = upsample || self.opset < 11;
        let name = |i: usize| node.0.input.get(i).filter(|n| !n.is_empty());
        let scales = name(if old { 1 } else { 2 });
        let sizes = name(3).filter(|_| !old);
        let factor = |at: usize, size: usize| -> Option<usize> {
            let real = |scale: f32| {
                let whole = scale >= 1.0 && scale.fract() == 0.0 && scale <= 65535.0;
                whole.then_some(scale as usize)
            };
            match (scales, sizes) {
                (Some(name), None) => match self.data(name) {
                    Some(Data::F32(v)) if v.len() == 4 => real(v[at]),
                    _ => None,
                },
                (None, Some(name)) => match self.data(name) {
                    Some(Data::I64(v)) if v.len() == 4 => {
                        let to = usize::try_from(v[at]).ok()?;
                        to.is_multiple_of(size).then_some(to / size)
                    }
                    _ => None,
                },
                (None, None) if upsample => {
                    let scales = &node.find("scales")?.floats;
                    real(*scales.get(at)?)
                }
                _ => None,
            }
        };
        let channels = self.graph.values[input.0].shape[1];
        let sizes = [1, channels, h, w];
        let factors: Option<Vec<usize>> = (0..4).map(|at| factor(at, sizes[at])).collect();
        let factors = match factors.as_deref() {
            Some(&[1, 1, rows, cols]) if rows >= 1 && cols >= 1 => [rows, cols],
            _ => return Err("only whole constant factors of rows and columns".to_owned()),
        };
        let choose = text("nearest_mode", "round_prefer_floor");
        // With whole factors all of these take the value that a result lies in.
        let inside = match (&place[..], &choose[..]) {
            _ if old || one => true,
            ("half_pixel" | "pytorch_half_pixel", "round_prefer_floor" | "round_prefer_ceil") => {
                place == "half_pixel" || factors.iter().zip([h, w]).all(|(f, n)| f * n > 1)
            }
            ("asymmetric", "floor") => true,
            ("asymmetric", "round_prefer_floor") => factors.iter().all(|&f| f <= 2),
            _ => factors == [1, 1],
        };
        if !inside {
            return Err(format!(
                "coordinates {place} with {choose} by {factors:?} are not supported"
            ));
        }
        Ok(Op::Resize { factors })
    }

    pub(super) fn data(&self, name: &str) -> Option<&Data> {
        let id = self.names.get(name)?;
        self.graph.values[id.0].data.as_ref()
    }
}
