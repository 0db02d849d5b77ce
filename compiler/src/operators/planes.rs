//! Tensors with rows and columns, and sequences, which have one row; windows over them.

use super::fields::{Field, Written, field};
use crate::graph::ValueId;
use crate::onnx::import::attributes::{Attributes, Axes, Plane};
use crate::onnx::import::state::Import;
use crate::qgraph::window::{Pads, Window};
use crate::reflect::AttributeValue;

pub(super) const PADS: &str = "zeros at the top, left, bottom and right";

/// The sizes of a tensor that has all of them.
///
/// # Errors
/// Another rank, a batch that isn't 1, and sizes of 0.
pub(super) fn nchw(x: &[usize]) -> Result<[usize; 4], String> {
    let shape = x
        .try_into()
        .map_err(|_| format!("input of shape {x:?}, not [1, C, H, W]"))?;
    let [n, c, h, w]: [usize; 4] = shape;
    if n == 1 && c > 0 && h > 0 && w > 0 {
        Ok(shape)
    } else {
        Err(format!(
            "input of shape {x:?}: the batch must be 1 and no size 0"
        ))
    }
}

/// As [`nchw`]; a sequence `[1, C, W]` has one row.
pub(super) fn rows(x: &[usize]) -> Result<[usize; 4], String> {
    match *x {
        [n, c, w] => nchw(&[n, c, 1, w]),
        _ => nchw(x),
    }
}

/// The shape of what has so many channels, rows and columns, of an input's rank.
pub(super) fn like(x: &[usize], [c, h, w]: [usize; 3]) -> Vec<usize> {
    match x.len() {
        3 => vec![1, c, w],
        _ => vec![1, c, h, w],
    }
}

/// Rows and columns that a window gives.
pub(super) fn output(window: &Window, h: usize, w: usize) -> Result<[usize; 2], String> {
    window
        .output(h, w)
        .ok_or_else(|| format!("a window of {window} doesn't fit an input of {h}x{w}"))
}

/// The four attributes of a window.
pub(crate) fn fields(window: &Window) -> Vec<Field> {
    let Window {
        kernel,
        stride,
        dilation,
        pads,
    } = window;
    let ints =
        |names, values: &[usize], meaning| field(names, AttributeValue::ints(values), meaning);
    vec![
        ints(
            ("kernel", "kernel_shape"),
            kernel,
            "rows and columns of the kernel",
        ),
        ints(
            ("stride", "strides"),
            stride,
            "rows and columns from window to window",
        ),
        ints(
            ("dilation", "dilations"),
            dilation,
            "rows and columns from tap to tap",
        ),
        ints(("pads", "pads"), &pads.to_array(), PADS),
    ]
}

/// A window's attributes over the axes that the node's input has, its pads before its dilations.
pub(super) fn write(node: &mut Written) {
    node.attributes.swap(2, 3);
    if node.rank != 3 {
        return;
    }
    for (_, value) in &mut node.attributes[..4] {
        match value {
            AttributeValue::Ints(pads) if pads.len() == 4 => *pads = vec![pads[1], pads[3]],
            AttributeValue::Ints(sizes) => drop(sizes.remove(0)),
            _ => {}
        }
    }
}

impl Import<'_> {
    pub(super) fn spatial(&self, input: ValueId) -> Result<[usize; 4], String> {
        let shape = &self.graph.values[input.0].shape;
        shape[..]
            .try_into()
            .map_err(|_| format!("input of shape {shape:?}, not [1, C, H, W]"))
    }

    /// Rows and columns of an input; a sequence `[1, C, W]` has one row.
    pub(super) fn plane(&self, input: ValueId) -> Result<Plane, String> {
        if let [_, _, w] = self.graph.values[input.0].shape[..] {
            return Ok(Plane {
                axes: Axes::Sequence,
                size: [1, w],
            });
        }
        self.spatial(input).map(|[_, _, h, w]| Plane {
            axes: Axes::Plane,
            size: [h, w],
        })
    }
}

/// The window of a pool, `ceil_mode` resolved.
pub(super) fn pool(node: &Attributes<'_>, plane: Plane) -> Result<Window, String> {
    let kernel = node.pair("kernel_shape", plane.axes, None)?;
    let mut window = read(node, plane, kernel)?;
    if node.int("ceil_mode", 0) != 0 {
        round_up(&mut window, plane.size);
    }
    Ok(window)
}

/// `ceil_mode` as larger bottom and right pads; a window never starts in the padding.
fn round_up(window: &mut Window, size: [usize; 2]) {
    let more = |axis: usize| {
        let begin = size[axis] + window.pads.before()[axis];
        let padded = begin + window.pads.after()[axis];
        let room = padded.checked_sub(window.span(axis))?;
        let last = room.div_ceil(window.stride[axis]) * window.stride[axis];
        (last < begin).then_some(last - room)
    };
    let [rows, cols] = [0, 1].map(|axis| more(axis).unwrap_or(0));
    window.pads.bottom += rows;
    window.pads.right += cols;
}

/// The window of a transposed convolution, without its pads.
pub(super) fn unpadded(node: &Attributes<'_>, kernel: [usize; 2]) -> Result<Window, String> {
    let window = Window {
        stride: node.pair("strides", Axes::Plane, Some([1, 1]))?,
        dilation: node.pair("dilations", Axes::Plane, Some([1, 1]))?,
        ..Window::whole(kernel)
    };
    check(node, &window)?;
    Ok(window)
}

/// Sizes within their bounds, and a kernel that is the weights'.
fn check(node: &Attributes<'_>, window: &Window) -> Result<(), String> {
    let positive = |name, pair: [usize; 2]| match pair.iter().all(|&v| (1..=65535).contains(&v)) {
        true => Ok(()),
        false => Err(format!("{name} {pair:?} must be within 1 to 65535")),
    };
    let kernel = window.kernel;
    positive("kernel_shape", kernel)?;
    positive("strides", window.stride)?;
    positive("dilations", window.dilation)?;
    if node
        .find("kernel_shape")
        .is_some_and(|a| !kernel.map(|k| k as i64).ends_with(&a.ints))
    {
        return Err(format!("kernel_shape differs from the weights' {kernel:?}"));
    }
    Ok(())
}

/// The window of a convolution or pool with a kernel, over an input; `auto_pad` resolved.
///
/// # Errors
/// A kernel, stride or dilation that is 0 or too large, pads that aren't two an axis, an unknown
/// `auto_pad`.
pub(super) fn read(
    node: &Attributes<'_>,
    Plane { axes, size: [h, w] }: Plane,
    kernel: [usize; 2],
) -> Result<Window, String> {
    let stride = node.pair("strides", axes, Some([1, 1]))?;
    let dilation = node.pair("dilations", axes, Some([1, 1]))?;
    let unpadded = Window {
        stride,
        dilation,
        ..Window::whole(kernel)
    };
    check(node, &unpadded)?;
    // Zeros of an axis in all, and the smaller half of them.
    let same = |axis: usize, size: usize| {
        let span = dilation[axis] * (kernel[axis] - 1) + 1;
        let last = (size.div_ceil(stride[axis]).max(1) - 1) * stride[axis];
        let total = (last + span).saturating_sub(size);
        (total, total / 2)
    };
    let ((rows, top), (cols, left)) = (same(0, h), same(1, w));
    let upper = Pads::from([top, left, rows - top, cols - left]);
    let pads = match node.text("auto_pad").as_deref() {
        None | Some("NOTSET" | "") => node.pads(axes)?,
        Some("VALID") => Pads::NONE,
        Some("SAME_UPPER") => upper,
        Some("SAME_LOWER") => Pads::from([upper.bottom, upper.right, upper.top, upper.left]),
        Some(other) => return Err(format!("auto_pad {other} is unknown")),
    };
    Ok(Window { pads, ..unpadded })
}
