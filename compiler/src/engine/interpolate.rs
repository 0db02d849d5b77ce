//! Interpolation that the library lacks, cubic, or over all that becomes one value: a product with a matrix for rows,
//! and one for columns.

use crate::graph::OnnxOp;
use crate::onnx::elements;

/// Whether the library lacks a Resize. It would interpolate linearly where that is cubic.
pub(crate) fn is_own(op: &OnnxOp) -> bool {
    let is_symmetric = op.text("coordinate_transformation_mode") == Some("half_pixel_symmetric");
    match op.text("mode") {
        Some("cubic") => true,
        Some("linear") => op.int("antialias", 0) != 0 || is_symmetric,
        _ => false,
    }
}

/// The weights of all inputs of an axis for each of its outputs, `[output][input]`; `None` for a Resize that is
/// none of these.
pub(super) fn weights(op: &OnnxOp, input: usize, output: usize, scale: f64) -> Option<Vec<f32>> {
    let (size, count) = (input as f64, output as f64);
    let text = |name: &str, default: &'static str| op.text(name).unwrap_or(default).to_owned();
    let a = f64::from(op.float("cubic_coeff_a", -0.75));
    let is_cubic = op.text("mode") == Some("cubic");
    // Where several values become one, a tap counts all of them.
    let is_wide = op.int("antialias", 0) != 0;
    let shrink = if is_wide { scale.min(1.0) } else { 1.0 };
    let support = if is_cubic { 2.0 } else { 1.0 };
    let reach = (support / shrink).ceil();
    let outside = op.int("exclude_outside", 0) != 0;
    let place = text("coordinate_transformation_mode", "half_pixel");
    elements("weights", &[input, output]).ok()?;
    if !(scale > 0.0 && reach <= 2.0 * size + 2.0) {
        return None;
    }
    let source = |at: usize| {
        let at = at as f64;
        Some(match &place[..] {
            "half_pixel" => (at + 0.5) / scale - 0.5,
            "pytorch_half_pixel" if output > 1 => (at + 0.5) / scale - 0.5,
            "pytorch_half_pixel" => 0.0,
            "asymmetric" => at / scale,
            "align_corners" if output > 1 => at * (size - 1.0) / (count - 1.0),
            "align_corners" => 0.0,
            "half_pixel_symmetric" => {
                let center = size / 2.0 * (1.0 - count / (size * scale));
                center + (at + 0.5) / scale - 0.5
            }
            _ => return None,
        })
    };
    let mut all = vec![0f64; input * output];
    for (at, row) in all.chunks_mut(input.max(1)).enumerate() {
        let from = source(at)?;
        let first = from.floor() + 1.0 - reach;
        let taps = (0..2 * reach as usize).map(|tap| first + tap as f64);
        let weight = |tap: f64| {
            let distance = (from - tap).abs() * shrink;
            if is_cubic {
                kernel(distance, a)
            } else {
                (1.0 - distance).max(0.0)
            }
        };
        let whole: f64 = if is_wide {
            taps.clone().map(weight).sum()
        } else {
            1.0
        };
        for tap in taps {
            let inside = tap.clamp(0.0, size - 1.0);
            if inside == tap || !outside {
                row[inside as usize] += weight(tap) / whole;
            }
        }
        let sum: f64 = row.iter().sum();
        if outside && sum != 0.0 {
            row.iter_mut().for_each(|w| *w /= sum);
        }
    }
    Some(all.into_iter().map(|w| w as f32).collect())
}

/// The weight of a value at a distance: Keys' cubic function.
pub(super) fn kernel(x: f64, a: f64) -> f64 {
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}
