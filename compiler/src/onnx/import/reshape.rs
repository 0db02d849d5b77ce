//! Operators that only give another shape.

use super::Attributes;
use super::state::Import;
use crate::graph::{Data, Op, ValueId};

impl Import<'_> {
    /// What only gives another shape: flattening, or nothing at all.
    pub(super) fn reshape(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<Op, String> {
        let x = &self.graph.values[inputs[0].0].shape;
        let ints = |name: &str| match (inputs.get(1), node.find(name)) {
            (Some(id), _) => {
                let data = self.graph.values[id.0].data.as_ref();
                let values = data.and_then(Data::integers);
                values
                    .map(Some)
                    .ok_or_else(|| format!("its {name} must be a constant"))
            }
            (None, Some(attribute)) => Ok(Some(attribute.ints.clone())),
            (None, None) => Ok(None),
        };
        let to = match node.op_type() {
            "Flatten" => {
                let axis = at(node.int("axis", 1), x.len() + 1)?;
                let (first, last) = x.split_at(axis);
                Some(vec![first.iter().product(), last.iter().product()])
            }
            "Reshape" => reshaped(
                x,
                &ints("shape")?.ok_or("it has no shape")?,
                node.int("allowzero", 0),
            ),
            "Squeeze" => squeezed(x, ints("axes")?)?,
            _ => unsqueezed(x, &ints("axes")?.ok_or("it has no axes")?)?,
        };
        let to = to.ok_or_else(|| format!("it gives {x:?} another shape, which doesn't fit"))?;
        match &to[..] {
            same if same == x => Ok(Op::Identity),
            &[batch, n]
                if x.first() == Some(&batch)
                    && x.len() > 2
                    && batch * n == x.iter().product::<usize>() =>
            {
                Ok(Op::Flatten)
            }
            _ => Err(format!("it makes {to:?} of {x:?}")),
        }
    }
}

/// An axis, counted from the end where it is negative.
fn at(axis: i64, rank: usize) -> Result<usize, String> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    let at = usize::try_from(at).ok().filter(|a| *a < rank);
    at.ok_or_else(|| format!("axis {axis} of {rank} dimensions"))
}

/// A shape whose -1 is what remains, and whose zeros are the input's unless they are allowed.
fn reshaped(x: &[usize], shape: &[i64], allow_zero: i64) -> Option<Vec<usize>> {
    let total: usize = x.iter().product();
    let size = |(i, d): (usize, &i64)| match d {
        0 if allow_zero == 0 => x.get(i).copied(),
        -1 => Some(1),
        d => usize::try_from(*d).ok(),
    };
    let mut to: Vec<usize> = shape.iter().enumerate().map(size).collect::<Option<_>>()?;
    let known = to.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    match shape.iter().filter(|d| **d == -1).count() {
        0 => (known == total).then_some(to),
        1 if known > 0 && total.is_multiple_of(known) => {
            let open = shape.iter().position(|d| *d == -1)?;
            to[open] = total / known;
            Some(to)
        }
        _ => None,
    }
}

fn squeezed(x: &[usize], axes: Option<Vec<i64>>) -> Result<Option<Vec<usize>>, String> {
    let gone = match axes {
        Some(axes) => axes
            .into_iter()
            .map(|a| at(a, x.len()))
            .collect::<Result<Vec<_>, _>>()?,
        None => (0..x.len()).filter(|&i| x[i] == 1).collect(),
    };
    if gone.iter().any(|&i| x[i] != 1) {
        return Ok(None);
    }
    let left = x.iter().enumerate().filter(|(i, _)| !gone.contains(i));
    Ok(Some(left.map(|(_, &d)| d).collect()))
}

fn unsqueezed(x: &[usize], axes: &[i64]) -> Result<Option<Vec<usize>>, String> {
    let rank = x.len() + axes.len();
    let new = axes
        .iter()
        .map(|&a| at(a, rank))
        .collect::<Result<Vec<_>, _>>()?;
    let mut old = x.iter().copied();
    let size = |i| {
        if new.contains(&i) {
            Some(1)
        } else {
            old.next()
        }
    };
    Ok((0..rank).map(size).collect())
}
