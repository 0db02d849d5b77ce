//! An operator of a network with its tensors, computed in int8, and its text.

use serde::{Deserialize, Serialize};

use super::bits;
use super::operator::{HostError, HostOp};
use crate::qgraph::{QGraph, QNode, QOp, TensorId};
use crate::reflect::{Attribute, Reflect};

/// A tensor's shape and the real value of its step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// Channels, rows, columns.
    pub chw: [usize; 3],
    /// `real = scale * (int8 - zero)`.
    #[serde(with = "bits")]
    pub scale: f32,
    /// The zero point; texts of symmetric tensors leave it out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zero: i8,
}

/// A host operator of a network with all that it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCall {
    /// The operator.
    pub op: HostOp,
    /// What it reads.
    pub inputs: Vec<Operand>,
    /// What it writes.
    pub output: Operand,
    /// Bounds of the output, in its steps.
    pub clamp: (i8, i8),
}

impl HostCall {
    /// The call of a node; `None` when the node isn't the host's.
    pub fn of(graph: &QGraph, node: &QNode) -> Option<Self> {
        let QOp::Host {
            op,
            inputs,
            flat,
            clamp,
        } = &node.op
        else {
            return None;
        };
        let operand = |id: TensorId| {
            let tensor = graph.tensors.get(id.0)?;
            let chw = match tensor.chw {
                [c, h, w] if *flat => [c.checked_mul(h)?.checked_mul(w)?, 1, 1],
                chw => chw,
            };
            Some(Operand {
                chw,
                scale: tensor.scale,
                zero: i8::try_from(tensor.zero).ok()?,
            })
        };
        Some(Self {
            op: *op,
            inputs: inputs
                .iter()
                .map(|id| operand(*id))
                .collect::<Option<_>>()?,
            output: operand(node.output)?,
            clamp: *clamp,
        })
    }

    /// A call from its text, JSON, with floats as their bits.
    ///
    /// # Errors
    /// Text that isn't a call's, and a call whose tensors don't fit its operator.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let call: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let shapes: Vec<[usize; 3]> = call.inputs.iter().map(|o| o.chw).collect();
        let fail = HostError { op: call.op.name() };
        let all = || call.inputs.iter().chain([&call.output]);
        let real = all().all(|o| o.scale.is_finite() && o.scale > 0.0);
        let fits = call.op.shape(&shapes) == Some(call.output.chw);
        let bounded = all().all(|o| values(o.chw).is_some_and(|n| n <= MAX_VALUES));
        match real && fits && bounded && call.clamp.0 <= call.clamp.1 {
            true => Ok(call),
            false => Err(fail.to_string()),
        }
    }

    /// The output of one image, `[C][H][W]`.
    ///
    /// # Errors
    /// [`HostError`] for inputs of other sizes than the operands'.
    pub fn run(&self, inputs: &[&[i8]]) -> Result<Vec<i8>, HostError> {
        let fail = HostError { op: self.op.name() };
        if inputs.len() != self.inputs.len() {
            return Err(fail);
        }
        let real = |(x, operand): (&&[i8], &Operand)| -> Vec<f64> {
            let (scale, zero) = (f64::from(operand.scale), f64::from(operand.zero));
            x.iter().map(|&q| (f64::from(q) - zero) * scale).collect()
        };
        let values: Vec<Vec<f64>> = inputs.iter().zip(&self.inputs).map(real).collect();
        let given = values.iter().zip(&self.inputs);
        let given: Vec<_> = given.map(|(x, o)| (&x[..], o.chw)).collect();
        let out = self.op.real(&given)?;
        if out.len() != self.output.chw.iter().product::<usize>() {
            return Err(fail);
        }
        let (low, high) = (f64::from(self.clamp.0), f64::from(self.clamp.1));
        let (step, zero) = (f64::from(self.output.scale), f64::from(self.output.zero));
        let round = |y: f64| ((y / step).round_ties_even() + zero).max(low).min(high) as i8;
        Ok(out.into_iter().map(round).collect())
    }
}

fn is_zero(zero: &i8) -> bool {
    *zero == 0
}

/// The most values of a tensor that a call is read with.
const MAX_VALUES: usize = 1 << 30;

/// How many values a shape has.
fn values(chw: [usize; 3]) -> Option<usize> {
    chw.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

impl vta_driver::HostKernel for HostCall {
    fn run(&self, inputs: &[&[i8]]) -> Result<Vec<Vec<i8>>, String> {
        let output = self.run(inputs).map_err(|e| e.to_string())?;
        Ok(vec![output])
    }

    fn to_bytes(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn attributes(&self) -> Vec<Attribute> {
        Reflect::attributes(self)
    }

    fn sizes(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        let inputs = self.inputs.iter().map(|o| values(o.chw));
        let output = values(self.output.chw)?;
        Some((inputs.collect::<Option<_>>()?, vec![output]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call_text(call: &HostCall) -> String {
        serde_json::to_string(call).unwrap()
    }

    #[test]
    fn results_are_quantized_as_onnx_does() {
        let operand = |scale| Operand {
            chw: [1, 1, 5],
            scale,
            zero: 0,
        };
        let call = HostCall {
            op: HostOp::LeakyRelu { alpha: 0.5 },
            inputs: vec![operand(0.5)],
            output: operand(0.5),
            clamp: (-128, 100),
        };
        // Halves go to the even neighbour.
        let out = call.run(&[&[-1, -3, -5, 7, 127]]).unwrap();
        assert_eq!(out, [0, -2, -2, 7, 100]);
        // Zero points are counted from.
        let mut call = call;
        (call.inputs[0].zero, call.output.zero) = (-3, 2);
        let out = call.run(&[&[-4, -3, -6, 4, 127]]).unwrap();
        assert_eq!(out, [2, 2, 0, 9, 100]);
        assert_eq!(HostCall::from_text(&call_text(&call)).unwrap(), call);
        assert!(call.run(&[&[1, 2]]).is_err() && call.run(&[]).is_err());
    }

    #[test]
    fn calls_are_read_from_their_text_or_refused() {
        use vta_driver::HostKernel;

        let operand = |chw, scale| Operand {
            chw,
            scale,
            zero: 0,
        };
        for (op, inputs, output) in [
            (HostOp::Elu { alpha: 0.1 }, vec![[3, 2, 2]], [3, 2, 2]),
            (HostOp::Mul, vec![[3, 2, 2], [3, 1, 1]], [3, 2, 2]),
            (HostOp::Concat, vec![[3, 2, 2], [1, 2, 2]], [4, 2, 2]),
            (
                HostOp::Resize { factors: [2, 3] },
                vec![[3, 2, 2]],
                [3, 4, 6],
            ),
        ] {
            let call = HostCall {
                op,
                inputs: inputs.into_iter().map(|chw| operand(chw, 0.1)).collect(),
                output: operand(output, 1.0 / 3.0),
                clamp: (-128, 127),
            };
            let text = call_text(&call);
            assert_eq!(HostCall::from_text(&text).unwrap(), call);
            let (inputs, output) = call.sizes().unwrap();
            assert_eq!(inputs.len(), call.inputs.len());
            assert_eq!(output, [call.output.chw.iter().product::<usize>()]);
        }
        let sound = HostCall {
            op: HostOp::Sigmoid,
            inputs: vec![operand([3, 2, 2], 0.5)],
            output: operand([3, 2, 2], 0.5),
            clamp: (-1, 1),
        };
        type Edit = fn(&mut HostCall);
        let edits: [Edit; 8] = [
            |c| c.clamp = (1, -1),
            |c| c.inputs[0].scale = f32::NAN,
            |c| c.output.scale = 0.0,
            |c| c.output.chw = [3, 2, 1],
            |c| c.inputs.clear(),
            |c| c.op = HostOp::Mul,
            |c| (c.inputs[0].chw, c.output.chw) = ([usize::MAX; 3], [usize::MAX; 3]),
            |c| (c.inputs[0].chw, c.output.chw) = ([1 << 31, 1, 1], [1 << 31, 1, 1]),
        ];
        assert!(HostCall::from_text(&call_text(&sound)).is_ok());
        for edit in edits {
            let mut call = sound.clone();
            edit(&mut call);
            assert!(HostCall::from_text(&call_text(&call)).is_err(), "{call:?}");
        }
        for text in ["", "{}", "null", "[1]"] {
            assert!(HostCall::from_text(text).is_err(), "{text}");
        }
    }
}
