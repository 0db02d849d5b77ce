//! Operators that give values another place.

use super::fields::{Field, count, field};
use super::operator::{Bound, Facts, Inputs, Kind, Operator, Size, Steps};
use super::planes::nchw;
use crate::graph::{Data, DepthMode, Entries, Op, ValueId};
use crate::onnx::import::attributes::{Attributes, axis};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::passes::import::values::{HOST, error};
use crate::reflect::AttributeValue;

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
    Operator::fewer("Slice").device((1, 5), |import, node, _, inputs| {
        inputs.truncate(1);
        import.slice(node, inputs[0])
    }),
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

pub(super) fn slice(entries: &[Entries]) -> Facts<'_> {
    let list = |of: fn(&Entries) -> usize| -> Vec<usize> { entries.iter().map(of).collect() };
    let unwritten = |name, values: Vec<usize>, meaning| {
        field((name, ""), AttributeValue::ints(&values), meaning)
    };
    let stepped = |of: &Entries| of.axis > 1 && of.step > 1;
    let role = if entries.iter().any(stepped) {
        Role::Plane
    } else if entries.iter().all(|of| of.axis == 1) {
        Role::Channels
    } else {
        Role::Other
    };
    Facts::new(
        "Slice",
        |inputs| entries.iter().try_fold(inputs.shape(0)?.to_vec(), taken),
        |reading, node| reading.sliced(node, entries),
    )
    .fields([
        unwritten(
            "axes",
            list(|of| of.axis),
            "the dimensions that entries are taken of",
        ),
        unwritten("starts", list(|of| of.start), "the first entry of each"),
        unwritten("lens", list(|of| of.len), "how many entries of each"),
        unwritten("steps", list(|of| of.step), "from one entry to the next"),
    ])
    .steps(Steps::Input)
    .write(move |node| {
        for (suffix, values) in [
            ("starts", list(|of| of.start)),
            ("ends", list(Entries::end)),
            ("axes", list(|of| of.axis)),
            ("steps", list(|of| of.step)),
        ] {
            let values: Vec<i64> = values.into_iter().map(|v| v as i64).collect();
            node.constant(suffix, &[values.len()], Data::I64(values));
        }
    })
    .role(role)
}

/// The shape of what is taken of a value.
fn taken(mut shape: Vec<usize>, entries: &Entries) -> Result<Vec<usize>, String> {
    let Entries {
        axis,
        start,
        len,
        step,
    } = *entries;
    let last = len.checked_sub(1).and_then(|n| n.checked_mul(step));
    let last = last.and_then(|n| n.checked_add(start));
    match (shape.get_mut(axis), last) {
        (Some(size), Some(last)) if step > 0 && last < *size => *size = len,
        _ => {
            return Err(format!(
                "{len} entries from {start} in steps of {step} of axis {axis} of {shape:?}"
            ));
        }
    }
    Ok(shape)
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

    /// Entries of each dimension that a Slice cuts, forwards.
    ///
    /// # Errors
    /// Entries that aren't constant, or are taken backwards.
    fn slice(&self, node: &Attributes<'_>, x: ValueId) -> Result<Op, String> {
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
        let mut entries = Vec::new();
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
            let [start, len, step] = [start, len, step].map(|v| v as usize);
            if len != x[axis] {
                entries.push(Entries {
                    axis,
                    start,
                    len,
                    step,
                });
            }
        }
        if entries.is_empty() {
            return Ok(Op::Identity);
        }
        Ok(Op::Slice { entries })
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
            Entries::run(axis, at, len).into()
        };
        Ok(sizes.into_iter().map(piece).collect())
    }
}
