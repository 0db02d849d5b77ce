//! What happens in which cycle of a run: the cycle model's events.

use std::cmp::Reverse;

use vta_driver::Budget;
use vta_isa::{Config, Insn, Module};
use vta_sim::cycle::{BurstEvent, Client, Listener, Run, TimingConfig, simulate_within};

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A LOAD or a STORE or a computation has its effect.
    Effect { insn: usize },
    /// A read request, in the cycle before its first beat.
    Read {
        addr: u64,
        beats: u64,
        insn: Option<usize>,
    },
    /// A write request, in the cycle before its first beat.
    Write { addr: u64, beats: u64, insn: usize },
}

/// Steps by cycle, the first last.
pub struct Schedule {
    steps: Vec<(u64, Step)>,
    /// Of the run.
    pub cycles: u64,
}

impl Schedule {
    /// What the model says of a run; `None` if it would never finish.
    pub fn of(timing: &TimingConfig, config: &Config, insns: &[Insn], addr: u32) -> Option<Self> {
        let mut events = Events(Vec::new(), insns);
        let run = Run {
            insns,
            insn_addr: addr,
        };
        let budget = Budget::default();
        let report = simulate_within(&budget, timing, config, run, &mut events).ok()?;
        let mut steps = events.0;
        // Stable, so that what happens in one cycle keeps its order.
        steps.reverse();
        steps.sort_by_key(|(cycle, _)| Reverse(*cycle));
        Some(Self {
            steps,
            cycles: report.cycles,
        })
    }

    /// The next step, if its time has come.
    pub fn due(&self, cycle: u64) -> Option<Step> {
        let (at, step) = self.steps.last()?;
        (*at <= cycle).then_some(*step)
    }

    /// The step is done.
    pub fn pop(&mut self) {
        self.steps.pop();
    }
}

struct Events<'a>(Vec<(u64, Step)>, &'a [Insn]);

impl Listener for Events<'_> {
    fn insn_start(&mut self, _: Module, insn: usize, cycle: u64) {
        // What is stored is there before its first beat.
        if matches!(self.1[insn], Insn::Store(_)) {
            self.0.push((cycle, Step::Effect { insn }));
        }
    }

    fn insn_done(&mut self, _: Module, insn: usize, cycle: u64) {
        if !matches!(self.1[insn], Insn::Store(_)) {
            self.0.push((cycle, Step::Effect { insn }));
        }
    }

    fn burst(&mut self, event: &BurstEvent) {
        let (addr, beats) = (event.addr, event.beats);
        let insn = match event.client {
            Client::Out => {
                self.0.push((
                    event.first_cycle - 1,
                    Step::Write {
                        addr,
                        beats,
                        insn: event.insn,
                    },
                ));
                return;
            }
            Client::Fetch => None,
            Client::Uop | Client::Inp | Client::Wgt | Client::Acc | Client::Preload => {
                Some(event.insn)
            }
        };
        self.0
            .push((event.first_cycle - 1, Step::Read { addr, beats, insn }));
    }
}
