//! Sums, differences, products and quotients, with ONNX's broadcasting.
//!
//! A product with constants is joined to the convolution before it, or is a convolution with one weight for each
//! channel.

use super::elementwise::broadcast;
use super::operator::{Found, Made, Operator};
use crate::graph::{Data, Node, Op, Value, ValueId};
use crate::onnx::OnnxError;
use crate::onnx::import::state::Import;
use crate::qgraph::window::Window;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::broadcast("Add").device((2, 2), sum),
    Operator::broadcast("Sub").device((2, 2), |import, found| pair(import, found, Op::Sub)),
    Operator::broadcast("Mul").device((2, 2), |import, found| match import.product(found)? {
        Some(made) => Ok(made),
        None => pair(import, found, Op::Mul),
    }),
    Operator::broadcast("Div").device((2, 2), |import, found| pair(import, found, Op::Div)),
];

fn pair(import: &Import<'_>, found: &Found<'_>, op: Op) -> Result<Made, String> {
    let given = import.given(found);
    Ok(found.made(op, broadcast(given.shape(0)?, given.shape(1)?)?))
}

/// One operand may be a constant for each channel; what remains of those is refused later.
fn sum(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let (x, y) = (given.shape(0)?, given.shape(1)?);
    let is_vector = |shape: &[usize]| shape.iter().filter(|&&d| d != 1).count() <= 1;
    let (large, small) = if x.len() >= y.len() { (x, y) } else { (y, x) };
    let (large, small) = if large.len() == small.len() && is_vector(large) {
        (small, large)
    } else {
        (large, small)
    };
    let channels = large.get(1).copied();
    if x == y || is_vector(small) && Some(small.iter().product()) == channels {
        return Ok(found.made(Op::Add, large.to_vec()));
    }
    pair(import, found, Op::Add)
}

/// Shape and real values.
type Reals = (Vec<usize>, Vec<f32>);

/// The weight that stands for a factor: a power of two, so that the scale is exact, and large, so
/// that half a step of the output is many of the sum.
const WEIGHT: i8 = 64;

/// How factors are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factors {
    Float,
    /// Between quantised tensors.
    Int8,
}

impl Import<'_> {
    /// A Mul with a constant for each channel, or with one behind a convolution; `None` for any other node.
    ///
    /// After a convolution that nothing else reads it is a BatchNormalization, which joins the
    /// weights; elsewhere a depthwise 1x1 convolution.
    ///
    /// # Errors
    /// Factors of two constants, or that aren't finite.
    fn product(&mut self, found: &Found<'_>) -> Result<Option<Made>, String> {
        let [a, b] = [found.inputs[0], found.inputs[1]];
        let (x, at, (shape, values)) = match (self.constant(a)?, self.constant(b)?) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err("both operands are constants".to_owned()),
            (Some(factor), None) => (b, 1, factor),
            (None, Some(factor)) => (a, 0, factor),
        };
        let Some(factors) = self.factors(x, &shape, &values)? else {
            return Ok(None);
        };
        let shape = self.graph.values[x.0].shape.clone();
        let producer = self.maker(x).map(|n| n.op.clone());
        let alone = self.uses.get(&found.node.input[at]) == Some(&1);
        let nonzero = factors.iter().all(|&f| f != 0.0);
        if matches!(producer, Some(Op::Conv { .. })) && alone && nonzero {
            let channels = factors.len();
            let mut define = |suffix: &str, data: Vec<f32>| {
                let name = format!("{}.{suffix}", found.name);
                self.define(&name, vec![channels], Some(Data::F32(data)))
                    .map_err(|e| e.to_string())
            };
            let gamma = define("factors", factors)?;
            let zeros = define("zeros", vec![0.0; channels])?;
            let ones = define("ones", vec![1.0; channels])?;
            return Ok(Some(Made {
                op: Op::BatchNormalization { epsilon: 0.0 },
                inputs: vec![x, gamma, zeros, zeros, ones],
                shape,
            }));
        }
        if values.len() == 1 {
            // Whatever the dimensions stand for.
            return Ok(None);
        }
        let form = match producer {
            Some(Op::DequantizeLinear { .. }) => Factors::Int8,
            _ => Factors::Float,
        };
        let group = factors.len();
        let weights = self.diagonal(&found.name, factors, form)?;
        let window = Window::whole([1, 1]);
        Ok(Some(Made {
            op: Op::Conv { window, group },
            inputs: vec![x, weights],
            shape,
        }))
    }

    /// One factor for each channel of `x`, `[1, C, H, W]`; `None` for other dimensions.
    fn factors(
        &self,
        x: ValueId,
        shape: &[usize],
        values: &[f32],
    ) -> Result<Option<Vec<f32>>, String> {
        if values.iter().any(|v| !v.is_finite()) {
            return Err("a factor isn't finite".to_owned());
        }
        let &[_, channels, _, _] = &self.graph.values[x.0].shape[..] else {
            return Ok(None);
        };
        // Shapes are aligned at their last dimension.
        let aligned = |i: usize| (i + shape.len()).checked_sub(4).map_or(1, |i| shape[i]);
        let fits = shape.len() <= 4
            && [0, 2, 3].into_iter().all(|i| aligned(i) == 1)
            && [1, channels].contains(&aligned(1));
        Ok(match values {
            _ if !fits => None,
            [one] => Some(vec![*one; channels]),
            all => Some(all.to_vec()).filter(|all| all.len() == channels),
        })
    }

    /// Weights `[C][1][1][1]`: floats, or between quantized tensors [`WEIGHT`] with the factor's
    /// sign and a scale for each channel, which is exact.
    fn diagonal(
        &mut self,
        name: &str,
        factors: Vec<f32>,
        form: Factors,
    ) -> Result<ValueId, String> {
        let shape = vec![factors.len(), 1, 1, 1];
        let text = |e: OnnxError| e.to_string();
        let weights = format!("{name}.factors");
        if form == Factors::Float {
            let data = Some(Data::F32(factors));
            return self.define(&weights, shape, data).map_err(text);
        }
        let sign = |f: &f32| WEIGHT * (i8::from(*f > 0.0) - i8::from(*f < 0.0));
        let scale = |f: &f32| match f.abs() / f32::from(WEIGHT) {
            0.0 => 1.0,
            scale => scale,
        };
        let signs = Data::I8(factors.iter().map(sign).collect());
        let scales = Data::F32(factors.iter().map(scale).collect());
        let channels = vec![factors.len()];
        let int8 = self
            .define(&format!("{weights}.int8"), shape.clone(), Some(signs))
            .map_err(text)?;
        let scale = self
            .define(&format!("{weights}.scale"), channels, Some(scales))
            .map_err(text)?;
        let output = self.define(&weights, shape, None).map_err(text)?;
        self.push_node(Node {
            name: format!("{weights}.dequantize"),
            op: Op::DequantizeLinear { axis: 0 },
            inputs: vec![int8, scale],
            output,
        });
        Ok(output)
    }

    /// Shape and real values of a constant: an initializer, or one that is dequantised.
    ///
    /// # Errors
    /// A dequantised constant with several scales.
    fn constant(&self, id: ValueId) -> Result<Option<Reals>, String> {
        let Value { shape, data, .. } = &self.graph.values[id.0];
        if let Some(Data::F32(values)) = data {
            return Ok(Some((shape.clone(), values.clone())));
        }
        let Some(node) = self.maker(id) else {
            return match data {
                Some(_) => Err("a factor is not a float".to_owned()),
                None => Ok(None),
            };
        };
        if !matches!(node.op, Op::DequantizeLinear { .. }) {
            return Ok(None);
        }
        let data = |i: usize| node.inputs.get(i).map(|id| &self.graph.values[id.0].data);
        let wide = |data: &Data| -> Option<Vec<i32>> {
            Some(match data {
                Data::I8(v) => v.iter().map(|&q| q.into()).collect(),
                Data::U8(v) => v.iter().map(|&q| q.into()).collect(),
                Data::I32(v) => v.clone(),
                Data::F32(_) | Data::I64(_) | Data::Bool(_) => return None,
            })
        };
        let Some(values) = data(0).and_then(Option::as_ref).and_then(wide) else {
            return Ok(None);
        };
        let zero = data(2).and_then(Option::as_ref).and_then(wide);
        let zero = zero.unwrap_or_else(|| vec![0]);
        match (data(1), &zero[..]) {
            (Some(Some(Data::F32(scale))), [zero]) if scale.len() == 1 => {
                let real = |q: i32| (f64::from(q) - f64::from(*zero)) as f32 * scale[0];
                Ok(Some((
                    shape.clone(),
                    values.into_iter().map(real).collect(),
                )))
            }
            _ => Err("a constant with several scales is not supported here".to_owned()),
        }
    }
}
