//! The generator of weights, inputs and pictures.

/// SplitMix64, a public-domain generator by Sebastiano Vigna: integers only, the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with its own sequence for each seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// What the state grows by.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Leaves out so many results.
    pub const fn skip(&mut self, count: u64) {
        self.0 = self.0.wrapping_add(Self::STEP.wrapping_mul(count));
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An int8, roughly normal with a standard deviation of 37, within -127..=127: the mean of
    /// four uniform bytes.
    pub const fn int8(&mut self) -> i8 {
        let bits = self.next_u64();
        let sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24 & 255);
        (sum as i64 / 4 - 127) as i8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_left_out() {
        for count in [0, 1, 7, 1 << 20] {
            let (mut whole, mut rest) = (Rng::new(5), Rng::new(5));
            for _ in 0..count {
                whole.next_u64();
            }
            rest.skip(count);
            assert_eq!(whole.next_u64(), rest.next_u64(), "{count}");
        }
    }
}
