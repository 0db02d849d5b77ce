//! The terms that an output is made of, by its layer's geometry alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use vta_isa::MemType;

use super::term::Term;
use crate::listing::{
    ChannelsGeometry, ConvGeometry, Geometry, LayerForm, ListedLayer, ListedTensor, Listing,
    ResidualBy, Role, WindowGeometry,
};

/// What is asked of a tile.
#[derive(Default)]
pub struct Terms {
    /// Each exactly once.
    pub wanted: Vec<Term>,
    /// Each at most once: a vector whose values are alike may be an immediate.
    pub allowed: Vec<Term>,
}

/// A layer's expectations, or those of one of two that take turns.
pub struct Expect<'l> {
    listing: &'l Listing,
    pub layer: &'l ListedLayer,
    pub geometry: &'l Geometry,
    pub output: &'l ListedTensor,
    /// Pairs of lanes, and the selection tile that takes them.
    selections: HashMap<Vec<[u32; 2]>, u64>,
    /// Which weight tiles of further parts are left out.
    blank: HashSet<u64>,
    /// Input blocks that each output block of a convolution has weight tiles for.
    span: u64,
    /// The number of the first weight tile of 4 bits.
    first4: u64,
}

impl<'l> Expect<'l> {
    pub fn of(listing: &'l Listing, layer: &'l ListedLayer, geometry: &'l Geometry) -> Self {
        let mut expect = Self {
            listing,
            layer,
            geometry,
            output: &listing.tensors[geometry.output as usize],
            selections: HashMap::new(),
            blank: HashSet::new(),
            span: 0,
            first4: listing.first_wgt4(),
        };
        match &geometry.form {
            LayerForm::Channels(channels) => {
                let first = expect
                    .base(Role::Selection, MemType::Wgt)
                    .unwrap_or_default();
                for (at, lanes) in (first..).zip(&channels.tiles) {
                    let mut lanes = lanes.clone();
                    lanes.sort_unstable();
                    expect.selections.entry(lanes).or_insert(at);
                }
            }
            LayerForm::Conv(conv) => {
                expect.span = expect.widest(conv);
                expect.blank = conv.blank.iter().map(|&at| u64::from(at)).collect();
            }
            LayerForm::Pool(_) | LayerForm::Elementwise => {}
        }
        expect
    }

    /// The first tile of a constant.
    fn base(&self, role: Role, mem: MemType) -> Option<u64> {
        let buffer = self.geometry.constant(role)?;
        Some(self.buffer_base(buffer, mem))
    }

    fn buffer_base(&self, buffer: u32, mem: MemType) -> u64 {
        self.place(mem, self.listing.buffers[buffer as usize].start)
    }

    /// The number of the element at an address.
    pub fn place(&self, mem: MemType, addr: u64) -> u64 {
        let first = match mem {
            MemType::Wgt4 => self.first4,
            _ => 0,
        };
        first + addr / self.listing.config.elem_bytes(mem) as u64
    }

    /// The weight tile that stands for all of the same lanes.
    pub fn selection(&self, tile: u64) -> u64 {
        let LayerForm::Channels(channels) = &self.geometry.form else {
            return tile;
        };
        let first = self.base(Role::Selection, MemType::Wgt).unwrap_or_default();
        let lanes = tile
            .checked_sub(first)
            .and_then(|at| channels.tiles.get(at as usize));
        let same = lanes.and_then(|lanes| self.selections.get(lanes));
        same.copied().unwrap_or(tile)
    }

    fn input(&self, input: usize) -> &'l ListedTensor {
        let tensors = &self.listing.tensors;
        let at = self.geometry.inputs.get(input).copied().unwrap_or_default();
        &tensors[at as usize]
    }

    fn tile(&self, tensor: &ListedTensor, [block, y, x]: [u32; 3]) -> u64 {
        let [_, rows, cols] = tensor.tiles.map(u64::from);
        let first = tensor.start / self.listing.config.elem_bytes(MemType::Inp) as u64;
        first + (u64::from(block) * rows + u64::from(y)) * cols + u64::from(x)
    }

    /// Whether an output block needn't be stored, since it lies where it comes from.
    pub fn is_shared(&self, block: u32) -> bool {
        let LayerForm::Channels(channels) = &self.geometry.form else {
            return false;
        };
        let size = self.listing.config.block() as u32;
        let first = block * size;
        let lanes = channels
            .map
            .get(first as usize..(first + size).min(self.output.channels) as usize);
        let Some(lanes @ [Some([input, channel]), ..]) = lanes else {
            return false;
        };
        let mut each = (0..).zip(lanes);
        let whole = each.all(|(lane, of)| *of == Some([*input, channel + lane]));
        let from = self.input(*input as usize);
        whole
            && channels.kept.contains(&block)
            && channels.up == [1, 1]
            && channel.is_multiple_of(size)
            && from.buffer == self.output.buffer
            && from.tiles[1..] == self.output.tiles[1..]
            && self.tile(from, [channel / size, 0, 0]) == self.tile(self.output, [block, 0, 0])
    }

    /// The terms of an output tile.
    pub fn terms(&self, place @ [o, y, x]: [u32; 3], terms: &mut Terms) {
        terms.wanted.clear();
        terms.allowed.clear();
        match &self.geometry.form {
            LayerForm::Conv(conv) => self.conv(conv, place, terms),
            LayerForm::Pool(window) => {
                let input = self.input(0);
                let size = [input.tiles[1], input.tiles[2]];
                for [row, col] in taps(window, [y, x], size).flatten() {
                    terms
                        .wanted
                        .push(Term::copy(self.tile(input, [o, row, col])));
                }
            }
            LayerForm::Elementwise => {
                for input in 0..self.geometry.inputs.len() {
                    let input = self.input(input);
                    let spread = input.tiles[1..] == [1, 1] && self.output.tiles[1..] != [1, 1];
                    let at = if spread { [o, 0, 0] } else { place };
                    terms.wanted.push(Term::copy(self.tile(input, at)));
                }
                terms.wanted.extend(self.entry(0, 1));
                self.vectors(o, terms);
                self.constants(place, terms);
            }
            LayerForm::Channels(channels) => {
                self.lanes(channels, place, terms);
                self.vectors(o, terms);
            }
        }
        if self.geometry.zero_factor {
            terms.allowed.append(&mut terms.wanted);
        }
        terms.wanted.sort_unstable();
        terms.allowed.sort_unstable();
    }

    /// Vectors of element-wise operations.
    fn vectors(&self, o: u32, terms: &mut Terms) {
        for list in 0..self.lists() {
            terms.allowed.extend(self.vector(list, o));
        }
    }

    /// How many vectors there are.
    fn lists(&self) -> u64 {
        self.constant_tiles(Role::Vectors) / self.blocks().max(1)
    }

    /// The words of an output block by which STOREs round, of those of some blocks.
    fn entry(&self, o: u32, blocks: u64) -> impl Iterator<Item = Term> + use<> {
        let first = self.base(Role::Roundings, MemType::Acc).unwrap_or_default();
        let words = self.constant_tiles(Role::Roundings) / blocks.max(1);
        let first = first + u64::from(o) * words;
        (first..first + words).map(Term::constant)
    }

    /// Accumulator tiles of a constant.
    fn constant_tiles(&self, role: Role) -> u64 {
        let buffer = self.geometry.constant(role);
        let bytes = buffer.map_or(0, |at| self.listing.buffers[at as usize].bytes);
        bytes / self.listing.config.elem_bytes(MemType::Acc) as u64
    }

    fn blocks(&self) -> u64 {
        self.output.tiles[0].into()
    }

    fn vector(&self, list: u64, o: u32) -> Option<Term> {
        let first = self.base(Role::Vectors, MemType::Acc)?;
        Some(Term::constant(first + list * self.blocks() + u64::from(o)))
    }

    /// Constants of positions.
    fn constants(&self, [o, y, x]: [u32; 3], terms: &mut Terms) {
        let [_, rows, cols] = self.output.tiles.map(u64::from);
        let elem = self.listing.config.elem_bytes(MemType::Acc) as u64;
        for &(role, buffer) in &self.geometry.constants {
            if role == Role::Constants {
                let shared = self.listing.buffers[buffer as usize].bytes / elem == rows * cols;
                let block = if shared { 0 } else { u64::from(o) };
                let at = (block * rows + u64::from(y)) * cols + u64::from(x);
                terms
                    .wanted
                    .push(Term::constant(self.buffer_base(buffer, MemType::Acc) + at));
            }
        }
    }

    fn conv(&self, conv: &ConvGeometry, [o, y, x]: [u32; 3], terms: &mut Terms) {
        match &conv.pool {
            None => self.sums(conv, [o, y, x], &mut terms.wanted),
            Some(pool) => {
                for [row, col] in taps(pool, [y, x], conv.output).flatten() {
                    self.sums(conv, [o, row, col], &mut terms.wanted);
                }
                // Of what all positions have, the largest has it once.
                terms.wanted.sort_unstable();
                terms.wanted.dedup();
            }
        }
        if conv.regions.is_empty() {
            self.bias(conv, o, 0, &mut terms.wanted);
        }
        let of_regions = self.region_vectors(conv);
        for list in of_regions..self.lists() {
            terms.wanted.extend(self.vector(list, o));
        }
    }

    /// Regions that are vectors.
    fn region_vectors(&self, conv: &ConvGeometry) -> u64 {
        match conv.bias_steps {
            0 => conv.regions.len() as u64,
            _ => 0,
        }
    }

    fn bias(&self, conv: &ConvGeometry, o: u32, region: u64, wanted: &mut Vec<Term>) {
        let bases = (
            self.base(Role::Bias, MemType::Wgt),
            self.base(Role::BiasInput, MemType::Inp),
        );
        let (Some(digits), Some(input)) = bases else {
            return;
        };
        let (regions, steps) = (
            (conv.regions.len() as u64).max(1),
            u64::from(conv.bias_steps),
        );
        let first = digits + (u64::from(o) * regions + region) * steps;
        wanted.extend((first..first + steps).map(|wgt| Term::product(wgt, input)));
    }

    /// What an output of the convolution, before a pool, is the sum of.
    fn sums(&self, conv: &ConvGeometry, [o, y, x]: [u32; 3], wanted: &mut Vec<Term>) {
        let input = self.input(0);
        let weights = self.base(Role::Weights, MemType::Wgt);
        let weights = weights.or_else(|| self.base(Role::Weights4, MemType::Wgt4));
        let weights = weights.unwrap_or_default();
        let touched = self.touched(conv, o);
        let span = self.span;
        let first = touched
            .start
            .min(u64::from(input.tiles[0]).saturating_sub(span));
        let (area, parts) = (conv.window.area(), u64::from(conv.parts));
        let size = [input.tiles[1], input.tiles[2]];
        let [rows, columns] = conv.window.kernel.map(u64::from);
        let block = self.listing.config.block() as u64;
        for (tap, at) in (0..).zip(taps(&conv.window, [y, x], size)) {
            let Some([row, col]) = at else { continue };
            if conv.window_rows > 0 {
                let [ky, kx] = [tap / columns, tap % columns];
                let of_tile = u64::from(conv.window_rows);
                let tile = weights + u64::from(o) * rows.div_ceil(of_tile) + ky / of_tile;
                let at = tile * block + ky % of_tile * columns + kx;
                wanted.push(Term::tap(at, self.tile(input, [o, row, col])));
                continue;
            }
            for block in touched.clone() {
                let pair = u64::from(o) * span + block - first;
                let inp = self.tile(input, [block as u32, row, col]);
                for part in 0..parts {
                    let wgt = (pair * area + tap) * parts + part;
                    if part == 0 || !self.blank.contains(&wgt) {
                        wanted.push(Term::product(weights + wgt, inp));
                    }
                }
            }
        }
        let inside = |range: &[u32; 2], at: u32| (range[0]..range[1]).contains(&at);
        let regions = (0..).zip(&conv.regions);
        let mut regions = regions.filter(|(_, [rows, cols])| inside(rows, y) && inside(cols, x));
        if let Some((region, _)) = regions.next() {
            match conv.bias_steps {
                0 => wanted.extend(self.vector(region, o)),
                _ => self.bias(conv, o, region, wanted),
            }
        }
        wanted.extend(self.entry(o, self.blocks()));
        let residual = || self.tile(self.input(1), [o, y, x]);
        match conv.residual {
            ResidualBy::None => {}
            ResidualBy::Load | ResidualBy::Store => wanted.push(Term::copy(residual())),
            ResidualBy::Product { steps, uniform } => {
                let diagonals = self.base(Role::Diagonals, MemType::Wgt).unwrap_or_default();
                let first = if uniform {
                    0
                } else {
                    u64::from(o) * u64::from(steps)
                };
                let tiles = diagonals + first..diagonals + first + u64::from(steps);
                wanted.extend(tiles.map(|wgt| Term::product(wgt, residual())));
            }
        }
    }

    /// Input blocks whose channels an output block's groups have.
    fn touched(&self, conv: &ConvGeometry, o: u32) -> std::ops::Range<u64> {
        let input = self.input(0);
        if conv.group == 1 {
            return 0..input.tiles[0].into();
        }
        let block = self.listing.config.block() as u64;
        let group = u64::from(conv.group);
        let (inputs, outputs) = (
            u64::from(input.channels) / group,
            u64::from(self.output.channels) / group,
        );
        let first = u64::from(o) * block / outputs;
        let last = ((u64::from(o) + 1) * block)
            .min(self.output.channels.into())
            .max(1)
            - 1;
        first * inputs / block..((last / outputs + 1) * inputs).div_ceil(block)
    }

    /// The most input blocks that an output block touches.
    fn widest(&self, conv: &ConvGeometry) -> u64 {
        if conv.group == 1 {
            return self.input(0).tiles[0].into();
        }
        let blocks = 0..self.blocks() as u32;
        let spans = blocks
            .map(|o| self.touched(conv, o))
            .map(|r| r.end - r.start);
        spans.max().unwrap_or(1)
    }

    /// Lanes of input blocks.
    fn lanes(&self, channels: &ChannelsGeometry, [o, y, x]: [u32; 3], terms: &mut Terms) {
        let size = self.listing.config.block() as u32;
        let at = [y, x].map(u64::from);
        let step = channels.step.map(u64::from);
        let skipped = |axis: usize| at[axis] * step[axis] + u64::from(channels.skip[axis]);
        let up = channels.up.map(u64::from);
        let phase = skipped(0) % up[0] * up[1] + skipped(1) % up[1];
        let [row, col] = [skipped(0) / up[0], skipped(1) / up[1]].map(|at| at as u32);
        let first = phase as usize * self.output.channels as usize;
        let lanes = o * size..((o + 1) * size).min(self.output.channels);
        let count = lanes.len();
        let mut parts: BTreeMap<[u32; 2], Vec<[u32; 2]>> = BTreeMap::new();
        for (lane, channel) in (0..).zip(lanes) {
            if let Some(&Some([input, from])) = channels.map.get(first + channel as usize) {
                let part = parts.entry([input, from / size]).or_default();
                part.push([lane, from % size]);
            }
        }
        for ([input, block], lanes) in parts {
            let inp = self.tile(self.input(input as usize), [block, row, col]);
            let whole = count == lanes.len() && lanes.iter().all(|[to, from]| to == from);
            if whole && self.geometry.constant(Role::Selection).is_none() {
                terms.wanted.push(Term::copy(inp));
                continue;
            }
            // Where no tile takes these lanes, none of the products is the one that is wanted.
            let wgt = self
                .selections
                .get(&lanes)
                .copied()
                .unwrap_or(u64::from(u32::MAX) - 2);
            terms.wanted.push(Term::product(wgt, inp));
        }
    }
}

/// Where each tap of a window reads, `None` on padding.
fn taps(
    window: &WindowGeometry,
    [y, x]: [u32; 2],
    size: [u32; 2],
) -> impl Iterator<Item = Option<[u32; 2]>> {
    let window = *window;
    (0..window.kernel[0]).flat_map(move |ky| {
        let row = window.input(0, y, ky, size[0]);
        (0..window.kernel[1]).map(move |kx| Some([row?, window.input(1, x, kx, size[1])?]))
    })
}
