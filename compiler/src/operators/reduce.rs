//! Operators that take several elements together, in any order or step by step, and those that choose some: the host's.

use super::operator::{Bound, Given, Kind, Operator, Size, axis};
use crate::graph::Element;
use crate::onnx::MAX_ELEMENTS;

const fn places(kind: &'static str) -> Operator {
    Operator::new(kind, Size::Computed(Bound::First), Kind::Is(Element::I64))
}

pub(super) const OPERATORS: &[Operator] = &[
    places("ArgMax"),
    places("ArgMin"),
    Operator::same("CumSum"),
    Operator::new("OneHot", Size::Computed(Bound::Depth), Kind::Third),
    Operator::computed("Range", Bound::Range),
    Operator::new("ConstantOfShape", Size::Computed(Bound::Shape), Kind::Value),
    Operator::same("EyeLike"),
    Operator::fewer("ReduceL1"),
    Operator::fewer("ReduceL2"),
    Operator::fewer("ReduceLogSum"),
    Operator::fewer("ReduceLogSumExp"),
    Operator::fewer("ReduceMax"),
    Operator::fewer("ReduceMin"),
    Operator::fewer("ReduceProd"),
    Operator::fewer("ReduceSum"),
    Operator::fewer("ReduceSumSquare"),
    Operator::fewer("TopK"),
    Operator::same("Trilu"),
    Operator::new("LSTM", Size::States, Kind::First),
    Operator::new("GRU", Size::States, Kind::First),
    Operator::new("RNN", Size::States, Kind::First),
    Operator::new("NonMaxSuppression", Size::Chosen, Kind::Is(Element::I64)),
    Operator::new("NonZero", Size::Chosen, Kind::Is(Element::I64)),
    Operator::new("Compress", Size::Chosen, Kind::First),
    // What a file knows the shape of is a constant instead.
    places("Shape"),
    places("Size"),
    Operator::same("ReverseSequence"),
    Operator::same("RotaryEmbedding"),
    Operator::computed("Attention", Bound::Scores),
    Operator::computed("GridSample", Bound::Grid),
    Operator::new("DFT", Size::Spectrum, Kind::First),
    Operator::new("STFT", Size::Spectrum, Kind::First),
];

/// Lines of numbers that are transformed: an input has `outer * size * inner * parts[0]` floats, an output
/// `outer * frames * bins * inner * parts[1]`.
#[cfg_attr(
    not(feature = "host"),
    expect(dead_code, reason = "shapes are all that is asked for")
)]
pub(crate) struct Lines {
    pub outer: usize,
    /// Numbers of an input along the dimension.
    pub size: usize,
    pub inner: usize,
    /// Of an input's and an output's numbers: 1 for real ones, 2 for complex ones.
    pub parts: [usize; 2],
    /// How many begin along the dimension, and how far one begins behind the one before.
    pub frames: usize,
    pub step: usize,
    /// Numbers of a line.
    pub length: usize,
    /// How many of them are given; those behind are conjugates of these.
    pub given: usize,
    /// Numbers of a line's transform that are given.
    pub bins: usize,
}

/// The shape of a Fourier transform's output.
///
/// # Errors
/// Inputs that don't fit, in words.
pub(crate) fn spectrum(given: &Given<'_>) -> Result<Vec<usize>, String> {
    let scalar = |argument, name: &str| -> Result<Option<i64>, String> {
        let numbers = given.integers(argument, name)?;
        Ok(numbers.and_then(|numbers| numbers.first().copied()))
    };
    let int = |name: &str, default| given.op.int(name, default);
    let window = given.get(2).map(|window| &window.shape[..]);
    let (_, shape) = lines(given.op.kind, given.shape(0)?, window, &scalar, &int)?;
    Ok(shape)
}

/// Gives the number that an argument is, by its place and name, where it is given.
type Scalar<'s> = dyn Fn(usize, &str) -> Result<Option<i64>, String> + 's;

/// Lines and output's shape of a node: its kind, the shapes of its input and its third argument, and what gives the
/// number that an argument is, and an attribute.
pub(crate) fn lines(
    kind: &str,
    x: &[usize],
    window: Option<&[usize]>,
    scalar: &Scalar<'_>,
    int: &dyn Fn(&str, i64) -> i64,
) -> Result<(Lines, Vec<usize>), String> {
    if kind == "DFT" {
        let axis = scalar(2, "axis")?.unwrap_or(-2);
        let sides = ["onesided", "inverse"].map(|name| int(name, 0) != 0);
        return transformed(x, axis, scalar(1, "dft_length")?, sides);
    }
    let step = scalar(1, "frame_step")?.ok_or("its frame_step is missing")?;
    let frames = (step, scalar(3, "frame_length")?);
    framed(x, frames, window, int("onesided", 1) != 0)
}

/// Lines and output's shape of a DFT along an axis.
fn transformed(
    x: &[usize],
    along: i64,
    length: Option<i64>,
    [is_one_sided, is_inverse]: [bool; 2],
) -> Result<(Lines, Vec<usize>), String> {
    let &[ref numbers @ .., parts] = x else {
        return Err("its input has no dimension".to_owned());
    };
    let along = axis(along, x.len())?;
    if along == numbers.len() {
        return Err(format!("axis {along} of {x:?} has the parts of numbers"));
    }
    let size = x[along];
    // What is given of one side becomes real numbers.
    let is_real = is_one_sided && is_inverse;
    let parts = complex(parts, is_one_sided && !is_inverse)?;
    let whole = if is_real {
        (2 * size).saturating_sub(2)
    } else {
        size
    };
    let length = positive(length.unwrap_or(whole as i64), "dft_length")?;
    let side = length / 2 + 1;
    let lines = Lines {
        outer: x[..along].iter().product(),
        size,
        inner: numbers[along + 1..].iter().product(),
        parts: [parts, if is_real { 1 } else { 2 }],
        frames: 1,
        step: 0,
        length,
        given: if is_real { side } else { length },
        bins: if is_one_sided && !is_real {
            side
        } else {
            length
        },
    };
    let mut shape = x.to_vec();
    shape[along] = lines.bins;
    shape[numbers.len()] = lines.parts[1];
    Ok((lines, shape))
}

/// Lines and output's shape of an STFT, from its signal, step and length of frames, and its window's shape.
fn framed(
    x: &[usize],
    (step, length): (i64, Option<i64>),
    window: Option<&[usize]>,
    is_one_sided: bool,
) -> Result<(Lines, Vec<usize>), String> {
    let (outer, size, parts) = match *x {
        [outer, size] => (outer, size, 1),
        [outer, size, parts] => (outer, size, complex(parts, is_one_sided)?),
        _ => return Err(format!("a signal of shape {x:?}")),
    };
    let length = match (length, window) {
        (None, None) => return Err("it has neither a window nor a frame_length".to_owned()),
        (None, Some(&[length])) => length,
        (Some(length), None) => positive(length, "frame_length")?,
        (Some(length), Some(&[window])) if usize::try_from(length) == Ok(window) => window,
        (length, Some(window)) => {
            let frame = length.map_or(String::new(), |length| format!(" for frames of {length}"));
            return Err(format!("a window of shape {window:?}{frame}"));
        }
    };
    let step = positive(step, "frame_step")?;
    let Some(left) = size.checked_sub(length).filter(|_| length > 0) else {
        return Err(format!("frames of {length} in a signal of {size}"));
    };
    let lines = Lines {
        outer,
        size,
        inner: 1,
        parts: [parts, 2],
        frames: left / step + 1,
        step,
        length,
        given: length,
        bins: if is_one_sided { length / 2 + 1 } else { length },
    };
    let shape = vec![outer, lines.frames, lines.bins, 2];
    Ok((lines, shape))
}

fn positive(number: i64, name: &str) -> Result<usize, String> {
    let fits = usize::try_from(number).ok();
    let fits = fits.filter(|number| (1..=MAX_ELEMENTS).contains(number));
    fits.ok_or_else(|| format!("its {name} is {number}, not 1 to {MAX_ELEMENTS}"))
}

fn complex(parts: usize, is_one_sided: bool) -> Result<usize, String> {
    match parts {
        1 => Ok(1),
        2 if !is_one_sided => Ok(2),
        2 => Err("one side of complex numbers".to_owned()),
        _ => Err(format!("numbers of {parts} parts")),
    }
}
