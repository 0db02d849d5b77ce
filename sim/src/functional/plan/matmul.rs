//! GEMM instructions as blocked matrix products.
//!
//! A GEMM reads inputs and weights and only adds to accumulators, modulo 2^32, so its steps may
//! be done in any order. Sorted by destination they are dot products; destinations whose steps
//! have the same weights and the same inputs relative to each other are one matrix product.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use vta_isa::Uop;
use vta_isa::resolve::{AffineTiles, Interval, MAX_TILES, TileSet};

use super::draft::{GroupDraft, Matmul, Weight};
use super::places::{Lists, Places};
use super::unplanned::Unplanned;
use crate::kernels::PADDING;

/// Steps that are sorted one by one; longer instructions of no known form aren't planned.
const MOST_SORTED_STEPS: u64 = 1 << 16;

/// A product of a GEMM, wherever its weights and inputs come from.
pub(super) struct Form {
    /// First accumulator tile of each group, and weight tiles of each tap.
    groups: Vec<(u16, Vec<u16>)>,
    positions: Rc<[u16]>,
    /// Input tiles `[tap][position]`.
    pub inputs: Rc<[u32]>,
    /// Tiles from the lowest of those to behind the highest.
    pub ends: Range<usize>,
    /// The tiles that it changes.
    pub tiles: TileSet,
}

/// The products of GEMMs that have steps and aren't resets, and whose micro-ops and loops are the same.
pub(super) struct Forms {
    pub products: Vec<Form>,
    /// All tiles that they change.
    pub tiles: TileSet,
}

impl Forms {
    /// From destinations, inputs and weights.
    ///
    /// # Errors
    /// [`Unplanned::Pattern`] for long instructions without the form.
    pub fn of(
        dst: AffineTiles<'_>,
        operands: [AffineTiles<'_>; 2],
        lists: &mut Lists<u16>,
    ) -> Result<Self, Unplanned> {
        let mut products = match affine_form(dst, operands) {
            Some(form) => vec![form],
            None if trips(dst) * dst.uops.len() as u64 > MOST_SORTED_STEPS => {
                return Err(Unplanned::Pattern);
            }
            None => sorted_form(dst, operands),
        };
        for form in &mut products {
            form.positions = lists.one(form.positions.to_vec());
        }
        let tiles = dst.set();
        Ok(Self { products, tiles })
    }
}

impl Form {
    fn new(
        groups: Vec<(u16, Vec<u16>)>,
        positions: &[(u16, u16)],
        taps: &[u16],
        tiles: TileSet,
    ) -> Self {
        let inputs = taps
            .iter()
            .flat_map(|tap| positions.iter().map(move |p| u32::from(tap + p.1)));
        let inputs: Rc<[u32]> = inputs.collect();
        let end = |tile: Option<&u32>| tile.map_or(0, |&tile| tile as usize);
        let ends = end(inputs.iter().min())..end(inputs.iter().max()) + 1;
        let positions = positions.iter().map(|p| p.0).collect();
        Self {
            groups,
            positions,
            inputs,
            ends,
            tiles,
        }
    }

    /// The product with these weights, without inputs.
    pub fn product(&self, weights: &[Weight]) -> Matmul {
        let group = |(dst, tiles): &(u16, Vec<u16>)| GroupDraft {
            dst: *dst,
            shift: 0,
            weights: tiles
                .iter()
                .map(|&tile| weights[usize::from(tile)])
                .collect(),
        };
        let groups = self.groups.iter().map(group).collect();
        Matmul::new(groups, Rc::clone(&self.positions), Places::default(), None)
    }
}

/// Joins neighbouring products of a GEMM whose inputs are the same but for a distance: those of a convolution in groups.
pub(crate) fn join_groups(parts: Vec<(Matmul, TileSet)>) -> Vec<(Matmul, TileSet)> {
    if parts.len() == 1 {
        return parts;
    }
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
    let mut pairs = first.inputs.iter().zip(next.inputs.iter());
    let (a, b) = first
        .inputs
        .iter()
        .zip(next.inputs.iter())
        .find(|(a, _)| *a != PADDING)?;
    let shift = b.checked_sub(a).filter(|_| same && b != PADDING)?;
    let moved = |(a, b): (u32, u32)| match a {
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
fn affine_form(dst: AffineTiles<'_>, [src, wgt]: [AffineTiles<'_>; 2]) -> Option<Form> {
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
    let group = |uops: &[Uop]| (uops[0].dst, uops.iter().map(|u| u.wgt).collect());
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
    Some(Form::new(groups, &positions, &taps, tiles))
}

/// An input tile and the weight tile that it is multiplied with.
type Tap = (u16, u16);

/// A destination with its taps, whose inputs are counted from `base`.
struct Dot {
    dst: u16,
    base: u16,
    taps: Range<usize>,
}

/// Taps, and the destinations that have them: each with the lowest of its inputs.
type SameTaps<'a> = (&'a [Tap], Vec<(u16, u16)>);

/// Any GEMM, step by step.
fn sorted_form(dst: AffineTiles<'_>, operands: [AffineTiles<'_>; 2]) -> Vec<Form> {
    let (dots, taps) = dots(dst, operands);
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
    let mut joined: Vec<Form> = Vec::with_capacity(forms.len());
    for (taps, mut positions) in forms {
        let tiles = positions.iter().map(|p| p.0).collect();
        // Counted from the first, so that groups of other instructions may have the same.
        let dst = positions.first().map_or(0, |p| p.0);
        positions.iter_mut().for_each(|p| p.0 -= dst);
        let (taps, weights): (Vec<u16>, _) = taps.iter().copied().unzip();
        let mut form = Form::new(vec![(dst, weights)], &positions, &taps, tiles);
        match joined.last_mut() {
            Some(last) if last.positions == form.positions && last.inputs == form.inputs => {
                last.groups.append(&mut form.groups);
                last.tiles.add(&form.tiles);
            }
            _ => joined.push(form),
        }
    }
    joined
}

/// The steps of a GEMM by destination, ascending; those of one in their order.
fn dots(dst: AffineTiles<'_>, [src, wgt]: [AffineTiles<'_>; 2]) -> (Vec<Dot>, Vec<Tap>) {
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
    let mut taps = vec![(0, 0); steps];
    for ((dst, src), wgt) in dst.steps().zip(src.steps()).zip(wgt.steps()) {
        let next = &mut ends[dst as usize];
        taps[*next] = (src as u16, wgt as u16);
        *next += 1;
    }
    for dot in &mut dots {
        let taps = &mut taps[dot.taps.clone()];
        dot.base = taps.iter().map(|tap| tap.0).min().unwrap_or(0);
        taps.iter_mut().for_each(|tap| tap.0 -= dot.base);
    }
    (dots, taps)
}
