//! The list that passes work on, and looking ahead in it.

use vta_driver::{DeviceMemory, Span};
use vta_isa::Config;

use super::super::draft::Draft;
use super::super::spans::overlap;
use super::super::tiles::Tiles;

/// Operations that are looked through for a partner.
pub(super) const WINDOW: usize = 512;

/// A batch's operations in order.
pub(in super::super) struct List {
    /// `None` where an operation has become part of another.
    pub drafts: Vec<Option<Draft>>,
    /// Bytes that passes took as constants.
    pub constants: Vec<Span>,
}

/// A fusion.
pub(in super::super) struct Pass {
    /// What listings call it.
    pub name: &'static str,
    pub run: fn(List, &Context<'_>) -> List,
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

impl Context<'_> {
    /// Bytes of an int8 tile.
    pub fn lanes(&self) -> usize {
        self.config.lanes()
    }
}

impl List {
    pub fn new(drafts: Vec<Draft>) -> Self {
        Self {
            drafts: drafts.into_iter().map(Some).collect(),
            constants: Vec::new(),
        }
    }

    /// The operations that are left.
    pub fn into_drafts(self) -> Vec<Draft> {
        self.drafts.into_iter().flatten().collect()
    }

    /// The same list with other operations.
    pub fn with(self, drafts: impl IntoIterator<Item = Draft>) -> Self {
        Self {
            drafts: drafts.into_iter().map(Some).collect(),
            constants: self.constants,
        }
    }

    /// Calls a function for each operation that is of a kind when its turn comes.
    pub fn each(
        mut self,
        is: impl Fn(&Draft) -> bool,
        mut join: impl FnMut(&mut [Option<Draft>], usize),
    ) -> Self {
        for index in 0..self.drafts.len() {
            if self.drafts[index].as_ref().is_some_and(&is) {
                join(&mut self.drafts, index);
            }
        }
        self
    }
}

/// The next operation after `index` that touches any of the tiles.
pub(super) fn next_touching(
    drafts: &[Option<Draft>],
    index: usize,
    tiles: &Tiles,
) -> Option<usize> {
    let window = drafts.iter().enumerate().skip(index + 1).take(WINDOW);
    let mut touching = window.filter(|(_, d)| d.as_ref().is_some_and(|d| d.touches(tiles)));
    touching.next().map(|(i, _)| i)
}

/// What was passed over while looking ahead.
#[derive(Default)]
pub(super) struct Passed {
    read: Option<Tiles>,
    written: Option<Tiles>,
    dram_read: Vec<Span>,
    dram_written: Vec<Span>,
}

impl Passed {
    pub fn pass(&mut self, draft: &Draft) {
        self.read.get_or_insert(Tiles::NONE).add(&draft.reads);
        self.written.get_or_insert(Tiles::NONE).add(&draft.writes);
        self.dram_read.extend(draft.dram_reads());
        self.dram_written.extend(draft.dram_write());
    }

    pub fn writes_any(&self, tiles: impl IntoIterator<Item = u16>) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|w| tiles.into_iter().any(|t| w.contains(usize::from(t))))
    }

    /// Whether something stored to the span.
    pub fn stored(&self, span: &Span) -> bool {
        self.dram_written.iter().any(|s| overlap(s, span))
    }

    /// Whether something touched the tiles.
    pub fn touches(&self, tiles: &Tiles) -> bool {
        let met = |t: &Option<Tiles>| t.as_ref().is_some_and(|t| t.meets(tiles));
        met(&self.written) || met(&self.read)
    }

    /// Whether a store to the span may be done before what was passed over.
    pub fn lets_store(&self, span: &Span) -> bool {
        !self
            .dram_read
            .iter()
            .chain(&self.dram_written)
            .any(|s| overlap(s, span))
    }
}
