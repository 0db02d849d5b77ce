//! What a STORE that requantises has beyond another: where the constants of its channels and the residual lie.

use crate::field::layout;

layout! {
    /// A STORE with it writes `clamp((sum * multiplier + offset) >> shift)`, lane by lane, instead of the low 8 bits of
    /// each sum, with the [`Rounding`] of the lane's channel. With a residual the result is the first operand of
    /// another such step: `clamp((result * multiplier + residual * factor + offset) >> shift)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Requantize, RequantizeFields {
        members {}
        codes {
            requantize = [2, 1], Flag, "flag", "Rounds, shifts and clamps what it stores: the upper bit of the opcode, which is 5 then";
        }
        fields {
            table: u16 = [113, 15], Shown, "accumulator tiles", "First tile of the first entry";
            by_row: bool = [112, 1], Flag, "flag", "Each row in DRAM has the next entry; else all have the first";
            residual: u8 = [58, 6], Number, "32 accumulator tiles", "From a sum to the tile whose low bytes are its residual; 0 without";
        }
    }
}

impl Requantize {
    /// What [`Self::residual`] counts.
    pub const RESIDUAL_TILES: usize = 32;

    /// Accumulator tiles of an entry.
    pub const fn entry_tiles(&self) -> usize {
        Rounding::entry_words(self.residual != 0)
    }

    /// From a sum to its residual.
    pub const fn distance(&self) -> Option<usize> {
        match self.residual {
            0 => None,
            distance => Some(distance as usize * Self::RESIDUAL_TILES),
        }
    }

    /// The first tile of a row's entry.
    pub const fn entry(&self, row: usize) -> usize {
        self.table as usize
            + if self.by_row {
                row * self.entry_tiles()
            } else {
                0
            }
    }
}

/// How a lane is rounded to int8: `max(min((x * multiplier + offset) >> shift, high), low)`, computed in 64 bits. Half a
/// step, the zero point and the bias are parts of the offset.
///
/// A lane of the accumulator scratchpad holds each of its words, of consecutive tiles: bits 31:0 of the offset;
/// 15:0 bits 47:32 of it, 23:16 `low`, 31:24 `high`; 23:0 the multiplier, 29:24 the shift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rounding {
    /// Added to the product: a signed number of 48 bits.
    pub offset: i64,
    /// An unsigned number of 24 bits.
    pub multiplier: u32,
    /// 0 to 63.
    pub shift: u8,
    /// The smallest result. It wins over the largest.
    pub low: i8,
    /// The largest result.
    pub high: i8,
}

impl Rounding {
    /// Words of a lane.
    pub const WORDS: usize = 3;
    /// The largest multiplier.
    pub const MAX_MULTIPLIER: u32 = (1 << 24) - 1;
    /// The largest shift.
    pub const MAX_SHIFT: u8 = 63;
    /// The largest offset; the smallest is its negative, less one.
    pub const MAX_OFFSET: i64 = (1 << 47) - 1;

    /// What the words of a lane hold.
    #[inline(always)]
    pub const fn of([low_bits, bounds, scale]: [i32; Self::WORDS]) -> Self {
        Self {
            offset: (bounds as i16 as i64) << 32 | low_bits as u32 as i64,
            multiplier: factor(scale),
            shift: (scale >> 24) as u8 & Self::MAX_SHIFT,
            low: (bounds >> 16) as i8,
            high: (bounds >> 24) as i8,
        }
    }

    /// The words of a lane. Of a number that is out of its range the upper bits are lost.
    pub const fn words(&self) -> [i32; Self::WORDS] {
        let Self {
            offset,
            multiplier,
            shift,
            low,
            high,
        } = *self;
        let bounds = (high as i32) << 24 | (low as u8 as i32) << 16;
        [
            offset as i32,
            bounds | (offset >> 32) as u16 as i32,
            ((shift & Self::MAX_SHIFT) as i32) << 24 | (multiplier & Self::MAX_MULTIPLIER) as i32,
        ]
    }

    /// Words of a lane's entry, each in a tile of its own: those of a rounding, and with a residual those of another and
    /// the factor.
    pub const fn entry_words(has_residual: bool) -> usize {
        match has_residual {
            false => Self::WORDS,
            true => 2 * Self::WORDS + 1,
        }
    }

    /// A lane's entry. A residual has a factor, and its sum another rounding.
    pub fn entry(&self, residual: Option<(u32, Self)>) -> Vec<i32> {
        let mut words = self.words().to_vec();
        if let Some((factor, sum)) = residual {
            words.extend(sum.words());
            words.push(factor as i32);
        }
        words
    }

    /// Rounds a sum.
    ///
    /// ```
    /// use vta_isa::Rounding;
    ///
    /// let half = Rounding { offset: 2, multiplier: 3, shift: 2, low: -8, high: 7 };
    /// assert_eq!([1, 2, 4, -2, 100].map(|x| half.apply(x)), [1, 2, 3, -1, 7]);
    /// assert_eq!(Rounding::of(half.words()), half);
    /// ```
    #[inline(always)]
    pub const fn apply(&self, sum: i32) -> i8 {
        self.finish(sum as i64 * self.multiplier as i64)
    }

    /// Adds a residual to what was rounded before, both multiplied; [`factor`] takes the residual's factor from its word.
    #[inline(always)]
    pub const fn add(&self, rounded: i8, residual: i8, factor: u32) -> i8 {
        self.finish(rounded as i64 * self.multiplier as i64 + residual as i64 * factor as i64)
    }

    #[inline(always)]
    const fn finish(&self, product: i64) -> i8 {
        let value = (product + self.offset) >> self.shift;
        let value = if value > self.high as i64 {
            self.high as i64
        } else {
            value
        };
        if value < self.low as i64 {
            self.low
        } else {
            value as i8
        }
    }
}

/// The factor in a word: its lower 24 bits.
#[inline(always)]
pub const fn factor(word: i32) -> u32 {
    word as u32 & Rounding::MAX_MULTIPLIER
}
