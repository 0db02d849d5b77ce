//! Windows of convolutions and pools.

use super::attributes::{Attributes, Axes};
use crate::window::{Pads, Window};

/// What a window goes over.
#[derive(Clone, Copy)]
pub(super) struct Plane {
    pub axes: Axes,
    /// Rows and columns; a sequence has one row.
    pub size: [usize; 2],
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
