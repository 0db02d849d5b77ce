//! Convolutions, and transposed ones.

use super::fields::{Facts, count, field};
use super::operator::Size::Window as Sized;
use super::operator::{Found, Given, Kind, Made, Operator, WindowKind};
use super::planes::{self, like, nchw, rows};
use crate::graph::{Element, Op};
use crate::onnx::import::state::Import;
use crate::passes::import::layout::Role;
use crate::qgraph::window::{Pads, Window};
use crate::reflect::AttributeValue;

const GROUP: &str = "groups that the channels are divided into";

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Conv", Sized(WindowKind::Conv), Kind::First).device((2, 3), read),
    Operator::new(
        "ConvTranspose",
        Sized(WindowKind::ConvTranspose),
        Kind::First,
    )
    .device((2, 3), read_transposed),
    Operator::new(
        "ConvInteger",
        Sized(WindowKind::Conv),
        Kind::Is(Element::I32),
    ),
];

pub(super) fn conv(window: &Window, group: usize) -> Facts<'_> {
    Facts::new("Conv", Role::Plane)
        .fields(planes::fields(window).chain([count("group", group, GROUP)]))
        .write(planes::write)
}

pub(super) fn transposed<'w>(window: &'w Window, group: usize, more: &[usize; 2]) -> Facts<'w> {
    let meaning = "rows and columns more, below and on the right";
    let padding = ("output_padding", "output_padding");
    Facts::new("ConvTranspose", Role::Plane)
        .fields(planes::fields(window).chain([
            count("group", group, GROUP),
            field(padding, AttributeValue::ints(more), meaning),
        ]))
        .write(planes::write)
}

/// What a convolution goes over.
pub(crate) struct Geometry {
    pub window: Window,
    pub group: usize,
    /// Channels of the output.
    pub channels: usize,
    /// Rows and columns more, of a transposed one.
    pub more: [usize; 2],
    /// Rows and columns of the output.
    pub size: [usize; 2],
}

/// The geometry of a convolution, of any batch.
///
/// # Errors
/// Weights, or a window, that don't fit the input.
pub(crate) fn geometry(given: &Given<'_>) -> Result<Geometry, String> {
    let (x, weights) = (given.shape(0)?, given.shape(1)?);
    let (c, [co, ci], kernel) = match (x, weights) {
        (&[_, c, _, _], &[co, ci, kh, kw]) => (c, [co, ci], [kh, kw]),
        (&[_, c, _], &[co, ci, kw]) => (c, [co, ci], [1, kw]),
        _ => return Err(unfit(x, weights)),
    };
    let group = given.op.count("group", 1)?;
    if group == 0 || c % group != 0 || co % group != 0 {
        return Err(format!(
            "group {group} doesn't divide the {c} input and {co} output channels"
        ));
    }
    if ci.checked_mul(group) != Some(c) || co == 0 {
        return Err(format!(
            "weights {weights:?} don't fit input {x:?}, group {group}"
        ));
    }
    let window = planes::read(given.op, x, kernel)?;
    Ok(Geometry {
        window,
        group,
        channels: co,
        more: [0, 0],
        size: planes::output(&window, x)?,
    })
}

/// The geometry of a transposed convolution, of any batch.
///
/// # Errors
/// As for [`geometry`].
pub(crate) fn transposed_geometry(given: &Given<'_>) -> Result<Geometry, String> {
    let (x, weights) = (given.shape(0)?, given.shape(1)?);
    let (c, [ci, each], kernel) = match (x, weights) {
        (&[_, c, _, _], &[ci, each, kh, kw]) => (c, [ci, each], [kh, kw]),
        (&[_, c, _], &[ci, each, kw]) => (c, [ci, each], [1, kw]),
        _ => return Err(unfit(x, weights)),
    };
    let group = given.op.count("group", 1)?;
    let channels = each.checked_mul(group).filter(|channels| *channels > 0);
    let Some(channels) = channels.filter(|_| c % group == 0 && ci == c) else {
        return Err(format!(
            "weights {weights:?} don't fit input {x:?}, group {group}"
        ));
    };
    let (axes, size) = planes::plane(x)?;
    let unpadded = planes::unpadded(given.op, axes, kernel)?;
    let (window, more) = padded(given, unpadded, axes, size)?;
    let sizes = window.transposed(size, more);
    let [h, w] = size;
    Ok(Geometry {
        window,
        group,
        channels,
        more,
        size: sizes.ok_or_else(|| format!("a window of {window} leaves nothing of {h}x{w}"))?,
    })
}

fn unfit(x: &[usize], weights: &[usize]) -> String {
    format!("weights of shape {weights:?} for {x:?}; windows have 1 or 2 axes")
}

/// Checks that a bias has one value for each channel.
fn check_bias(given: &Given<'_>, channels: usize) -> Result<(), String> {
    match given.shape(2) {
        Ok(bias) if bias != [channels] => Err(format!("bias of shape {bias:?}, not [{channels}]")),
        _ => Ok(()),
    }
}

fn read(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let of = geometry(&given)?;
    check_bias(&given, of.channels)?;
    let op = Op::Conv {
        window: of.window,
        group: of.group,
    };
    let x = given.shape(0)?;
    rows(x)?;
    Ok(found.made(op, like(x, of.channels, of.size)))
}

fn read_transposed(import: &mut Import<'_>, found: &Found<'_>) -> Result<Made, String> {
    let given = import.given(found);
    let x = given.shape(0)?;
    nchw(x)?;
    let of = transposed_geometry(&given)?;
    check_bias(&given, of.channels)?;
    let (window, output_padding) = (of.window, of.more);
    let most = |axis: usize| window.stride[axis].max(window.dilation[axis]);
    if (0..2).any(|axis| output_padding[axis] >= most(axis)) {
        return Err(format!(
            "output padding {output_padding:?} for a window of {window}"
        ));
    }
    let op = Op::ConvTranspose {
        window,
        group: of.group,
        output_padding,
    };
    Ok(found.made(op, like(x, of.channels, of.size)))
}

/// A transposed convolution's window with its pads, and the rows and columns more, so that its output has the size that
/// is asked for.
fn padded(
    given: &Given<'_>,
    mut window: Window,
    axes: usize,
    size: [usize; 2],
) -> Result<(Window, [usize; 2]), String> {
    let mut more = planes::pair(given.op, "output_padding", axes, Some([0, 0]))?;
    // What `auto_pad` means here has nothing to do with a convolution's input.
    let upper = match given.op.text("auto_pad") {
        Some("SAME_UPPER") => Some(true),
        Some("SAME_LOWER") => Some(false),
        _ => None,
    };
    let shape = match given.op.ints("output_shape") {
        Some(&[w] | &[_, _, w]) if axes == 1 && w > 0 => [1, w as usize],
        Some(&[h, w] | &[_, _, h, w]) if h > 0 && w > 0 => [h as usize, w as usize],
        Some(shape) => return Err(format!("output_shape is {shape:?}, not {axes} sizes")),
        None if upper.is_some() => [0, 1].map(|axis| size[axis] * window.stride[axis]),
        None => {
            window.pads = planes::pads(given.op, axes)?;
            return Ok((window, more));
        }
    };
    let all = window.transposed(size, more);
    let all = all.ok_or("its window is too large")?;
    // Pads of both ends of an axis; what lacks is added at the end.
    let cut = |axis: usize| all[axis].saturating_sub(shape[axis]);
    let before = [0, 1].map(|axis| {
        if upper == Some(true) {
            cut(axis) / 2
        } else {
            cut(axis) - cut(axis) / 2
        }
    });
    window.pads = Pads {
        top: before[0],
        left: before[1],
        bottom: cut(0) - before[0],
        right: cut(1) - before[1],
    };
    more = [0, 1].map(|axis| more[axis] + shape[axis].saturating_sub(all[axis]));
    Ok((window, more))
}
