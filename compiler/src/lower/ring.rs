//! Parts of a scratchpad, used in turn: while one is read, another is filled.

use super::LowerError;
use super::emit::Emitter;
use super::seam;
use super::tokens::Done;

/// The parts of a scratchpad and how many of them were filled so far, the same ones again and again.
pub(super) struct Ring {
    parts: usize,
    used: usize,
    /// Tokens of free parts that were given, and how many of them are taken.
    told: usize,
    taken: usize,
    /// What says that a part is free.
    freed: Done,
}

impl Ring {
    pub const fn new(parts: usize, freed: Done) -> Self {
        Self {
            parts,
            used: 0,
            told: 0,
            taken: 0,
            freed,
        }
    }

    /// How often a part was filled and used up.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// How many tokens of free parts were given.
    pub const fn told(&self) -> usize {
        self.told
    }

    /// Which part is filled next.
    pub const fn next(&self) -> usize {
        self.used % self.parts
    }

    /// What comes next fills a part: it waits until whatever used that last is done, and the first
    /// one for what it finds. Whether it waits.
    pub fn fill(
        &mut self,
        e: &mut Emitter<'_, '_>,
        first: Option<Done>,
    ) -> Result<bool, LowerError> {
        match first {
            Some(found) if self.used == 0 => e.wait(found)?,
            // All but the newest tokens, one for each part but one.
            _ if self.told >= self.taken + self.parts => self.take(e)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take(&mut self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        self.taken += 1;
        e.wait(self.freed)
    }

    /// Waits for what was given before another token of the queue, so many in all: it is there by then. `again`: behind
    /// that one is a token in place of one that is taken early.
    pub fn catch_up(
        &mut self,
        e: &mut Emitter<'_, '_>,
        told: usize,
        again: bool,
    ) -> Result<(), LowerError> {
        while self.taken < told {
            self.take(e)?;
        }
        self.told += usize::from(again);
        Ok(())
    }

    /// What came last used a part up.
    pub fn free(&mut self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        self.used += 1;
        self.told += 1;
        e.tell(self.freed)
    }

    /// Nobody waits for the last parts: their tokens are those of the seam, with some for parts that
    /// weren't used.
    pub fn leave(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        (self.told - self.taken..seam::TOKENS as usize).try_for_each(|_| {
            e.sync(self.freed.edge().producer())?;
            e.tell(self.freed)
        })
    }
}
