//! Operators over rows and columns: padding that the next operator takes over, means over all
//! positions, and enlarging by whole factors.

use super::Attributes;
use super::state::Import;
use crate::graph::{Data, Op, ValueId};
use crate::window::Pads;

/// The largest pad that is read.
const MAX_PAD: i64 = 65535;

impl Import<'_> {
    /// The zeros that a Pad puts around rows and columns.
    ///
    /// # Errors
    /// Any other padding, by what is not supported.
    pub(super) fn pad(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<Pads, String> {
        self.spatial(*inputs.first().ok_or("it has no input")?)?;
        match node.text("mode").as_deref() {
            None | Some("constant") => {}
            Some(mode) => return Err(format!("mode {mode}; only constant is supported")),
        }
        let name = |i: usize| node.0.input.get(i).filter(|n| !n.is_empty());
        if name(3).is_some() {
            return Err("axes are not supported".to_owned());
        }
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
        let pads = match (name(1), node.find("pads")) {
            (Some(name), _) => match self.data(name) {
                Some(Data::I64(pads)) => pads,
                _ => return Err("its pads must be a constant".to_owned()),
            },
            (None, Some(attribute)) => &attribute.ints,
            (None, None) => return Err("pads are missing".to_owned()),
        };
        match pads[..] {
            [0, 0, top, left, 0, 0, bottom, right] => {
                let pads = [top, left, bottom, right];
                let fits = pads.iter().all(|p| (0..=MAX_PAD).contains(p));
                fits.then(|| pads.map(|p| p as usize).into())
            }
            _ => None,
        }
        .ok_or_else(|| format!("pads {pads:?}; only rows and columns may be padded"))
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
