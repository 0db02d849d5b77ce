//! Constants for STOREs that requantise: most give results that are neither all the same nor all clamped.

use vta_isa::{Config, MemType, Requantize, Rounding};

/// Fills bytes with entries of so many tiles, one behind the other, from random numbers.
pub(crate) fn fill(
    bytes: &mut [u8],
    config: &Config,
    entry_tiles: usize,
    mut next: impl FnMut() -> u64,
) {
    let tile = config.elem_bytes(MemType::Acc);
    for entry in bytes.chunks_exact_mut(entry_tiles * tile) {
        for lane in 0..config.lanes() {
            for (word, value) in words(&mut next).into_iter().take(entry_tiles).enumerate() {
                let at = word * tile + lane * size_of::<i32>();
                entry[at..at + size_of::<i32>()].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

/// Tiles of an entry with a residual; one without has the first three.
pub(crate) const MOST_TILES: usize = Requantize {
    table: 0,
    by_row: false,
    residual: 1,
}
.entry_tiles();

/// The words of a lane: those of sums of some size, those of int8, and the factor of a residual.
fn words(next: &mut impl FnMut() -> u64) -> [i32; MOST_TILES] {
    if next().is_multiple_of(8) {
        return [(); MOST_TILES].map(|()| next() as i32);
    }
    let bits = 4 + next() % 29;
    let [a, b, c] = rounding(bits, next).words();
    let [d, e, f] = rounding(8, next).words();
    // The upper byte of a factor means nothing.
    [a, b, c, d, e, f, (next() >> (next() % 24)) as i32]
}

/// For numbers of so many bits.
fn rounding(bits: u64, next: &mut impl FnMut() -> u64) -> Rounding {
    let multiplier_bits = 1 + next() % 24;
    let shift = (bits + multiplier_bits).saturating_sub(7 + next() % 3);
    let offset = next() as i64 >> (64 - (shift + 8).min(48));
    let bounds = next();
    let (low, high) = match bounds % 4 {
        0 => ((bounds >> 8) as i8, (bounds >> 16) as i8),
        1 => (0, 127),
        _ => (-128, 127),
    };
    Rounding {
        offset,
        multiplier: next() as u32 & ((1 << multiplier_bits) - 1),
        shift: shift as u8,
        low,
        high,
    }
}
