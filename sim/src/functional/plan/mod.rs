//! A batch decoded once: what remains to be done when it runs again.

pub(super) mod build;
pub(super) mod draft;
mod elementwise;
mod emit;
mod inputs;
pub(super) mod listing;
mod make;
mod matmul;
mod origin;
mod passes;
mod places;
mod shapes;
pub(super) mod unplanned;
#[cfg(debug_assertions)]
mod verify;

use std::sync::OnceLock;

use vta_driver::{DeviceMemory, LayerMark, MarkReport, Span, Traffic};
use vta_isa::{Config, Insn, MemType, Uop};

use self::origin::Origin;
use super::run::ops::Op;
use super::run::scratchpads::Scratchpads;
use super::threads::schedule::Schedule;

/// An executable plan of one batch for one kernel.
///
/// Micro-ops and weights are constants of a plan: it was made for the bytes that LOAD UOP and
/// LOAD WGT found, no STORE of the batch touches them, and [`Plan::holds`] says whether they
/// are still there. Everything else is read when the plan runs.
pub(crate) struct Plan {
    pub ops: Vec<Op>,
    /// The instructions that each stands for.
    pub origins: Vec<Origin>,
    pub constants: Vec<Constant>,
    /// Memory that it takes, without what several threads need beside.
    pub bytes: usize,
    /// Whether micro-ops or weights came from the scratchpads as they were before: such a plan
    /// is good for one run.
    pub once: bool,
    /// Micro-ops that the scratchpad holds after the run.
    pub uops: Vec<(usize, Uop)>,
    /// Weight tiles that the scratchpad holds after the run.
    pub weights: Vec<(usize, Box<[u8]>)>,
    pub traffic: Traffic,
    /// Traffic of each mark; no times.
    pub marks: Vec<MarkReport>,
    pub leftover_tokens: [u32; 4],
    /// How several threads run it, once that is known; `None` inside if one does it as well.
    pub schedule: OnceLock<Option<Schedule>>,
}

/// What a plan is made of: a batch, what it finds in memory, and the machine.
pub(crate) struct Subject<'a> {
    pub config: &'a Config,
    /// Of input and accumulator tiles only how many there are counts; of micro-ops and weights what they are before the
    /// batch, if a plan for one run will do.
    pub pads: &'a Scratchpads,
    pub limits: Limits,
    pub insns: &'a [Insn],
    pub marks: &'a [LayerMark],
    pub memory: &'a DeviceMemory,
    /// Whether inputs that it doesn't store may be taken as constants.
    pub fixed_inputs: bool,
    /// Whether a plan for one run will do: one of micro-ops or weights that were in the scratchpads.
    pub once: bool,
    /// Whether the memory is kept beside the plan as it is, which then needs no copies of its constants.
    pub kept: bool,
}

/// What a batch and its plan may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// GEMM and ALU steps.
    pub steps: u64,
    /// Memory of the plan, and of what is listed while it is made.
    pub plan_bytes: usize,
}

/// A region whose bytes a plan was made for.
pub(crate) struct Constant {
    pub region: usize,
    /// Where they lie in it.
    pub spans: Box<[Span]>,
    /// Copies of the bytes, where no memory is kept that has them, and they are few or often written again: by content
    /// they are the same even when somebody has written to the region.
    pub copies: Option<Vec<(Span, Box<[u8]>)>>,
}

/// Bytes that a plan copies to compare with: micro-ops, for the most part, which a queue writes again for each batch.
const MOST_COPIED_BYTES: usize = 1 << 18;

impl Constant {
    /// The constants that merged spans are, with copies of those that are read as far as there is
    /// room, unless the memory is kept.
    pub fn new(spans: &[Span], memory: &DeviceMemory, kept: bool) -> Vec<Self> {
        let regions = spans.chunk_by(|a, b| a.region == b.region);
        let size = |spans: &[Span]| spans.iter().map(|s| s.len).sum::<usize>();
        let mut regions: Vec<(usize, &[Span])> = regions.map(|s| (size(s), s)).collect();
        regions.sort_by_key(|(size, _)| *size);
        let mut room = MOST_COPIED_BYTES;
        let constant = |(size, spans): (usize, &[Span])| {
            let region = spans[0].region;
            let copy = |s: &Span| Some((*s, bytes(memory, s)?.into()));
            // What the host writes in place is told by its content alone.
            let copied = size <= room || memory.is_in_place(region);
            let copies = (copied && !kept).then(|| spans.iter().map(copy).collect());
            room = room.saturating_sub(size);
            let copies = copies.flatten();
            let spans = spans.into();
            Self {
                region,
                spans,
                copies,
            }
        };
        regions.into_iter().map(constant).collect()
    }

    /// Whether a memory has the same bytes as that which is kept, or as the copies.
    fn is_in(&self, memory: &DeviceMemory, kept: Option<&DeviceMemory>) -> bool {
        match (kept, &self.copies) {
            (Some(kept), _) => self
                .spans
                .iter()
                .all(|s| bytes(memory, s) == bytes(kept, s)),
            (None, Some(copies)) => copies
                .iter()
                .all(|(s, copy)| bytes(memory, s) == Some(copy)),
            (None, None) => false,
        }
    }
}

/// The bytes of a span, if they are in the memory.
fn bytes<'m>(memory: &'m DeviceMemory, span: &Span) -> Option<&'m [u8]> {
    memory
        .region(span.region)
        .get(span.start..span.start + span.len)
}

impl Plan {
    /// Memory of all that isn't shared between its products.
    pub fn own_bytes(&self) -> usize {
        let copies = self.constants.iter().filter_map(|c| c.copies.as_ref());
        let copies: usize = copies.flatten().map(|(_, copy)| copy.len()).sum();
        let weights: usize = self.weights.iter().map(|(_, tile)| tile.len()).sum();
        let ops: usize = self.ops.iter().map(Op::bytes).sum();
        ops + copies + weights + size_of_val(&self.uops[..])
    }

    /// Writes the micro-ops and weights that the plan leaves, which running it doesn't.
    pub fn settle(&self, pads: &mut Scratchpads) {
        for &(index, uop) in &self.uops {
            pads.uop[index] = uop;
        }
        for (tile, bytes) in &self.weights {
            pads.fill(MemType::Wgt, *tile, bytes);
        }
    }

    /// Versions of the constants' regions, for [`Self::holds`].
    pub fn versions(&self, memory: &DeviceMemory) -> Vec<u64> {
        let constants = self.constants.iter();
        constants.map(|c| memory.version(c.region)).collect()
    }

    /// Whether the plan still means the same in a memory of the layout that it was made for.
    /// `versions` are those at which its bytes were last known to be there; `kept` has them, if it is kept.
    pub fn holds(
        &self,
        memory: &DeviceMemory,
        versions: &mut [u64],
        kept: Option<&DeviceMemory>,
    ) -> bool {
        !self.once
            && self.constants.iter().zip(versions).all(|(c, version)| {
                let now = memory.version(c.region);
                let same = now == *version || c.is_in(memory, kept);
                *version = now;
                same
            })
    }
}
