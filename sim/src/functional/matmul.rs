//! GEMM instructions as blocked matrix products.
//!
//! A GEMM reads inputs and weights and only adds to accumulators, modulo 2^32, so its steps may
//! be done in any order. Sorted by destination they are dot products; destinations whose steps
//! have the same weights and the same inputs relative to each other are one matrix product.

use std::collections::BTreeMap;

use vta_isa::Uop;
use vta_isa::resolve::{AffineTiles, TileSet};

use super::draft::{GroupDraft, Matmul, Weight};
use super::table::Table;
use super::unplanned::Unplanned;

/// Steps that are sorted one by one; longer instructions of no known form aren't planned.
const MOST_SORTED_STEPS: u64 = 1 << 16;

/// The products of a GEMM that has steps and isn't a reset, from its destinations, inputs and
/// weights: each with the tiles that it changes. Inputs are tiles of the scratchpad yet, and
/// `weights` what its weight tiles are.
///
/// # Errors
/// [`Unplanned::Pattern`] for long instructions without the form.
pub(super) fn recognise(
    dst: AffineTiles<'_>,
    operands: [AffineTiles<'_>; 2],
    weights: &[Weight],
) -> Result<Vec<(Matmul, TileSet)>, Unplanned> {
    if let Some(found) = affine_form(dst, operands, weights) {
        return Ok(vec![found]);
    }
    if trips(dst) * dst.uops.len() as u64 > MOST_SORTED_STEPS {
        return Err(Unplanned::Pattern);
    }
    Ok(sorted_form(dst, operands, weights))
}

/// Trips of both loops.
fn trips(tiles: AffineTiles<'_>) -> u64 {
    tiles.loops.trips.into_iter().map(u64::from).product()
}

/// The common form: micro-ops of each destination have the same inputs, weights don't move in
/// the loops, and no tile is reached twice.
fn affine_form(
    dst: AffineTiles<'_>,
    [src, wgt]: [AffineTiles<'_>; 2],
    weights: &[Weight],
) -> Option<(Matmul, TileSet)> {
    if wgt.loops.reach() != Some(0) {
        return None;
    }
    let by_dst = || dst.uops.chunk_by(|a, b| a.dst == b.dst);
    let inputs = |uops: &[Uop]| uops.iter().map(|u| u.src).collect();
    let taps: Vec<u16> = inputs(by_dst().next()?);
    let same = |uops: &[Uop]| uops.iter().map(|u| u.src).eq(taps.iter().copied());
    if !by_dst().all(same) {
        return None;
    }
    let tiles = dst.set();
    if tiles.len() as u64 != trips(dst) * by_dst().count() as u64 {
        return None;
    }
    let group = |uops: &[Uop]| GroupDraft {
        dst: uops[0].dst,
        weights: uops.iter().map(|u| weights[usize::from(u.wgt)]).collect(),
    };
    let groups = by_dst().map(group).collect();
    let offsets = dst.loops.offsets().zip(src.loops.offsets());
    let mut positions = Vec::with_capacity(tiles.len());
    positions.extend(offsets.map(|(d, s)| (d as u16, s as u16)));
    Some((product(groups, &positions, &taps), tiles))
}

/// A product from positions `(accumulator, input)` and the input of each tap before the position's.
fn product(groups: Vec<GroupDraft>, positions: &[(u16, u16)], taps: &[u16]) -> Matmul {
    let mut inputs = Vec::with_capacity(taps.len() * positions.len());
    for tap in taps {
        inputs.extend(positions.iter().map(|p| u32::from(tap + p.1)));
    }
    let positions = positions.iter().map(|p| p.0).collect();
    Matmul::new(groups, positions, inputs, None)
}

/// What makes destinations one product: inputs relative to the lowest, and the weights.
type Taps = (Vec<u16>, Vec<Weight>);

/// Any GEMM, step by step.
fn sorted_form(
    dst: AffineTiles<'_>,
    [src, wgt]: [AffineTiles<'_>; 2],
    weights: &[Weight],
) -> Vec<(Matmul, TileSet)> {
    let mut by_dst: BTreeMap<u16, Vec<(u16, Weight)>> = BTreeMap::new();
    for ((dst, src), wgt) in dst.steps().zip(src.steps()).zip(wgt.steps()) {
        let tap = (src as u16, weights[wgt as usize]);
        by_dst.entry(dst as u16).or_default().push(tap);
    }
    let mut order: Vec<Taps> = Vec::new();
    let mut positions: Table<Taps, Vec<(u16, u16)>> = Table::default();
    for (dst, list) in by_dst {
        let base = list.iter().map(|s| s.0).min().unwrap_or(0);
        let form: Taps = list.into_iter().map(|(src, w)| (src - base, w)).unzip();
        let list = positions.entry(form.clone()).or_default();
        if list.is_empty() {
            order.push(form);
        }
        list.push((dst, base));
    }
    let of_form = |form: Taps| {
        let mut positions = positions.remove(&form).unwrap_or_default();
        let tiles = positions.iter().map(|p| p.0).collect();
        // Counted from the first, so that groups of other instructions may have the same.
        let dst = positions.first().map_or(0, |p| p.0);
        positions.iter_mut().for_each(|p| p.0 -= dst);
        let (taps, weights) = form;
        let groups = vec![GroupDraft { dst, weights }];
        (product(groups, &positions, &taps), tiles)
    };
    order.into_iter().map(of_form).collect()
}
