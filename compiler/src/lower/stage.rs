//! int8 tiles into the accumulators, for layers without a matrix product.
//!
//! A LOAD of memory type ACC8 brings them. A machine without it takes the matrix unit: the load
//! module brings them as input tiles, a GEMM with `reset` clears the accumulators, and one with an
//! identity as its weight tile adds them: one step a tile each, where the load would take two
//! beats. What is added up needs no place of its own then.
//!
//! The input scratchpad is two halves, as for a convolution's chunks: a load waits until the GEMM
//! before the last has read its half.

use vta_isa::{Extension, MemType, Module};
use vta_program::BufferId;
use vta_program::listing::Role;

use super::emit::{Emitter, Loops, Rect, Sums, uop};
use super::ring::Ring;
use super::tokens::Done;
use super::transfer::Transfer;
use super::{Fault, LowerError};

/// Parts of the input scratchpad.
const HALVES: usize = 2;

/// The weight tile of the identity.
const IDENTITY: usize = 0;

/// The way of a layer's tiles.
pub(super) enum Stage {
    /// By loads into the accumulators.
    Direct,
    /// By loads of the load module into the accumulators, while compute works on the tiles before.
    Ahead,
    /// Through the matrix unit.
    Products(Products),
}

/// Weight tiles, from one of the constant on, and where they go.
#[derive(Clone, Copy)]
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
    /// Those that were loaded last.
    weights: Weights,
    /// Weight tiles from the first on that are in use.
    used: usize,
}

impl Stage {
    /// How many tiles one load may bring.
    pub fn most(config: &vta_isa::Config) -> usize {
        if config.extensions().contains(Extension::Acc8) {
            config.depth(MemType::Acc)
        } else {
            config.depth(MemType::Inp) / HALVES
        }
    }

    /// Waits until the layer before has stored its outputs, but for the last ones where loads go
    /// to the accumulators: the first of those waits for them.
    pub fn open(e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        if e.has(Extension::Acc8) {
            return Self::direct(e);
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

    /// As [`Self::open`], of a layer that says itself which tiles it wants next.
    pub fn ahead(e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        Self::by_load_module(e)?;
        Ok(Self::Ahead)
    }

    /// The load module goes where the layer before may still read its own.
    fn by_load_module(e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        e.wait(Done::EarlyStored)?;
        e.hand_on()?;
        // The two tokens of the layer before come in this order.
        e.wait(Done::EarlyMultiplied)?;
        e.wait(Done::LastMultiplied)
    }

    /// Takes the matrix unit on any machine, with weight tiles of a constant.
    pub fn selecting(
        e: &mut Emitter<'_, '_>,
        constant: BufferId,
        first: &Weights,
    ) -> Result<Self, LowerError> {
        Self::by_load_module(e)?;
        let mut products = Products {
            half: e.lowering.config.depth(MemType::Inp) / HALVES,
            ring: Ring::new(HALVES, Done::Multiplied),
            constant,
            weights: *first,
            used: 0,
        };
        products.renew(e, first)?;
        Ok(Self::Products(products))
    }

    /// Goes on behind a cut: the weights that were loaded last are loaded again.
    pub fn reopen(&mut self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        *self = match self {
            Self::Direct => Self::direct(e)?,
            Self::Ahead => Self::ahead(e)?,
            Self::Products(products) => Self::selecting(e, products.constant, &products.weights)?,
        };
        Ok(())
    }

    fn direct(e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        e.wait(Done::EarlyStored)?;
        Ok(Self::Direct)
    }

    /// The way through the matrix unit, of a layer that takes it.
    pub fn products(&mut self, e: &Emitter<'_, '_>) -> Result<&mut Products, LowerError> {
        match self {
            Self::Products(products) => Ok(products),
            Self::Direct | Self::Ahead => {
                Err(e.fault(Fault::Internal("it has no products".to_owned())))
            }
        }
    }

    /// Whether tiles can be added to others on their way.
    pub fn adds(&self) -> bool {
        matches!(self, Self::Products(_))
    }

    /// What the first tile's compute commands find in the accumulators.
    pub fn found(&self) -> Option<Done> {
        match self {
            Self::Direct => Some(Done::LastStored),
            Self::Ahead | Self::Products(_) => None,
        }
    }

    /// Brings tiles into the accumulators.
    pub fn load(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Transfer,
        sums: Sums,
    ) -> Result<(), LowerError> {
        let products = match self {
            Self::Direct | Self::Ahead => {
                return e.load_by(MemType::Acc8, matches!(self, Self::Ahead), rows);
            }
            Self::Products(products) => products,
        };
        let loops = Loops::run(rows.count(), [1, 1]);
        let anew = sums == Sums::Set && e.has(Extension::Overwrite);
        if sums == Sums::Set && !anew {
            e.clear(Rect::run(rows.sram, rows.count()))?;
        }
        let src = products.fetch(e, rows, None)?;
        if anew {
            e.gemm_anew(vec![uop([rows.sram, src, IDENTITY])], loops)?;
        } else {
            add(e, [rows.sram, src], loops)?;
        }
        products.ring.free(e)
    }

    /// Leaves the tokens of the seam.
    pub fn close(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let Self::Products(products) = self else {
            return Ok(());
        };
        if products.ring.used() == 0 {
            // Nothing was loaded, so that nobody has taken the token that the first load takes.
            e.wait(Done::InMemory)?;
            e.settle(Module::Load)?;
        }
        e.leave(Done::Multiplied)?;
        let weights = IDENTITY..IDENTITY + products.used;
        e.lowering.seam.wgt = Vec::from([weights]);
        Ok(())
    }
}

impl Products {
    fn renew(&mut self, e: &mut Emitter<'_, '_>, weights: &Weights) -> Result<(), LowerError> {
        let Weights { from, count, place } = *weights;
        (self.weights, self.used) = (*weights, self.used.max(place + count));
        e.load(
            MemType::Wgt,
            Transfer::run(self.constant, [place, from], count),
        )
    }

    /// Brings tiles into a half of the input scratchpad, behind other weights if it needs such; the
    /// first one. The next products wait for them, and then free the half.
    pub fn fetch(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Transfer,
        weights: Option<&Weights>,
    ) -> Result<usize, LowerError> {
        let first = self.ring.next() * self.half;
        if self.ring.used() == 0 {
            e.wait(Done::InMemory)?;
        }
        self.ring.fill(e)?;
        if let Some(weights) = weights {
            self.renew(e, weights)?;
        }
        e.load(MemType::Inp, rows.at(first))?;
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
    e.gemm(vec![uop([dst, src, IDENTITY])], loops)
}
