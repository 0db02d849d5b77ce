//! Convolutions, and transposed ones.

use super::fields::{count, field};
use super::operator::Size::Window as Sized;
use super::operator::{Facts, Inputs, Kind, Operator, WindowKind};
use super::planes::{self, like, nchw, output, rows};
use crate::graph::{Element, Op, ValueId};
use crate::onnx::import::attributes::{Attributes, Axes};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::qgraph::window::{Pads, Window};
use crate::reflect::AttributeValue;

const GROUP: &str = "groups that the channels are divided into";

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Conv", Sized(WindowKind::Conv), Kind::First)
        .device((2, 3), |import, node, _, inputs| import.conv(node, inputs)),
    Operator::new(
        "ConvTranspose",
        Sized(WindowKind::ConvTranspose),
        Kind::First,
    )
    .device((2, 3), |import, node, _, inputs| {
        import.conv_transpose(node, inputs)
    }),
    Operator::new(
        "ConvInteger",
        Sized(WindowKind::Conv),
        Kind::Is(Element::I32),
    ),
];

pub(super) fn conv(window: &Window, group: usize) -> Facts<'_> {
    let fields = planes::fields(window);
    Facts::new(
        "Conv",
        move |inputs| shape(inputs, window, group),
        move |reading, node| reading.conv(node, *window, group),
    )
    .fields(fields.into_iter().chain([count("group", group, GROUP)]))
    .write(planes::write)
    .role(Role::Plane)
}

pub(super) fn transposed(window: &Window, group: usize, more: [usize; 2]) -> Facts<'_> {
    let meaning = "rows and columns more, below and on the right";
    let padding = ("output_padding", "output_padding");
    let fields = planes::fields(window).into_iter().chain([
        count("group", group, GROUP),
        field(padding, AttributeValue::ints(&more), meaning),
    ]);
    Facts::new(
        "ConvTranspose",
        move |inputs| transposed_shape(inputs, window, group, more),
        move |reading, node| reading.conv_transpose(node, *window, group),
    )
    .fields(fields)
    .write(planes::write)
    .role(Role::Plane)
}

fn shape(inputs: &Inputs<'_>, window: &Window, group: usize) -> Result<Vec<usize>, String> {
    let (x, weights) = (inputs.shape(0)?, inputs.shape(1)?);
    let [_, c, h, w] = rows(x)?;
    let [co, ci, kh, kw] = match *weights {
        [co, ci, kh, kw] if x.len() == 4 => [co, ci, kh, kw],
        [co, ci, kw] if x.len() == 3 => [co, ci, 1, kw],
        _ => {
            return Err(format!(
                "weights of shape {weights:?} for {x:?}, not [CO, CI, KH, KW]"
            ));
        }
    };
    if group == 0 || c % group != 0 || co % group != 0 {
        return Err(format!(
            "group {group} doesn't divide the {c} input and {co} output channels"
        ));
    }
    if ci.checked_mul(group) != Some(c) || [kh, kw] != window.kernel || co == 0 {
        return Err(format!(
            "weights {weights:?} don't fit input {x:?}, group {group}"
        ));
    }
    bias(inputs, co)?;
    let [oh, ow] = output(window, h, w)?;
    Ok(like(x, [co, oh, ow]))
}

/// Checks that a bias has one value for each channel.
fn bias(inputs: &Inputs<'_>, channels: usize) -> Result<(), String> {
    match inputs.shape(2) {
        Ok(bias) if bias != [channels] => Err(format!("bias of shape {bias:?}, not [{channels}]")),
        _ => Ok(()),
    }
}

fn transposed_shape(
    inputs: &Inputs<'_>,
    window: &Window,
    group: usize,
    output_padding: [usize; 2],
) -> Result<Vec<usize>, String> {
    let (x, weights) = (inputs.shape(0)?, inputs.shape(1)?);
    let [n, c, h, w] = nchw(x)?;
    let &[ci, per_group, kh, kw] = weights else {
        return Err(format!(
            "weights of shape {weights:?}, not [CI, CO, KH, KW]"
        ));
    };
    if group == 0 || c % group != 0 || ci != c || [kh, kw] != window.kernel || per_group == 0 {
        return Err(format!(
            "weights {weights:?} don't fit input {x:?}, group {group}"
        ));
    }
    let co = per_group.checked_mul(group);
    let co = co.ok_or_else(|| format!("{per_group} times {group} channels"))?;
    let most = |axis: usize| window.stride[axis].max(window.dilation[axis]);
    if (0..2).any(|axis| output_padding[axis] >= most(axis)) {
        return Err(format!(
            "output padding {output_padding:?} for a window of {window}"
        ));
    }
    bias(inputs, co)?;
    let sizes = window.transposed([h, w], output_padding);
    let [oh, ow] =
        sizes.ok_or_else(|| format!("a window of {window} leaves nothing of {h}x{w}"))?;
    Ok(vec![n, co, oh, ow])
}

impl Import<'_> {
    fn conv(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<Op, String> {
        let weights = &self.graph.values[inputs[1].0].shape;
        let kernel = match weights[..] {
            [_, _, kh, kw] => [kh, kw],
            [_, _, kw] => [1, kw],
            _ => {
                let text = format!("weights of shape {weights:?}; windows have 1 or 2 axes");
                return Err(text);
            }
        };
        let window = planes::read(node, self.plane(inputs[0])?, kernel)?;
        Ok(Op::Conv {
            window,
            group: node.count("group", 1)?,
        })
    }

    fn conv_transpose(&self, node: &Attributes<'_>, inputs: &[ValueId]) -> Result<Op, String> {
        let weights = inputs.get(1).map(|id| &self.graph.values[id.0].shape[..]);
        let Some(&[_, _, kh, kw]) = weights else {
            return Err(format!(
                "weights of shape {weights:?}; only 2-D is supported"
            ));
        };
        let [_, _, h, w] = self.spatial(inputs[0])?;
        let size = [h, w];
        let same = match node.text("auto_pad").as_deref() {
            Some("SAME_UPPER") => Some(true),
            Some("SAME_LOWER") => Some(false),
            _ => None,
        };
        // What `auto_pad` means here has nothing to do with a convolution's input.
        let mut window = planes::unpadded(node, [kh, kw])?;
        let mut output_padding = node.pair("output_padding", Axes::Plane, Some([0, 0]))?;
        let shape = match node.find("output_shape").map(|a| &a.ints[..]) {
            None if same.is_some() => {
                Some([size[0] * window.stride[0], size[1] * window.stride[1]])
            }
            None => None,
            Some(&[h, w]) | Some(&[_, _, h, w]) if h > 0 && w > 0 => Some([h as usize, w as usize]),
            Some(shape) => return Err(format!("output_shape is {shape:?}, not two sizes")),
        };
        match shape {
            None => window.pads = node.pads(Axes::Plane)?,
            Some(shape) => {
                let all = window
                    .transposed(size, output_padding)
                    .ok_or("its window is too large")?;
                // Pads of both ends of an axis; what lacks is added at the end.
                let cut = |axis: usize| all[axis].saturating_sub(shape[axis]);
                let lack = |axis: usize| shape[axis].saturating_sub(all[axis]);
                output_padding = [0, 1].map(|axis| output_padding[axis] + lack(axis));
                let half = |axis: usize| match same {
                    Some(true) => cut(axis) / 2,
                    _ => cut(axis) - cut(axis) / 2,
                };
                let before = [half(0), half(1)];
                window.pads = Pads {
                    top: before[0],
                    left: before[1],
                    bottom: cut(0) - before[0],
                    right: cut(1) - before[1],
                };
            }
        }
        Ok(Op::ConvTranspose {
            window,
            group: node.count("group", 1)?,
            output_padding,
        })
    }
}
