//! Weights in several parts.

use proptest::prelude::*;

use crate::common::Rng;

/// How many parts weights have, and how rare those after the first are.
pub fn parts() -> impl Strategy<Value = (usize, u64)> {
    prop_oneof![
        Just((1, 1)),
        (2usize..4, prop_oneof![Just(1u64), Just(40), Just(1000)])
    ]
}

/// Weights in parts: of those after the first one in `rare` isn't 0. A third of networks has weights of 4 bits.
pub fn weights(rng: &mut Rng, n: usize, (parts, rare): (usize, u64)) -> Vec<i8> {
    let mut weights: Vec<i8> = rng.int8(n);
    if rng.next().is_multiple_of(3) {
        weights.iter_mut().for_each(|weight| *weight >>= 4);
    }
    for _ in 0..n * (parts - 1) {
        let weight = rng.next() as i8;
        let kept = rng.next().is_multiple_of(rare);
        weights.push(if kept { weight } else { 0 });
    }
    weights
}
