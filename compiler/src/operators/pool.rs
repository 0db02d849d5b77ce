//! Maxima and means over windows.

use super::fields::{Field, field};
use super::operator::Size::Window as Sized;
use super::operator::{Facts, Inputs, Kind, Operator, Steps, WindowKind};
use super::planes::{self, like, output, rows};
use crate::graph::{Op, ValueId};
use crate::onnx::import::attributes::Attributes;
use crate::onnx::import::state::Import;
use crate::passes::NetOp;
use crate::passes::import::layout::Role;
use crate::qgraph::TensorId;
use crate::qgraph::window::Window;
use crate::reflect::AttributeValue;

const fn pool(kind: &'static str, window: WindowKind) -> Operator {
    Operator::new(kind, Sized(window), Kind::First)
}

pub(super) const OPERATORS: &[Operator] = &[
    pool("MaxPool", WindowKind::Pool).device((1, 1), |import, node, _, inputs| {
        import.max_pool(node, inputs[0])
    }),
    pool("AveragePool", WindowKind::Pool).device((1, 1), |import, node, _, inputs| {
        import.average_pool(node, inputs[0])
    }),
    pool("GlobalAveragePool", WindowKind::Global)
        .device((1, 1), |_, _, _, _| Ok(Op::GlobalAveragePool)),
    pool("GlobalMaxPool", WindowKind::Global).device((1, 1), |import, _, _, inputs| {
        let window = Window::whole(import.plane(inputs[0])?.size);
        Ok(Op::MaxPool { window })
    }),
    Operator::fewer("ReduceMean").device((1, 2), |import, node, _, inputs| {
        import.check_mean(node, inputs)?;
        inputs.truncate(1);
        Ok(Op::GlobalAveragePool)
    }),
];

pub(super) fn max(window: &Window) -> Facts<'_> {
    over(window, "MaxPool", |input, window| NetOp::MaxPool {
        input,
        window,
    })
    .fields(planes::fields(window))
    .steps(Steps::Input)
    .write(planes::write)
}

pub(super) fn average(window: &Window, count_include_pad: bool) -> Facts<'_> {
    let fields = planes::fields(window).into_iter();
    over(window, "AveragePool", move |input, window| NetOp::AvgPool {
        input,
        window,
        count_include_pad,
    })
    .fields(fields.chain([include_pad(count_include_pad)]))
    .write(|node| {
        planes::write(node);
        node.attributes.retain(|(name, _)| *name != "dilations");
    })
}

/// What goes over a window.
fn over<'w>(
    window: &'w Window,
    kind: &'static str,
    op: impl Fn(TensorId, Window) -> NetOp + Copy + 'w,
) -> Facts<'w> {
    Facts::new(
        kind,
        move |inputs| shape(inputs, window),
        move |reading, node| reading.pool(node, *window, op),
    )
    .role(Role::Plane)
}

pub(super) fn global_average() -> Facts<'static> {
    Facts::new(
        "GlobalAveragePool",
        |inputs| {
            let x = inputs.shape(0)?;
            rows(x).map(|[_, c, ..]| like(x, [c, 1, 1]))
        },
        |reading, node| {
            let input = reading.tensor(node, 0)?;
            let [_, h, w] = reading.net.tensors[input.0].chw;
            reading.pool(node, Window::whole([h, w]), |input, window| {
                NetOp::AvgPool {
                    input,
                    window,
                    count_include_pad: false,
                }
            })
        },
    )
    .role(Role::Plane)
}

/// Whether padding counts in a mean.
pub(crate) fn include_pad(included: bool) -> Field {
    field(
        ("count_include_pad", "count_include_pad"),
        AttributeValue::Flag(included),
        "whether padding counts in the divisor",
    )
}

fn shape(inputs: &Inputs<'_>, window: &Window) -> Result<Vec<usize>, String> {
    let x = inputs.shape(0)?;
    let [_, c, h, w] = rows(x)?;
    let [oh, ow] = output(window, h, w)?;
    Ok(like(x, [c, oh, ow]))
}

impl Import<'_> {
    fn max_pool(&self, node: &Attributes<'_>, x: ValueId) -> Result<Op, String> {
        if node.0.output.len() > 1 {
            return Err("the Indices output is not supported".to_owned());
        }
        let window = planes::pool(node, self.plane(x)?)?;
        Ok(Op::MaxPool { window })
    }

    fn average_pool(&self, node: &Attributes<'_>, x: ValueId) -> Result<Op, String> {
        let count_include_pad = node.int("count_include_pad", 0) != 0;
        let plane = self.plane(x)?;
        let window = planes::pool(node, plane)?;
        let padded = window.pads != node.pads(plane.axes)?;
        if count_include_pad && padded && node.int("ceil_mode", 0) != 0 {
            // What is behind the padding doesn't count.
            return Err("ceil_mode of an average that counts padding".to_owned());
        }
        Ok(Op::AveragePool {
            window,
            count_include_pad,
        })
    }

    /// Checks that a ReduceMean goes over rows and columns.
    ///
    /// # Errors
    /// Other axes.
    fn check_mean(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<(), String> {
        let rank = 2 + self.plane(inputs[0])?.axes.count();
        let mut axes = self.integers(node, 1, "axes")?.unwrap_or_default();
        axes.iter_mut()
            .filter(|a| **a < 0)
            .for_each(|a| *a = a.saturating_add(rank as i64));
        axes.sort_unstable();
        match (axes.as_slice(), rank) {
            ([2, 3], 4) | ([2], 3) => Ok(()),
            _ => Err("only a mean over all positions, axes 2 and 3, is supported".to_owned()),
        }
    }
}
