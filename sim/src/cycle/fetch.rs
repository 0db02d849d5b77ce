//! Fetch: chunks of instructions from memory into the modules' queues, in order.

use vta_isa::{INSN_BYTES, Module};

use super::TimingConfig;
use super::arrival::Arrival;
use super::bursts::{Bursts, Cuts};
use super::events::Client;
use super::memory::Transfer;
use super::module::NEVER;

/// The cycle of the first request.
const FIRST_REQUEST: u64 = 1;
/// Cycles from the last dispatch of a chunk to the next request.
pub(super) const REQUEST_GAP: u64 = 2;
/// Cycles from a beat on the bus to its entry in the instruction buffer, bus of 64 bits.
const NARROW_DELAY: u64 = 1;
/// The same for a wider bus. Measured with a single chunk; for more it is an inference.
const WIDE_DELAY: u64 = 4;

/// Where fetch stands.
#[derive(Debug)]
pub(super) struct Fetch {
    cuts: Cuts,
    base_addr: u64,
    delay: u64,
    chunk: usize,
    total: usize,
    /// The next instruction to dispatch.
    pub cursor: usize,
    /// One past the last instruction of the chunk at hand.
    pub chunk_end: usize,
    /// The module whose queue is full, and since when.
    pub blocked: Option<(Module, u64)>,
    /// Cycles lost to full queues.
    pub blocked_cycles: u64,
    /// The cycle after the last dispatch.
    pub ended_at: u64,
    /// The next dispatch.
    pub wake: u64,
}

impl Fetch {
    pub(super) fn new(timing: &TimingConfig, insn_addr: u32, total: usize) -> Self {
        Self {
            cuts: Cuts::new(timing),
            base_addr: insn_addr.into(),
            delay: if timing.bus_bytes > 8 {
                WIDE_DELAY
            } else {
                NARROW_DELAY
            },
            chunk: timing.fetch_chunk_insns as usize,
            total,
            cursor: 0,
            chunk_end: 0,
            blocked: None,
            blocked_cycles: 0,
            ended_at: NEVER,
            wake: NEVER,
        }
    }

    /// The first chunk's transfer.
    pub(super) fn first_chunk(&mut self) -> Option<Transfer> {
        self.next_chunk(FIRST_REQUEST)
    }

    /// The next chunk's transfer, requested in `offer_at`; `None` after the last.
    pub(super) fn next_chunk(&mut self, offer_at: u64) -> Option<Transfer> {
        let first = self.chunk_end;
        if first == self.total {
            return None;
        }
        self.chunk_end = self.total.min(first + self.chunk);
        let byte = |insn: usize| self.base_addr + (insn * INSN_BYTES) as u64;
        let bytes = byte(first)..byte(self.chunk_end);
        Some(Transfer {
            client: Client::Fetch,
            insn: first as u32,
            bursts: Bursts::whole(self.cuts, bytes),
            opened_at: offer_at,
            offer_at,
            arrival: Arrival::plain(self.delay),
        })
    }
}
