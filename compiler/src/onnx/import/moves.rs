//! Operators that give values another place, and transposed convolutions.

use super::Attributes;
use super::attributes::Axes;
use super::state::Import;
use super::windows;
use crate::graph::{Data, DepthMode, Op, ValueId};
use crate::onnx::proto;
use crate::window::Pads;

/// The most pieces that a Split may have.
const MAX_PIECES: usize = 1024;

impl Import<'_> {
    /// The operator of a node, with its inputs; `None` for any other node.
    ///
    /// # Errors
    /// Attributes that aren't supported.
    pub(super) fn moves(
        &self,
        node: &Attributes<'_>,
        inputs: &mut Vec<ValueId>,
    ) -> Result<Option<Op>, String> {
        let first = inputs.first().map(|id| &self.graph.values[id.0].shape[..]);
        let x = first.unwrap_or(&[]).to_vec();
        Ok(Some(match node.op_type() {
            "Concat" => Op::Concat {
                axis: axis(node.int("axis", 1), x.len())?,
            },
            "Slice" => {
                let op = self.slice(node, &x)?;
                inputs.truncate(1);
                op
            }
            "Gather" => Op::Gather {
                axis: axis(node.int("axis", 0), x.len())?,
            },
            "DepthToSpace" => Op::DepthToSpace {
                block: node.count("blocksize", 0)?,
                mode: match node.text("mode").as_deref() {
                    None | Some("DCR") => DepthMode::Dcr,
                    Some("CRD") => DepthMode::Crd,
                    Some(mode) => return Err(format!("mode {mode} is unknown")),
                },
            },
            "SpaceToDepth" => Op::SpaceToDepth {
                block: node.count("blocksize", 0)?,
            },
            "ConvTranspose" => self.conv_transpose(node, inputs)?,
            _ => return Ok(None),
        }))
    }

    /// The integers of a constant input, or of an attribute where there is no such input.
    fn integers(
        &self,
        node: &Attributes<'_>,
        index: usize,
        name: &str,
    ) -> Result<Option<Vec<i64>>, String> {
        match node.0.input.get(index).filter(|n| !n.is_empty()) {
            Some(input) => match self.data(input) {
                Some(Data::I64(v)) => Ok(Some(v.clone())),
                Some(Data::I32(v)) => Ok(Some(v.iter().map(|&v| v.into()).collect())),
                _ => Err(format!("its {name} must be a constant")),
            },
            None => Ok(node.find(name).map(|a| a.ints.clone())),
        }
    }

    /// A Slice of one dimension, forwards.
    fn slice(&self, node: &Attributes<'_>, x: &[usize]) -> Result<Op, String> {
        let starts = self.integers(node, 1, "starts")?;
        let ends = self.integers(node, 2, "ends")?;
        let (Some([start]), Some([end])) = (starts.as_deref(), ends.as_deref()) else {
            return Err("only one dimension with constant starts and ends is supported".to_owned());
        };
        let axes = self.integers(node, 3, "axes")?.unwrap_or(vec![0]);
        let steps = self.integers(node, 4, "steps")?.unwrap_or(vec![1]);
        let (&[at], &[step]) = (&axes[..], &steps[..]) else {
            return Err(format!("axes {axes:?} and steps {steps:?}, not one"));
        };
        let axis = axis(at, x.len())?;
        let size = i64::try_from(x[axis]).map_err(|e| e.to_string())?;
        let place = |at: i64| if at < 0 { at.saturating_add(size) } else { at }.clamp(0, size);
        let (start, end) = (place(*start), place(*end));
        if step < 1 || end <= start {
            return Err(format!(
                "entries {start} to {end} in steps of {step}; only some, forwards, are supported"
            ));
        }
        let len = (end - start - 1) / step + 1;
        let [start, len, step] = [start, len, step].map(|v| v as usize);
        Ok(Op::Slice {
            axis,
            start,
            len,
            step,
        })
    }

    /// The Slices of a Split, one for each output.
    ///
    /// # Errors
    /// Sizes that don't add up.
    pub(super) fn split(&self, node: &Attributes<'_>, input: ValueId) -> Result<Vec<Op>, String> {
        let x = &self.graph.values[input.0].shape;
        let axis = axis(node.int("axis", 0), x.len())?;
        let outputs = node.0.output.len();
        let size = x[axis];
        if outputs > MAX_PIECES {
            return Err(format!(
                "{outputs} outputs; at most {MAX_PIECES} are supported"
            ));
        }
        let sizes: Vec<usize> = match self.integers(node, 1, "split")? {
            Some(sizes) => {
                let sizes = sizes
                    .iter()
                    .map(|&n| usize::try_from(n).ok().filter(|n| *n > 0));
                sizes
                    .collect::<Option<_>>()
                    .ok_or("a size isn't positive")?
            }
            None => {
                // All alike, but for a smaller last one.
                let each = size.div_ceil(outputs.max(1));
                let starts = (0..outputs).map(|i| (i * each).min(size));
                starts.map(|start| each.min(size - start)).collect()
            }
        };
        let total = sizes
            .iter()
            .try_fold(0usize, |n, size| n.checked_add(*size));
        if sizes.len() != outputs || total != Some(size) || sizes.contains(&0) {
            return Err(format!("{size} entries in {outputs} pieces of {sizes:?}"));
        }
        let mut start = 0;
        let piece = |len: usize| {
            let at = start;
            start += len;
            Op::Slice {
                axis,
                start: at,
                len,
                step: 1,
            }
        };
        Ok(sizes.into_iter().map(piece).collect())
    }

    fn conv_transpose(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<Op, String> {
        let weights = inputs.get(1).map(|id| &self.graph.values[id.0].shape[..]);
        let Some(&[_, _, kh, kw]) = weights else {
            return Err(format!(
                "weights of shape {weights:?}; only 2-D is supported"
            ));
        };
        let [_, _, h, w] = self.spatial(inputs[0])?;
        let size = [h, w];
        let same = match node.text("auto_pad").as_deref() {
            Some("SAME_UPPER") => Some(true),
            Some("SAME_LOWER") => Some(false),
            _ => None,
        };
        // What `auto_pad` means here has nothing to do with a convolution's input.
        let mut window = windows::unpadded(node, [kh, kw])?;
        let mut output_padding = node.pair("output_padding", Axes::Plane, Some([0, 0]))?;
        let shape = match node.find("output_shape").map(|a| &a.ints[..]) {
            None if same.is_some() => {
                Some([size[0] * window.stride[0], size[1] * window.stride[1]])
            }
            None => None,
            Some(&[h, w]) | Some(&[_, _, h, w]) if h > 0 && w > 0 => Some([h as usize, w as usize]),
            Some(shape) => return Err(format!("output_shape is {shape:?}, not two sizes")),
        };
        match shape {
            None => window.pads = node.pads(Axes::Plane)?,
            Some(shape) => {
                let all = window
                    .transposed(size, output_padding)
                    .ok_or("its window is too large")?;
                // Pads of both ends of an axis; what lacks is added at the end.
                let cut = |axis: usize| all[axis].saturating_sub(shape[axis]);
                let lack = |axis: usize| shape[axis].saturating_sub(all[axis]);
                output_padding = [0, 1].map(|axis| output_padding[axis] + lack(axis));
                let half = |axis: usize| match same {
                    Some(true) => cut(axis) / 2,
                    _ => cut(axis) - cut(axis) / 2,
                };
                let before = [half(0), half(1)];
                window.pads = Pads {
                    top: before[0],
                    left: before[1],
                    bottom: cut(0) - before[0],
                    right: cut(1) - before[1],
                };
            }
        }
        Ok(Op::ConvTranspose {
            window,
            group: node.count("group", 1)?,
            output_padding,
        })
    }
}

/// A dimension, counted from the end if it is negative.
fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from = if axis < 0 {
        axis.saturating_add(rank as i64)
    } else {
        axis
    };
    let found = usize::try_from(from).ok().filter(|&a| a < rank);
    found.ok_or_else(|| format!("axis {axis} of {rank} dimensions"))
}

/// Fewest and most inputs of an operator that [`Import::moves`] reads; `None` for any other.
pub(super) fn input_counts(op_type: &str) -> Option<(usize, usize)> {
    Some(match op_type {
        "Concat" => (1, 1024),
        "DepthToSpace" | "SpaceToDepth" => (1, 1),
        "Slice" => (1, 5),
        "Gather" => (2, 2),
        "ConvTranspose" => (2, 3),
        _ => return None,
    })
}

/// The outputs of a Split with their names.
pub(super) fn pieces(node: &proto::Node, ops: Vec<Op>) -> impl Iterator<Item = (&String, Op)> {
    node.output
        .iter()
        .zip(ops)
        .filter(|(name, _)| !name.is_empty())
}
