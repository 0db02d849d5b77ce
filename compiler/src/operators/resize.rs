//! Enlarging to the nearest value, and any other change of rows and columns.

use super::fields::{Facts, Steps, field};
use super::operator::{Bound, Found, Made, Operator};
use super::planes::nchw;
use crate::graph::{Data, Op};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

pub(super) const OPERATORS: &[Operator] =
    &[Operator::computed("Resize", Bound::Resize).device((1, 4), read)];

pub(super) fn resize(factors: [usize; 2]) -> Facts<'static> {
    let sizes = AttributeValue::ints(&factors);
    Facts::new("Resize", Role::Plane)
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
}

/// A Resize to the nearest value, by whole factors.
///
/// # Errors
/// Other ways to enlarge.
fn read(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let (given, op) = (import.given(found), &found.op);
    let sizes @ [n, c, h, w] = nchw(given.shape(0)?)?;
    let place = op.text("coordinate_transformation_mode");
    let place = place.unwrap_or("half_pixel");
    let mode = op.text("mode").unwrap_or("nearest");
    // What lies between a value and itself is that value, however it is weighted; beyond the
    // edges one way has a value of its own.
    let one = [h, w] == [1, 1] && mode == "linear" && place != "tf_crop_and_resize";
    if mode != "nearest" && !one {
        return Err(format!("mode {mode}; only nearest is supported"));
    }
    if op.attribute("axes").is_some() || op.int("antialias", 0) != 0 {
        return Err("axes and antialias are not supported".to_owned());
    }
    let data = |argument: usize| given.get(argument).map(|value| &value.data);
    let factor = |at: usize| match (data(2), data(3)) {
        (Some(Some(Data::F32(scales))), None) if scales.len() == 4 => {
            let scale = scales[at];
            let whole = scale >= 1.0 && scale.fract() == 0.0 && scale <= 65535.0;
            whole.then_some(scale as usize)
        }
        (None, Some(Some(Data::I64(to)))) if to.len() == 4 => {
            let to = usize::try_from(to[at]).ok()?;
            to.is_multiple_of(sizes[at]).then_some(to / sizes[at])
        }
        _ => None,
    };
    let [Some(1), Some(1), Some(rows @ 1..), Some(columns @ 1..)] = [0, 1, 2, 3].map(factor) else {
        return Err("only whole constant factors of rows and columns".to_owned());
    };
    let factors = [rows, columns];
    let choose = op.text("nearest_mode").unwrap_or("round_prefer_floor");
    // With whole factors all of these take the value that a result lies in.
    let inside = match (place, choose) {
        _ if one => true,
        ("half_pixel", "round_prefer_floor" | "round_prefer_ceil") | ("asymmetric", "floor") => {
            true
        }
        ("pytorch_half_pixel", "round_prefer_floor" | "round_prefer_ceil") => {
            factors.iter().zip([h, w]).all(|(f, n)| f * n > 1)
        }
        ("asymmetric", "round_prefer_floor") => factors.iter().all(|&f| f <= 2),
        _ => factors == [1, 1],
    };
    if !inside {
        return Err(format!(
            "coordinates {place} with {choose} by {factors:?} are not supported"
        ));
    }
    match (h.checked_mul(rows), w.checked_mul(columns)) {
        (Some(h), Some(w)) => Ok(found.unary(Op::Resize { factors }, vec![n, c, h, w])),
        _ => Err(format!("factors {factors:?} of {h}x{w}")),
    }
}
