//! GridSample: values between those of a plane or volume, at places that a grid says.

use super::asked::Asked;
use crate::engine::Tensor;
use crate::engine::interpolate::kernel;
use crate::graph::Data;
use crate::onnx::elements;

pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let (x, grid) = (of.required(0)?.shape, of.required(1)?.shape);
    let text = || format!("an input of shape {x:?} and a grid of shape {grid:?}");
    let (&[batch, channels, ref space @ ..], Some((&rank, places))) = (x, grid.split_last()) else {
        return Err(text());
    };
    let fits = matches!(rank, 2 | 3) && space.len() == rank && places.len() == rank + 1;
    if !fits || places[0] != batch {
        return Err(text());
    }
    let sample = Sample::new(of, space)?;
    let missing = || "its input or grid is missing".to_owned();
    let values = of.floats(0)?.ok_or_else(missing)?;
    let grid = of.floats(1)?.ok_or_else(missing)?;
    let shape = [&[batch, channels], &places[1..]].concat();
    let count = elements("Y", &shape).map_err(|e| e.to_string())?;
    let mut made = vec![0.0; count];
    let plane: usize = space.iter().product();
    let each: usize = places[1..].iter().product();
    for image in 0..batch {
        let grid = &grid[image * each * rank..][..each * rank];
        for (at, place) in grid.chunks_exact(rank).enumerate() {
            let taps = sample.at(place);
            for channel in image * channels..(image + 1) * channels {
                let values = &values[channel * plane..][..plane];
                made[channel * each + at] = taps.iter().map(|&(at, by)| values[at] * by).sum();
            }
        }
    }
    Ok(vec![Tensor {
        shape,
        data: Data::F32(made),
    }])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// How values are taken, of dimensions from the outermost.
struct Sample<'s> {
    space: &'s [usize],
    mode: Mode,
    outside: Outside,
    is_aligned: bool,
}

/// What a place takes of a dimension: entries, where there are such, and their weights.
type Taps = Vec<(Option<usize>, f32)>;

impl<'s> Sample<'s> {
    fn new(of: &Asked<'_>, space: &'s [usize]) -> Result<Self, String> {
        let mode = match &of.text("mode", "linear")[..] {
            "nearest" => Mode::Nearest,
            "linear" | "bilinear" => Mode::Linear,
            "cubic" | "bicubic" if space.len() == 2 => Mode::Cubic,
            other => return Err(format!("mode is {other}")),
        };
        let outside = match &of.text("padding_mode", "zeros")[..] {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            "reflection" => Outside::Reflection,
            other => return Err(format!("padding_mode is {other}")),
        };
        Ok(Self {
            space,
            mode,
            outside,
            is_aligned: of.int("align_corners", 0) != 0,
        })
    }

    /// The values that a place takes, by their weights. Its coordinates begin with that of the innermost dimension.
    fn at(&self, place: &[f32]) -> Vec<(usize, f32)> {
        let mut all = vec![(0, 1.0)];
        for (&size, &at) in self.space.iter().zip(place.iter().rev()) {
            let taps = self.taps(size, at);
            let joined = |&(outer, weight): &(usize, f32)| {
                let inside = taps.iter().filter_map(|&(at, by)| Some((at?, by)));
                let one = move |(at, by)| (outer * size + at, weight * by);
                inside.map(one).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(joined).collect();
        }
        all
    }

    fn taps(&self, size: usize, at: f32) -> Taps {
        let length = size as f32;
        let mut at = if self.is_aligned {
            (at + 1.0) / 2.0 * (length - 1.0)
        } else {
            ((at + 1.0) * length - 1.0) / 2.0
        };
        if self.mode == Mode::Nearest {
            at = at.round_ties_even();
        }
        let (low, high) = self.ends(size);
        if !(low..=high).contains(&at) {
            at = match self.outside {
                Outside::Zeros => at,
                Outside::Border => at.clamp(0.0, (length - 1.0).max(0.0)),
                Outside::Reflection => self.reflected(at, size),
            };
        }
        let first = at.floor();
        let off = at - first;
        match self.mode {
            Mode::Nearest => vec![(self.entry(at, size), 1.0)],
            Mode::Linear => vec![
                (self.entry(first, size), 1.0 - off),
                (self.entry(first + 1.0, size), off),
            ],
            Mode::Cubic => {
                let tap = |k: i8| {
                    let distance = (off - f32::from(k)).abs();
                    (
                        self.entry(first + f32::from(k), size),
                        kernel(distance.into(), -0.75) as f32,
                    )
                };
                (-1..=2).map(tap).collect()
            }
        }
    }

    /// Where the values of a dimension begin and end.
    const fn ends(&self, size: usize) -> (f32, f32) {
        let length = size as f32;
        if self.is_aligned {
            (0.0, length - 1.0)
        } else {
            (-0.5, length - 0.5)
        }
    }

    fn reflected(&self, at: f32, size: usize) -> f32 {
        let (low, high) = self.ends(size);
        let range = high - low;
        if (low..=high).contains(&at) || range <= 0.0 {
            return at.clamp(low, high);
        }
        let (beyond, from, to) = if at < low {
            (low - at, low, high)
        } else {
            (at - high, high, low)
        };
        let turns = (beyond / range).trunc();
        let rest = (beyond - turns * range).copysign(to - from);
        if turns % 2.0 == 0.0 {
            from + rest
        } else {
            to - rest
        }
    }

    /// The entry of a dimension at a whole number; none beside it, where zeros are.
    fn entry(&self, at: f32, size: usize) -> Option<usize> {
        let last = size.checked_sub(1)?;
        let at = match self.outside {
            Outside::Zeros if !(0.0..=last as f32).contains(&at) => return None,
            Outside::Zeros | Outside::Border => at,
            Outside::Reflection => self.reflected(at, size),
        };
        Some((at.max(0.0) as usize).min(last))
    }
}
