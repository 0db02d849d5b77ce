//! Sorted lists of intervals: of tiles, of bytes, of bytes in regions.

use std::ops::Range;

/// Something with a beginning and an end on a line of ordered points.
pub trait Interval: Sized {
    /// A point of the line.
    type Point: Ord;

    /// The first point.
    fn start(&self) -> Self::Point;

    /// One past the last point.
    fn end(&self) -> Self::Point;

    /// The smallest interval around this one and another.
    #[must_use]
    fn hull(&self, other: &Self) -> Self;

    /// Whether it has no point.
    fn is_empty(&self) -> bool {
        self.end() <= self.start()
    }

    /// Whether the two have a point in common; an empty interval has none.
    fn overlaps(&self, other: &Self) -> bool {
        self.start().max(other.start()) < self.end().min(other.end())
    }
}

impl<T: Ord + Copy> Interval for Range<T> {
    type Point = T;

    fn start(&self) -> T {
        self.start
    }

    fn end(&self) -> T {
        self.end
    }

    fn hull(&self, other: &Self) -> Self {
        self.start.min(other.start)..self.end.max(other.end)
    }
}

/// Sorts intervals, joins those that overlap or touch, and drops empty ones: what is left is
/// ascending and apart.
///
/// ```
/// use vta_isa::resolve::merge;
///
/// let mut tiles = vec![8..10, 0..4, 4..6, 2..3, 7..7];
/// merge(&mut tiles);
/// assert_eq!(tiles, [0..6, 8..10]);
/// ```
pub fn merge<I: Interval>(list: &mut Vec<I>) {
    list.retain(|i| !i.is_empty());
    list.sort_unstable_by_key(Interval::start);
    list.dedup_by(|next, last| {
        let touch = next.start() <= last.end();
        if touch {
            *last = last.hull(next);
        }
        touch
    });
}

/// Whether two merged lists have a point in common. Looks each interval of the shorter list up
/// in the longer one.
pub fn meet<I: Interval>(a: &[I], b: &[I]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.iter().any(|one| {
        let after = many.partition_point(|m| m.end() <= one.start());
        many.get(after).is_some_and(|m| m.start() < one.end())
    })
}

/// Whether no two intervals of a list have a point in common.
pub fn disjoint<I: Interval>(mut list: Vec<I>) -> bool {
    list.retain(|i| !i.is_empty());
    list.sort_unstable_by_key(Interval::start);
    !list.windows(2).any(|pair| pair[0].overlaps(&pair[1]))
}

/// Whether a merged list holds all points of an interval.
pub fn covers<I: Interval>(list: &[I], one: &I) -> bool {
    let after = list.partition_point(|i| i.start() <= one.start());
    let holds = |i: &I| one.end() <= i.end();
    one.is_empty() || after.checked_sub(1).is_some_and(|at| holds(&list[at]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(list: &[Range<u8>]) -> [bool; 80] {
        let mut points = [false; 80];
        for range in list.iter().filter(|r| !r.is_empty()) {
            points[usize::from(range.start)..usize::from(range.end)].fill(true);
        }
        points
    }

    fn some() -> impl Strategy<Value = Vec<Range<u8>>> {
        prop::collection::vec((0u8..60, 0u8..12).prop_map(|(at, len)| at..at + len), 0..8)
    }

    proptest! {
        #[test]
        fn merged_lists_have_the_points_of_their_ranges(mut a in some(), mut b in some(), one in some()) {
            let (in_a, in_b) = (points(&a), points(&b));
            let alone = a.iter().map(|r| r.len()).sum::<usize>();
            prop_assert_eq!(disjoint(a.clone()), alone == in_a.iter().filter(|p| **p).count());
            merge(&mut a);
            merge(&mut b);
            prop_assert_eq!(points(&a), in_a);
            prop_assert!(a.iter().all(|r| r.start < r.end));
            prop_assert!(a.windows(2).all(|w| w[0].end < w[1].start), "apart: {:?}", a);
            let shared = (0..80).any(|p| in_a[p] && in_b[p]);
            prop_assert_eq!(meet(&a, &b), shared);
            prop_assert_eq!(meet(&b, &a), shared);
            for range in &one {
                let inside = points(std::slice::from_ref(range));
                let held = (0..80).all(|p| !inside[p] || in_a[p]);
                prop_assert_eq!(covers(&a, range), held, "{:?} in {:?}", range, a);
                let shared = (0..80).any(|p| inside[p] && in_a[p]);
                prop_assert_eq!(a.iter().any(|r| r.overlaps(range)), shared);
            }
        }
    }
}
