//! Products: GEMM instructions on the same accumulator tiles become one operation.
//!
//! A compiler that leaves out what would multiply padding, and one whose scratchpads hold only a
//! part of the channels, issue several GEMMs for the same outputs. Sums wrap, so their order is
//! free: each output tile has a list of the tiles that are multiplied for it. Outputs that share
//! their weights are summed several at once; where one of them lacks a product that the others
//! have, it multiplies a tile of zeros.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use vta_isa::resolve::{AffineTiles, GemmAccess, Loops, meet, merge};

use crate::plan::ops::{Kind, Op, Tables, Touches, add_range};
use crate::plan::sets::Sets;
use crate::plan::target::{Shape, Target};
use crate::plan::versions::{Places, Scratchpad, Versions};
use crate::words::{MISSING, PIECE_WORDS};

/// Products of one instruction that are listed; a longer one runs with its loops.
const MAX_STEPS: u64 = 1 << 20;
/// Products of an operation, after which no further instruction joins.
const MAX_JOINED_STEPS: u64 = 1 << 22;

/// Entries of a part of products, at least.
const LEAST_ENTRIES: u32 = 8;

/// Products of one weight tile; every output adds its offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tap {
    dst: u32,
    src: u32,
    wgt: u32,
}

/// Offsets of an instruction's outputs and of the inputs that belong to them. No two outputs are
/// the same.
#[derive(Debug)]
struct Rows {
    /// Equal numbers are equal rows.
    id: u32,
    offsets: Vec<[u32; 2]>,
    dst_reach: u32,
    src_reach: u32,
}

/// What a GEMM instruction multiplies.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    taps: Vec<Tap>,
    rows: Rc<Rows>,
}

/// Makes products, and shares what repeats itself among them.
#[derive(Debug, Default)]
pub(crate) struct Products {
    rows: HashMap<[Loops; 2], Rc<Rows>>,
    patterns: HashMap<PatternKey, Pattern>,
}

/// What decides a pattern: positions (where they lie in the tables), rows, and the taps' offsets
/// from the component's first output and the first input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PatternKey {
    positions: u32,
    rows: u32,
    taps: Vec<[u32; 2]>,
}

/// The products of one instruction for each block of outputs, in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pattern {
    at: u32,
    /// Products of a block's outputs, counted with those of zeros.
    steps: u64,
}

impl Products {
    /// The products of an instruction; `None` for a reset, and when it has too many to list.
    pub fn of(&mut self, access: &GemmAccess<'_>) -> Option<Product> {
        let gemm = &access.gemm;
        let (dst, [src, wgt]) = (access.dst, access.operands?);
        if gemm.steps() > MAX_STEPS {
            return None;
        }
        let (trips, factors) = (dst.loops.trips, dst.loops.factors.map(u32::from));
        // Loops that only go through outputs are rows; others repeat the taps.
        let mut rows = [1; 2];
        for d in 0..2 {
            if factors[d] != 0 && wgt.loops.factors[d] == 0 {
                rows[d] = trips[d];
            }
        }
        let moved = |by: usize| u32::from(rows[by] - 1) * factors[by];
        let apart = factors[0] > moved(1) || factors[1] > moved(0);
        if rows[0] > 1 && rows[1] > 1 && !apart {
            rows[0] = 1;
        }
        let repeats = [0, 1].map(|d| trips[d] / rows[d]);
        let with = |trips, loops: Loops| Loops { trips, ..loops };
        let [taps_dst, taps_src, taps_wgt] = [dst, src, wgt].map(|tiles| {
            let loops = with(repeats, tiles.loops);
            let tiles = AffineTiles { loops, ..tiles };
            tiles.steps().map(|tile| tile as u32)
        });
        let steps = taps_dst.zip(taps_src).zip(taps_wgt);
        let taps = steps.map(|((dst, src), wgt)| Tap { dst, src, wgt });
        Some(Product {
            taps: taps.collect(),
            rows: self.rows(with(rows, dst.loops), with(rows, src.loops)),
        })
    }

    fn rows(&mut self, dst: Loops, src: Loops) -> Rc<Rows> {
        let id = self.rows.len() as u32;
        let make = || {
            let offsets = dst.offsets().zip(src.offsets());
            let reach = |loops: Loops| loops.reach().unwrap_or(0) as u32;
            Rc::new(Rows {
                id,
                offsets: offsets.map(|(d, s)| [d as u32, s as u32]).collect(),
                dst_reach: reach(dst),
                src_reach: reach(src),
            })
        };
        Rc::clone(self.rows.entry([dst, src]).or_insert_with(make))
    }
}

impl Product {
    fn steps(&self) -> u64 {
        self.taps.len() as u64 * self.rows.offsets.len() as u64
    }

    fn span(&self, scratchpad: Scratchpad, tap: &Tap) -> Range<u32> {
        match scratchpad {
            Scratchpad::Inp => tap.src..tap.src + self.rows.src_reach + 1,
            Scratchpad::Wgt => tap.wgt..tap.wgt + 1,
            Scratchpad::Acc => tap.dst..tap.dst + self.rows.dst_reach + 1,
        }
    }

    fn ranges(&self, scratchpad: Scratchpad) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        for tap in &self.taps {
            let span = self.span(scratchpad, tap);
            add_range(&mut ranges, span.start as usize..span.end as usize);
        }
        merge(&mut ranges);
        ranges
    }

    /// Tells the first pass what moves together.
    pub fn join(&self, versions: &mut Versions, step: usize) {
        for scratchpad in Scratchpad::ALL {
            let spans = self.taps.iter().map(|tap| self.span(scratchpad, tap));
            versions.join_each(scratchpad, spans, step);
        }
    }

    /// Moves tiles from home to their places.
    pub fn place(&mut self, places: &Places) {
        let mut dst = places.shifts(Scratchpad::Acc);
        let mut src = places.shifts(Scratchpad::Inp);
        let mut wgt = places.shifts(Scratchpad::Wgt);
        for tap in &mut self.taps {
            tap.dst = tap.dst.wrapping_add(dst(tap.dst));
            tap.src = tap.src.wrapping_add(src(tap.src));
            tap.wgt = tap.wgt.wrapping_add(wgt(tap.wgt));
        }
    }

    fn touches(&self) -> Touches {
        let acc = self.ranges(Scratchpad::Acc);
        Touches {
            reads: [
                self.ranges(Scratchpad::Inp),
                self.ranges(Scratchpad::Wgt),
                acc.clone(),
            ],
            writes: [Vec::new(), Vec::new(), acc],
            ..Touches::default()
        }
    }
}

/// Products that become one operation.
#[derive(Debug)]
pub(crate) struct Joined {
    parts: Vec<Product>,
    pub touches: Touches,
    steps: u64,
}

/// Outputs that share weights.
struct Component {
    /// Accumulator tiles, ascending.
    tiles: Vec<u32>,
    /// For each part that has products here: its number, its pattern, the first input, and the
    /// weights of its taps.
    pieces: Vec<(Pattern, u32, Vec<u32>)>,
    positions: u32,
}

impl Joined {
    pub fn new(product: Product) -> Self {
        Self {
            touches: product.touches(),
            steps: product.steps(),
            parts: vec![product],
        }
    }

    /// Joins others to these; gives them back when it can't.
    ///
    /// - *Pattern*: GEMM instructions that follow each other and add to the same accumulator
    ///   tiles: a chunk of input channels after the other, or rectangles of outputs without the
    ///   taps that would multiply padding.
    /// - *Condition*: they have an accumulator tile in common, and together no more than so many
    ///   products. What they read nothing has overwritten since, or the group would be closed.
    /// - *Proof*: a GEMM only adds to its accumulators, modulo 2^32, and reads inputs and weights
    ///   that it doesn't write. Sums may be formed in any order, so that of each output may be one
    ///   list of products; a missing product is one of a tile of zeros.
    pub fn append(&mut self, more: Self) -> Option<Self> {
        let acc = Scratchpad::Acc as usize;
        let steps = self.steps + more.steps;
        let meets = meet(&self.touches.writes[acc], &more.touches.writes[acc]);
        if !meets || steps > MAX_JOINED_STEPS {
            return Some(more);
        }
        self.parts.extend(more.parts);
        self.touches.add(&more.touches);
        self.steps = steps;
        None
    }

    /// The operations: one for each kind of component. Where joining would multiply zeros most
    /// of the time, each part is on its own.
    pub fn encode(self, products: &mut Products, tables: &mut Tables, target: &Target) -> Vec<Op> {
        let components = self.components(products, tables, target.shape);
        let steps = |c: &Component| c.pieces.iter().map(|p| p.0.steps).sum::<u64>();
        let all: u64 = components.iter().map(steps).sum();
        let alone = |part: &Product| {
            let rows = part.rows.offsets.len() as u64;
            let at_once = u64::from(at_once(rows as usize, target.shape));
            part.taps.len() as u64 * rows.next_multiple_of(at_once)
        };
        if self.parts.len() > 1 && 2 * all > 3 * self.parts.iter().map(alone).sum::<u64>() {
            let parts = self.parts.into_iter();
            let single = |part| Self::new(part).encode(products, tables, target);
            return parts.flat_map(single).collect();
        }
        let mut classes: Vec<Vec<&Component>> = Vec::new();
        let mut known = HashMap::new();
        for component in &components {
            let pieces: Vec<_> = component.pieces.iter().map(|p| (p.0, p.1)).collect();
            let next = classes.len();
            let class = *known.entry((component.positions, pieces)).or_insert(next);
            if class == next {
                classes.push(Vec::new());
            }
            classes[class].push(component);
        }
        let op = |class: &Vec<&Component>| operation(class, tables, target, &self.touches);
        classes.iter().map(op).collect()
    }

    fn components(
        &self,
        products: &mut Products,
        tables: &mut Tables,
        shape: Shape,
    ) -> Vec<Component> {
        let acc = &self.touches.writes[Scratchpad::Acc as usize];
        let first = acc.first().map_or(0, |r| r.start as u32);
        let end = acc.last().map_or(0, |r| r.end as u32);
        let (of, mut components) = self.connect(first, end - first);
        // Components mostly differ in place alone.
        let (mut offsets, mut positions) = (Vec::new(), None);
        for component in &mut components {
            let base = component.tiles[0];
            let tiles = || component.tiles.iter().map(|tile| tile - base);
            let known = positions.filter(|_| tiles().eq(offsets.iter().copied()));
            component.positions = known.unwrap_or_else(|| {
                offsets.clear();
                offsets.extend(tiles());
                tables.list(&offsets)
            });
            positions = Some(component.positions);
        }
        let mut numbers = vec![0; (end - first) as usize];
        for (number, tile) in components.iter().flat_map(|c| c.tiles.iter().enumerate()) {
            numbers[(tile - first) as usize] = number;
        }
        let mut taps: Vec<Vec<Tap>> = vec![Vec::new(); components.len()];
        for part in &self.parts {
            taps.iter_mut().for_each(Vec::clear);
            // Components of one part mostly have one pattern.
            let mut last: Option<(PatternKey, Pattern)> = None;
            // The first row's offset is 0.
            for tap in &part.taps {
                taps[of[(tap.dst - first) as usize] as usize].push(*tap);
            }
            for (taps, component) in taps.iter().zip(&mut components) {
                let Some(src) = taps.iter().map(|t| t.src).min() else {
                    continue;
                };
                let base = component.tiles[0];
                let offsets = || taps.iter().map(|t| [t.dst - base, t.src - src]);
                let same = |(key, _): &&(PatternKey, Pattern)| {
                    key.positions == component.positions && offsets().eq(key.taps.iter().copied())
                };
                let known = last.as_ref().filter(same).map(|(_, pattern)| *pattern);
                let pattern = known.unwrap_or_else(|| {
                    let key = PatternKey {
                        positions: component.positions,
                        rows: part.rows.id,
                        taps: offsets().collect(),
                    };
                    let number = |offset: u32| numbers[(base + offset - first) as usize];
                    let outputs = component.tiles.len();
                    let pattern = products.patterns.get(&key).copied().unwrap_or_else(|| {
                        let (words, steps) = pattern(&key.taps, &part.rows, outputs, number, shape);
                        let at = tables.list(&words);
                        products.patterns.insert(key.clone(), Pattern { at, steps });
                        Pattern { at, steps }
                    });
                    last = Some((key, pattern));
                    pattern
                });
                let weights = taps.iter().map(|t| t.wgt).collect();
                component.pieces.push((pattern, src, weights));
            }
        }
        components
    }

    /// The component of each accumulator tile from `first` on.
    fn connect(&self, first: u32, len: u32) -> (Vec<u32>, Vec<Component>) {
        let (mut sets, mut outputs) = (Sets::new(len), vec![false; len as usize]);
        // The rows that were last added at each tile, which taps and parts repeat.
        let mut done = vec![None; len as usize];
        for part in &self.parts {
            for tap in &part.taps {
                // The first row's offset is 0.
                let group = tap.dst - first;
                if done[group as usize].replace(part.rows.id) == Some(part.rows.id) {
                    continue;
                }
                for [dst, _] in &part.rows.offsets {
                    outputs[(group + dst) as usize] = true;
                    sets.unite(group, group + dst);
                }
            }
        }
        let mut of = vec![MISSING; len as usize];
        let mut components: Vec<Component> = Vec::new();
        for at in (0..len).filter(|&at| outputs[at as usize]) {
            // The least tile of a component comes first.
            let least = sets.least(at);
            if least == at {
                of[at as usize] = components.len() as u32;
                components.push(Component {
                    tiles: Vec::new(),
                    pieces: Vec::new(),
                    positions: 0,
                });
            }
            let component = of[least as usize];
            of[at as usize] = component;
            components[component as usize].tiles.push(first + at);
        }
        (of, components)
    }
}

/// Outputs that are summed at once, of a component with so many.
fn at_once(outputs: usize, shape: Shape) -> u32 {
    if outputs > 1 { shape.product_rows } else { 1 }
}

/// Parts that the products of each of so many blocks of outputs are cut into, of which each has so
/// many entries: as many as the device has idle work-items for.
fn parts(target: &Target, outputs: u32, entries: u32) -> u32 {
    let shape = target.shape;
    let most = shape.product_parts.min(entries / LEAST_ENTRIES).max(1);
    (target.cut.items / outputs.saturating_mul(shape.product_units).max(1)).clamp(1, most)
}

/// The words of a pattern: where each block's entries begin, and the end; then the entries, each
/// a tap's number and an input for every output of the block.
fn pattern(
    taps: &[[u32; 2]],
    rows: &Rows,
    outputs: usize,
    number: impl Fn(u32) -> usize,
    shape: Shape,
) -> (Vec<u32>, u64) {
    let at_once = at_once(outputs, shape) as usize;
    let mut blocks: Vec<Vec<u32>> = vec![Vec::new(); outputs.div_ceil(at_once)];
    for (tap, [dst, src]) in taps.iter().enumerate() {
        for offset in &rows.offsets {
            let number = number(dst + offset[0]);
            let block = &mut blocks[number / at_once];
            let have = block.len();
            let entry = have
                .checked_sub(at_once + 1)
                .filter(|&e| block[e] == tap as u32);
            let entry = entry.unwrap_or_else(|| {
                block.push(tap as u32);
                block.resize(have + 1 + at_once, MISSING);
                have
            });
            block[entry + 1 + number % at_once] = src + offset[1];
        }
    }
    let mut words = Vec::new();
    let mut entries = 0;
    for block in &blocks {
        words.push(entries);
        entries += (block.len() / (at_once + 1)) as u32;
    }
    words.push(entries);
    words.extend(blocks.into_iter().flatten());
    (words, u64::from(entries) * at_once as u64)
}

/// The operation of components that differ only in place and weights.
fn operation(class: &[&Component], tables: &mut Tables, target: &Target, all: &Touches) -> Op {
    let shape = target.shape;
    let first = class[0];
    let at_once = at_once(first.tiles.len(), shape);
    let blocks = (first.tiles.len() as u32).div_ceil(at_once);
    let bases: Vec<u32> = class.iter().map(|c| c.tiles[0]).collect();
    let outputs = class.len() as u32 * blocks;
    let mut pieces = Vec::with_capacity(first.pieces.len() * PIECE_WORDS);
    let mut steps = 0;
    for (number, (pattern, src, weights)) in first.pieces.iter().enumerate() {
        let wgts = || class.iter().flat_map(|c| &c.pieces[number].2);
        let wgt = wgts().min().copied().unwrap_or(0);
        let list: Vec<u32> = wgts().map(|w| w - wgt).collect();
        let taps = weights.len() as u32;
        pieces.extend([pattern.at, *src, wgt, tables.list(&list), taps]);
        steps += pattern.steps * class.len() as u64;
    }
    let entries = steps / u64::from(outputs * at_once);
    let parts = parts(target, outputs, entries as u32);
    let args = vec![
        first.tiles.len() as u32,
        blocks,
        first.positions,
        tables.list(&bases),
        tables.list(&pieces),
        first.pieces.len() as u32,
        at_once,
        target.room.zeros(&target.config),
        parts,
    ];
    let mut tiles = Vec::new();
    for &tile in class.iter().flat_map(|component| &component.tiles) {
        add_range(&mut tiles, tile as usize..tile as usize + 1);
    }
    merge(&mut tiles);
    let mut touches = all.clone();
    touches.reads[Scratchpad::Acc as usize].clone_from(&tiles);
    touches.writes[Scratchpad::Acc as usize] = tiles;
    Op {
        kind: Kind::Products,
        units: outputs * parts * shape.product_units,
        args,
        touches,
        cost: steps * target.config.macs_per_step(),
    }
}
