//! Halves under way through the accumulators, which are two halves, so that storing one tile
//! overlaps working on the next.

use super::super::LowerError;
use super::super::emit::Emitter;
use super::super::ring::Ring;
use super::super::stage::Stage;
use super::super::tokens::Done;
use super::super::transfer::Transfer;

/// How many parts the accumulators are split into.
pub(in crate::lower) const HALVES: usize = 2;

/// Tiles that are under way: where the next goes and which wait for a store.
pub(in crate::lower) struct Halves {
    half: usize,
    ring: Ring,
    pub stage: Stage,
}

impl Halves {
    pub(in crate::lower) fn open(half: usize, e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        Ok(Self::of(half, Stage::open(e)?))
    }

    /// Halves of a layer whose tiles come in their own way.
    pub(in crate::lower) const fn of(half: usize, stage: Stage) -> Self {
        Self {
            half,
            ring: Ring::new(HALVES, Done::Stored),
            stage,
        }
    }

    /// A tile's first accumulator. What comes next waits until it is free.
    pub(in crate::lower) fn next(&self, e: &mut Emitter<'_, '_>) -> Result<usize, LowerError> {
        self.ring.fill(e, self.stage.found())?;
        Ok(self.ring.next() * self.half)
    }

    /// Stores a tile, whose commands end here.
    pub(in crate::lower) fn store(
        &mut self,
        e: &mut Emitter<'_, '_>,
        rows: Transfer,
    ) -> Result<(), LowerError> {
        e.tell(Done::Computed)?;
        e.wait(Done::Computed)?;
        e.store(rows)?;
        self.ring.free(e)
    }

    /// Leaves the tokens of the seam.
    pub(in crate::lower) fn close(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        self.stage.close(e)?;
        self.ring.leave(e)?;
        // The half of the last tile.
        let base = (self.ring.used() + 1) % HALVES * self.half;
        e.lowering.seam.acc = base..base + self.half;
        Ok(())
    }
}
