//! Shapes of operators that are kept as the file has them, from their inputs' shapes.

use super::bounds::{count, letters, stated};
use crate::graph::OnnxOp;
use crate::onnx::MAX_ELEMENTS;
use crate::operators::elementwise::broadcast;
use crate::operators::operator::{Bound, Given, Size, Stated, WindowKind};

/// The shape of the outputs where the inputs' shapes say it; `None` where it must be computed.
///
/// # Errors
/// Inputs that don't fit each other, in words.
pub(super) fn direct(size: Size, given: &Given<'_>) -> Result<Option<Vec<usize>>, String> {
    let (op, shape) = (given.op, |argument| given.shape(argument));
    Ok(Some(match size {
        Size::First => {
            parameters(given, shape(0)?)?;
            shape(0)?.to_vec()
        }
        Size::Broadcast => {
            let mut shapes = given.values.iter().map(|value| &value.shape);
            shapes.try_fold(Vec::new(), |all, shape| broadcast(&all, shape))?
        }
        Size::Product if op.kind == "Gemm" => gemm(op, shape(0)?, shape(1)?)?,
        Size::Product => product(shape(0)?, shape(1)?)?,
        Size::Window(kind) => {
            let weights = match kind {
                WindowKind::Conv | WindowKind::ConvTranspose => shape(1)?,
                WindowKind::Pool | WindowKind::Global => &[],
            };
            window(kind, op, shape(0)?, weights)?
        }
        Size::Computed(_) => return Ok(None),
    }))
}

/// Those of a normalisation have a value for each channel.
fn parameters(given: &Given<'_>, x: &[usize]) -> Result<(), String> {
    if !matches!(
        given.op.kind,
        "BatchNormalization" | "InstanceNormalization"
    ) {
        return Ok(());
    }
    let channels = x.get(1).copied().unwrap_or(1);
    let mut parameters = given.values.iter().skip(1);
    match parameters.find(|value| value.shape != [channels]) {
        None => Ok(()),
        Some(value) => Err(format!(
            "parameters of shape {:?} for {x:?}, not [{channels}]",
            value.shape
        )),
    }
}

fn product(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let fail = || format!("operands {a:?} and {b:?} don't fit each other");
    let (rows, k, before) = match a {
        [] => return Err(fail()),
        [k] => (None, *k, &[][..]),
        [before @ .., m, k] => (Some(*m), *k, before),
    };
    let (inner, columns, others) = match b {
        [] => return Err(fail()),
        [k] => (*k, None, &[][..]),
        [others @ .., k, n] => (*k, Some(*n), others),
    };
    if k != inner {
        return Err(fail());
    }
    let mut shape = broadcast(before, others)?;
    shape.extend(rows.into_iter().chain(columns));
    Ok(shape)
}

fn gemm(op: &OnnxOp, a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let (&[mut m, mut k], &[mut inner, mut n]) = (a, b) else {
        return Err(format!("operands {a:?} and {b:?} aren't matrices"));
    };
    if op.int("transA", 0) != 0 {
        (m, k) = (k, m);
    }
    if op.int("transB", 0) != 0 {
        (inner, n) = (n, inner);
    }
    if k != inner {
        return Err(format!("inner sizes {k} and {inner} differ"));
    }
    Ok(vec![m, n])
}

/// Sizes up to this are taken for windows.
const MAX_SIZE: i64 = 65535;

/// An attribute of sizes, one for each of `count` dimensions.
fn counts(op: &OnnxOp, name: &str, default: usize, count: usize) -> Result<Vec<usize>, String> {
    let Some(values) = op.ints(name) else {
        return Ok(vec![default; count]);
    };
    let fits = |v: &i64| (0..=MAX_SIZE).contains(v);
    if values.len() != count || !values.iter().all(fits) {
        return Err(format!(
            "{name} is {values:?}, not {count} sizes up to {MAX_SIZE}"
        ));
    }
    Ok(values.iter().map(|&v| v as usize).collect())
}

/// What a window over rows, columns or any other dimensions gives.
fn window(
    kind: WindowKind,
    op: &OnnxOp,
    x: &[usize],
    weights: &[usize],
) -> Result<Vec<usize>, String> {
    let &[batch, channels, ref space @ ..] = x else {
        return Err(format!("input of shape {x:?}, not [N, C, ..]"));
    };
    let n = space.len();
    if kind == WindowKind::Global {
        return Ok([&[batch, channels], &vec![1; n][..]].concat());
    }
    if n > 2 {
        return Err(format!("its windows have 1 or 2 axes, not {n}"));
    }
    let group = op.count("group", 1)?;
    if group == 0 {
        return Err("group is 0".to_owned());
    }
    let (outputs, kernel) = match (kind, weights) {
        (WindowKind::Conv, [co, ci, kernel @ ..]) if ci.checked_mul(group) == Some(channels) => {
            (*co, kernel.to_vec())
        }
        (WindowKind::ConvTranspose, [ci, co, kernel @ ..]) if *ci == channels => {
            let outputs = co.checked_mul(group);
            (outputs.ok_or("it has too many channels")?, kernel.to_vec())
        }
        (WindowKind::Pool, _) => (channels, counts(op, "kernel_shape", 1, n)?),
        _ => {
            return Err(format!(
                "weights {weights:?} don't fit input {x:?}, group {group}"
            ));
        }
    };
    if kernel.len() != n || kernel.contains(&0) || kernel.iter().any(|&k| k as i64 > MAX_SIZE) {
        return Err(format!("a kernel of {kernel:?} over {space:?}"));
    }
    let (stride, dilation) = (counts(op, "strides", 1, n)?, counts(op, "dilations", 1, n)?);
    if stride.contains(&0) || dilation.contains(&0) {
        return Err("a stride or dilation is 0".to_owned());
    }
    let pads = counts(op, "pads", 0, 2 * n)?;
    let same = op
        .text("auto_pad")
        .is_some_and(|text| text.starts_with("SAME"));
    let mut shape = vec![batch, outputs];
    for i in 0..n {
        let span = dilation[i] * (kernel[i] - 1) + 1;
        let padded = space[i] + pads[i] + pads[n + i];
        let size = match kind {
            WindowKind::ConvTranspose => transposed(op, i, n, space[i], span, stride[i], same)?,
            _ if same => Some(space[i].div_ceil(stride[i])),
            WindowKind::Pool if op.int("ceil_mode", 0) != 0 => {
                let room = padded.checked_sub(span);
                let windows = room.map(|room| room.div_ceil(stride[i]) + 1);
                // None starts in the padding behind.
                let last = |w: usize| (w - 1) * stride[i] >= space[i] + pads[i];
                windows.map(|w| w - usize::from(last(w)))
            }
            _ => padded.checked_sub(span).map(|room| room / stride[i] + 1),
        };
        let size = size.ok_or_else(|| format!("a kernel of {kernel:?} doesn't fit {space:?}"))?;
        shape.push(size);
    }
    Ok(shape)
}

/// A size of a transposed convolution's output.
fn transposed(
    op: &OnnxOp,
    i: usize,
    n: usize,
    size: usize,
    span: usize,
    stride: usize,
    same: bool,
) -> Result<Option<usize>, String> {
    if op.ints("output_shape").is_some() {
        return Ok(counts(op, "output_shape", 1, n)?.get(i).copied());
    }
    if same {
        return Ok(Some(size * stride));
    }
    let (pads, more) = (
        counts(op, "pads", 0, 2 * n)?,
        counts(op, "output_padding", 0, n)?,
    );
    let all = (size.max(1) - 1) * stride + span + more[i];
    Ok(all.checked_sub(pads[i] + pads[n + i]).filter(|&n| n > 0))
}

/// What computing an operator takes.
pub(super) struct Cost {
    /// The most elements of an output.
    pub elements: u64,
    /// Elements that are read and given, or multiply-adds where these are more.
    pub work: u64,
}

/// What computing an operator takes.
///
/// # Errors
/// More than [`MAX_ELEMENTS`] in an output, or a size that isn't known yet, in words.
pub(super) fn cost(size: Size, given: &Given<'_>) -> Result<Cost, String> {
    let op = given.op;
    let mut summed = 1;
    let elements = match size {
        Size::Computed(Bound::First) => count(given.shape(0)?),
        Size::Computed(Bound::Sum) => {
            let all = given.values.iter().map(|v| count(&v.shape));
            all.fold(0, u64::saturating_add)
        }
        Size::Computed(Bound::Index) => gathered(op, given.shape(0)?, given.shape(1)?),
        Size::Computed(Bound::Stated(Stated::Letters)) => {
            let (elements, sums) = letters(given)?;
            summed = sums;
            elements
        }
        Size::Computed(Bound::Stated(at)) => {
            if let Stated::States = at {
                // A state is sums over an input and over the states before.
                let inner = |i: usize| given.shape(i).map_or(1, count);
                summed = inner(1).saturating_add(inner(2));
            }
            stated(at, given)?
        }
        Size::First | Size::Broadcast | Size::Product | Size::Window(_) => {
            summed = terms(size, given);
            count(&direct(size, given)?.unwrap_or_default())
        }
    };
    let limit = MAX_ELEMENTS as u64;
    if elements > limit {
        return Err(format!(
            "it may give {elements} elements; the most is {limit}"
        ));
    }
    let read = given.values.iter().map(|v| count(&v.shape));
    let work = elements.saturating_mul(summed.max(1));
    Ok(Cost {
        elements,
        work: read.fold(work, u64::saturating_add),
    })
}

/// How many terms the sum of an output has at most.
fn terms(size: Size, given: &Given<'_>) -> u64 {
    let op = given.op;
    let shape = |at: usize| given.shape(at).unwrap_or_default();
    let one_of =
        |shape: &[usize], at: usize| count(shape) / shape.get(at).map_or(1, |&d| d.max(1)) as u64;
    match size {
        Size::Product if op.kind == "Gemm" && op.int("transA", 0) != 0 => {
            shape(0).first().map_or(1, |&d| d as u64)
        }
        Size::Product => shape(0).last().map_or(1, |&d| d as u64),
        Size::Window(WindowKind::Conv) => one_of(shape(1), 0),
        Size::Window(WindowKind::ConvTranspose) => one_of(shape(1), 1),
        Size::Window(WindowKind::Pool) => {
            let sizes = op.ints("kernel_shape").unwrap_or_default();
            let sizes = sizes.iter().map(|&d| u64::try_from(d).unwrap_or(0));
            sizes.fold(1, u64::saturating_mul)
        }
        _ => 1,
    }
}

/// What gathering gives at most: a slice of the data for each index.
fn gathered(op: &OnnxOp, data: &[usize], indices: &[usize]) -> u64 {
    let slice = match op.kind {
        "Gather" => {
            let axis = op.int("axis", 0);
            let axis = if axis < 0 {
                axis + data.len() as i64
            } else {
                axis
            };
            let along = usize::try_from(axis).ok().and_then(|a| data.get(a));
            along.map_or(u64::MAX, |&d| count(data) / (d as u64).max(1))
        }
        "GatherElements" => 1,
        _ => count(data),
    };
    slice.saturating_mul(count(indices))
}
