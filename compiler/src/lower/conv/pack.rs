//! Constants of a convolution as the device reads them.

use super::ConvShape;

/// Largest magnitude of a digit and of the constant lanes that it meets.
const DIGIT: i32 = 127;

/// `[CO/B][CI/B][KH][KW][B out][B in]` from `[CO][CI][KH][KW]`; for gathered patches the kernel
/// is 1x1 and a row of `taps` weights is its channels. Of a grouped convolution each output block has
/// the tiles of the `shape.ci` input blocks from its first on.
pub(super) fn weights(
    weights: &[i8],
    [co, taps]: [usize; 2],
    shape: &ConvShape,
    block: usize,
) -> Vec<u8> {
    let area = shape.kernel[0] * shape.kernel[1];
    let channels = taps / area;
    let mut packed = vec![0u8; shape.co * shape.ci * area * block * block];
    for (o, row) in weights.chunks_exact(taps.max(1)).take(co).enumerate() {
        // The first input channel of the output channel's group.
        let first = shape.groups.map_or(0, |g| o / g.outputs * g.inputs);
        for (c, weight) in row.chunks_exact(area).enumerate().take(channels) {
            for (k, &weight) in weight.iter().enumerate() {
                let c = first + c;
                let ci = c / block - shape.first_input(o / block);
                let tile = (o / block * shape.ci + ci) * area + k;
                let at = (tile * block + o % block) * block + c % block;
                packed[at] = weight as u8;
            }
        }
    }
    packed
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

/// The input tile that turns digits into a bias: 1, then 127 in every other lane, in each row.
pub(super) fn bias_input(batch: usize, block: usize) -> Vec<u8> {
    let lane = |i: usize| if i == 0 { 1 } else { DIGIT as u8 };
    (0..batch).flat_map(|_| (0..block).map(lane)).collect()
}

/// Weight tiles `[CO/B][B out][B in]` whose product with [`bias_input`] is the bias:
/// `w[0] + 127 * (w[1] + .. + w[B-1])`. `None` when a value is out of their reach.
pub(super) fn bias_weights(bias: &[i32], co: usize, block: usize) -> Option<Vec<u8>> {
    let mut packed = vec![0u8; co * block * block];
    for (row, &value) in packed.chunks_exact_mut(block).zip(bias) {
        let low = (i64::from(value) + 63).rem_euclid(127) - 63;
        let mut rest = (i64::from(value) - low) / i64::from(DIGIT);
        row[0] = low as i8 as u8;
        for digit in &mut row[1..] {
            let part = rest.clamp(-i64::from(DIGIT), DIGIT.into());
            *digit = part as i8 as u8;
            rest -= part;
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

    #[test]
    fn digits_give_the_bias_back() {
        let reach = 63 + 127 * 127 * 15;
        let input = bias_input(1, 16);
        for value in [
            0, 1, -1, 63, 64, -64, 127, 8128, -8129, 200_000, reach, -reach,
        ] {
            let tile = bias_weights(&[5, value], 1, 16).unwrap();
            let dot = |row: &[u8]| -> i32 {
                let product = |(w, x): (&u8, &u8)| i32::from(*w as i8) * i32::from(*x as i8);
                row.iter().zip(&input).map(product).sum()
            };
            assert_eq!((dot(&tile[..16]), dot(&tile[16..32])), (5, value));
            assert!(tile[32..].iter().all(|&w| w == 0));
            assert!(tile.iter().all(|&w| w as i8 != -128));
        }
    }

    #[test]
    fn a_bias_beyond_the_digits_is_left_to_the_alu() {
        for value in [
            63 + 127 * 127 * 15 + 1,
            -(63 + 127 * 127 * 15 + 1),
            i32::MIN,
            i32::MAX,
        ] {
            assert_eq!(bias_weights(&[value], 1, 16), None, "{value}");
        }
    }
}
