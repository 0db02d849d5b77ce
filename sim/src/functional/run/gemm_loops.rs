//! What the loops of a GEMM do, whose steps may be done in any order: rows, taps, and what is neither.

use vta_isa::Uop;
use vta_isa::resolve::Loops;

/// What the two loops of a GEMM are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trip {
    /// Go to other accumulators, with the same weights: rows of one product.
    Row,
    /// Stay at their accumulators: taps of one product.
    Tap,
    /// Go to other accumulators and weights.
    Other,
}

/// A GEMM's loops: how many trips of what, and the tiles from one to the next, of accumulators, inputs and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmLoops([(Trip, u32, [u32; 3]); 2]);

impl GemmLoops {
    pub fn of([dst, src, wgt]: &[Loops; 3]) -> Self {
        let axis = |d: usize| {
            let trip = match (dst.factors[d], wgt.factors[d]) {
                (0, _) => Trip::Tap,
                (_, 0) => Trip::Row,
                (..) => Trip::Other,
            };
            let factors = [dst, src, wgt].map(|loops| u32::from(loops.factors[d]));
            (trip, u32::from(dst.trips[d]), factors)
        };
        let [mut outer, inner] = [axis(0), axis(1)];
        // Rows of one product are apart.
        let apart = |(_, trips, factors): &(Trip, u32, [u32; 3]), other: u32| {
            u64::from(*trips - 1) * u64::from(factors[0]) < other.into()
        };
        if (outer.0, inner.0) == (Trip::Row, Trip::Row)
            && !apart(&inner, outer.2[0])
            && !apart(&outer, inner.2[0])
        {
            outer.0 = Trip::Other;
        }
        Self([outer, inner])
    }

    /// Whether micro-ops of one destination and of another are one product of two columns: they have the same
    /// inputs, and no row of the one has the accumulators of a row of the other.
    pub fn pair(&self, uops: &[Uop], more: &[Uop]) -> bool {
        let same = uops.len() == more.len() && uops.iter().zip(more).all(|(a, b)| a.src == b.src);
        let Some(apart) = more[0].dst.checked_sub(uops[0].dst).map(u32::from) else {
            return false;
        };
        let rows = self
            .0
            .iter()
            .filter(|axis| axis.0 == Trip::Row && axis.1 > 1);
        let (reach, step) = rows.fold((0, 0), |(reach, step), (_, trips, factors)| {
            (reach + (trips - 1) * factors[0], gcd(step, factors[0]))
        });
        same && apart > 0 && (apart > reach || apart % step != 0)
    }

    /// What trips of a kind add to the indices.
    pub fn offsets(&self, kind: Trip) -> impl Iterator<Item = [u32; 3]> + use<> {
        let axes = self
            .0
            .map(|(trip, trips, factors)| (if trip == kind { trips } else { 1 }, factors));
        let [outer, inner] = axes;
        (0..outer.0).flat_map(move |i| {
            let first = outer.1.map(|factor| i * factor);
            (0..inner.0).map(move |j| [0, 1, 2].map(|k| first[k] + j * inner.1[k]))
        })
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if a == 0 { b } else { gcd(b % a, a) }
}
