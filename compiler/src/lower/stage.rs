//! int8 tiles into the accumulators, for layers without a matrix product.
//!
//! A LOAD of memory type ACC8 brings them. A machine without it takes the matrix unit: the load
//! module brings them as input tiles, a GEMM with `reset` clears the accumulators, and one with an
//! identity as its weight tile adds them: one step a tile each, where the load would take two
//! beats. What is added up needs no place of its own then.
//!
//! The input scratchpad is two halves, as for a convolution's chunks: a load waits until the GEMM
//! before the last has read its half.

use vta_isa::{Extension, Load, MemType, Module, Store, Uop};
use vta_program::BufferId;
use vta_program::listing::Role;

use super::LowerError;
use super::emit::{Emitter, Loops, Rect};
use super::places::Place;
use super::ring::Ring;
use super::tokens::Done;

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
    /// Tiles between columns in memory; 1 for what is stored.
    pub step: usize,
}

impl Rows {
    /// Tiles that follow each other.
    pub fn run(place: Place, [sram, dram]: [usize; 2], count: usize) -> Self {
        Self {
            place,
            sram,
            dram,
            size: [1, count],
            stride: count,
            step: 1,
        }
    }

    /// As an output.
    pub fn store(&self) -> Store {
        Store {
            sram_base: self.sram as u16,
            dram_base: self.dram as u32,
            y_size: self.size[0] as u16,
            x_size: self.size[1] as u16,
            x_stride: self.stride as u16,
            ..Store::default()
        }
    }

    /// Brings them to a scratchpad. A LOAD steps between its rows alone: columns with a step are its rows, and
    /// rows that don't go on in the same step are a LOAD each.
    fn load(&self, e: &mut Emitter<'_, '_>, mem: MemType, sram: usize) -> Result<(), LowerError> {
        let ([rows, columns], stride, step) = (self.size, self.stride, self.step);
        let (loads, size, stride) = if step == 1 {
            (1, [rows, columns], stride)
        } else if stride == columns * step {
            (1, [rows * columns, 1], step)
        } else {
            (rows, [columns, 1], step)
        };
        for row in 0..loads {
            let load = Load {
                mem,
                sram_base: (sram + row * columns) as u16,
                dram_base: (self.dram + row * self.stride) as u32,
                y_size: size[0] as u16,
                x_size: size[1] as u16,
                x_stride: stride as u16,
                ..Load::default()
            };
            e.load(self.place, load)?;
        }
        Ok(())
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

/// Weight tiles, from one of the constant on, and where they go.
pub(super) struct Weights {
    pub from: usize,
    pub count: usize,
    pub place: usize,
}

/// Tiles that go through the matrix unit.
pub(super) struct Products {
    /// Tiles of a half.
    half: usize,
    /// Of the input scratchpad.
    pub ring: Ring,
    /// Where weights come from.
    constant: BufferId,
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

    /// Waits until the layer before has stored its outputs, but for the last ones where loads go
    /// to the accumulators: the first of those waits for them.
    pub fn open(e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        if e.has(Extension::Acc8) {
            e.wait(Done::EarlyStored)?;
            return Ok(Self::Direct);
        }
        let block = e.lowering.config.block();
        let one = |i: usize| u8::from(i / block == i % block);
        let bytes = (0..block * block).map(one).collect();
        let identity = e.lowering.constant(&e.node, Role::Identity, bytes);
        let first = Weights {
            from: 0,
            count: 1,
            place: IDENTITY,
        };
        Self::selecting(e, identity, &first)
    }

    /// Takes the matrix unit on any machine, with weight tiles of a constant.
    pub fn selecting(
        e: &mut Emitter<'_, '_>,
        constant: BufferId,
        first: &Weights,
    ) -> Result<Self, LowerError> {
        e.wait(Done::EarlyStored)?;
        e.hand_on()?;
        e.wait(Done::EarlyMultiplied)?;
        e.wait(Done::LastMultiplied)?;
        let mut products = Products {
            half: e.lowering.config.depth(MemType::Inp) / HALVES,
            ring: Ring::new(HALVES, Done::Multiplied),
            constant,
            weights: 0,
        };
        products.renew(e, first)?;
        Ok(Self::Products(products))
    }

    /// Whether tiles can be added to others on their way.
    pub fn adds(&self) -> bool {
        matches!(self, Self::Products(_))
    }

    /// What the first tile's compute commands find in the accumulators.
    pub fn found(&self) -> Option<Done> {
        match self {
            Self::Direct => Some(Done::LastStored),
            Self::Products(_) => None,
        }
    }

    /// Brings tiles into the accumulators.
    pub fn load(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Rows,
        sums: Sums,
    ) -> Result<(), LowerError> {
        let products = match self {
            Self::Direct => return rows.load(e, MemType::Acc8, rows.sram),
            Self::Products(products) => products,
        };
        let count = rows.size[0] * rows.size[1];
        let loops = Loops::run(count, [1, 1]);
        if sums == Sums::Set {
            e.clear(Rect::run(rows.sram, count))?;
        }
        let src = products.fetch(e, rows, None)?;
        add(e, [rows.sram, src], loops)?;
        products.ring.free(e)
    }

    /// Leaves the tokens of the seam.
    pub fn close(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let Self::Products(products) = self else {
            return Ok(());
        };
        if products.ring.used() == 0 {
            e.wait(Done::InMemory)?;
            e.settle(Module::Load)?;
        }
        products.ring.leave(e)?;
        let weights = IDENTITY..IDENTITY + products.weights;
        e.lowering.seam.wgt = Vec::from([weights]);
        Ok(())
    }
}

impl Products {
    fn renew(&mut self, e: &mut Emitter<'_, '_>, weights: &Weights) -> Result<(), LowerError> {
        let load = Load {
            mem: MemType::Wgt,
            sram_base: weights.place as u16,
            dram_base: weights.from as u32,
            y_size: 1,
            x_size: weights.count as u16,
            x_stride: weights.count as u16,
            ..Load::default()
        };
        self.weights = self.weights.max(weights.place + weights.count);
        e.load(self.constant, load)
    }

    /// Brings tiles into a half of the input scratchpad, behind other weights if it needs such; the
    /// first one. The next products wait for them, and then free the half.
    pub fn fetch(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Rows,
        weights: Option<&Weights>,
    ) -> Result<usize, LowerError> {
        let first = self.ring.next() * self.half;
        self.ring.fill(e, Some(Done::InMemory))?;
        if let Some(weights) = weights {
            self.renew(e, weights)?;
        }
        rows.load(e, MemType::Inp, first)?;
        e.tell(Done::Loaded)?;
        e.wait(Done::Loaded)?;
        Ok(first)
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
