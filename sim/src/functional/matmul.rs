//! GEMM instructions as blocked matrix products.
//!
//! A GEMM reads inputs and weights and only adds to accumulators, modulo 2^32, so its steps may
//! be done in any order. Sorted by destination they are dot products; destinations whose steps
//! have the same weights and the same inputs relative to each other are one matrix product.

use std::collections::BTreeMap;

use vta_isa::{Gemm, Uop};

use super::draft::{GroupDraft, Weight};
use super::interpret::{affine, steps};
use super::table::Table;
use super::tiles::Tiles;
use super::unplanned::Unplanned;

/// Steps that are sorted one by one; longer instructions of no known form aren't planned.
const MOST_SORTED_STEPS: u64 = 1 << 16;

/// The products of a GEMM that isn't a reset and whose indices are checked, with the tiles that
/// each changes; and whether weights are read that the batch didn't load.
///
/// # Errors
/// [`Unplanned::Pattern`] for long instructions without the form.
pub(super) fn recognise(
    gemm: &Gemm,
    uops: &[Uop],
    weights: &[Option<Weight>],
) -> Result<(Vec<(Form, Tiles)>, bool), Unplanned> {
    let mut weights = Weights {
        loaded: weights,
        held: false,
    };
    if let Some(found) = affine_form(gemm, uops, &mut weights) {
        return Ok((vec![found], weights.held));
    }
    if gemm.steps() > MOST_SORTED_STEPS {
        return Err(Unplanned::Pattern);
    }
    let found = sorted_form(gemm, uops, &mut weights);
    Ok((found, weights.held))
}

/// Where weight tiles come from.
struct Weights<'a> {
    loaded: &'a [Option<Weight>],
    /// Whether a tile was asked for that the batch didn't load.
    held: bool,
}

impl Weights<'_> {
    /// The source of a tile that exists.
    fn of(&mut self, tile: u16) -> Weight {
        let loaded = self.loaded[usize::from(tile)];
        self.held |= loaded.is_none();
        loaded.unwrap_or(Weight::Held(tile))
    }
}

/// The common form: micro-ops of each destination have the same inputs, weights don't move in
/// the loops, and no tile is reached twice.
fn affine_form(gemm: &Gemm, uops: &[Uop], weights: &mut Weights<'_>) -> Option<(Form, Tiles)> {
    let moves = |iter: u16, factor: u16| iter > 1 && factor != 0;
    if moves(gemm.iter_out, gemm.wgt_factor_out) || moves(gemm.iter_in, gemm.wgt_factor_in) {
        return None;
    }
    let mut by_dst: Vec<(u16, Vec<&Uop>)> = Vec::new();
    for uop in uops {
        match by_dst.last_mut() {
            Some((dst, list)) if *dst == uop.dst => list.push(uop),
            _ => by_dst.push((uop.dst, vec![uop])),
        }
    }
    let taps: Vec<u16> = by_dst[0].1.iter().map(|u| u.src).collect();
    let same = |(_, list): &(u16, Vec<&Uop>)| list.iter().map(|u| u.src).eq(taps.iter().copied());
    if !by_dst.iter().all(same) {
        return None;
    }
    let mut positions = Vec::new();
    let mut tiles = Tiles::NONE;
    for (i, j, _) in steps(gemm.iter_out, gemm.iter_in, 0, 1) {
        let dst = affine(0, i, gemm.dst_factor_out, j, gemm.dst_factor_in);
        let src = affine(0, i, gemm.src_factor_out, j, gemm.src_factor_in);
        for (base, _) in &by_dst {
            if !tiles.insert(usize::from(*base) + dst as usize) {
                return None;
            }
        }
        positions.push((dst as u16, src as u16));
    }
    let mut groups = Vec::with_capacity(by_dst.len());
    for (dst, list) in by_dst {
        let weights = list.iter().map(|u| weights.of(u.wgt)).collect();
        groups.push(GroupDraft { dst, weights });
    }
    Some((Form::new(groups, &positions, &taps), tiles))
}

/// A product before it is known where its inputs come from.
pub(super) struct Form {
    pub groups: Vec<GroupDraft>,
    /// Accumulator tiles, from the group's first.
    pub positions: Vec<u16>,
    /// Input tiles, `[tap][position]`.
    pub inputs: Vec<u16>,
}

impl Form {
    /// From positions `(accumulator, input)` and the input of each tap before the position's.
    fn new(groups: Vec<GroupDraft>, positions: &[(u16, u16)], taps: &[u16]) -> Self {
        let mut inputs = Vec::with_capacity(taps.len() * positions.len());
        for tap in taps {
            inputs.extend(positions.iter().map(|p| tap + p.1));
        }
        Self {
            groups,
            inputs,
            positions: positions.iter().map(|p| p.0).collect(),
        }
    }
}

/// What makes destinations one product: inputs relative to the lowest, and the weights.
type Taps = (Vec<u16>, Vec<Weight>);

/// Any GEMM, step by step.
fn sorted_form(gemm: &Gemm, uops: &[Uop], weights: &mut Weights<'_>) -> Vec<(Form, Tiles)> {
    let mut by_dst: BTreeMap<u16, Vec<(u16, Weight)>> = BTreeMap::new();
    for (i, j, u) in steps(gemm.iter_out, gemm.iter_in, 0, uops.len() as u16) {
        let uop = uops[usize::from(u)];
        let dst = affine(uop.dst, i, gemm.dst_factor_out, j, gemm.dst_factor_in);
        let src = affine(uop.src, i, gemm.src_factor_out, j, gemm.src_factor_in);
        let wgt = affine(uop.wgt, i, gemm.wgt_factor_out, j, gemm.wgt_factor_in);
        let weight = weights.of(wgt as u16);
        by_dst
            .entry(dst as u16)
            .or_default()
            .push((src as u16, weight));
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
    let product = |form: Taps| {
        let mut positions = positions.remove(&form).unwrap_or_default();
        // Counted from the first, so that groups of other instructions may have the same.
        let dst = positions.first().map_or(0, |p| p.0);
        let mut tiles = Tiles::NONE;
        for (tile, _) in &mut positions {
            tiles.insert(usize::from(*tile));
            *tile -= dst;
        }
        let (taps, weights) = form;
        let groups = vec![GroupDraft { dst, weights }];
        (Form::new(groups, &positions, &taps), tiles)
    };
    order.into_iter().map(product).collect()
}
