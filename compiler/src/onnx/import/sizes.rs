//! Shapes of operators that are kept as the file has them, from their inputs' shapes.

use super::bounds::{count, letters, most};
use crate::graph::Element;
use crate::onnx::MAX_ELEMENTS;
use crate::operators::elementwise::broadcast;
use crate::operators::operator::{Bound, Given, Size, WindowKind, axis};
use crate::operators::{conv, dense, planes, reduce};

/// The shape of an output where the inputs' shapes say it; `None` where it must be computed.
///
/// # Errors
/// Inputs that don't fit each other, in words.
pub(crate) fn direct(
    size: Size,
    given: &Given<'_>,
    output: usize,
) -> Result<Option<Vec<usize>>, String> {
    Ok(Some(match size {
        Size::First => {
            let x = given.shape(0)?;
            parameters(given, x)?;
            x.to_vec()
        }
        Size::Broadcast => {
            // The engine's integers have 32 bits.
            let is_long = given.value(0).is_ok_and(|x| x.element == Element::I64);
            if given.op.kind == "BitShift" && is_long {
                return Err("shifts of 64 bits".to_owned());
            }
            let mut shapes = given.values.iter().map(|value| &value.shape);
            shapes.try_fold(Vec::new(), |all, shape| broadcast(&all, shape))?
        }
        Size::Product => dense::shape(given)?,
        Size::Window(kind) => window(kind, given)?,
        Size::Chosen => chosen(given)?,
        Size::Order => ordered(given)?,
        Size::States => states(given, output)?,
        Size::Spectrum => reduce::spectrum(given)?,
        Size::Computed(_) => return Ok(None),
    }))
}

/// Whether the engine may give a shape where the inputs say another.
pub(super) fn fits(size: Size, made: &[usize], said: &[usize]) -> bool {
    let is_within = || made.iter().zip(said).all(|(made, said)| made <= said);
    made == said || matches!(size, Size::Chosen) && made.len() == said.len() && is_within()
}

/// The most that is chosen: all elements or entries, or of boxes a row for each of each class, or as many of them as
/// are asked for.
fn chosen(given: &Given<'_>) -> Result<Vec<usize>, String> {
    let x = given.shape(0)?;
    let all = || x.iter().product::<usize>();
    match (given.op.kind, given.op.attribute("axis")) {
        ("NonZero", _) => return Ok(vec![x.len(), all()]),
        ("Compress", None) => return Ok(vec![all()]),
        ("Compress", Some(_)) => {
            axis(given.op.int("axis", 0), x.len())?;
            return Ok(x.to_vec());
        }
        _ => {}
    }
    let (&[images, boxes, _], &[_, classes, _]) = (given.shape(0)?, given.shape(1)?) else {
        return Err("its boxes or scores haven't three dimensions".to_owned());
    };
    let most = given.integers(2, "number of boxes")?;
    let most = most.and_then(|most| most.first().copied()).unwrap_or(0);
    let most = usize::try_from(most).unwrap_or(0).min(boxes);
    let rows = images.saturating_mul(classes).saturating_mul(most);
    if rows == 0 {
        return Err("max_output_boxes_per_class lets it choose no box".to_owned());
    }
    Ok(vec![rows, 3])
}

/// The dimensions of a Transpose.
fn ordered(given: &Given<'_>) -> Result<Vec<usize>, String> {
    let x = given.shape(0)?;
    let Some(order) = given.op.ints("perm") else {
        return Ok(x.iter().rev().copied().collect());
    };
    let mut named = order.to_vec();
    named.sort_unstable();
    if !named.iter().copied().eq(0..x.len() as i64) {
        return Err(format!("perm {order:?} for {x:?}"));
    }
    Ok(order.iter().map(|&d| x[d as usize]).collect())
}

/// What LSTM, GRU and RNN give: a state for each step of each direction, and then the last ones alone.
fn states(given: &Given<'_>, output: usize) -> Result<Vec<usize>, String> {
    let gates = match given.op.kind {
        "LSTM" => 4,
        "GRU" => 3,
        _ => 1,
    };
    let [x, weights, before] = [given.shape(0)?, given.shape(1)?, given.shape(2)?];
    let (&[first, second, inputs], &[directions, rows, units]) = (x, before) else {
        return Err(format!(
            "an input of shape {x:?} and recurrence of {before:?}"
        ));
    };
    if weights != [directions, rows, inputs] || units.checked_mul(gates) != Some(rows) {
        return Err(format!(
            "weights of shape {weights:?} and recurrence of {before:?} for {x:?}"
        ));
    }
    let is_batch_first = given.op.int("layout", 0) == 1;
    Ok(match (output, is_batch_first) {
        (0, false) => vec![first, directions, second, units],
        (0, true) => vec![first, second, directions, units],
        (_, false) => vec![directions, second, units],
        (_, true) => vec![first, directions, units],
    })
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

/// What a window over rows, columns or any other dimensions gives.
fn window(kind: WindowKind, given: &Given<'_>) -> Result<Vec<usize>, String> {
    let x = given.shape(0)?;
    let &[batch, channels, ref space @ ..] = x else {
        return Err(format!("input of shape {x:?}, not [N, C, ..]"));
    };
    if let (&[_, _, _], WindowKind::Conv | WindowKind::Pool) = (space, kind) {
        return volume(kind, given, x);
    }
    if let (&[_, _, _], WindowKind::ConvTranspose) = (space, kind) {
        let &[inner, each, ref kernel @ ..] = given.shape(1)? else {
            return Err(format!("weights of shape {:?}", given.shape(1)?));
        };
        let group = given.op.count("group", 1)?.max(1);
        let out = each
            .checked_mul(group)
            .filter(|_| inner == channels && channels % group == 0);
        let out =
            out.ok_or_else(|| format!("weights of {inner} channels for {x:?}, group {group}"))?;
        let sizes = planes::spread_volume(given.op, space, kernel)?;
        return Ok([&[batch, out], &sizes[..]].concat());
    }
    let of = match kind {
        WindowKind::Global => return Ok([&[batch, channels], &vec![1; space.len()][..]].concat()),
        WindowKind::Pool => {
            let window = planes::pool(given.op, x)?;
            return Ok(planes::like(x, channels, planes::output(&window, x)?));
        }
        WindowKind::Conv => conv::geometry(given)?,
        WindowKind::ConvTranspose => conv::transposed_geometry(given)?,
    };
    Ok(planes::like(x, of.channels, of.size))
}

/// What a window over three dimensions gives.
fn volume(kind: WindowKind, given: &Given<'_>, x: &[usize]) -> Result<Vec<usize>, String> {
    let (channels, kernel) = match kind {
        WindowKind::Conv => match given.shape(1)? {
            &[out, inner, ref kernel @ ..] => {
                let group = given.op.count("group", 1)?.max(1);
                if inner.checked_mul(group) != Some(x[1]) || out % group != 0 || out == 0 {
                    return Err(format!(
                        "weights of {out} and {inner} channels for {x:?}, group {group}"
                    ));
                }
                (out, kernel.to_vec())
            }
            other => return Err(format!("weights of shape {other:?} for {x:?}")),
        },
        _ => {
            let kernel = given
                .op
                .ints("kernel_shape")
                .ok_or("kernel_shape is missing")?;
            let size =
                |d: &i64| usize::try_from(*d).map_err(|_| format!("kernel_shape is {kernel:?}"));
            (x[1], kernel.iter().map(size).collect::<Result<_, _>>()?)
        }
    };
    if given.op.kind == "ConvInteger" {
        return Err("integers of three dimensions".to_owned());
    }
    let counts = planes::volume(given.op, &x[2..], &kernel)?;
    let mut shape = vec![x[0], channels];
    shape.extend(counts.iter().map(|span| span.count));
    Ok(shape)
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
    let mut summed = 1;
    let elements = match size {
        Size::Computed(Bound::Letters) => {
            let (elements, sums) = letters(given)?;
            summed = sums;
            elements
        }
        Size::Computed(bound) => most(bound, given)?,
        _ => {
            summed = terms(size, given);
            count(&direct(size, given, 0)?.unwrap_or_default())
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
        // A box is compared with those that were chosen.
        Size::Chosen if op.kind == "NonMaxSuppression" => shape(0).get(1).map_or(1, |&d| d as u64),
        // A state is sums over an input and over the states before, for each gate.
        Size::States => {
            let each =
                |at: usize| one_of(shape(at), 0) / shape(2).last().map_or(1, |&d| d.max(1)) as u64;
            each(1).saturating_add(each(2))
        }
        // By a fast transform, of which some steps count twice.
        Size::Spectrum => 64,
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
