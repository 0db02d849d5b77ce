//! Operators that give values another place.

use super::fields::{Facts, Field, Steps, count, field};
use super::operator::{Bound, Found, Made, Operator, axis};
use super::planes::nchw;
use crate::graph::{Data, DepthMode, Entries, Op};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::AttributeValue;

/// The most pieces that a Split may have.
const MAX_PIECES: usize = 1024;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::computed("Concat", Bound::Sum).device((1, 1024), joined),
    Operator::fewer("Slice").device((1, 5), sliced),
    Operator::fewer("Split"),
    Operator::computed("Gather", Bound::Index).device((2, 2), gathered),
    Operator::computed("GatherElements", Bound::Index),
    Operator::computed("GatherND", Bound::Index),
    Operator::same("ScatterElements"),
    Operator::same("ScatterND"),
    Operator::fewer("DepthToSpace").device((1, 1), to_space),
    Operator::fewer("SpaceToDepth").device((1, 1), to_depth),
];

pub(super) fn concat(axis: usize) -> Facts<'static> {
    Facts::new("Concat", by_channels(axis)).fields([count("axis", axis, "dimension that grows")])
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
    Facts::new("Slice", role)
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
}

pub(super) fn gather(axis: usize) -> Facts<'static> {
    Facts::new("Gather", by_channels(axis))
        .fields([count(
            "axis",
            axis,
            "the dimension that entries are taken of",
        )])
        .steps(Steps::Input)
}

pub(super) fn depth_to_space(block: usize, mode: DepthMode) -> Facts<'static> {
    let name = AttributeValue::Texts(vec![mode.name().to_owned()]);
    let meaning = "whether channels lie position by position or channel by channel";
    Facts::new("DepthToSpace", Role::Plane)
        .fields([block_size(block), field(("mode", "mode"), name, meaning)])
        .steps(Steps::Input)
}

pub(super) fn space_to_depth(block: usize) -> Facts<'static> {
    Facts::new("SpaceToDepth", Role::Plane)
        .fields([block_size(block)])
        .steps(Steps::Input)
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
        "rows and columns of a block",
    )
}

/// A shape with another size along an axis.
fn with(x: &[usize], axis: usize, size: usize) -> Vec<usize> {
    let mut shape = x.to_vec();
    shape[axis] = size;
    shape
}

/// The shape of what is taken of a value.
pub(super) fn cut(x: &[usize], entries: &[Entries]) -> Vec<usize> {
    let taken = |shape: Vec<usize>, of: &Entries| with(&shape, of.axis, of.len);
    entries.iter().fold(x.to_vec(), taken)
}

fn joined(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let first = given.shape(0)?;
    let axis = axis(found.op.int("axis", 1), first.len())?;
    let shapes: Vec<&[usize]> = given.values.iter().map(|value| &value.shape[..]).collect();
    let fits =
        |shape: &&[usize]| shape.len() > axis && with(shape, axis, 0) == with(first, axis, 0);
    let mut sizes = shapes
        .iter()
        .filter(|shape| fits(shape))
        .map(|shape| shape[axis]);
    let size = sizes.try_fold(0usize, usize::checked_add);
    let size = size.filter(|_| shapes.iter().all(fits));
    let size = size.ok_or_else(|| format!("its inputs {shapes:?} don't fit along axis {axis}"))?;
    Ok(found.made(Op::Concat { axis }, with(first, axis, size)))
}

/// Entries of each dimension that a Slice cuts, forwards.
///
/// # Errors
/// Entries that aren't constant, or are taken backwards.
fn sliced(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let x = given.shape(0)?;
    let starts = given
        .integers(1, "starts")?
        .ok_or("its starts are missing")?;
    let ends = given.integers(2, "ends")?.ok_or("its ends are missing")?;
    let axes = given.integers(3, "axes")?;
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = given.integers(4, "steps")?;
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(format!(
            "axes {axes:?} and steps {steps:?} of {}",
            starts.len()
        ));
    }
    let mut entries: Vec<Entries> = Vec::new();
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
        if entries.iter().any(|of| of.axis == axis) {
            return Err(format!("it cuts axis {axis} twice"));
        }
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
        return Ok(found.unary(Op::Identity, x.to_vec()));
    }
    let shape = cut(x, &entries);
    Ok(found.unary(Op::Slice { entries }, shape))
}

/// The Slices of a Split, one for each output.
///
/// # Errors
/// Sizes that don't add up.
pub(crate) fn split(import: &Import<'_>, found: &Found<'_>) -> Result<Vec<Made>, String> {
    let given = import.given(found);
    let x = given.shape(0)?;
    let axis = axis(found.op.int("axis", 0), x.len())?;
    let outputs = found.node.output.len();
    let size = x[axis];
    if outputs > MAX_PIECES {
        return Err(format!(
            "{outputs} outputs; at most {MAX_PIECES} are supported"
        ));
    }
    let positive = |&n: &i64| usize::try_from(n).ok().filter(|n| *n > 0);
    let sizes: Vec<usize> = match given.integers(1, "split")? {
        Some(sizes) => {
            let sizes: Option<_> = sizes.iter().map(positive).collect();
            sizes.ok_or("a size isn't positive")?
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
        let entries = Entries::run(axis, start, len);
        start += len;
        found.unary(entries.into(), with(x, axis, len))
    };
    Ok(sizes.into_iter().map(piece).collect())
}

fn gathered(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let (x, indices) = (given.shape(0)?, given.value(1)?);
    let axis = axis(found.op.int("axis", 0), x.len())?;
    let list = match (&indices.data, &indices.shape[..]) {
        (Some(Data::I64(list)), [_]) if !list.is_empty() => list,
        _ => return Err("its entries must be a constant int64 list".to_owned()),
    };
    let inside = |i: &i64| usize::try_from(*i).is_ok_and(|i| i < x[axis]);
    match list.iter().find(|i| !inside(i)) {
        None => Ok(found.made(Op::Gather { axis }, with(x, axis, list.len()))),
        Some(i) => Err(format!("entry {i} of axis {axis} of {x:?}")),
    }
}

fn to_space(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let [n, c, h, w] = nchw(import.given(found).shape(0)?)?;
    let block = found.op.count("blocksize", 0)?;
    let mode = match found.op.text("mode") {
        None | Some("DCR") => DepthMode::Dcr,
        Some("CRD") => DepthMode::Crd,
        Some(mode) => return Err(format!("mode {mode} is unknown")),
    };
    let area = block.checked_mul(block).filter(|area| *area > 0);
    let Some(area) = area.filter(|area| c % area == 0) else {
        return Err(format!("{c} channels for blocks of {block}x{block}"));
    };
    // No larger than the channels that they come from.
    let shape = vec![n, c / area, h * block, w * block];
    Ok(found.made(Op::DepthToSpace { block, mode }, shape))
}

fn to_depth(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let [n, c, h, w] = nchw(import.given(found).shape(0)?)?;
    let block = found.op.count("blocksize", 0)?;
    if !matches!(found.op.text("mode"), None | Some("DCR")) {
        return Err("its channels lie channel by channel".to_owned());
    }
    if block == 0 || h % block != 0 || w % block != 0 {
        return Err(format!("{h}x{w} in blocks of {block}x{block}"));
    }
    // As many values as there were.
    let shape = vec![n, c * block * block, h / block, w / block];
    Ok(found.made(Op::SpaceToDepth { block }, shape))
}
