//! Operators that give values other dimensions, another type, or nothing but another name.

use super::fields::{Facts, Field, Steps};
use super::operator::{Bound, Found, Kind, Made, Operator, Size, axis};
use crate::graph::{Element, OnnxAttribute, OnnxOp, Op};
use crate::onnx::element;
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::reflect::{Attribute, AttributeValue};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::fewer("Flatten").device((1, 1), read),
    Operator::fewer("Reshape").device((1, 2), read),
    Operator::fewer("Squeeze").device((1, 2), read),
    Operator::fewer("Unsqueeze").device((1, 2), read),
    Operator::new("Transpose", Size::Order, Kind::First),
    Operator::same("Identity").device((1, 1), |import, found| import.same(found, Op::Identity)),
    Operator::same("Dropout").device((1, 3), |import, found| {
        let given = import.given(found);
        if given.get(2).is_some() && given.integers(2, "training_mode")? != Some(vec![0]) {
            return Err("it is in training mode".to_owned());
        }
        Ok(found.unary(Op::Identity, given.shape(0)?.to_vec()))
    }),
    Operator::new("Cast", Size::First, Kind::To).device((1, 1), |import, found| {
        match element(found.op.int("to", 0) as i32)? {
            Element::F32 => import.same(found, Op::Identity),
            other => Err(format!("it makes {other:?}")),
        }
    }),
    Operator::new("CastLike", Size::First, Kind::Second),
    Operator::computed("Expand", Bound::Expand),
    Operator::computed("Tile", Bound::Repeats),
];

pub(super) fn flatten() -> Facts<'static> {
    Facts::new("Flatten", Role::Regroups)
        .steps(Steps::Input)
        .write(|node| node.attributes.push(("axis", AttributeValue::Int(1))))
}

/// An operator as a file has it.
pub(super) fn kept(op: &OnnxOp) -> Facts<'_> {
    let kinds = ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"];
    let moves = kinds.contains(&op.kind);
    Facts {
        opset: op.opset,
        ..Facts::new(op.kind, Role::Other)
    }
    .fields(op.attributes.iter().filter_map(listed))
    .steps(if moves { Steps::Input } else { Steps::Own })
}

/// An attribute as its file has it, but for tensors.
fn listed((name, value): &(String, OnnxAttribute)) -> Option<Field> {
    let value = match value {
        OnnxAttribute::Int(i) => AttributeValue::Int(*i),
        OnnxAttribute::Float(f) => AttributeValue::Float((*f).into()),
        OnnxAttribute::Text(text) => AttributeValue::Texts(vec![text.clone()]),
        OnnxAttribute::Texts(texts) => AttributeValue::Texts(texts.clone()),
        OnnxAttribute::Ints(ints) => AttributeValue::Ints(ints.clone()),
        OnnxAttribute::Floats(_) | OnnxAttribute::Tensor { .. } => return None,
    };
    let attribute = Attribute {
        name: name.clone().into(),
        value,
        meaning: "as in the model".into(),
    };
    Some(Field {
        attribute,
        written: "",
    })
}

/// What only gives another shape: flattening, or nothing at all.
fn read(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let x = given.shape(0)?;
    let to = match found.op.kind {
        "Flatten" => {
            let to = found.op.int("axis", 1);
            // Every dimension may be of the first; from the end as many are counted as there are.
            let axis = match usize::try_from(to) {
                Ok(rank) if rank == x.len() => rank,
                _ => axis(to, x.len())?,
            };
            let (first, last) = x.split_at(axis);
            Some(vec![first.iter().product(), last.iter().product()])
        }
        "Reshape" => {
            let shape = given.integers(1, "shape")?.ok_or("it has no shape")?;
            reshaped(x, &shape, found.op.int("allowzero", 0))
        }
        "Squeeze" => squeezed(x, given.integers(1, "axes")?)?,
        _ => unsqueezed(x, &given.integers(1, "axes")?.ok_or("it has no axes")?)?,
    };
    let to = to.ok_or_else(|| format!("it gives {x:?} another shape, which doesn't fit"))?;
    // A tensor lies by channels, rows and columns: any other shape of its values is the host's.
    match (x, &to[..]) {
        (same, to) if same == to => Ok(found.unary(Op::Identity, to.to_vec())),
        (&[batch, _, _, ..], &[first, n])
            if first == batch && batch * n == x.iter().product::<usize>() =>
        {
            Ok(found.unary(Op::Flatten, to))
        }
        _ => Err(format!("it makes {to:?} of {x:?}")),
    }
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
            .map(|a| axis(a, x.len()))
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
        .map(|&a| axis(a, rank))
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
