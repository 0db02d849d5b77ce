//! Constants of a convolution as the device reads them.

use super::super::tile::ConvShape;

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
    let (area, parts) = (shape.window.area(), shape.weight_parts);
    let channels = taps / area;
    let mut packed = vec![0u8; shape.co * shape.ci * area * parts * block * block];
    for (row, (part, o)) in weights.chunks_exact(taps.max(1)).zip(rows(parts, co)) {
        // The first input channel of the output channel's group.
        let first = shape.groups.map_or(0, |g| o / g.outputs * g.inputs);
        for (c, weight) in row.chunks_exact(area).enumerate().take(channels) {
            for (k, &weight) in weight.iter().enumerate() {
                let c = first + c;
                let ci = c / block - shape.first_input(o / block);
                let tile = ((o / block * shape.ci + ci) * area + k) * parts + part;
                let at = (tile * block + o % block) * block + c % block;
                packed[at] = weight as u8;
            }
        }
    }
    packed
}

/// Of weights in several parts, which packed tiles are all zeros; empty for one part.
pub(super) fn blank(packed: &[u8], shape: &ConvShape, block: usize) -> Vec<bool> {
    let tiles = packed.chunks_exact(block * block);
    let tiles = tiles.filter(|_| shape.weight_parts > 1);
    tiles.map(|tile| tile.iter().all(|&w| w == 0)).collect()
}

/// The parts and output channels of rows of weights, in their order.
fn rows(parts: usize, co: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..parts).flat_map(move |part| (0..co).map(move |o| (part, o)))
}

/// `[vector][CO/B][BATCH][B]` int32, zero beyond the channels.
pub(in crate::lower) fn vectors(
    lists: &[&[i32]],
    co: usize,
    batch: usize,
    block: usize,
) -> Vec<u8> {
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

/// The input tile that turns digits into a bias: 1, then 127 in every other lane, in each row.
pub(super) fn bias_input(batch: usize, block: usize) -> Vec<u8> {
    let lane = |i: usize| if i == 0 { 1 } else { DIGIT as u8 };
    (0..batch).flat_map(|_| (0..block).map(lane)).collect()
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
mod tests {
    use super::*;

    /// What one step can add, and two.
    const REACH: [i32; 2] = [63 + 127 * 127 * 15, 63 + 2 * 127 * 127 * 15];

    #[test]
    fn digits_give_the_bias_back() {
        let input = bias_input(1, 16);
        for (value, steps) in [
            (0, 1),
            (1, 1),
            (-1, 1),
            (63, 1),
            (64, 1),
            (-64, 1),
            (8128, 1),
            (-8129, 1),
            (200_000, 1),
            (REACH[0], 1),
            (-REACH[0], 1),
            (REACH[0] + 1, 2),
            (-REACH[0] - 1, 2),
            (REACH[1], 2),
            (-REACH[1], 2),
        ] {
            let mut bias = [7; 18];
            (bias[1], bias[17]) = (value, -3);
            let digits = bias_weights(&[&bias], 2, 16).unwrap();
            assert_eq!(digits.steps, steps, "{value}");
            let sum = |channel: usize| -> i32 {
                let dot = |step: usize| -> i32 {
                    let tile = channel / 16 * steps + step;
                    let row = &digits.tiles[(tile * 16 + channel % 16) * 16..][..16];
                    let product = |(w, x): (&u8, &u8)| i32::from(*w as i8) * i32::from(*x as i8);
                    row.iter().zip(&input).map(product).sum()
                };
                (0..steps).map(dot).sum()
            };
            for (channel, &value) in bias.iter().enumerate() {
                assert_eq!(sum(channel), value, "channel {channel}");
            }
            assert_eq!(sum(18), 0);
            assert!(digits.tiles.iter().all(|&w| w as i8 != -128));
        }
    }

    #[test]
    fn a_bias_beyond_the_digits_is_left_to_the_alu() {
        for value in [REACH[1] + 1, -REACH[1] - 1, i32::MIN, i32::MAX] {
            assert_eq!(bias_weights(&[&[value]], 1, 16), None, "{value}");
        }
    }
}
