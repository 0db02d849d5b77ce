//! A batch decoded once: what remains to be done when it runs again.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use vta_driver::{DeviceMemory, MarkReport, Span, Traffic};
use vta_isa::Uop;

use super::ops::Op;
use super::origin::Origin;
use super::schedule::Schedule;
use super::scratchpads::Scratchpads;

/// An executable plan of one batch for one kernel.
///
/// Micro-ops and weights are constants of a plan: it was made for the bytes that LOAD UOP and
/// LOAD WGT found, no STORE of the batch touches them, and [`Plan::holds`] says whether they
/// are still there. Everything else is read when the plan runs.
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    /// The instructions that each stands for.
    pub origins: Vec<Origin>,
    /// The layout of the memory that the spans mean.
    pub layout: u64,
    pub constants: Vec<Constant>,
    /// Whether micro-ops or weights came from the scratchpads as they were before: such a plan
    /// is good for one run.
    pub once: bool,
    /// Micro-ops that the scratchpad holds after the run.
    pub uops: Vec<(u16, Uop)>,
    /// Weight tiles that the scratchpad holds after the run.
    pub weights: Vec<(u16, Box<[u8]>)>,
    pub traffic: Traffic,
    /// Traffic of each mark; no times.
    pub marks: Vec<MarkReport>,
    pub leftover_tokens: [u32; 4],
    /// How several threads run it, once that is known; `None` inside if one does it as well.
    pub schedule: OnceLock<Option<Schedule>>,
}

/// A region whose bytes a plan was made for.
pub(crate) struct Constant {
    pub region: usize,
    /// Copies of the bytes, where they are few or often written again: by content they are the
    /// same even when somebody has written to the region.
    pub copies: Option<Vec<(Span, Box<[u8]>)>>,
}

/// Bytes that a plan keeps to compare with.
const MOST_COPIED_BYTES: usize = 4 << 20;

impl Constant {
    /// The constants of some regions, with copies of the spans that are read as far as there is
    /// room.
    pub fn new(spans: &[Span], regions: &BTreeSet<usize>, memory: &DeviceMemory) -> Vec<Self> {
        let size = |region: usize| -> usize {
            let spans = spans.iter().filter(|s| s.region == region);
            spans.map(|s| s.len).sum()
        };
        let mut sizes: Vec<(usize, usize)> = regions.iter().map(|&r| (size(r), r)).collect();
        // The small ones first: micro-ops, which a queue writes again for each batch.
        sizes.sort_unstable();
        let mut room = MOST_COPIED_BYTES;
        let mut constants = Vec::with_capacity(sizes.len());
        for (size, region) in sizes {
            let bytes = memory.region(region);
            let copy = |s: &Span| Some((*s, bytes.get(s.start..s.start + s.len)?.into()));
            let spans = || spans.iter().filter(|s| s.region == region);
            let copies = (size <= room).then(|| spans().map(copy).collect());
            room = room.saturating_sub(size);
            let copies = copies.flatten();
            constants.push(Self { region, copies });
        }
        constants
    }

    fn same_bytes(&self, memory: &DeviceMemory) -> bool {
        let bytes = memory.region(self.region);
        let same =
            |(s, copy): &(Span, Box<[u8]>)| bytes.get(s.start..s.start + s.len) == Some(&copy[..]);
        self.copies.as_ref().is_some_and(|c| c.iter().all(same))
    }
}

impl Plan {
    /// Writes the micro-ops and weights that the plan leaves, which running it doesn't.
    pub fn settle(&self, pads: &mut Scratchpads) {
        for &(index, uop) in &self.uops {
            pads.uop[usize::from(index)] = uop;
        }
        let size = pads.weight_tile_bytes();
        for (tile, bytes) in &self.weights {
            let at = usize::from(*tile) * size;
            pads.wgt[at..at + size].copy_from_slice(bytes);
        }
    }

    /// Versions of the constants' regions, for [`Self::holds`].
    pub fn versions(&self, memory: &DeviceMemory) -> Vec<u64> {
        let constants = self.constants.iter();
        constants.map(|c| memory.version(c.region)).collect()
    }

    /// Whether the plan still means the same in that memory. `versions` are those at which its
    /// bytes were last known to be there.
    pub fn holds(&self, memory: &DeviceMemory, versions: &mut [u64]) -> bool {
        !self.once
            && self.layout == memory.layout()
            && self.constants.iter().zip(versions).all(|(c, version)| {
                let now = memory.version(c.region);
                let same = now == *version || c.same_bytes(memory);
                *version = now;
                same
            })
    }
}
