//! Enlarging to the nearest value, and any other change of rows and columns.

use super::fields::field;
use super::operator::{Bound, Facts, Kind, Operator, Size, Stated, Steps};
use super::planes::nchw;
use crate::graph::{Data, Op, ValueId};
use crate::onnx::import::attributes::Attributes;
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

const RESIZE: Operator = Operator::new(
    "Resize",
    Size::Computed(Bound::Stated(Stated::Resize)),
    Kind::First,
)
.device((1, 4), |import, node, _, inputs| {
    inputs.truncate(1);
    import.resize(node, inputs[0])
});

pub(super) const OPERATORS: &[Operator] = &[
    RESIZE,
    // Before opset 10.
    Operator {
        kind: "Upsample",
        ..RESIZE
    },
];

pub(super) fn resize(factors: [usize; 2]) -> Facts<'static> {
    let sizes = AttributeValue::ints(&factors);
    Facts::new(
        "Resize",
        move |inputs| {
            let [n, c, h, w] = nchw(inputs.shape(0)?)?;
            let sizes = [(h, factors[0]), (w, factors[1])];
            let [h, w] = sizes.map(|(size, factor)| size.checked_mul(factor).filter(|&n| n > 0));
            match (h, w) {
                (Some(h), Some(w)) => Ok(vec![n, c, h, w]),
                _ => Err(format!("factors {factors:?} of {sizes:?}")),
            }
        },
        move |reading, node| reading.resize(node, factors),
    )
    .fields([field(("factors", ""), sizes, "rows and columns for each")])
    .steps(Steps::Input)
    .write(move |node| {
        let scales = [1, 1, factors[0], factors[1]].map(|f| f as f32);
        node.inputs.push(String::new());
        node.constant("scales", &[4], Data::F32(scales.into()));
        node.text("coordinate_transformation_mode", "asymmetric");
        node.text("mode", "nearest");
        node.text("nearest_mode", "floor");
    })
    .role(Role::Plane)
}

impl Import<'_> {
    /// Resize and Upsample to the nearest value, by whole factors.
    ///
    /// # Errors
    /// Other ways to enlarge.
    fn resize(&self, node: &Attributes<'_>, input: ValueId) -> Result<Op, String> {
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
        let name = |place: usize| node.input(place);
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
}
