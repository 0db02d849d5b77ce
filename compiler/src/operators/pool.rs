//! Maxima and means over windows.

use super::fields::{Facts, Field, Steps, field};
use super::operator::Size::Window as Sized;
use super::operator::{Found, Given, Kind, Made, Operator, WindowKind};
use super::planes::{self, like, output, rows};
use crate::graph::Op;
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::qgraph::window::Window;
use crate::reflect::AttributeValue;

const fn pool(kind: &'static str, window: WindowKind) -> Operator {
    Operator::new(kind, Sized(window), Kind::First)
}

pub(super) const OPERATORS: &[Operator] = &[
    pool("MaxPool", WindowKind::Pool).device((1, 1), |import, found| {
        let given = import.given(found);
        let window = planes::pool(&found.op, given.shape(0)?)?;
        over(found, &given, &window, Op::MaxPool { window })
    }),
    pool("AveragePool", WindowKind::Pool).device((1, 1), mean),
    pool("GlobalAveragePool", WindowKind::Global).device((1, 1), |import, found| {
        let x = import.given(found).shape(0)?;
        let [_, c, ..] = rows(x)?;
        Ok(found.made(Op::GlobalAveragePool, like(x, c, [1, 1])))
    }),
    pool("GlobalMaxPool", WindowKind::Global).device((1, 1), |import, found| {
        let given = import.given(found);
        let [_, _, h, w] = rows(given.shape(0)?)?;
        let window = Window::whole([h, w]);
        over(found, &given, &window, Op::MaxPool { window })
    }),
    Operator::fewer("ReduceMean").device((1, 2), mean_of_all),
];

pub(super) fn max(window: &Window) -> Facts<'_> {
    Facts::new("MaxPool", Role::Plane)
        .fields(planes::fields(window))
        .steps(Steps::Input)
        .write(planes::write)
}

pub(super) fn average(window: &Window, count_include_pad: bool) -> Facts<'_> {
    Facts::new("AveragePool", Role::Plane)
        .fields(planes::fields(window).chain([include_pad(count_include_pad)]))
        .write(|node| {
            planes::write(node);
            node.attributes.retain(|(name, _)| *name != "dilations");
        })
}

/// Whether padding counts in a mean.
pub(crate) fn include_pad(included: bool) -> Field {
    field(
        ("count_include_pad", "count_include_pad"),
        AttributeValue::Flag(included),
        "whether padding counts in the divisor",
    )
}

/// What goes over a window.
fn over(found: &Found<'_>, given: &Given<'_>, window: &Window, op: Op) -> Result<Made, String> {
    let x = given.shape(0)?;
    let [_, c, ..] = rows(x)?;
    Ok(found.made(op, like(x, c, output(window, x)?)))
}

fn mean(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let (given, op) = (import.given(found), &found.op);
    let x = given.shape(0)?;
    let window = planes::pool(op, x)?;
    let count_include_pad = op.int("count_include_pad", 0) != 0;
    let padded = window.pads != planes::pads(op, x.len() - 2)?;
    if count_include_pad && padded && op.int("ceil_mode", 0) != 0 {
        // What is behind the padding doesn't count.
        return Err("ceil_mode of an average that counts padding".to_owned());
    }
    let op = Op::AveragePool {
        window,
        count_include_pad,
    };
    over(found, &given, &window, op)
}

/// A ReduceMean over all rows and columns; without those it is flattened by the reader.
fn mean_of_all(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let x = given.shape(0)?;
    let [_, c, ..] = rows(x)?;
    let axes = match given.integers(1, "axes")? {
        Some(axes) => axes,
        None => found.op.ints("axes").unwrap_or_default().to_vec(),
    };
    let rank = x.len() as i64;
    let from_end = |axis: i64| {
        if axis < 0 {
            axis.saturating_add(rank)
        } else {
            axis
        }
    };
    let mut axes: Vec<i64> = axes.into_iter().map(from_end).collect();
    axes.sort_unstable();
    match (&axes[..], rank) {
        ([2, 3], 4) | ([2], 3) => Ok(found.unary(Op::GlobalAveragePool, like(x, c, [1, 1]))),
        _ => Err("only a mean over all positions, axes 2 and 3, is supported".to_owned()),
    }
}
