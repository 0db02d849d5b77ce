//! GEMM instructions as blocked matrix products.
//!
//! A GEMM reads inputs and weights and only adds to accumulators, modulo 2^32, so its steps may
//! be done in any order. Sorted by destination they are dot products; destinations whose steps
//! have the same weights and the same inputs relative to each other are one matrix product.

use std::ops::Range;

use rustc_hash::FxHashMap;
use vta_isa::Uop;
use vta_isa::resolve::{AffineTiles, Interval, MAX_TILES, TileSet};

use super::draft::{GroupDraft, Matmul, Weight};
use super::unplanned::Unplanned;
use crate::kernels::PADDING;

/// Steps that are sorted one by one; longer instructions of no known form aren't planned.
const MOST_SORTED_STEPS: u64 = 1 << 16;

/// The products of a GEMM that has steps and isn't a reset, from its destinations, inputs and
/// weights: each with the tiles that it changes. Inputs are tiles of the scratchpad yet, and
/// `weights` what its weight tiles are.
///
/// # Errors
/// [`Unplanned::Pattern`] for long instructions without the form.
pub(crate) fn recognise(
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

/// Joins neighbouring products of a GEMM whose inputs are the same but for a distance: those of a convolution in groups.
pub(crate) fn join_groups(parts: Vec<(Matmul, TileSet)>) -> Vec<(Matmul, TileSet)> {
    let mut joined: Vec<(Matmul, TileSet)> = Vec::with_capacity(parts.len());
    for (mut part, tiles) in parts {
        if let Some((first, all)) = joined.last_mut()
            && let Some(shift) = shift(first, &part)
        {
            part.groups
                .iter_mut()
                .for_each(|group| group.shift += shift);
            first.groups.append(&mut part.groups);
            first.read = first.read.zip(part.read).map(|(a, b)| a.hull(&b));
            all.add(&tiles);
        } else {
            joined.push((part, tiles));
        }
    }
    joined
}

/// Bytes from each input of a product to the other's, if all are as far apart and nothing else differs but groups.
fn shift(first: &Matmul, next: &Matmul) -> Option<u32> {
    let region = |matmul: &Matmul| matmul.read.map(|span| span.region);
    let same = first.positions == next.positions
        && first.inputs.len() == next.inputs.len()
        && region(first) == region(next);
    let mut pairs = first.inputs.iter().zip(&next.inputs);
    let (&a, &b) = pairs.clone().find(|(a, _)| **a != PADDING)?;
    let shift = b.checked_sub(a).filter(|_| same && b != PADDING)?;
    let moved = |(&a, &b): (&u32, &u32)| match a {
        PADDING => b == PADDING,
        a => a.checked_add(shift) == Some(b),
    };
    pairs.all(moved).then_some(shift)
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
        shift: 0,
        weights: uops.iter().map(|u| weights[usize::from(u.wgt)]).collect(),
    };
    let groups = by_dst().map(group).collect();
    let mut positions = Vec::with_capacity(trips(dst) as usize);
    let ([outer, inner], [d, s]) = (dst.loops.trips, [dst.loops.factors, src.loops.factors]);
    for i in 0..outer {
        positions.extend((0..inner).map(|j| {
            // All trips stay inside scratchpads.
            let at = |factors: [u16; 2]| {
                u32::from(i) * u32::from(factors[0]) + u32::from(j) * u32::from(factors[1])
            };
            (at(d) as u16, at(s) as u16)
        }));
    }
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

/// An input tile and the weights that it is multiplied with.
type Tap = (u16, Weight);

/// A destination with its taps, whose inputs are counted from `base`.
struct Dot {
    dst: u16,
    base: u16,
    taps: Range<usize>,
}

/// Taps, and the destinations that have them: each with the lowest of its inputs.
type SameTaps<'a> = (&'a [Tap], Vec<(u16, u16)>);

/// Any GEMM, step by step.
fn sorted_form(
    dst: AffineTiles<'_>,
    operands: [AffineTiles<'_>; 2],
    weights: &[Weight],
) -> Vec<(Matmul, TileSet)> {
    let (dots, taps) = dots(dst, operands, weights);
    // What makes destinations one product: inputs relative to the lowest, and the weights.
    let mut forms: Vec<SameTaps<'_>> = Vec::new();
    let mut known: FxHashMap<&[Tap], usize> = FxHashMap::default();
    let mut last = 0;
    for dot in dots {
        let form = &taps[dot.taps];
        // Mostly that of the destination before.
        if forms.get(last).is_none_or(|(other, _)| *other != form) {
            last = *known.entry(form).or_insert_with(|| {
                forms.push((form, Vec::new()));
                forms.len() - 1
            });
        }
        forms[last].1.push((dot.dst, dot.base));
    }
    let of_form = |(form, mut positions): SameTaps<'_>| {
        let tiles = positions.iter().map(|p| p.0).collect();
        // Counted from the first, so that groups of other instructions may have the same.
        let dst = positions.first().map_or(0, |p| p.0);
        positions.iter_mut().for_each(|p| p.0 -= dst);
        let (taps, weights): (Vec<u16>, _) = form.iter().copied().unzip();
        let shift = 0;
        let groups = vec![GroupDraft {
            dst,
            shift,
            weights,
        }];
        (product(groups, &positions, &taps), tiles)
    };
    forms.into_iter().map(of_form).collect()
}

/// The steps of a GEMM by destination, ascending; those of one in their order.
fn dots(
    dst: AffineTiles<'_>,
    [src, wgt]: [AffineTiles<'_>; 2],
    weights: &[Weight],
) -> (Vec<Dot>, Vec<Tap>) {
    let mut ends = vec![0usize; MAX_TILES];
    dst.steps().for_each(|tile| ends[tile as usize] += 1);
    let mut dots = Vec::new();
    let mut steps = 0;
    for (tile, end) in (0..).zip(&mut ends) {
        let taps = steps..steps + *end;
        // Where the next step of the tile goes.
        (steps, *end) = (taps.end, taps.start);
        if !taps.is_empty() {
            let (dst, base) = (tile, 0);
            dots.push(Dot { dst, base, taps });
        }
    }
    let mut taps = vec![(0, Weight::Zero); steps];
    for ((dst, src), wgt) in dst.steps().zip(src.steps()).zip(wgt.steps()) {
        let next = &mut ends[dst as usize];
        taps[*next] = (src as u16, weights[wgt as usize]);
        *next += 1;
    }
    for dot in &mut dots {
        let taps = &mut taps[dot.taps.clone()];
        dot.base = taps.iter().map(|tap| tap.0).min().unwrap_or(0);
        taps.iter_mut().for_each(|tap| tap.0 -= dot.base);
    }
    (dots, taps)
}
