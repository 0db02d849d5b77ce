//! What ONNX defines: integers less their zero points, sums in reals, rounding.

use vta_compiler::graph::Data;
use vta_compiler::qgraph::Window;

/// Steps of a tensor as a file has them.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    pub scale: f32,
    pub zero: i32,
    pub unsigned: bool,
}

impl Steps {
    pub fn integers(self, values: &[i32]) -> Data {
        match self.unsigned {
            true => Data::U8(values.iter().map(|&v| v as u8).collect()),
            false => Data::I8(values.iter().map(|&v| v as i8).collect()),
        }
    }

    pub fn range(self) -> (i32, i32) {
        if self.unsigned { (0, 255) } else { (-128, 127) }
    }
}

/// Real values with their shape.
pub struct Real {
    pub chw: [usize; 3],
    pub values: Vec<f64>,
}

/// The integers of a tensor, rounded as QuantizeLinear does, with the distance from a tie.
pub fn round(value: f64, steps: Steps) -> (i32, f64) {
    let exact = value / f64::from(steps.scale);
    let (low, high) = steps.range();
    let rounded = exact.round_ties_even() + f64::from(steps.zero);
    (
        rounded.clamp(low.into(), high.into()) as i32,
        ((exact - exact.floor()) - 0.5).abs(),
    )
}

pub fn dequantized(integers: &[i32], steps: Steps) -> Vec<f64> {
    integers
        .iter()
        .map(|&q| f64::from(q - steps.zero) * f64::from(steps.scale))
        .collect()
}

/// Folds the positions inside each window.
pub fn windows(x: &Real, window: &Window, fold: impl Fn(&[f64]) -> f64) -> Real {
    let [c, h, w] = x.chw;
    let [oh, ow] = window.output(h, w).unwrap();
    let mut values = Vec::new();
    for (c, i, j) in (0..c).flat_map(|c| (0..oh).flat_map(move |i| (0..ow).map(move |j| (c, i, j))))
    {
        let rows = window.positions(0, i, 0..window.kernel[0], h);
        let inside = rows.flat_map(|r| {
            window
                .positions(1, j, 0..window.kernel[1], w)
                .map(move |q| (r, q))
        });
        let inside: Vec<f64> = inside.map(|(r, q)| x.values[(c * h + r) * w + q]).collect();
        values.push(fold(&inside));
    }
    Real {
        chw: [c, oh, ow],
        values,
    }
}

/// A convolution by its definition.
pub fn convolution(x: &Real, window: &Window, group: usize, weights: &[f64], bias: &[f64]) -> Real {
    let [ci, h, w] = x.chw;
    let [oh, ow] = window.output(h, w).unwrap();
    let (co, inputs) = (bias.len(), ci / group);
    let [kh, kw] = window.kernel;
    let mut values = Vec::new();
    for (o, i, j) in
        (0..co).flat_map(|o| (0..oh).flat_map(move |i| (0..ow).map(move |j| (o, i, j))))
    {
        let mut sum = bias[o];
        for (c, y, q) in
            (0..inputs).flat_map(|c| (0..kh).flat_map(move |y| (0..kw).map(move |q| (c, y, q))))
        {
            let at = [window.position(0, i, y, h), window.position(1, j, q, w)];
            if let [Some(row), Some(col)] = at {
                let from = (o / (co / group) * inputs + c) * h + row;
                sum += weights[((o * inputs + c) * kh + y) * kw + q] * x.values[from * w + col];
            }
        }
        values.push(sum);
    }
    Real {
        chw: [co, oh, ow],
        values,
    }
}
