//! ConvTranspose over three dimensions.

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;
use crate::onnx::{elements, proto};
use crate::operators::planes::spread;

pub(super) fn is_own(node: &proto::Node) -> bool {
    node.find("strides").is_some_and(|a| a.ints.len() == 3)
}

pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let (x, w) = (of.required(0)?.shape, of.required(1)?.shape);
    let (&[batch, channels, ref space @ ..], &[inner, each, ref kernel @ ..]) = (x, w) else {
        return Err(format!("an input of shape {x:?}, weights {w:?}"));
    };
    let three = |sizes: &[usize]| {
        <[usize; 3]>::try_from(sizes).map_err(|_| format!("{sizes:?} for three dimensions"))
    };
    let (space, kernel) = (three(space)?, three(kernel)?);
    let list = |name: &str, count: usize, default: i64| {
        let all = of
            .node
            .find(name)
            .map_or_else(|| vec![default; count], |a| a.ints.clone());
        let all: Option<Vec<usize>> = all.iter().map(|&v| usize::try_from(v).ok()).collect();
        let all = all.filter(|all| all.len() == count);
        all.ok_or_else(|| format!("{name} isn't {count} sizes"))
    };
    let (strides, dilations) = (
        three(&list("strides", 3, 1)?)?,
        three(&list("dilations", 3, 1)?)?,
    );
    let (pads, more) = (list("pads", 6, 0)?, list("output_padding", 3, 0)?);
    let group = usize::try_from(of.int("group", 1)).unwrap_or(0);
    if inner != channels || group == 0 || channels % group != 0 {
        return Err(format!("weights of shape {w:?} for {x:?}, group {group}"));
    }
    let size = |axis: usize| {
        let around = [pads[axis], pads[3 + axis]];
        let size = spread(
            space[axis],
            kernel[axis],
            [strides[axis], dilations[axis]],
            around,
            more[axis],
        );
        size.ok_or_else(|| format!("a window of {kernel:?} leaves nothing of {space:?}"))
    };
    let sizes = [size(0)?, size(1)?, size(2)?];
    let shape = [&[batch, each * group], &sizes[..]].concat();
    let count = elements("Y", &shape).map_err(|e| e.to_string())?;
    let missing = || "its input or weights are missing".to_owned();
    let (values, weights) = (
        of.floats(0)?.ok_or_else(missing)?,
        of.floats(1)?.ok_or_else(missing)?,
    );
    let mut made = vec![0f32; count];
    let [plane, from, taps] =
        [&sizes, &space, &kernel].map(|sizes| sizes.iter().product::<usize>());
    if let Some(bias) = of.floats(2)? {
        if bias.len() != each * group {
            return Err(format!("{} biases", bias.len()));
        }
        let filled = made.chunks_exact_mut(plane.max(1)).zip(bias.iter().cycle());
        filled.for_each(|(plane, bias)| plane.fill(*bias));
    }
    // Where a tap puts what stands at a place.
    let place = |tap: [usize; 3], at: [usize; 3]| {
        let along = |place: usize, axis: usize| {
            let to = at[axis] * strides[axis] + tap[axis] * dilations[axis];
            let to = to.checked_sub(pads[axis]).filter(|to| *to < sizes[axis])?;
            Some(place * sizes[axis] + to)
        };
        (0..3).try_fold(0, along)
    };
    for tap in 0..taps {
        let own = split(tap, kernel);
        let put = |at| Some((at, place(own, split(at, space))?));
        let all: Vec<(usize, usize)> = (0..from).filter_map(put).collect();
        for (image, channel) in (0..batch).flat_map(|b| (0..channels).map(move |c| (b, c))) {
            let values = &values[(image * channels + channel) * from..][..from];
            let first = image * each * group + channel / (channels / group) * each;
            for out in 0..each {
                let weight = weights[(channel * each + out) * taps + tap];
                let to = &mut made[(first + out) * plane..][..plane];
                all.iter()
                    .for_each(|&(at, place)| to[place] += values[at] * weight);
            }
        }
    }
    Ok(vec![Tensor {
        shape,
        data: Data::F32(made),
    }])
}

/// A place in three dimensions.
const fn split(at: usize, [_, rows, columns]: [usize; 3]) -> [usize; 3] {
    [at / (rows * columns), at / columns % rows, at % columns]
}
