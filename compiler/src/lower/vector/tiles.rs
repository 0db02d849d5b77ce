//! Tiles under way through the accumulators, which are two halves, so that storing one tile
//! overlaps working on the next. Where the load module brings the one after, they are three parts.

use vta_isa::{MemType, Requantize};
use vta_program::Layer;

use super::super::LowerError;
use super::super::emit::Emitter;
use super::super::ring::Ring;
use super::super::seam;
use super::super::stage::Stage;
use super::super::tokens::Done;
use super::super::transfer::Transfer;

/// How many parts the accumulators are split into.
pub(in crate::lower) const HALVES: usize = 2;
/// As many, where the load module fills them.
pub(in crate::lower) const THIRDS: usize = 3;

/// The commands of a layer whose tiles are under way: where the next goes and which wait for a store.
pub(in crate::lower) struct Halves<'l, 'a> {
    pub e: Emitter<'l, 'a>,
    half: usize,
    ring: Ring,
    pub stage: Stage,
    /// How many parts were given out since the last cut, and the tokens with which the load module ends.
    given: usize,
    released: bool,
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
            given: 0,
            released: false,
            reads_more: false,
        }
    }

    /// A tile's first accumulator. What comes next waits until it is free. A cut may come before it, behind which the
    /// scratchpads hold the stage's weights alone.
    pub(in crate::lower) fn next(&mut self) -> Result<usize, LowerError> {
        let stored = self.ring.used();
        if self.e.is_long() && stored > 0 && self.given == stored {
            self.leave()?;
            self.e.cut()?;
            self.stage.reopen(&mut self.e)?;
            self.ring = Ring::new(HALVES, Done::Stored);
            (self.given, self.released) = (0, false);
        }
        if !self.is_ahead() {
            if let Some(found) = self.stage.found().filter(|_| self.ring.used() == 0) {
                self.e.wait(found)?;
            }
            self.ring.fill(&mut self.e)?;
        } else if self.given == 0 {
            self.e.wait(Done::InMemory)?;
        } else if self.ring.fill(&mut self.e)? {
            // Compute is behind by a tile, so that this one was stored while it worked on the last.
            self.e.tell(Done::Freed)?;
            self.e.wait(Done::Freed)?;
        }
        self.given += 1;
        Ok(self.part(self.given - 1))
    }

    /// The first accumulator of the part that was given out at a time.
    const fn part(&self, at: usize) -> usize {
        let parts = if self.is_ahead() { THIRDS } else { HALVES };
        at % parts * self.half
    }

    /// Whether the load module brings tiles.
    pub(in crate::lower) const fn is_ahead(&self) -> bool {
        matches!(self.stage, Stage::Ahead)
    }

    /// How many tiles are begun before the one that is worked on.
    pub(in crate::lower) fn ahead(&self) -> usize {
        usize::from(self.is_ahead() && !self.e.is_long())
    }

    /// The load module has no more to bring: it may go on to the next layer.
    pub(in crate::lower) fn release(&mut self) -> Result<(), LowerError> {
        if self.is_ahead() && !self.released {
            self.released = true;
            (0..seam::TOKENS).try_for_each(|_| self.e.tell(Done::Multiplied))?;
            self.e.lowering.seam.wgt = Vec::new();
        }
        Ok(())
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
        self.release()?;
        self.stage.close(&mut self.e)?;
        self.e.leave(Done::Stored)?;
        // The part of the last tile.
        let base = self.part(self.given.saturating_sub(1));
        let end = if self.reads_more {
            self.e.lowering.config.depth(MemType::Acc)
        } else {
            base + self.half
        };
        let seam = &mut self.e.lowering.seam;
        (seam.acc, seam.unstored) = (base..end, None);
        Ok(())
    }
}
