//! Halves under way through the accumulators, which are two halves, so that storing one tile
//! overlaps working on the next.

use vta_isa::{Deps, Module, Store};

use super::super::emit::Emitter;
use super::super::places::Place;
use super::super::stage::Stage;
use super::super::{LowerError, seam};

/// How many parts the accumulators are split into.
pub(in crate::lower) const HALVES: usize = 2;

/// Tiles that are under way: where the next goes and which wait for a store.
pub(in crate::lower) struct Halves {
    pub half: usize,
    pub done: usize,
    pub stage: Stage,
}

impl Halves {
    pub(in crate::lower) fn base(&self) -> usize {
        self.done % HALVES * self.half
    }

    pub(in crate::lower) fn open(half: usize, e: &mut Emitter<'_, '_>) -> Result<Self, LowerError> {
        Ok(Self::of(half, Stage::open(e)?))
    }

    /// Halves of a layer whose tiles come in their own way.
    pub(in crate::lower) const fn of(half: usize, stage: Stage) -> Self {
        Self {
            half,
            done: 0,
            stage,
        }
    }

    /// Sets the tokens of a tile whose commands start at `begin`: its first waits for the store
    /// that used this half (the first tile's for the layer before), its last lets the store go.
    pub(in crate::lower) fn seal(&self, e: &mut Emitter<'_, '_>, begin: usize) {
        let first = self.done == 0 && self.stage.waits();
        if (first || self.done >= HALVES)
            && let Some(deps) = e.first_since(begin, Module::Compute)
        {
            deps.pop_next = true;
        }
        if let Some(deps) = e.last_of(Module::Compute) {
            deps.push_next = true;
        }
    }

    pub(in crate::lower) fn store(
        &mut self,
        e: &mut Emitter<'_, '_>,
        output: Place,
        mut store: Store,
    ) -> Result<(), LowerError> {
        store.deps.pop_prev = true;
        store.deps.push_prev = true;
        self.done += 1;
        e.store(output, store)
    }

    /// Leaves the tokens of the seam.
    pub(in crate::lower) fn close(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        self.stage.close(e)?;
        let deps = Deps {
            push_prev: true,
            ..Deps::NONE
        };
        for _ in self.done.min(HALVES)..seam::TOKENS as usize {
            e.sync(Module::Store, deps)?;
        }
        // The half of the last tile.
        let base = (self.done + 1) % HALVES * self.half;
        e.lowering.seam.acc = base..base + self.half;
        Ok(())
    }
}
