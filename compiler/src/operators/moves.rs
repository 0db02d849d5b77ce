//! Operators that give values another place.

use super::fields::{Field, count, field};
use super::operator::{Bound, Facts, Inputs, Kind, Operator, Size, Steps};
use super::planes::nchw;
use crate::graph::{Data, DepthMode, Op, ValueId};
use crate::onnx::import::attributes::Attributes;
use crate::onnx::import::state::Import;
use crate::onnx::proto;
use crate::passes::import::layout::Role;
use crate::passes::import::values::{HOST, error};
use crate::reflect::AttributeValue;
use crate::window::Window;

/// The most pieces that a Split may have.
const MAX_PIECES: usize = 1024;

const BLOCK: &str = "rows and columns of a block";
const DIMENSION: &str = "the dimension that entries are taken of";

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Concat", Size::Computed(Bound::Sum), Kind::First).device(
        (1, 1024),
        |import, node, _, inputs| {
            let axis = axis(node.int("axis", 1), import.rank(inputs[0]))?;
            Ok(Op::Concat { axis })
        },
    ),
    Operator::fewer("Slice"),
    Operator::fewer("Split"),
    Operator::new("Gather", Size::Computed(Bound::Index), Kind::First).device(
        (2, 2),
        |import, node, _, inputs| {
            let axis = axis(node.int("axis", 0), import.rank(inputs[0]))?;
            Ok(Op::Gather { axis })
        },
    ),
    Operator::new("GatherElements", Size::Computed(Bound::Index), Kind::First),
    Operator::new("GatherND", Size::Computed(Bound::Index), Kind::First),
    Operator::same("ScatterElements"),
    Operator::same("ScatterND"),
    Operator::fewer("DepthToSpace").device((1, 1), |_, node, _, _| {
        Ok(Op::DepthToSpace {
            block: node.count("blocksize", 0)?,
            mode: match node.text("mode").as_deref() {
                None | Some("DCR") => DepthMode::Dcr,
                Some("CRD") => DepthMode::Crd,
                Some(mode) => return Err(format!("mode {mode} is unknown")),
            },
        })
    }),
    Operator::fewer("SpaceToDepth").device((1, 1), |_, node, _, _| {
        let block = node.count("blocksize", 0)?;
        Ok(Op::SpaceToDepth { block })
    }),
];

pub(super) fn concat(axis: usize) -> Facts<'static> {
    Facts::new(
        "Concat",
        move |inputs| joined(&inputs.shapes(), axis),
        move |reading, node| reading.concat(node, axis),
    )
    .fields([count("axis", axis, "dimension that grows")])
    .role(by_channels(axis))
}

pub(super) fn slice([axis, start, len, step]: [usize; 4]) -> Facts<'static> {
    let unwritten =
        |name, value: usize, meaning| field((name, ""), AttributeValue::Int(value as i64), meaning);
    Facts::new(
        "Slice",
        move |inputs| {
            let x = inputs.shape(0)?;
            let last = len.checked_sub(1).and_then(|n| n.checked_mul(step));
            let last = last.and_then(|n| n.checked_add(start));
            match (x.get(axis), last) {
                (Some(size), Some(last)) if step > 0 && last < *size => Ok(with(x, axis, len)),
                _ => Err(format!(
                    "{len} entries from {start} in steps of {step} of axis {axis} of {x:?}"
                )),
            }
        },
        move |reading, node| match (axis, step) {
            (1, _) => reading.entries(node, (0..len).map(|i| start + i * step).collect()),
            (2 | 3, 1) if start > 0 => reading.cropped(node, axis - 2, start),
            _ => Err(error(node, HOST)),
        },
    )
    .fields([
        unwritten("axis", axis, DIMENSION),
        unwritten("start", start, "the first entry"),
        unwritten("len", len, "how many entries"),
        unwritten("step", step, "from one entry to the next"),
    ])
    .steps(Steps::Input)
    .write(move |node| {
        let end = start + len.saturating_sub(1) * step + 1;
        for (suffix, value) in [
            ("starts", start),
            ("ends", end),
            ("axes", axis),
            ("steps", step),
        ] {
            node.constant(suffix, &[1], Data::I64(vec![value as i64]));
        }
    })
    .role(by_channels(axis))
}

pub(super) fn gather(axis: usize) -> Facts<'static> {
    Facts::new(
        "Gather",
        move |inputs| gathered(inputs, axis),
        move |reading, node| match axis {
            1 => reading.gather(node),
            _ => Err(error(node, HOST)),
        },
    )
    .fields([count("axis", axis, DIMENSION)])
    .steps(Steps::Input)
    .role(by_channels(axis))
}

pub(super) fn depth_to_space(block: usize, mode: DepthMode) -> Facts<'static> {
    let name = AttributeValue::Texts(vec![mode.name().to_owned()]);
    let meaning = "whether channels lie position by position or channel by channel";
    Facts::new(
        "DepthToSpace",
        move |inputs| {
            let [n, c, h, w] = nchw(inputs.shape(0)?)?;
            let area = block.checked_mul(block).filter(|area| *area > 0);
            match area {
                Some(area) if c % area == 0 => {
                    Ok(vec![n, c / area, times(h, block)?, times(w, block)?])
                }
                _ => Err(format!("{c} channels for blocks of {block}x{block}")),
            }
        },
        move |reading, node| reading.depth_to_space(node, block, mode),
    )
    .fields([block_size(block), field(("mode", "mode"), name, meaning)])
    .steps(Steps::Input)
    .role(Role::Plane)
}

pub(super) fn space_to_depth(block: usize) -> Facts<'static> {
    Facts::new(
        "SpaceToDepth",
        move |inputs| {
            let [n, c, h, w] = nchw(inputs.shape(0)?)?;
            if block == 0 || h % block != 0 || w % block != 0 {
                return Err(format!("{h}x{w} in blocks of {block}x{block}"));
            }
            let area = times(block, block)?;
            Ok(vec![n, times(c, area)?, h / block, w / block])
        },
        move |reading, node| reading.space_to_depth(node, block),
    )
    .fields([block_size(block)])
    .steps(Steps::Input)
    .role(Role::Plane)
}

/// How entries of a dimension are read.
const fn by_channels(axis: usize) -> Role {
    match axis {
        1 => Role::Channels,
        _ => Role::Other,
    }
}

fn block_size(block: usize) -> Field {
    field(
        ("block", "blocksize"),
        AttributeValue::Int(block as i64),
        BLOCK,
    )
}

fn times(a: usize, b: usize) -> Result<usize, String> {
    a.checked_mul(b).ok_or_else(|| format!("{a} times {b}"))
}

fn with(x: &[usize], axis: usize, size: usize) -> Vec<usize> {
    let mut shape = x.to_vec();
    shape[axis] = size;
    shape
}

fn joined(shapes: &[&[usize]], axis: usize) -> Result<Vec<usize>, String> {
    let first = *shapes.first().ok_or("it has no input")?;
    let mut size = 0usize;
    for shape in shapes {
        let fits = axis < shape.len()
            && with(shape, axis, 0) == with(first, axis.min(first.len().saturating_sub(1)), 0);
        let more = shape.get(axis).and_then(|n| size.checked_add(*n));
        size = more
            .filter(|_| fits)
            .ok_or_else(|| format!("its inputs {shapes:?} don't fit along axis {axis}"))?;
    }
    Ok(with(first, axis, size))
}

fn gathered(inputs: &Inputs<'_>, axis: usize) -> Result<Vec<usize>, String> {
    let (graph, node, x) = (inputs.graph, inputs.node, inputs.shape(0)?);
    let indices = node.inputs.get(1).ok_or("input 1 is missing")?;
    let indices = &graph.values[indices.0];
    let size = *x.get(axis).ok_or_else(|| format!("axis {axis} of {x:?}"))?;
    match (&indices.data, &indices.shape[..]) {
        (Some(Data::I64(list)), [_]) if !list.is_empty() => {
            let inside = |i: &i64| usize::try_from(*i).is_ok_and(|i| i < size);
            match list.iter().find(|i| !inside(i)) {
                None => Ok(with(x, axis, list.len())),
                Some(i) => Err(format!("entry {i} of axis {axis} of {x:?}")),
            }
        }
        _ => Err("its entries must be a constant int64 list".to_owned()),
    }
}

impl Import<'_> {
    fn rank(&self, id: ValueId) -> usize {
        self.graph.values[id.0].shape.len()
    }

    /// The integers of a constant input, or of an attribute where there is no such input.
    fn integers(
        &self,
        node: &Attributes<'_>,
        index: usize,
        name: &str,
    ) -> Result<Option<Vec<i64>>, String> {
        match node.input(index) {
            Some(input) => match self.data(input) {
                Some(Data::I64(v)) => Ok(Some(v.clone())),
                Some(Data::I32(v)) => Ok(Some(v.iter().map(|&v| v.into()).collect())),
                _ => Err(format!("its {name} must be a constant")),
            },
            None => Ok(node.find(name).map(|a| a.ints.clone())),
        }
    }

    /// What a Slice is, one operator after another: entries of each dimension that it cuts, forwards. Rows and
    /// columns that are taken in steps up to the last are maxima over windows of one value.
    ///
    /// # Errors
    /// Entries that aren't constant, or are taken backwards.
    pub(crate) fn slices(&self, node: &Attributes<'_>, x: ValueId) -> Result<Vec<Op>, String> {
        let x = &self.graph.values[x.0].shape;
        let list = |place: usize, name: &str| self.integers(node, place, name);
        let starts = list(1, "starts")?.ok_or("its starts are missing")?;
        let ends = list(2, "ends")?.ok_or("its ends are missing")?;
        let axes = list(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = list(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
        if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
            return Err(format!(
                "axes {axes:?} and steps {steps:?} of {}",
                starts.len()
            ));
        }
        let (mut ops, mut strides) = (Vec::new(), [1, 1]);
        let is_plane = x.len() == 4 && x[0] == 1;
        for (i, &step) in steps.iter().enumerate() {
            let axis = axis(axes[i], x.len())?;
            let size = i64::try_from(x[axis]).map_err(|e| e.to_string())?;
            let place = |at: i64| if at < 0 { at.saturating_add(size) } else { at }.clamp(0, size);
            let (start, end) = (place(starts[i]), place(ends[i]));
            if step < 1 || end <= start {
                return Err(format!(
                    "entries {start} to {end} in steps of {step}; only some, forwards, are supported"
                ));
            }
            let len = (end - start - 1) / step + 1;
            let behind = size - start;
            let stepped = is_plane && axis > 1 && step > 1 && (behind - 1) / step + 1 == len;
            let (len, step) = match stepped {
                true => {
                    strides[axis - 2] = step as usize;
                    (behind, 1)
                }
                false => (len, step),
            };
            let [start, len, step] = [start, len, step].map(|v| v as usize);
            if len != x[axis] {
                ops.push(Op::Slice {
                    axis,
                    start,
                    len,
                    step,
                });
            }
        }
        if strides != [1, 1] {
            let window = Window {
                stride: strides,
                ..Window::whole([1, 1])
            };
            ops.push(Op::MaxPool { window });
        }
        if ops.is_empty() {
            ops.push(Op::Identity);
        }
        Ok(ops)
    }

    /// The Slices of a Split, one for each output.
    ///
    /// # Errors
    /// Sizes that don't add up.
    pub(crate) fn split(&self, node: &Attributes<'_>, input: ValueId) -> Result<Vec<Op>, String> {
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

/// The outputs of a Split with their names.
pub(crate) fn pieces(node: &proto::Node, ops: Vec<Op>) -> impl Iterator<Item = (&String, Op)> {
    node.output
        .iter()
        .zip(ops)
        .filter(|(name, _)| !name.is_empty())
}
