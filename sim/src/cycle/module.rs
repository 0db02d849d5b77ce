//! What load, compute and store have in common: queue, start, waiting.

use std::collections::VecDeque;

use vta_isa::Module;

use super::events::{Listener, StallEvent, StallReason, Unit};
use super::report::Sink;

/// No cycle: nothing is due.
pub(super) const NEVER: u64 = u64::MAX;

/// The last cycle in which an instruction may be done, whatever the budget: over a thousand years at 100 MHz.
pub const MAX_CYCLES: u64 = 1 << 62;

/// What a module does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing, for a reason, since a cycle.
    Waiting(StallReason, u64),
    /// An instruction.
    Running(Running),
}

/// Which instruction starts in which cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub insn: u32,
    pub cycle: u64,
}

/// An instruction that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub start: Start,
    /// When it is done, if that is known.
    pub done: u64,
    /// Cycles at the end that only padding takes.
    pub padding: (u64, u64),
}

/// One of load, compute and store.
#[derive(Debug)]
pub(super) struct ModuleState {
    pub module: Module,
    /// Instructions delivered and not done, each with the first cycle in which it is seen.
    pub queue: VecDeque<(u32, u64)>,
    pub state: State,
    /// First cycle in which the next instruction may begin beside the running one, if that is known.
    pub ahead_from: u64,
    /// The instruction that has begun beside the running one, and when it is done, if that is known.
    pub ahead: Option<(u32, u64)>,
    /// The next cycle in which anything happens here.
    pub wake: u64,
}

impl ModuleState {
    pub(super) fn new(module: Module) -> Self {
        Self {
            module,
            queue: VecDeque::new(),
            state: State::Waiting(StallReason::QueueEmpty, 0),
            ahead_from: NEVER,
            ahead: None,
            wake: NEVER,
        }
    }

    /// The head instruction, if it is seen in cycle `now`.
    pub(super) fn head(&self, now: u64) -> Option<u32> {
        let &(insn, seen_at) = self.queue.front()?;
        (seen_at <= now).then_some(insn)
    }

    /// When the head instruction is seen.
    pub(super) fn head_at(&self) -> u64 {
        self.queue.front().map_or(NEVER, |&(_, seen_at)| seen_at)
    }

    /// An instruction is in the queue, to be seen in cycle `at`.
    pub(super) fn delivered(&mut self, at: u64) {
        if matches!(self.state, State::Waiting(StallReason::QueueEmpty, _)) {
            self.wake = self.wake.min(at);
        } else if self.ahead_from != NEVER {
            self.wake = self.wake.min(at.max(self.ahead_from));
        }
    }

    /// A token is there, to be seen in cycle `at`.
    pub(super) fn token(&mut self, at: u64) {
        if matches!(self.state, State::Waiting(StallReason::Token(_), _)) {
            self.wake = self.wake.min(at);
        } else if self.ahead_from != NEVER {
            self.wake = self.wake.min(at.max(self.ahead_from));
        }
    }

    /// Waits for `reason` from `now` on; what it waited for before is reported.
    pub(super) fn wait<L: Listener>(
        &mut self,
        reason: StallReason,
        insn: Option<u32>,
        now: u64,
        sink: &mut Sink<'_, L>,
    ) {
        if let State::Waiting(old, _) = self.state
            && old == reason
        {
            return;
        }
        self.end_wait(insn, now, sink);
        self.state = State::Waiting(reason, now);
    }

    /// Reports what it waited for.
    pub(super) fn end_wait<L: Listener>(
        &mut self,
        insn: Option<u32>,
        now: u64,
        sink: &mut Sink<'_, L>,
    ) {
        if let State::Waiting(reason, from) = self.state {
            // The queue was empty, so the wait was for no instruction in particular.
            let insn = match reason {
                StallReason::Token(_) => insn.map(|i| i as usize),
                _ => None,
            };
            sink.stall(&StallEvent {
                unit: Unit::from(self.module),
                reason,
                insn,
                from,
                to: now,
            });
        }
    }
}
