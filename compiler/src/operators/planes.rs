//! Tensors with rows and columns, and sequences, which have one row; windows over them.

use super::fields::{Field, Written, field};
use crate::graph::OnnxOp;
use crate::qgraph::window::{Pads, Window};
use crate::reflect::AttributeValue;

/// The largest size and the largest pad of a window.
const MAX_SIZE: usize = 65535;

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

/// How many axes windows over an input have, 1 or 2, and its rows and columns.
///
/// # Errors
/// Another rank.
pub(super) fn plane(x: &[usize]) -> Result<(usize, [usize; 2]), String> {
    match *x {
        [_, _, w] => Ok((1, [1, w])),
        [_, _, h, w] => Ok((2, [h, w])),
        _ => Err(format!("input of shape {x:?}; windows have 1 or 2 axes")),
    }
}

/// The shape of what has so many channels, rows and columns, of an input's rank and batch.
pub(crate) fn like(x: &[usize], channels: usize, [h, w]: [usize; 2]) -> Vec<usize> {
    match x.len() {
        3 => vec![x[0], channels, w],
        _ => vec![x[0], channels, h, w],
    }
}

/// Rows and columns that a window over an input gives.
pub(crate) fn output(window: &Window, x: &[usize]) -> Result<[usize; 2], String> {
    let (_, [h, w]) = plane(x)?;
    window
        .output(h, w)
        .ok_or_else(|| format!("a window of {window} doesn't fit an input of {h}x{w}"))
}

/// The four attributes of a window.
pub(crate) fn fields(window: &Window) -> impl Iterator<Item = Field> + use<> {
    let Window {
        kernel,
        stride,
        dilation,
        pads,
    } = window;
    let ints =
        |names, values: &[usize], meaning| field(names, AttributeValue::ints(values), meaning);
    let all = [
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
    ];
    all.into_iter()
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

/// Sizes of rows and columns in an attribute over 1 or 2 `axes`; the row of one axis has 1.
pub(super) fn pair(
    op: &OnnxOp,
    name: &str,
    axes: usize,
    default: Option<[usize; 2]>,
) -> Result<[usize; 2], String> {
    let Some(ints) = op.ints(name) else {
        return default.ok_or_else(|| format!("{name} is missing"));
    };
    match *ints {
        [a, b] if axes == 2 && a >= 0 && b >= 0 => Ok([a as usize, b as usize]),
        [b] if axes == 1 && b >= 0 => Ok([1, b as usize]),
        _ => Err(format!("{name} is {ints:?}, which isn't {axes} sizes")),
    }
}

/// Zeros around rows and columns, of 1 or 2 `axes`.
pub(super) fn pads(op: &OnnxOp, axes: usize) -> Result<Pads, String> {
    let ints = op.ints("pads").unwrap_or(&[0; 4][..2 * axes]);
    let size = |&p: &i64| usize::try_from(p).ok().filter(|p| *p <= MAX_SIZE);
    let pads: Option<Vec<usize>> = ints.iter().map(size).collect();
    match (axes, pads.as_deref()) {
        (2, Some(&[top, left, bottom, right])) => Ok(Pads::from([top, left, bottom, right])),
        (1, Some(&[left, right])) => Ok(Pads::from([0, left, 0, right])),
        _ => Err(format!(
            "pads are {ints:?}, not {} sizes up to {MAX_SIZE}",
            2 * axes
        )),
    }
}

/// The window of a pool over an input, `ceil_mode` resolved.
pub(crate) fn pool(op: &OnnxOp, x: &[usize]) -> Result<Window, String> {
    let (axes, size) = plane(x)?;
    let mut window = read(op, x, pair(op, "kernel_shape", axes, None)?)?;
    if op.int("ceil_mode", 0) != 0 {
        round_up(&mut window, size);
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

/// A window over 1 or 2 `axes` without its pads.
///
/// # Errors
/// A kernel, stride or dilation that is 0 or too large, and a kernel that isn't the weights'.
pub(super) fn unpadded(op: &OnnxOp, axes: usize, kernel: [usize; 2]) -> Result<Window, String> {
    let window = Window {
        stride: pair(op, "strides", axes, Some([1, 1]))?,
        dilation: pair(op, "dilations", axes, Some([1, 1]))?,
        ..Window::whole(kernel)
    };
    for (name, sizes) in [
        ("kernel_shape", kernel),
        ("strides", window.stride),
        ("dilations", window.dilation),
    ] {
        if sizes.iter().any(|size| !(1..=MAX_SIZE).contains(size)) {
            return Err(format!("{name} {sizes:?} must be within 1 to {MAX_SIZE}"));
        }
    }
    let given = op.ints("kernel_shape");
    if given.is_some_and(|given| !kernel.map(|k| k as i64).ends_with(given)) {
        return Err(format!("kernel_shape differs from the weights' {kernel:?}"));
    }
    Ok(window)
}

/// The window of a convolution or pool with a kernel, over an input; `auto_pad` resolved.
///
/// # Errors
/// As for [`unpadded`]; pads that aren't two an axis, an unknown `auto_pad`.
pub(super) fn read(op: &OnnxOp, x: &[usize], kernel: [usize; 2]) -> Result<Window, String> {
    let (axes, [h, w]) = plane(x)?;
    let unpadded = unpadded(op, axes, kernel)?;
    // Zeros of an axis in all, and the smaller half of them.
    let same = |axis: usize, size: usize| {
        let stride = unpadded.stride[axis];
        let last = (size.div_ceil(stride).max(1) - 1) * stride;
        let total = (last + unpadded.span(axis)).saturating_sub(size);
        (total, total / 2)
    };
    let ((rows, top), (cols, left)) = (same(0, h), same(1, w));
    let upper = Pads::from([top, left, rows - top, cols - left]);
    let pads = match op.text("auto_pad") {
        None | Some("NOTSET" | "") => pads(op, axes)?,
        Some("VALID") => Pads::NONE,
        Some("SAME_UPPER") => upper,
        Some("SAME_LOWER") => Pads::from([upper.bottom, upper.right, upper.top, upper.left]),
        Some(other) => return Err(format!("auto_pad {other} is unknown")),
    };
    Ok(Window { pads, ..unpadded })
}

/// A window along one dimension of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    /// What pads it before and behind.
    pub pads: [usize; 2],
    /// How many windows there are.
    pub count: usize,
}

impl Window {
    /// The window along the last `axes` of rows and columns, of which it has so many.
    pub(crate) fn spans(&self, axes: usize, counts: &[usize]) -> Vec<Span> {
        let span = |(axis, &count): (usize, &usize)| Span {
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            dilation: self.dilation[axis],
            pads: [self.pads.before()[axis], self.pads.after()[axis]],
            count,
        };
        (2 - axes..2).zip(counts).map(span).collect()
    }
}

/// How much a dimension of a transposed convolution has; `None` where nothing is left.
pub(crate) fn spread(
    size: usize,
    kernel: usize,
    [stride, dilation]: [usize; 2],
    pads: [usize; 2],
    more: usize,
) -> Option<usize> {
    let steps = size.checked_sub(1)?.checked_mul(stride)?;
    let wide = kernel.checked_sub(1)?.checked_mul(dilation)?;
    let all = steps.checked_add(wide)?.checked_add(1)?.checked_add(more)?;
    let left = all.checked_sub(pads[0])?.checked_sub(pads[1])?;
    (left > 0).then_some(left)
}

/// The dimensions of a transposed convolution with three.
///
/// # Errors
/// Sizes that are asked for, or padded by themselves; lists of other lengths; windows that leave nothing.
pub(crate) fn spread_volume(
    op: &OnnxOp,
    space: &[usize],
    kernel: &[usize],
) -> Result<Vec<usize>, String> {
    let auto = op.text("auto_pad").unwrap_or("NOTSET");
    if !matches!(auto, "NOTSET" | "" | "VALID") || op.ints("output_shape").is_some() {
        return Err("a transposed convolution over volumes of a size that is asked for".to_owned());
    }
    let pads = op.ints("pads").unwrap_or(&[0; 6]);
    let list = |name: &str, default| op.ints(name).unwrap_or(default);
    let (strides, dilations) = (list("strides", &[1; 3]), list("dilations", &[1; 3]));
    let more = list("output_padding", &[0; 3]);
    let lists = [strides, dilations, more];
    if kernel.len() != 3 || pads.len() != 6 || lists.iter().any(|list| list.len() != 3) {
        return Err(format!("a window of {kernel:?} over {space:?}"));
    }
    let size = |value: i64| {
        let size = usize::try_from(value).ok();
        size.filter(|size| *size <= MAX_SIZE)
    };
    let along = |axis: usize| {
        let steps = [size(strides[axis])?, size(dilations[axis])?];
        let pads = [size(pads[axis])?, size(pads[3 + axis])?];
        spread(space[axis], kernel[axis], steps, pads, size(more[axis])?)
    };
    let sizes: Option<Vec<usize>> = (0..3).map(along).collect();
    sizes.ok_or_else(|| format!("a window of {kernel:?} doesn't fit an output of {space:?}"))
}

/// The windows of a convolution or pool with three dimensions, `auto_pad` and `ceil_mode` resolved.
///
/// # Errors
/// Lists of other lengths, sizes that are 0 or too large, and windows that don't fit.
pub(crate) fn volume(op: &OnnxOp, space: &[usize], kernel: &[usize]) -> Result<Vec<Span>, String> {
    let axes = space.len();
    let list = |name: &str, count: usize, default: usize| -> Result<Vec<usize>, String> {
        let sizes = op
            .ints(name)
            .map_or(vec![default as i64; count], <[i64]>::to_vec);
        let size = |d: &i64| usize::try_from(*d).ok().filter(|d| *d <= MAX_SIZE);
        let all: Option<Vec<usize>> = sizes.iter().map(size).collect();
        let all = all.filter(|all| all.len() == count);
        all.ok_or_else(|| format!("{name} is {sizes:?}, not {count} sizes up to {MAX_SIZE}"))
    };
    let (strides, dilations) = (list("strides", axes, 1)?, list("dilations", axes, 1)?);
    let pads = list("pads", 2 * axes, 0)?;
    if kernel.len() != axes || [kernel, &strides, &dilations].concat().contains(&0) {
        return Err(format!(
            "a window of {kernel:?}, strides {strides:?} and dilations {dilations:?}"
        ));
    }
    let auto = op.text("auto_pad").unwrap_or("NOTSET");
    let span = |axis: usize| {
        let (size, stride, dilation) = (space[axis], strides[axis], dilations[axis]);
        let wide = (kernel[axis] - 1).checked_mul(dilation)?.checked_add(1)?;
        let same = (size.div_ceil(stride).max(1) - 1) * stride;
        let all = same.saturating_add(wide).saturating_sub(size);
        let pads = match auto {
            "NOTSET" | "" => [pads[axis], pads[axes + axis]],
            "VALID" => [0, 0],
            "SAME_UPPER" => [all / 2, all - all / 2],
            "SAME_LOWER" => [all - all / 2, all / 2],
            _ => return None,
        };
        let room = (size + pads[0] + pads[1]).checked_sub(wide)?;
        let mut count = room / stride + 1;
        // A window never starts in the padding behind.
        if op.int("ceil_mode", 0) != 0 && room % stride != 0 && count * stride < size + pads[0] {
            count += 1;
        }
        let more = ((count - 1) * stride).saturating_sub(room);
        Some(Span {
            kernel: kernel[axis],
            stride,
            dilation,
            pads: [pads[0], pads[1] + more],
            count,
        })
    };
    let all: Option<Vec<Span>> = (0..axes).map(span).collect();
    all.ok_or_else(|| format!("a window of {kernel:?} doesn't fit an input of {space:?}"))
}
