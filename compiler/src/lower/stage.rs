//! int8 tiles into the accumulators, for layers without a matrix product.
//!
//! A LOAD of memory type ACC8 brings them. A machine without it takes the matrix unit: the load
//! module brings them as input tiles, a GEMM with `reset` clears the accumulators, and one with an
//! identity as its weight tile adds them: one step a tile each, where the load would take two
//! beats. What is added up needs no place of its own then.
//!
//! The input scratchpad is two halves. Tokens are those of a convolution's chunks: a load waits
//! until the GEMM before the last has read its half.

use vta_isa::{Deps, Extension, Load, MemType, Module, Uop};
use vta_program::BufferId;
use vta_program::listing::Role;

use super::LowerError;
use super::emit::{Emitter, Loops, Rect};
use super::places::Place;
use super::seam;

/// Parts of the input scratchpad.
const HALVES: usize = 2;

/// The weight tile of the identity.
const IDENTITY: usize = 0;

/// Rows of int8 tiles in memory, and the accumulator tile of the first.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub place: Place,
    pub sram: usize,
    pub dram: usize,
    /// Rows and columns.
    pub size: [usize; 2],
    /// Tiles between rows in memory.
    pub stride: usize,
}

impl Rows {
    fn load(&self, mem: MemType, sram: usize) -> Load {
        Load {
            mem,
            sram_base: sram as u16,
            dram_base: self.dram as u32,
            y_size: self.size[0] as u16,
            x_size: self.size[1] as u16,
            x_stride: self.stride as u16,
            ..Load::default()
        }
    }
}

/// What becomes of the accumulators where tiles go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// They are the tiles.
    Set,
    /// The tiles are added; through the matrix unit only.
    Add,
}

/// The way of a layer's tiles.
pub(super) enum Stage {
    /// By loads into the accumulators.
    Direct,
    /// Through the matrix unit.
    Products(Products),
}

/// Tiles that go through the matrix unit.
pub(super) struct Products {
    /// Tiles of a half.
    half: usize,
    /// Loads so far.
    loads: usize,
    /// Weight tiles from the first on that are in use.
    weights: usize,
}

impl Stage {
    /// How many tiles one load may bring.
    pub fn most(config: &vta_isa::Config) -> usize {
        match config.extensions().contains(Extension::Acc8) {
            true => config.depth(MemType::Acc),
            false => config.depth(MemType::Inp) / HALVES,
        }
    }

    /// Waits until the layer before has stored its outputs, but for the last token where loads go
    /// to the accumulators: their first takes that one.
    pub fn open(e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        Self::await_outputs(e)?;
        if e.has(Extension::Acc8) {
            return Ok(Self::Direct);
        }
        let block = e.lowering.config.block();
        let one = |i: usize| u8::from(i / block == i % block);
        let bytes = (0..block * block).map(one).collect();
        let identity = e.lowering.constant(&e.node, Role::Identity, bytes);
        Products::open(e, identity, 1).map(Self::Products)
    }

    /// Takes the matrix unit on any machine, with the first weight tiles of a constant.
    pub fn selecting(
        e: &mut Emitter<'_, '_>,
        weights: BufferId,
        tiles: usize,
    ) -> Result<Self, LowerError> {
        Self::await_outputs(e)?;
        Products::open(e, weights, tiles).map(Self::Products)
    }

    /// Waits for the layer before, but for its last token.
    fn await_outputs(e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let wait = Deps {
            pop_next: true,
            ..Deps::NONE
        };
        (1..seam::TOKENS).try_for_each(|_| e.sync(Module::Compute, wait))
    }

    /// Whether tiles can be added to others on their way.
    pub fn adds(&self) -> bool {
        matches!(self, Self::Products(_))
    }

    /// Whether the first tile's compute commands wait for the layer before.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Direct)
    }

    /// Brings tiles into the accumulators.
    pub fn load(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Rows,
        sums: Sums,
    ) -> Result<(), LowerError> {
        let products = match self {
            Self::Direct => return e.load(rows.place, rows.load(MemType::Acc8, rows.sram)),
            Self::Products(products) => products,
        };
        let count = rows.size[0] * rows.size[1];
        let loops = Loops {
            iter: [1, count],
            dst: [0, 1],
            src: [0, 1],
        };
        if sums == Sums::Set {
            e.clear(Rect::run(rows.sram, count))?;
        }
        let src = products.fetch(e, rows)?;
        let begin = e.len();
        add(e, [rows.sram, src], loops)?;
        products.release(e, begin)
    }

    /// Leaves the tokens of the seam, after as many as the loads left.
    pub fn close(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let Self::Products(products) = self else {
            return Ok(());
        };
        if products.loads == 0 {
            // The token that was handed on.
            let deps = Deps {
                pop_next: true,
                ..Deps::NONE
            };
            e.sync(Module::Load, deps)?;
        }
        let leave = Deps {
            push_prev: true,
            ..Deps::NONE
        };
        for _ in products.loads.min(HALVES)..seam::TOKENS as usize {
            e.sync(Module::Compute, leave)?;
        }
        let weights = IDENTITY..IDENTITY + products.weights;
        e.lowering.seam.wgt = Vec::from([weights]);
        Ok(())
    }
}

impl Products {
    /// Takes the last token of the layer before and loads the first weight tiles.
    fn open(e: &mut Emitter<'_, '_>, weights: BufferId, tiles: usize) -> Result<Self, LowerError> {
        let wait = Deps {
            pop_next: true,
            ..Deps::NONE
        };
        // The last token goes on to the load module.
        let hand_on = Deps {
            push_prev: true,
            ..wait
        };
        e.sync(Module::Compute, hand_on)?;
        for _ in 1..seam::TOKENS {
            e.sync(Module::Load, wait)?;
        }
        let load = Load {
            deps: wait,
            mem: MemType::Wgt,
            sram_base: IDENTITY as u16,
            y_size: 1,
            x_size: tiles as u16,
            x_stride: tiles as u16,
            ..Load::default()
        };
        e.load(weights, load)?;
        Ok(Self {
            half: e.lowering.config.depth(MemType::Inp) / HALVES,
            loads: 0,
            weights: tiles,
        })
    }

    /// Other weight tiles, from one of a constant on, come before what is fetched next.
    pub fn renew(
        &mut self,
        e: &mut Emitter<'_, '_>,
        weights: BufferId,
        [from, count]: [usize; 2],
        place: usize,
    ) -> Result<(), LowerError> {
        let load = Load {
            mem: MemType::Wgt,
            sram_base: place as u16,
            dram_base: from as u32,
            y_size: 1,
            x_size: count as u16,
            x_stride: count as u16,
            ..Load::default()
        };
        self.weights = self.weights.max(place + count);
        e.load(weights, load)
    }

    /// Brings tiles into a half of the input scratchpad; the first one.
    pub fn fetch(&mut self, e: &mut Emitter<'_, '_>, rows: Rows) -> Result<usize, LowerError> {
        let begin = e.len();
        self.fetch_since(e, rows, begin)
    }

    /// As [`Self::fetch`]; loads from `begin` on, which belong to it, wait for the half, too.
    pub fn fetch_since(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Rows,
        begin: usize,
    ) -> Result<usize, LowerError> {
        let first = self.loads % HALVES * self.half;
        let mut load = rows.load(MemType::Inp, first);
        load.deps.push_next = true;
        e.load(rows.place, load)?;
        if (self.loads == 0 || self.loads >= HALVES)
            && let Some(deps) = e.first_since(begin, Module::Load)
        {
            deps.pop_next = true;
        }
        self.loads += 1;
        Ok(first)
    }

    /// Tokens of the products from `begin` on: they wait for what was fetched last, and then its
    /// half is free.
    pub fn release(&self, e: &mut Emitter<'_, '_>, begin: usize) -> Result<(), LowerError> {
        let Some(deps) = e.first_since(begin, Module::Compute) else {
            let pass = Deps {
                pop_prev: true,
                push_prev: true,
                ..Deps::NONE
            };
            return e.sync(Module::Compute, pass);
        };
        deps.pop_prev = true;
        if let Some(deps) = e.last_of(Module::Compute) {
            deps.push_prev = true;
        }
        Ok(())
    }
}

/// Adds input tiles to accumulators: a step for each trip of the loops.
pub(super) fn add(
    e: &mut Emitter<'_, '_>,
    [dst, src]: [usize; 2],
    loops: Loops,
) -> Result<(), LowerError> {
    let uop = Uop {
        dst: dst as u16,
        src: src as u16,
        wgt: IDENTITY as u16,
    };
    e.gemm(false, vec![uop], loops)
}
