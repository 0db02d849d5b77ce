//! Parts of a scratchpad, used in turn: while one is read, another is filled.

use std::collections::VecDeque;

use super::LowerError;
use super::emit::Emitter;
use super::tokens::Done;

/// The parts of a scratchpad, the same ones filled again and again.
pub(super) struct Ring {
    parts: usize,
    used: usize,
    /// The tokens of the parts that were used up last, by number.
    ends: VecDeque<usize>,
    /// What says that a part is free.
    freed: Done,
}

impl Ring {
    pub const fn new(parts: usize, freed: Done) -> Self {
        Self {
            parts,
            used: 0,
            ends: VecDeque::new(),
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

    /// What comes next fills a part: it waits until whatever used that last is done. Whether there was such.
    pub fn fill(&mut self, e: &mut Emitter<'_, '_>) -> Result<bool, LowerError> {
        if self.ends.len() < self.parts {
            return Ok(false);
        }
        let end = self.ends.pop_front().unwrap_or_default();
        e.reach(self.freed.edge(), end)?;
        Ok(true)
    }

    /// What came last used a part up. That it is free is told.
    pub fn free(&mut self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        e.tell(self.freed)?;
        self.used += 1;
        self.ends.push_back(e.told(self.freed.edge()));
        Ok(())
    }
}
