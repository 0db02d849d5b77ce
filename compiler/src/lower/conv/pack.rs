//! Constants of a convolution as the device reads them.

use rayon::prelude::*;
use vta_isa::{Config, MemType};

use super::super::tile::ConvShape;
use crate::qgraph::QStore;

/// Bytes that are worth a task of their own.
const TASK: usize = 1 << 16;
/// Largest magnitude of a digit and of the constant lanes that it meets.
const DIGIT: i32 = 127;

/// `[CO/B][CI/B][KH][KW][N][B out][B in]` from `[N][CO][CI][KH][KW]`; for gathered patches the kernel
/// is 1x1 and a row of `taps` weights is its channels. Of a grouped convolution each output block has
/// the tiles of the `shape.ci` input blocks from its first on. Where every weight is 1, one
/// diagonal tile is all.
pub(super) fn weights(
    weights: &[i8],
    [co, taps]: [usize; 2],
    shape: &ConvShape,
    block: usize,
) -> Vec<u8> {
    if shape.ones {
        let at = |i: usize| u8::from(i / block == i % block);
        return (0..block * block).map(at).collect();
    }
    if shape.window_rows > 0 {
        return taps_of_windows(weights, co, shape, block);
    }
    let pack = Pack {
        weights,
        shape,
        rows: [co, taps],
        block,
    };
    let bytes = shape.ci * shape.window.area() * shape.weight_parts * block * block;
    let mut packed = vec![0u8; shape.co * bytes];
    let blocks = packed.par_chunks_mut(bytes.max(1));
    let blocks = blocks.with_min_len((TASK / bytes.max(1)).max(1));
    blocks
        .enumerate()
        .for_each(|(at, packed)| pack.output_block(at, packed));
    packed
}

/// `[CO/B][KH/R][B channels][B taps]` of `[CO][KH][KW]`, with the taps of R kernel rows in a tile.
fn taps_of_windows(weights: &[i8], co: usize, shape: &ConvShape, block: usize) -> Vec<u8> {
    let ([_, across], tiles) = (shape.window.kernel, shape.weight_row());
    let mut packed = vec![0u8; shape.co * tiles * block * block];
    let of_tile = shape.window_rows * across;
    for (channel, taps) in weights.chunks_exact(weights.len() / co.max(1)).enumerate() {
        for (t, taps) in taps.chunks(of_tile).enumerate() {
            let row = (channel / block * tiles + t) * block + channel % block;
            let to = &mut packed[row * block..][..taps.len()];
            (to.iter_mut().zip(taps)).for_each(|(to, w)| *to = *w as u8);
        }
    }
    packed
}

/// Weights that are packed.
struct Pack<'a> {
    weights: &'a [i8],
    shape: &'a ConvShape,
    /// How many rows each part has, and how many weights a row.
    rows: [usize; 2],
    block: usize,
}

impl Pack<'_> {
    /// All weight tiles of an output block.
    fn output_block(&self, at: usize, packed: &mut [u8]) {
        let Self {
            weights,
            shape,
            rows: [co, taps],
            block,
        } = *self;
        for o in at * block..((at + 1) * block).min(co) {
            // The first input channel of the output channel's group.
            let first = shape.groups.map_or(0, |g| o / g.outputs * g.inputs);
            let first = first - shape.first_input(at) * block;
            for part in 0..shape.weight_parts {
                let row = &weights[(part * co + o) * taps..][..taps];
                self.row(row, first, (part, o % block), packed);
            }
        }
    }

    /// A row of weights, which meets the channels of the input blocks from `first` on.
    fn row(&self, row: &[i8], first: usize, (part, lane): (usize, usize), packed: &mut [u8]) {
        let (block, area) = (self.block, self.shape.window.area());
        let channels = row.len() / area;
        let mut c = 0;
        while c < channels {
            // Neighbours in an input block.
            let (ci, from) = ((first + c) / block, (first + c) % block);
            let count = (block - from).min(channels - c);
            let same = &row[c * area..][..count * area];
            for k in 0..area {
                let tile = (ci * area + k) * self.shape.weight_parts + part;
                let to = &mut packed[(tile * block + lane) * block + from..][..count];
                let of_tap = same[k..].iter().step_by(area);
                to.iter_mut().zip(of_tap).for_each(|(to, &w)| *to = w as u8);
            }
            c += count;
        }
    }
}

/// Of weights in several parts, which packed tiles are all zeros; empty for one part.
pub(super) fn blank(packed: &[u8], shape: &ConvShape, block: usize) -> Vec<bool> {
    let tiles = packed.chunks_exact(block * block);
    let tiles = tiles.filter(|_| shape.weight_parts > 1);
    tiles.map(|tile| tile.iter().all(|&w| w == 0)).collect()
}

/// `[vector][CO/B][BATCH][B]` int32, zero beyond the channels.
pub(super) fn vectors(lists: &[&[i32]], co: usize, batch: usize, block: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lists.len() * co * batch * block * 4);
    for list in lists {
        for group in 0..co {
            for _ in 0..batch {
                for lane in 0..block {
                    let value = list.get(group * block + lane).copied().unwrap_or(0);
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }
    bytes
}

/// The entries of STOREs that requantise, `[CO/B][word][BATCH][B]`.
pub(super) fn roundings(store: &QStore, co: usize, batch: usize, block: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in 0..co {
        let words = |lane: usize| {
            // Lanes beyond the channels give 0.
            let own = store.rounding.get(group * block + lane);
            let residual = store.residual.map(|(_, factor, sum)| (factor, sum));
            own.map_or_else(|| vec![0; store.entry_tiles()], |own| own.entry(residual))
        };
        let lanes: Vec<Vec<i32>> = (0..block).map(words).collect();
        for word in 0..lanes.first().map_or(0, Vec::len) {
            let tile: Vec<u8> = lanes
                .iter()
                .flat_map(|lane| lane[word].to_le_bytes())
                .collect();
            (0..batch).for_each(|_| bytes.extend(&tile));
        }
    }
    bytes
}

/// The input tile that turns digits into a bias: 1, then 127 in every other lane, in each row.
pub(super) fn bias_input(config: &Config) -> Vec<u8> {
    let lane = |i: usize| {
        if i.is_multiple_of(config.block()) {
            1
        } else {
            DIGIT
        }
    };
    let bytes = config.width(MemType::Inp) / 8;
    let lanes = (0..config.lanes()).map(|i| lane(i).to_le_bytes());
    lanes
        .flat_map(|lane| lane.into_iter().take(bytes))
        .collect()
}

/// A bias in digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digits {
    /// Steps of the matrix unit that add it.
    pub steps: usize,
    /// Weight tiles `[CO/B][bias][step][B out][B in]`.
    pub tiles: Vec<u8>,
}

/// Steps beyond which an addition by the ALU is cheaper.
const MAX_STEPS: usize = 2;

/// Digits whose products with [`bias_input`], summed over the steps, are each bias: in the first
/// step `w[0] + 127 * (w[1] + .. + w[B-1])`, in others without `w[0]`. `None` when a value is
/// out of their reach.
pub(super) fn bias_weights(biases: &[&[i32]], co: usize, block: usize) -> Option<Digits> {
    (1..=MAX_STEPS).find_map(|steps| {
        let tiles = digits(biases, [co, steps], block)?;
        Some(Digits { steps, tiles })
    })
}

fn digits(biases: &[&[i32]], [co, steps]: [usize; 2], block: usize) -> Option<Vec<u8>> {
    let count = biases.len();
    let mut packed = vec![0u8; co * count * steps * block * block];
    let all = biases.iter().enumerate();
    let all = all.flat_map(|(bias, values)| (0..).zip(*values).map(move |(c, &v)| (bias, c, v)));
    for (bias, channel, value) in all {
        let low = (i64::from(value) + 63).rem_euclid(127) - 63;
        let mut rest = (i64::from(value) - low) / i64::from(DIGIT);
        for step in 0..steps {
            let tile = (channel / block * count + bias) * steps + step;
            let first = (tile * block + channel % block) * block;
            let row = packed.get_mut(first..first + block)?;
            if step == 0 {
                row[0] = low as i8 as u8;
            }
            for digit in &mut row[1..] {
                let part = rest.clamp(-i64::from(DIGIT), DIGIT.into());
                *digit = part as i8 as u8;
                rest -= part;
            }
        }
        if rest != 0 {
            return None;
        }
    }
    Some(packed)
}

#[cfg(test)]
mod tests;
