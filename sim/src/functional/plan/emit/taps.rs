//! The order in which a kernel takes the taps of a product that multiplies several at once.
//!
//! Sums wrap, so taps may come in any order, and taps of zeros among them add nothing. A bundle whose inputs lie side
//! by side costs a row one copy, another one copy a tap; every bundle costs a multiplication, full or not.

use std::ops::{Range, RangeInclusive};

use crate::kernels::{Bundles, MAX_COLUMNS, PADDING, Way, Window};

/// What a copy costs for each row, and a multiplication for each row and column: about a cycle, or a bit more.
const COPY: usize = 3;
const MULTIPLY: usize = 2;

/// Taps in order.
pub(super) struct Taps {
    /// The product's own order if there is none; `None` inside stands for a tap of zeros.
    order: Option<Vec<Option<usize>>>,
    pub bundles: Option<Bundles>,
    /// What the taps of a position are if all of their rows have equally many.
    pub window: Option<Window>,
}

impl Taps {
    /// The cheapest order of offsets `[tap][position]` for a kernel, of so many positions and columns; inputs have
    /// `block` bytes.
    pub fn of(way: Way, offsets: &[u32], [positions, columns, block]: [usize; 3]) -> Self {
        let bundles = |taps| Bundles {
            taps,
            tap_bytes: block,
        };
        let inputs = Inputs {
            offsets,
            positions,
            block: block as u32,
        };
        let fit = way.bundle_taps(block).map(RangeInclusive::into_inner);
        let (least, most) = match fit {
            Some((least, most)) if least.max(most.min(inputs.taps())) > 1 => (least, most),
            _ => {
                let bundles = fit.map(|_| bundles(1));
                return Self {
                    order: None,
                    bundles,
                    window: None,
                };
            }
        };
        let runs = inputs.runs();
        let taps: usize = runs.iter().map(Vec::len).sum();
        let multiply = MULTIPLY * columns.min(MAX_COLUMNS);
        let whole = most.min(taps).max(least);
        let apart = (taps * COPY + taps.div_ceil(whole) * multiply, whole, false);
        let side_by_side = (least..=most).map(|size| {
            let bundles: usize = runs.iter().map(|run| run.len().div_ceil(size)).sum();
            (bundles * (COPY + multiply), size, true)
        });
        let all = std::iter::once(apart).chain(side_by_side);
        let (_, size, is_joined) = all.min_by_key(|(cost, ..)| *cost).unwrap_or(apart);
        let mut order: Vec<Option<usize>> = Vec::with_capacity(taps);
        let first = runs.first().map_or(0, Vec::len);
        let window =
            (is_joined && first > 0 && runs.iter().all(|run| run.len() == first)).then(|| Window {
                rows: runs.len(),
                bundles: first.div_ceil(size),
                taps: first,
            });
        for run in runs {
            order.extend(run.into_iter().map(Some));
            if is_joined {
                order.resize(order.len().next_multiple_of(size), None);
            }
        }
        order.resize(order.len().next_multiple_of(size), None);
        Self {
            order: Some(order),
            bundles: Some(bundles(size)),
            window,
        }
    }

    /// A part of what there is of each tap, in order, from a list `[tap][size]`; `zero` for taps of zeros.
    pub fn arrange<T: Clone>(
        &self,
        list: &[T],
        (size, part): (usize, Range<usize>),
        zero: &T,
    ) -> Vec<T> {
        let taps = list.len().checked_div(size).unwrap_or(0);
        let taps = self.order.as_ref().map_or(taps, Vec::len);
        let mut arranged = Vec::with_capacity(taps * part.len());
        for at in 0..taps {
            match self.order.as_ref().map_or(Some(at), |order| order[at]) {
                Some(tap) => arranged.extend_from_slice(&list[tap * size..][part.clone()]),
                None => arranged.resize(arranged.len() + part.len(), zero.clone()),
            }
        }
        arranged
    }
}

/// Offsets `[tap][position]`.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    offsets: &'a [u32],
    positions: usize,
    block: u32,
}

impl Inputs<'_> {
    fn taps(&self) -> usize {
        self.offsets.len().checked_div(self.positions).unwrap_or(0)
    }

    fn of(&self, tap: usize) -> &[u32] {
        &self.offsets[tap * self.positions..][..self.positions]
    }

    /// All taps that some position has, in runs of neighbours: each lies right behind the one before it, for every
    /// position that has both.
    fn runs(&self) -> Vec<Vec<usize>> {
        let places = self.places();
        let mut taps: Vec<(i64, usize)> = (0..)
            .zip(places)
            .filter_map(|(tap, place)| Some((place?, tap)))
            .collect();
        taps.sort_unstable();
        let mut runs: Vec<Vec<usize>> = Vec::new();
        let mut before = None;
        for (place, tap) in taps {
            let is_next = before == Some(place - i64::from(self.block));
            before = Some(place);
            match runs.last_mut() {
                Some(run) if is_next && run.last().is_some_and(|&last| self.behind(last, tap)) => {
                    run.push(tap);
                }
                _ => runs.push(vec![tap]),
            }
        }
        runs
    }

    /// Where each tap lies that some position has, beside the others of a position that has most of them.
    fn places(&self) -> Vec<Option<i64>> {
        let offset = |tap: usize, position: usize| {
            let offset = self.of(tap)[position];
            (offset != PADDING).then(|| i64::from(offset))
        };
        let fullest = self.fullest();
        let all = 0..self.taps();
        let mut places: Vec<Option<i64>> = all.clone().map(|tap| offset(tap, fullest)).collect();
        for tap in all.clone() {
            if places[tap].is_some() {
                continue;
            }
            // Another position has it, with one whose place is known.
            let beside = |position: usize| {
                let known = |other: usize| Some(places[other]? - offset(other, position)?);
                Some(offset(tap, position)? + all.clone().find_map(known)?)
            };
            let place = (0..self.positions).find_map(beside);
            let somewhere = || {
                self.of(tap)
                    .iter()
                    .find(|o| **o != PADDING)
                    .map(|&o| i64::from(o))
            };
            places[tap] = place.or_else(somewhere);
        }
        places
    }

    /// Whether the second lies right behind the first for every position that has both.
    fn behind(&self, first: usize, second: usize) -> bool {
        let mut pairs = self.of(first).iter().zip(self.of(second));
        pairs.all(|(a, b)| {
            let behind = a.checked_add(self.block);
            *a == PADDING || *b == PADDING || behind == Some(*b)
        })
    }

    /// A position that has the most taps.
    fn fullest(&self) -> usize {
        let lacks = |position: &usize| {
            let taps = self.offsets.iter().skip(*position).step_by(self.positions);
            taps.filter(|offset| **offset == PADDING).count()
        };
        // One in the middle mostly has all.
        let middle = self.positions / 2;
        if lacks(&middle) == 0 {
            return middle;
        }
        (0..self.positions).min_by_key(lacks).unwrap_or(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functional::plan::draft::Weight;
    use crate::kernels::{Format, GemmKernel};

    const TILES: Way = GemmKernel::Amx.of_product(usize::MAX, usize::MAX, false);
    const BY_ONE: Way = GemmKernel::Avx512Vnni.of_product(usize::MAX, usize::MAX, false);
    const DIAGONAL: Way = Way {
        format: Format::Diagonal,
        ..BY_ONE
    };

    /// Offsets of two positions and weights of one column, whose tap `t` has the weight tile `t`.
    fn arranged(way: Way, inputs: &[u32], block: usize) -> (usize, Vec<u32>, Vec<Weight>) {
        let weights: Vec<Weight> = (0..inputs.len() as u16 / 2).map(Weight::Held).collect();
        let taps = Taps::of(way, inputs, [2, 2, block]);
        (
            taps.bundles.map_or(0, |bundles| bundles.taps),
            taps.arrange(inputs, (2, 0..2), &PADDING),
            taps.arrange(&weights, (1, 0..1), &Weight::Zero),
        )
    }

    #[test]
    fn neighbours_are_bundled_and_filled_with_zeros() {
        // Two rows of three taps, of which the first position lacks the left ones.
        let inputs = [
            PADDING, 100, 100, 116, 116, 132, //
            PADDING, 500, 500, 516, 516, 532,
        ];
        let held =
            |taps: &[u16]| -> Vec<Weight> { taps.iter().map(|t| Weight::Held(*t)).collect() };
        let (size, found, weights) = arranged(TILES, &inputs, 16);
        assert_eq!((size, &found[..]), (3, &inputs[..]));
        assert_eq!(weights, held(&[0, 1, 2, 3, 4, 5]));
        // Another order, and one tap less.
        let shuffled = [500, 516, 116, 132, PADDING, 100, 100, 116, PADDING, 500];
        let (size, found, weights) = arranged(TILES, &shuffled, 16);
        assert_eq!((size, found.len()), (3, 12));
        assert_eq!(found[..6], inputs[..6]);
        assert_eq!(found[6..], [PADDING, 500, 500, 516, PADDING, PADDING]);
        assert_eq!(weights[..5], held(&[2, 3, 1, 4, 0]));
        assert_eq!(weights[5], Weight::Zero);
        // Neighbours of 16 bytes aren't neighbours of 32.
        assert_eq!(arranged(TILES, &inputs, 32).0, 2);
        assert_eq!(arranged(TILES, &inputs, 64).0, 1);
        let (size, found, _) = arranged(BY_ONE, &shuffled, 16);
        assert_eq!((size, &found[..]), (0, &shuffled[..]));
        // Diagonals of four taps share a line, also where there are fewer.
        let (size, found, weights) = arranged(DIAGONAL, &inputs, 16);
        assert_eq!((size, found.len(), weights.len()), (4, 16, 8));
        assert_eq!(
            (&found[..6], &found[6..8]),
            (&inputs[..6], &[PADDING; 2][..])
        );
        assert_eq!(arranged(DIAGONAL, &[0, 500], 16).1.len(), 8);
    }

    #[test]
    fn borders_have_the_rows_of_the_interior_without_what_is_padding_everywhere() {
        // Two rows of three taps below one of padding, at the left and the right border.
        let rows = [
            PADDING, PADDING, PADDING, PADDING, PADDING, PADDING, //
            PADDING, 500, 100, 516, 116, PADDING, //
            PADDING, 700, 300, 716, 316, PADDING,
        ];
        let (size, found, weights) = arranged(DIAGONAL, &rows, 16);
        let zero = [PADDING; 2];
        let expected = [&rows[6..12], &zero, &rows[12..], &zero].concat();
        assert_eq!((size, found), (4, expected));
        let held = [3, 4, 5].map(Weight::Held);
        assert_eq!((&weights[..3], &weights[3]), (&held[..], &Weight::Zero));
        let taps = Taps::of(DIAGONAL, &rows, [2, 1, 16]);
        let window = Window {
            rows: 2,
            bundles: 1,
            taps: 3,
        };
        assert_eq!(taps.window, Some(window));
        // Nothing but padding has no taps.
        assert_eq!(arranged(DIAGONAL, &[PADDING; 6], 16).1.len(), 0);
    }

    #[test]
    fn taps_that_lie_apart_fill_bundles() {
        let inputs: Vec<u32> = (0..10).map(|i| i * 1000).collect();
        let (size, found, weights) = arranged(TILES, &inputs, 16);
        assert_eq!((size, found.len(), weights.len()), (4, 16, 8));
        assert_eq!(found[..10], inputs);
        assert!(found[10..].iter().all(|offset| *offset == PADDING));
        assert!(weights[5..].iter().all(|weight| *weight == Weight::Zero));
    }
}
