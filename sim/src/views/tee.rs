//! Several listeners at once.

use vta_isa::Module;

use crate::cycle::{BurstEvent, Listener, StallEvent, TokenEvent};

/// Tells both, the first one first.
impl<A: Listener, B: Listener> Listener for (A, B) {
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {
        self.0.insn_dispatched(insn, cycle);
        self.1.insn_dispatched(insn, cycle);
    }

    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        self.0.insn_start(module, insn, cycle);
        self.1.insn_start(module, insn, cycle);
    }

    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {
        self.0.insn_done(module, insn, cycle);
        self.1.insn_done(module, insn, cycle);
    }

    fn token_pop(&mut self, event: &TokenEvent) {
        self.0.token_pop(event);
        self.1.token_pop(event);
    }

    fn token_push(&mut self, event: &TokenEvent) {
        self.0.token_push(event);
        self.1.token_push(event);
    }

    fn burst(&mut self, event: &BurstEvent) {
        self.0.burst(event);
        self.1.burst(event);
    }

    fn stall(&mut self, event: &StallEvent) {
        self.0.stall(event);
        self.1.stall(event);
    }
}

/// Tells the listener, if there is one.
impl<L: Listener> Listener for Option<L> {
    fn insn_dispatched(&mut self, insn: usize, cycle: u64) {
        if let Some(listener) = self {
            listener.insn_dispatched(insn, cycle);
        }
    }

    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        if let Some(listener) = self {
            listener.insn_start(module, insn, cycle);
        }
    }

    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {
        if let Some(listener) = self {
            listener.insn_done(module, insn, cycle);
        }
    }

    fn token_pop(&mut self, event: &TokenEvent) {
        if let Some(listener) = self {
            listener.token_pop(event);
        }
    }

    fn token_push(&mut self, event: &TokenEvent) {
        if let Some(listener) = self {
            listener.token_push(event);
        }
    }

    fn burst(&mut self, event: &BurstEvent) {
        if let Some(listener) = self {
            listener.burst(event);
        }
    }

    fn stall(&mut self, event: &StallEvent) {
        if let Some(listener) = self {
            listener.stall(event);
        }
    }
}
