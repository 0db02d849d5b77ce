//! Windows of convolutions and pools.

use super::attributes::Attributes;
use crate::qgraph::Window;

/// The window of a pool, `ceil_mode` resolved.
pub(super) fn pool(node: &Attributes<'_>, size: [usize; 2]) -> Result<Window, String> {
    let kernel = node.pair("kernel_shape", None)?;
    let mut window = read(node, size, kernel)?;
    if node.int("ceil_mode", 0) != 0 {
        round_up(&mut window, size);
    }
    Ok(window)
}

/// `ceil_mode` as larger bottom and right pads; a window never starts in the padding.
fn round_up(window: &mut Window, size: [usize; 2]) {
    for (axis, size) in size.into_iter().enumerate() {
        let (stride, begin) = (window.stride[axis], window.pads[axis]);
        let span = window.dilation[axis] * (window.kernel[axis] - 1) + 1;
        let padded = size + begin + window.pads[axis + 2];
        let Some(room) = padded.checked_sub(span) else {
            continue;
        };
        let last = room.div_ceil(stride) * stride;
        if last < size + begin {
            window.pads[axis + 2] += last - room;
        }
    }
}

/// The window of a convolution or pool with a kernel, over an input of `h` by `w`; `auto_pad`
/// resolved.
///
/// # Errors
/// A kernel, stride or dilation that is 0 or too large, pads that aren't four, an unknown
/// `auto_pad`.
pub(super) fn read(
    node: &Attributes<'_>,
    [h, w]: [usize; 2],
    kernel: [usize; 2],
) -> Result<Window, String> {
    let stride = node.pair("strides", Some([1, 1]))?;
    let dilation = node.pair("dilations", Some([1, 1]))?;
    let positive = |name, pair: [usize; 2]| match pair.iter().all(|&v| (1..=65535).contains(&v)) {
        true => Ok(()),
        false => Err(format!("{name} {pair:?} must be within 1 to 65535")),
    };
    positive("kernel_shape", kernel)?;
    positive("strides", stride)?;
    positive("dilations", dilation)?;
    if node
        .find("kernel_shape")
        .is_some_and(|a| a.ints != kernel.map(|k| k as i64))
    {
        return Err(format!("kernel_shape differs from the weights' {kernel:?}"));
    }
    let same = |begin: bool| {
        let total = |size: usize, axis: usize| {
            let span = dilation[axis] * (kernel[axis] - 1) + 1;
            ((size.div_ceil(stride[axis]).max(1) - 1) * stride[axis] + span).saturating_sub(size)
        };
        let split = |t: usize| {
            if begin {
                (t.div_ceil(2), t / 2)
            } else {
                (t / 2, t.div_ceil(2))
            }
        };
        let ((top, bottom), (left, right)) = (split(total(h, 0)), split(total(w, 1)));
        [top, left, bottom, right]
    };
    let pads = match node.text("auto_pad").as_deref() {
        None | Some("NOTSET" | "") => node.pads()?,
        Some("VALID") => [0; 4],
        Some("SAME_UPPER") => same(false),
        Some("SAME_LOWER") => same(true),
        Some(other) => return Err(format!("auto_pad {other} is unknown")),
    };
    Ok(Window {
        kernel,
        stride,
        dilation,
        pads,
    })
}
