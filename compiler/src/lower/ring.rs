//! Parts of a scratchpad, used in turn: while one is read, another is filled.

use super::LowerError;
use super::emit::Emitter;
use super::seam;
use super::tokens::Done;

/// The parts of a scratchpad and how many of them were filled so far, the same ones again and again.
pub(super) struct Ring {
    parts: usize,
    used: usize,
    /// What says that a part is free.
    freed: Done,
}

impl Ring {
    pub const fn new(parts: usize, freed: Done) -> Self {
        Self {
            parts,
            used: 0,
            freed,
        }
    }

    /// How often a part was filled and used up.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Which part is filled next.
    pub const fn next(&self) -> usize {
        self.used % self.parts
    }

    /// What comes next fills a part: it waits until whatever used that last is done, and the first
    /// one for what it finds.
    pub fn fill(&self, e: &mut Emitter<'_, '_>, first: Option<Done>) -> Result<(), LowerError> {
        match first {
            Some(found) if self.used == 0 => e.wait(found),
            _ if self.used >= self.parts => e.wait(self.freed),
            _ => Ok(()),
        }
    }

    /// What came last used a part up.
    pub fn free(&mut self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        self.used += 1;
        e.tell(self.freed)
    }

    /// Nobody waits for the last parts: their tokens are those of the seam, with some for parts that
    /// weren't used.
    pub fn leave(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        (self.used.min(self.parts)..seam::TOKENS as usize).try_for_each(|_| {
            e.sync(self.freed.edge().producer())?;
            e.tell(self.freed)
        })
    }
}
