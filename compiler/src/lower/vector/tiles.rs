//! Halves under way through the accumulators, which are two halves, so that storing one tile
//! overlaps working on the next.

use vta_isa::{MemType, Requantize};
use vta_program::Layer;

use super::super::LowerError;
use super::super::emit::Emitter;
use super::super::ring::Ring;
use super::super::stage::Stage;
use super::super::tokens::Done;
use super::super::transfer::Transfer;

/// How many parts the accumulators are split into.
pub(in crate::lower) const HALVES: usize = 2;

/// The commands of a layer whose tiles are under way: where the next goes and which wait for a store.
pub(in crate::lower) struct Halves<'l, 'a> {
    pub e: Emitter<'l, 'a>,
    half: usize,
    ring: Ring,
    pub stage: Stage,
    /// Whether STOREs read more of the accumulators than their half.
    reads_more: bool,
}

impl<'l, 'a> Halves<'l, 'a> {
    pub(in crate::lower) fn open(half: usize, mut e: Emitter<'l, 'a>) -> Result<Self, LowerError> {
        let stage = Stage::open(&mut e)?;
        Ok(Self::of(half, e, stage))
    }

    /// Halves of a layer whose tiles come in their own way.
    pub(in crate::lower) const fn of(half: usize, e: Emitter<'l, 'a>, stage: Stage) -> Self {
        Self {
            e,
            half,
            ring: Ring::new(HALVES, Done::Stored),
            stage,
            reads_more: false,
        }
    }

    /// A tile's first accumulator. What comes next waits until it is free. A cut may come before it, behind which the
    /// scratchpads hold the stage's weights alone.
    pub(in crate::lower) fn next(&mut self) -> Result<usize, LowerError> {
        if self.e.is_long() && self.ring.used() > 0 {
            self.leave()?;
            self.e.cut()?;
            self.stage.reopen(&mut self.e)?;
            self.ring = Ring::new(HALVES, Done::Stored);
        }
        self.ring.fill(&mut self.e, self.stage.found())?;
        Ok(self.ring.next() * self.half)
    }

    /// Stores a tile, whose commands end here.
    pub(in crate::lower) fn store(&mut self, rows: Transfer) -> Result<(), LowerError> {
        self.store_rounded(rows, None)
    }

    /// As [`Self::store`], perhaps with entries that lie behind the halves.
    pub(in crate::lower) fn store_rounded(
        &mut self,
        rows: Transfer,
        how: Option<Requantize>,
    ) -> Result<(), LowerError> {
        self.reads_more |= how.is_some();
        self.e.tell(Done::Computed)?;
        self.e.wait(Done::Computed)?;
        self.e.store(rows, how)?;
        self.ring.free(&mut self.e)
    }

    /// Ends the layer.
    pub(in crate::lower) fn finish(mut self, layer: Layer) -> Result<(), LowerError> {
        self.leave()?;
        self.e.finish(layer)
    }

    /// Leaves the tokens of the seam.
    fn leave(&mut self) -> Result<(), LowerError> {
        self.stage.close(&mut self.e)?;
        self.ring.leave(&mut self.e)?;
        // The half of the last tile.
        let base = (self.ring.used() + 1) % HALVES * self.half;
        let end = if self.reads_more {
            self.e.lowering.config.depth(MemType::Acc)
        } else {
            base + self.half
        };
        self.e.lowering.seam.acc = base..end;
        Ok(())
    }
}
