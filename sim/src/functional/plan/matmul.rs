//! GEMM instructions as blocked matrix products.
//!
//! A GEMM reads inputs and weights and only adds to accumulators, modulo 2^32, so its steps may
//! be done in any order. Sorted by destination they are dot products; destinations whose steps
//! have the same weights and the same inputs relative to each other are one matrix product.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use vta_isa::Uop;
use vta_isa::resolve::{AffineTiles, DepthwiseAccess, Interval, MAX_TILES, TileSet};

use super::draft::{GroupDraft, Matmul, Weight};
use super::places::{Lists, Places};
use super::unplanned::Unplanned;
use crate::kernels::PADDING;

/// Steps that are sorted one by one; longer instructions of no known form aren't planned.
const MOST_SORTED_STEPS: u64 = 1 << 16;

/// A product of a GEMM, wherever its weights and inputs come from.
pub(super) struct Form {
    groups: Rc<[GroupDraft]>,
    /// Weight tiles `[tap][group]`.
    weights: Vec<u16>,
    positions: Rc<[u16]>,
    /// Input tiles `[tap][position]`.
    pub inputs: Rc<[u32]>,
    /// Tiles from the lowest of those to behind the highest.
    pub ends: Range<usize>,
    /// The tiles that it changes.
    pub tiles: Rc<TileSet>,
}

/// What a form is made of.
struct Parts {
    /// First accumulator tile of each group, and weight tiles of each tap.
    groups: Vec<(u16, Vec<u16>)>,
    /// Tiles of each position, from the group's first, and from the tap's input.
    positions: Vec<(u16, u16)>,
    /// The input of each.
    taps: Vec<u16>,
    tiles: TileSet,
}

/// The products of GEMMs that have steps and aren't resets, and whose micro-ops and loops are the same.
pub(super) struct Forms {
    pub products: Vec<Form>,
    /// All tiles that they change.
    pub tiles: Rc<TileSet>,
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
            form.positions = lists.one(&form.positions);
        }
        let tiles = match &products[..] {
            [only] => Rc::clone(&only.tiles),
            _ => Rc::new(dst.set()),
        };
        Ok(Self { products, tiles })
    }
}

impl Form {
    fn new(parts: Parts) -> Self {
        let Parts {
            groups,
            positions,
            taps,
            tiles,
        } = &parts;
        let mut inputs = Vec::with_capacity(taps.len() * positions.len());
        for tap in taps {
            inputs.extend(positions.iter().map(|p| u32::from(tap + p.1)));
        }
        let (low, high) = (inputs.iter().min(), inputs.iter().max());
        let [low, high] = [low, high].map(|tile| tile.map_or(0, |&tile| tile as usize));
        let positions = positions.iter().map(|p| p.0).collect();
        let weights = (0..taps.len()).flat_map(|tap| groups.iter().map(move |g| g.1[tap]));
        let group = |&(dst, _): &(u16, Vec<u16>)| GroupDraft { dst, shift: 0 };
        Self {
            weights: weights.collect(),
            groups: groups.iter().map(group).collect(),
            positions,
            inputs: inputs.into(),
            ends: low..high + 1,
            tiles: Rc::new(tiles.clone()),
        }
    }

    /// The windows of a micro-op of a DEPTHWISE whose steps each have a destination.
    pub fn windows(access: &DepthwiseAccess<'_>, uop: &Uop, lists: &mut Lists<u16>) -> Self {
        let insn = &access.insn;
        let [to, from] = [access.dst.loops, access.src.loops];
        // All tiles are inside scratchpads.
        let positions = to.offsets().zip(from.offsets());
        let taps = (0..u16::from(insn.rows)).flat_map(|y| {
            let row = uop.src + y * insn.pitch;
            (0..u16::from(insn.columns)).map(move |x| row + x)
        });
        let uops = [*uop];
        let mut form = Self::new(Parts {
            groups: vec![(uop.dst, vec![uop.wgt; insn.taps()])],
            positions: positions.map(|(d, s)| (d as u16, s as u16)).collect(),
            taps: taps.collect(),
            tiles: insn.dst(&uops).set(),
        });
        form.positions = lists.one(&form.positions);
        form
    }

    /// The product with these weights, without inputs.
    pub fn product(&self, weights: &[Weight]) -> Matmul {
        let weights = self.weights.iter().map(|&tile| weights[usize::from(tile)]);
        self.with(weights.collect())
    }

    /// The product with weights for each tap and group.
    pub fn with(&self, weights: Vec<Weight>) -> Matmul {
        let (groups, positions) = (Rc::clone(&self.groups), Rc::clone(&self.positions));
        Matmul::new(groups, weights, positions, Places::default(), None)
    }
}

/// Joins neighbouring products of a GEMM whose inputs are the same but for a distance: those of a convolution in groups.
pub(super) fn join_groups(all: &mut Vec<(Matmul, Rc<TileSet>)>) {
    if all.len() == 1 {
        return;
    }
    let mut parts = &all[..];
    let mut joined = Vec::with_capacity(parts.len());
    while let Some(((first, tiles), behind)) = parts.split_first() {
        let shifts = behind.iter().map_while(|(next, _)| shift(first, next));
        let shifts: Vec<u32> = std::iter::once(0).chain(shifts).collect();
        let (run, later) = parts.split_at(shifts.len());
        let run_of: Vec<&Matmul> = run.iter().map(|(matmul, _)| matmul).collect();
        let groups = run_of.iter().zip(shifts).flat_map(|(matmul, shift)| {
            let group = move |group: &GroupDraft| GroupDraft {
                shift: group.shift + shift,
                ..*group
            };
            matmul.groups.iter().map(group)
        });
        let groups: Rc<[GroupDraft]> = groups.collect();
        let (weights, mut tiles) = (Matmul::weights_of_all(&run_of), TileSet::clone(tiles));
        run.iter().for_each(|(_, more)| tiles.add(more));
        let reads = run_of.iter().map(|matmul| matmul.read);
        let read = reads.reduce(|a, b| a.zip(b).map(|(a, b)| a.hull(&b)));
        let (positions, inputs) = (Rc::clone(&first.positions), first.inputs.clone());
        let matmul = Matmul::new(groups, weights, positions, inputs, read.flatten());
        joined.push((matmul, Rc::new(tiles)));
        parts = later;
    }
    *all = joined;
}

/// Bytes from each input of a product to the other's, if all are as far apart and nothing else differs but groups.
fn shift(first: &Matmul, next: &Matmul) -> Option<u32> {
    let region = |matmul: &Matmul| matmul.read.map(|span| span.region);
    let same = first.positions == next.positions
        && first.inputs.len() == next.inputs.len()
        && region(first) == region(next);
    if let Some(shift) = first.inputs.distance(&next.inputs) {
        return same.then_some(shift);
    }
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
    Some(Form::new(Parts {
        groups,
        positions,
        taps,
        tiles,
    }))
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
    let mut joined: Vec<Parts> = Vec::with_capacity(forms.len());
    for (taps, mut positions) in forms {
        let tiles = positions.iter().map(|p| p.0).collect();
        // Counted from the first, so that groups of other instructions may have the same.
        let dst = positions.first().map_or(0, |p| p.0);
        positions.iter_mut().for_each(|p| p.0 -= dst);
        let (taps, weights): (Vec<u16>, _) = taps.iter().copied().unzip();
        match joined.last_mut() {
            Some(last) if last.positions == positions && last.taps == taps => {
                last.groups.push((dst, weights));
                last.tiles.add(&tiles);
            }
            _ => joined.push(Parts {
                groups: vec![(dst, weights)],
                positions,
                taps,
                tiles,
            }),
        }
    }
    joined.into_iter().map(Form::new).collect()
}

/// The tile of each step. All lie inside scratchpads.
fn tiles(tiles: AffineTiles<'_>) -> Vec<u16> {
    let mut all = Vec::with_capacity(tiles.uops.len() * trips(tiles) as usize);
    // Nested loops, as `collect` wouldn't be.
    tiles.steps().for_each(|tile| all.push(tile as u16));
    all
}

/// The steps of a GEMM by destination, ascending; those of one in their order.
fn dots(dst: AffineTiles<'_>, [src, wgt]: [AffineTiles<'_>; 2]) -> (Vec<Dot>, Vec<Tap>) {
    let all = [dst, src, wgt].map(tiles);
    let mut ends = vec![0usize; MAX_TILES];
    all[0].iter().for_each(|&tile| ends[usize::from(tile)] += 1);
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
    let [dst, src, wgt] = &all;
    for ((&dst, &src), &wgt) in dst.iter().zip(src).zip(wgt) {
        let next = &mut ends[usize::from(dst)];
        taps[*next] = (src, wgt);
        *next += 1;
    }
    for dot in &mut dots {
        let taps = &mut taps[dot.taps.clone()];
        dot.base = taps.iter().map(|tap| tap.0).min().unwrap_or(0);
        taps.iter_mut().for_each(|tap| tap.0 -= dot.base);
    }
    (dots, taps)
}
