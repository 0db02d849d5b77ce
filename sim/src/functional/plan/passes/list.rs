//! The list that passes work on, and looking ahead in it.

use vta_driver::{DeviceMemory, Span};
use vta_isa::Config;
use vta_isa::resolve::{Interval, TileSet};

use super::super::draft::Draft;
pub(super) use super::super::draft::Slot;
use super::super::origin::Origin;
use super::super::unplanned::GoOn;

/// Operations that are looked through for a partner.
pub(super) const WINDOW: usize = 512;
/// Operations after which a pass asks whether to go on, as it takes less for each than asking does.
const ASKED_EVERY: usize = 16;

/// A batch's operations in order.
pub(in super::super) struct List<'a> {
    pub slots: Vec<Slot>,
    /// Bytes that passes took as constants.
    pub constants: Vec<Span>,
    go_on: GoOn<'a>,
}

/// A fusion.
pub(in super::super) struct Pass {
    /// What listings call it.
    pub name: &'static str,
    pub run: fn(&mut List<'_>, &Context<'_>),
}

/// What passes may know.
pub(in super::super) struct Context<'a> {
    pub config: &'a Config,
    pub memory: &'a DeviceMemory,
    /// What the batch stores, sorted, apart.
    pub stored: &'a [Span],
    /// Whether inputs that many sums share are taken as constants.
    pub fixed_inputs: bool,
    /// Groups that a kernel works on together at best.
    pub columns: usize,
}

impl<'a> List<'a> {
    pub fn new(slots: Vec<Slot>, go_on: GoOn<'a>) -> Self {
        Self {
            slots,
            constants: Vec::new(),
            go_on,
        }
    }

    /// Calls a function for each operation in turn, with the slots before it, its own, and those
    /// behind it, as long as the plan is wanted.
    pub fn each(&mut self, mut join: impl FnMut(&mut [Slot], &mut Slot, &mut [Slot])) {
        for index in 0..self.slots.len() {
            if index % ASKED_EVERY == 0 && !(self.go_on)() {
                return;
            }
            let (before, rest) = self.slots.split_at_mut(index);
            if let Some((slot, behind)) = rest.split_first_mut() {
                join(before, slot, behind);
            }
        }
    }
}

/// Takes an operation that has become part of another, which then stands for its instructions.
pub(super) fn join(slot: &mut Slot, origin: &mut Origin, pass: &'static str) -> Option<Draft> {
    let mut draft = slot.take()?;
    origin.take(std::mem::take(&mut draft.origin), pass);
    Some(draft)
}

/// The first of the operations that touches any of the tiles.
pub(super) fn next_touching(behind: &[Slot], tiles: &TileSet) -> Option<usize> {
    let touches = |slot: &Slot| slot.as_ref().is_some_and(|d| d.touches(tiles));
    behind.iter().take(WINDOW).position(touches)
}

/// What was passed over while looking ahead.
#[derive(Default)]
pub(super) struct Passed {
    read: TileSet,
    written: TileSet,
    dram_read: Vec<Span>,
    dram_written: Vec<Span>,
}

impl Passed {
    pub fn pass(&mut self, draft: &Draft) {
        self.read.add(&draft.reads);
        self.written.add(&draft.writes);
        self.dram_read.extend(draft.dram_reads());
        self.dram_written.extend(draft.dram_write());
    }

    /// Whether something wrote one of the tiles.
    pub fn wrote(&self, tiles: &TileSet) -> bool {
        self.written.meets(tiles)
    }

    /// Whether something touched the tiles.
    pub fn touches(&self, tiles: &TileSet) -> bool {
        self.wrote(tiles) || self.read.meets(tiles)
    }

    /// Whether something stored to the span.
    pub fn stored(&self, span: &Span) -> bool {
        self.dram_written.iter().any(|s| s.overlaps(span))
    }

    /// Whether a store to the span may be done before what was passed over.
    pub fn lets_store(&self, span: &Span) -> bool {
        !self.stored(span) && !self.dram_read.iter().any(|s| s.overlaps(span))
    }
}
