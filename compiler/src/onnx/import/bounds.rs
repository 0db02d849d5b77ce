//! The most elements that operators give whose sizes stand in constants or attributes.

use crate::engine::interpolate;
use crate::graph::{Data, OnnxOp, Value};
use crate::operators::elementwise::broadcast;
use crate::operators::operator::{Bound, Given};

/// The most elements of an output that must be computed.
///
/// # Errors
/// Sizes that aren't known yet, in words.
pub(super) fn most(bound: Bound, given: &Given<'_>) -> Result<u64, String> {
    let input = |argument: usize| given.value(argument);
    let unknown = |what: &str| format!("its {what} isn't known before it runs");
    let ints = |argument: usize, what: &str| -> Result<Vec<i64>, String> {
        let data = input(argument)?.data.as_ref();
        data.and_then(Data::integers).ok_or_else(|| unknown(what))
    };
    let product = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(1u64, u64::saturating_mul);
    let size = |v: &i64| u64::try_from(*v).unwrap_or(0);
    let count = |v: &Value| count(&v.shape);
    // Axes, sizes and entries say how large an output is: what stands behind the first input.
    let says = match bound {
        Bound::First => 1,
        Bound::Pads => 3,
        _ => usize::MAX,
    };
    let mut said = (says..given.op.arguments.len()).filter_map(|argument| given.get(argument));
    if said.any(|value| value.data.is_none()) {
        return Err(unknown("size"));
    }
    Ok(match bound {
        Bound::First => count(input(0)?),
        Bound::Sum => {
            let all = given.values.iter().map(|value| count(value));
            all.fold(0, u64::saturating_add)
        }
        Bound::Index => gathered(given.op, given.shape(0)?, given.shape(1)?),
        Bound::Shape => product(&mut ints(0, "shape")?.iter().map(size)),
        Bound::Expand => {
            let shape = ints(1, "shape")?;
            let shape: Vec<usize> = shape.iter().map(|v| size(v) as usize).collect();
            let all = broadcast(&input(0)?.shape, &shape)?;
            product(&mut all.iter().map(|&d| d as u64))
        }
        Bound::Repeats => {
            let repeats = product(&mut ints(1, "repeats")?.iter().map(size));
            repeats.saturating_mul(count(input(0)?))
        }
        Bound::Pads => padded(input(0)?, &ints(1, "pads")?),
        Bound::Resize => resized(given)?,
        Bound::Range => range([input(0)?, input(1)?, input(2)?]).ok_or_else(|| unknown("range"))?,
        Bound::Depth => {
            let depth = match &input(1)?.data {
                Some(Data::F32(v)) => v.iter().map(|&v| v as i64).collect(),
                Some(data) => data.integers().unwrap_or_default(),
                None => return Err(unknown("depth")),
            };
            count(input(0)?).saturating_mul(product(&mut depth.iter().map(size)))
        }
        Bound::Letters => letters(given)?.0,
        Bound::Scores => {
            let scores = leading(input(0)?, 1).saturating_mul(leading(input(1)?, 1));
            let values = input(2)?.shape.last().map_or(1, |&d| d as u64);
            scores.saturating_add(leading(input(0)?, 1).saturating_mul(values))
        }
        Bound::Grid => {
            let planes = leading(input(0)?, 2);
            planes.saturating_mul(leading(input(1)?, 1))
        }
    })
}

/// The elements of a Pad. With axes its pads may stand for any dimensions: each counts for the largest.
fn padded(x: &Value, pads: &[i64]) -> u64 {
    let half = pads.len() / 2;
    let size = |v: i64| u64::try_from(v).unwrap_or(0);
    let wide = |i: usize| size(pads[i]).saturating_add(size(pads[half + i]));
    let product = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(1u64, u64::saturating_mul);
    if half == x.shape.len() {
        product(&mut (0..half).map(|i| wide(i).saturating_add(x.shape[i] as u64)))
    } else {
        let grown = product(&mut (0..half).map(|i| wide(i).saturating_add(1)));
        grown.saturating_mul(count(&x.shape))
    }
}

/// The elements of a Resize, by its sizes or factors.
fn resized(given: &Given<'_>) -> Result<u64, String> {
    let x = given.value(0)?;
    if interpolate::is_own(given.op) && !is_known(given.op, x) {
        return Err(
            "a cubic Resize, or one over all that becomes a value, of these attributes".to_owned(),
        );
    }
    let unknown = |what: &str| format!("its {what} isn't known before it runs");
    match (given.get(3), given.get(2)) {
        (Some(sizes), _) => {
            let sizes = sizes.data.as_ref().and_then(Data::integers);
            let sizes = sizes.ok_or_else(|| unknown("sizes"))?;
            let size = |v: &i64| u64::try_from(*v).unwrap_or(0);
            let all = sizes.iter().map(size).fold(1u64, u64::saturating_mul);
            if sizes.len() == x.shape.len() {
                Ok(all)
            } else {
                Ok(all.saturating_mul(count(&x.shape)))
            }
        }
        (None, Some(scales)) => match &scales.data {
            Some(Data::F32(scales)) => {
                let factor: f64 = scales.iter().map(|&s| f64::from(s).max(0.0)).product();
                Ok((factor * count(&x.shape) as f64) as u64)
            }
            _ => Err(unknown("scales")),
        },
        (None, None) => Err("it has neither sizes nor scales".to_owned()),
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
        "GatherND" => {
            // The last dimension of the indices counts dimensions behind those of a batch.
            let &[ref places @ .., depth] = indices else {
                return u64::MAX;
            };
            let batch = usize::try_from(op.int("batch_dims", 0)).ok();
            let kept = batch.and_then(|batch| data.get(batch.saturating_add(depth)..));
            return kept.map_or(u64::MAX, |kept| count(kept).saturating_mul(count(places)));
        }
        _ => 1,
    };
    slice.saturating_mul(count(indices))
}

/// Elements of a value's dimensions without its last few.
fn leading(value: &Value, last: usize) -> u64 {
    count(&value.shape[..value.shape.len().saturating_sub(last)])
}

/// Elements of a shape.
pub(super) fn count(shape: &[usize]) -> u64 {
    shape.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64))
}

/// Whether a Resize is one by matrices: over all rows and columns of a value with channels.
fn is_known(op: &OnnxOp, x: &Value) -> bool {
    let policy = op.text("keep_aspect_ratio_policy");
    x.shape.len() == 4
        && op.text("coordinate_transformation_mode") != Some("tf_crop_and_resize")
        && policy.is_none_or(|policy| policy == "stretch")
        && op.attribute("axes").is_none()
}

/// How many numbers a range has.
fn range(ends: [&Value; 3]) -> Option<u64> {
    let number = |value: &Value| match value.data.as_ref()? {
        Data::F32(v) => v.first().map(|&v| f64::from(v)),
        data => data.integers()?.first().map(|&v| v as f64),
    };
    let [start, limit, step] = [number(ends[0])?, number(ends[1])?, number(ends[2])?];
    let count = ((limit - start) / step).ceil();
    (step != 0.0 && count.is_finite()).then_some(count.max(0.0) as u64)
}

/// What an Einsum gives at most, and how many terms each sum has.
pub(super) fn letters(given: &Given<'_>) -> Result<(u64, u64), String> {
    let equation = given.op.text("equation").ok_or("its equation is missing")?;
    let equation = equation.replace(' ', "");
    let (terms, kept) = equation.split_once("->").unwrap_or((&equation, &equation));
    let mut sizes = std::collections::BTreeMap::new();
    for (index, term) in terms.split(',').enumerate() {
        let shape = given.shape(index)?;
        if term.contains('.') || term.chars().count() != shape.len() {
            return Err(format!(
                "the term {term} doesn't name the dimensions of {shape:?}"
            ));
        }
        for (letter, &size) in term.chars().zip(shape) {
            let known = sizes.entry(letter).or_insert(size as u64);
            *known = (*known).max(size as u64);
        }
    }
    let product = |is_kept: bool| {
        let of = sizes
            .iter()
            .filter(|(letter, _)| kept.contains(**letter) == is_kept);
        of.fold(1u64, |n, (_, &d)| n.saturating_mul(d))
    };
    Ok((product(true), product(false)))
}
