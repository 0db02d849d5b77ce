//! Ends of sums in floats, which take half the operations.
//!
//! `(((x * m) >> a) * n + h) >> b` is a floor of a floor. A multiply-add that rounds down has the floor's bits wherever
//! that is a float, which whole numbers below 2^24 are. Three things make all others floats, too: multipliers have few
//! bits, and so have they over a power of two; what is added to the first sum is chosen so that the second's
//! rest has few bits; and a sum from 2^23 on has no room for less than a whole number.
//!
//! Floats don't wrap. So bounds on the way go: each operation that rounds down keeps the order of what it gets, and
//! beyond a bound the result is at least that of the bound, which one byte for all lanes clamps.

use crate::kernels::COLUMN;

/// What a requantisation does to a sum that is stored as a byte: `floor(floor(x * first + before) * second + after)`. Each
/// lane has the bits of a float.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Floors<L = usize> {
    pub first: L,
    pub before: L,
    pub second: L,
    pub after: L,
    /// Whether the inner floor takes an instruction; else the multiply-add leaves nothing below 1.
    pub inner: bool,
}

/// What a lane is bounded by, multiplied by twice, and what is added then.
pub(super) struct Numbers {
    pub bounds: [i32; 2],
    pub first: i32,
    pub factor: i32,
    pub added: i32,
}

/// What is done to all lanes beside their numbers: a shift and a clamp between the multiplications, a shift at the end.
pub(super) struct Stages {
    pub shift: i32,
    pub clamp: [i32; 2],
    pub last_shift: i32,
}

impl Stages {
    /// What a sum within the bounds ends as, unless something wraps on the way.
    pub fn unwrapped(&self, x: i32, lane: &Numbers) -> Option<i32> {
        let x = x.checked_mul(lane.first)? >> self.shift;
        let x = x
            .clamp(self.clamp[0], self.clamp[1])
            .checked_mul(lane.factor)?;
        Some(x.checked_add(lane.added)? >> self.last_shift)
    }
}

/// Whole numbers up to this are floats; from its half on all floats are whole.
const WHOLE: i64 = 1 << 24;
/// So many low bits of the rest behind the second sum are zeros.
const ZEROS: u32 = 10;

impl<L> Floors<L> {
    /// The same with other lanes.
    pub(super) fn map<M>(self, mut lanes: impl FnMut(L) -> M) -> Floors<M> {
        Floors {
            first: lanes(self.first),
            before: lanes(self.before),
            second: lanes(self.second),
            after: lanes(self.after),
            inner: self.inner,
        }
    }
}

impl Floors<Vec<[i32; COLUMN]>> {
    /// What lanes that saturate to such bytes go through in floats, and the bytes that it must be clamped to afterwards;
    /// `None` where some sum would end otherwise.
    pub(super) fn of(end: &Stages, lanes: &[Numbers], bytes: [i8; 2]) -> Option<(Self, [i8; 2])> {
        let bounds = bounds(end, lanes, bytes.map(i32::from))?;
        let windows = || lanes.iter().map(|lane| lane.window(end.shift));
        let inner = !windows().all(|[low, high]| high - low < WHOLE / 2 - (1 << ZEROS));
        let mut all = [const { Vec::new() }; 4];
        for (lane, [low, high]) in lanes.iter().zip(windows()) {
            let from = if inner { 0 } else { WHOLE / 2 - low };
            let (before, after) = lane.addends(from, end.last_shift)?;
            let numbers = [
                scaled(lane.first.into(), end.shift)?,
                scaled(before, 0)?,
                scaled(lane.factor.into(), end.last_shift)?,
                scaled(after, end.last_shift)?,
            ];
            let [first, before, second, after] = numbers.map(f64::from);
            let most = (first * 2f64.powi(31) + before.abs()) * second + after.abs();
            let fits = |x: i64| x.abs() <= WHOLE;
            if most >= 2f64.powi(31) || !fits(low + before as i64) || !fits(high + before as i64) {
                return None;
            }
            for (all, number) in all.iter_mut().zip(numbers) {
                all.push(number.to_bits() as i32);
            }
        }
        let [first, before, second, after] =
            all.map(|lanes| lanes.as_chunks::<COLUMN>().0.to_vec());
        let floors = Self {
            first,
            before,
            second,
            after,
            inner,
        };
        Some((floors, bounds))
    }
}

/// The bytes that the lanes' bounds lead to, if all lanes that aren't constant have the same.
fn bounds(end: &Stages, lanes: &[Numbers], bytes: [i32; 2]) -> Option<[i8; 2]> {
    let mut bounds = None;
    for lane in lanes.iter().filter(|lane| !lane.is_constant()) {
        let [low, high] = lane.bounds;
        let positive = lane.first > 0 && lane.factor > 0;
        let small = |x: i32| i64::from(x).abs() <= WHOLE;
        let ends = lane.bounds.map(|x| end.unwrapped(x, lane));
        let [Some(least), Some(most)] = ends.map(|x| Some(x?.clamp(bytes[0], bytes[1]))) else {
            return None;
        };
        let same = *bounds.get_or_insert([least, most]) == [least, most];
        if !(positive && low <= high && small(low) && small(high) && same) {
            return None;
        }
    }
    let [low, high] = bounds.unwrap_or(bytes);
    let inside = |lane: &Numbers| (low..=high).contains(&(lane.added >> end.last_shift));
    let mut constants = lanes.iter().filter(|lane| lane.is_constant());
    constants.all(inside).then_some([low as i8, high as i8])
}

impl Numbers {
    /// Whether all sums have the same end.
    fn is_constant(&self) -> bool {
        self.first == 0 || self.factor == 0
    }

    /// What the first shift makes of the bounds.
    fn window(&self, shift: i32) -> [i64; 2] {
        let first = i64::from(if self.is_constant() { 0 } else { self.first });
        self.bounds.map(|x| (i64::from(x) * first) >> shift)
    }

    /// What is added before the second multiplication, at least `from`, and what is still to add behind it: few bits
    /// above at least [`ZEROS`] zeros.
    fn addends(&self, from: i64, shift: i32) -> Option<(i64, i64)> {
        let added = i64::from(self.added);
        if self.is_constant() {
            return Some((0, added >> shift << shift));
        }
        let factor = i64::from(self.factor);
        // Bits of the sum below the factor's lowest are those of what is added: they don't change the floor.
        let zeros = factor.trailing_zeros();
        if zeros > shift as u32 {
            return None;
        }
        let [odd, added] = [factor, added].map(|x| x >> zeros);
        // Each step doubles the bits that are right, of which an odd number's own are three.
        let inverse = (0..2).fold(odd, |x, _| {
            x.wrapping_mul(2i64.wrapping_sub(odd.wrapping_mul(x)))
        });
        let mask = (1 << ZEROS) - 1;
        let before = from + (added.wrapping_mul(inverse).wrapping_sub(from) & mask);
        Some((before, (added - before * odd) << zeros))
    }
}

/// `x / 2^shift` if that is a float.
fn scaled(x: i64, shift: i32) -> Option<f32> {
    let float = x as f32;
    (float as i64 == x).then_some(float / (1u32 << shift) as f32)
}
