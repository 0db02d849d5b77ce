//! Writes down what the cycle model tells.

use vta_isa::Module;

use crate::cycle::{BurstEvent, Edge, Listener, StallEvent, TokenEvent};

/// When an instruction was where; `None` for what didn't happen before the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The cycle in which fetch gave it to its module's queue.
    pub dispatched: Option<u64>,
    /// The cycle in which it started.
    pub start: Option<u64>,
    /// The cycle in which it was done; `None` for FINISH, too.
    pub done: Option<u64>,
}

/// Everything of a run. It grows with its instructions and bursts, which a budget bounds.
#[derive(Debug)]
pub(super) struct Recorder {
    pub spans: Vec<Span>,
    /// By cycle: the queue, and whether a token was given to it, not taken.
    pub tokens: Vec<(u64, Edge, bool)>,
    pub stalls: Vec<StallEvent>,
    pub bursts: Vec<BurstEvent>,
    /// The last cycle that anything told of.
    pub last: u64,
}

impl Recorder {
    pub fn new(insns: usize) -> Self {
        Self {
            spans: vec![Span::default(); insns],
            tokens: Vec::new(),
            stalls: Vec::new(),
            bursts: Vec::new(),
            last: 0,
        }
    }

    /// Puts the tokens in the order of time. One that is given in a cycle comes before one that is taken.
    pub fn finish(&mut self) {
        self.tokens
            .sort_by_key(|&(cycle, _, given)| (cycle, !given));
    }

    fn at(&mut self, cycle: u64) -> u64 {
        self.last = self.last.max(cycle);
        cycle
    }
}

impl Listener for Recorder {
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {
        self.spans[insn].dispatched = Some(self.at(cycle));
    }

    fn insn_start(&mut self, _: Module, insn: usize, cycle: u64) {
        self.spans[insn].start = Some(self.at(cycle));
    }

    fn insn_done(&mut self, _: Module, insn: usize, cycle: u64) {
        self.spans[insn].done = Some(self.at(cycle));
    }

    fn token_pop(&mut self, event: &TokenEvent) {
        self.tokens.push((event.cycle, event.edge, false));
    }

    fn token_push(&mut self, event: &TokenEvent) {
        self.tokens.push((event.cycle, event.edge, true));
    }

    fn burst(&mut self, event: &BurstEvent) {
        self.bursts.push(*event);
    }

    fn stall(&mut self, event: &StallEvent) {
        self.stalls.push(*event);
    }
}
