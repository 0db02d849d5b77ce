//! Happens-before: vector clocks over the three modules.

use std::collections::VecDeque;

use vta_isa::tokens::{pops, pushes};
use vta_isa::{Insn, Module};

/// How many instructions of load, compute and store are known to be done.
pub(super) type Clock = [u32; 3];

/// Who touched something last: the n-th instruction of its module (from 1; 0 is nobody) and its
/// index in the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub seq: u32,
    pub insn: u32,
}

/// An instruction at its turn: what it may rely on, and how it signs what it touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub module: Module,
    pub stamp: Stamp,
    clock: Clock,
}

impl Turn {
    /// Whether an access of another module is done, by tokens and program order, before this
    /// instruction starts.
    pub fn follows(&self, module: Module, stamp: Stamp) -> bool {
        self.clock[module as usize] >= stamp.seq
    }
}

/// The clock of each module and the clocks that travel with the tokens.
///
/// Token queues are counters of one producer and one consumer, so the n-th pop waits for
/// exactly the n-th push.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    now: [Clock; 3],
    /// Tokens on their way, by [`Edge`](vta_isa::tokens::Edge).
    on_their_way: [VecDeque<Clock>; 4],
}

impl Clocks {
    /// The instruction takes its tokens and starts. Called in an order that the tokens allow.
    pub fn start(&mut self, index: usize, insn: &Insn) -> Turn {
        let (module, deps) = (insn.module(), insn.deps());
        let m = module as usize;
        let mut clock = self.now[m];
        for edge in pops(module, deps) {
            let token = self.on_their_way[edge as usize].pop_front();
            for (mine, theirs) in clock.iter_mut().zip(token.unwrap_or_default()) {
                *mine = (*mine).max(theirs);
            }
        }
        clock[m] += 1;
        self.now[m] = clock;
        Turn {
            module,
            stamp: Stamp {
                seq: clock[m],
                insn: index as u32,
            },
            clock,
        }
    }

    /// The instruction is done and gives its tokens.
    pub fn done(&mut self, insn: &Insn) {
        let module = insn.module();
        for edge in pushes(module, insn.deps()) {
            self.on_their_way[edge as usize].push_back(self.now[module as usize]);
        }
    }

    /// Whether every later instruction of `reader` follows the stamped one of `module`.
    pub fn settled(&self, reader: Module, module: Module, stamp: Stamp) -> bool {
        self.now[reader as usize][module as usize] >= stamp.seq
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::asm;

    use super::*;

    #[test]
    fn the_nth_pop_follows_the_nth_push_and_no_later_one() {
        let insns = asm::parse(
            "load.inp push_next\nload.inp push_next\ngemm pop_prev\ngemm pop_prev push_next\n\
             store pop_prev",
        )
        .unwrap();
        let mut clocks = Clocks::default();
        let mut turns = Vec::new();
        for (index, insn) in insns.iter().enumerate() {
            turns.push(clocks.start(index, insn));
            clocks.done(insn);
        }
        let follows = |a: usize, b: usize| turns[b].follows(turns[a].module, turns[a].stamp);
        assert!(follows(0, 2) && !follows(1, 2));
        assert!(follows(0, 3) && follows(1, 3));
        // Through compute to store, transitively.
        assert!((0..4).all(|a| follows(a, 4)));
        assert!(!follows(4, 3));
        assert!(clocks.settled(Module::Compute, Module::Load, turns[1].stamp));
        assert!(!clocks.settled(Module::Load, Module::Compute, turns[2].stamp));
    }
}
