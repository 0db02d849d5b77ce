//! A program cycle by cycle: the state of the machine behind each, and the values in its scratchpads.
//!
//! Times are those of the [cycle model](crate::cycle), which a listener writes down. Values come from the oracle: each
//! instruction takes effect as a whole in the cycle in which it is done. A program without hazards ends with the
//! oracle's bits. One with a race has those of this order, as hardware would have those of its own.

mod recorder;

use vta_driver::{Budget, DeviceMemory, MemoryError};
use vta_isa::resolve::{Resolved, TileSet, Touches, Uops, uop_range};
use vta_isa::tokens::At;
use vta_isa::{Config, Insn, MemType};
use vta_replay::Case;

use self::recorder::Recorder;
pub use self::recorder::Span;
use crate::cycle::{
    BurstEvent, Client, CycleError, CycleReport, Run, StallEvent, StallReason, TimingConfig, Unit,
    simulate_within,
};
use crate::error::SimError;
use crate::oracle::{Oracle, Pads};

/// A program that was timed, at one of its cycles.
pub struct Stepper {
    case: Case,
    recorded: Recorder,
    report: Result<CycleReport, CycleError>,
    /// Instructions by the cycle in which they are done, those of a cycle in the order of modules.
    order: Vec<(u64, usize)>,
    /// What each of these that has taken effect touched.
    applied: Vec<Touched>,
    oracle: Oracle,
    memory: DeviceMemory,
    fault: Option<SimError>,
}

/// What the machine does behind a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Tokens in each of [`Edge::ALL`](vta_isa::tokens::Edge::ALL).
    pub tokens: [u32; 4],
    /// By module, its queue, the head first. The head stays there while it runs.
    pub queues: [Vec<usize>; 3],
    /// By module, whether the head runs.
    pub running: [bool; 3],
    /// Why each of [`Unit::ALL`] lost this cycle, if it did.
    pub stalls: [Option<StallReason>; 4],
    /// Who uses the bus: a read and a write may go at once.
    pub bus: [Option<Client>; 2],
}

/// The tiles of each scratchpad that an instruction reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// With the scratchpad; OUT and ACC8 are [`MemType::Acc`].
    pub reads: Vec<(MemType, TileSet)>,
    /// Likewise.
    pub writes: Vec<(MemType, TileSet)>,
}

impl Stepper {
    /// Times a program and stands before its first cycle. One that deadlocks, or that the timing refuses, can be
    /// stepped as far as it gets: [`Self::report`] says why it ends.
    ///
    /// # Errors
    /// Allocations of the case that contradict each other.
    pub fn new(case: Case, timing: &TimingConfig, budget: &Budget) -> Result<Self, MemoryError> {
        let mut recorded = Recorder::new(case.insns.len());
        let run = Run {
            insns: &case.insns,
            insn_addr: case.insn_addr.0,
        };
        let steps = budget.check_steps(&case.insns).map_err(CycleError::from);
        let report =
            steps.and_then(|()| simulate_within(budget, timing, &case.config, run, &mut recorded));
        recorded.finish();
        let done = recorded.spans.iter().enumerate();
        let done = done.filter_map(|(insn, span)| Some((span.done?, insn)));
        let mut order: Vec<(u64, usize)> = done.collect();
        order.sort_by_key(|&(cycle, insn)| (cycle, case.insns[insn].module() as usize));
        Ok(Self {
            oracle: Oracle::new(case.config.clone()),
            memory: case.memory()?,
            case,
            recorded,
            report,
            order,
            applied: Vec::new(),
            fault: None,
        })
    }

    /// What is stepped.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// What the run took, or why it ended early.
    pub fn report(&self) -> &Result<CycleReport, CycleError> {
        &self.report
    }

    /// The last cycle in which anything happens.
    pub fn last_cycle(&self) -> u64 {
        match &self.report {
            Ok(report) => report.cycles - 1,
            Err(_) => self.recorded.last,
        }
    }

    /// When each instruction was dispatched, started and was done.
    pub fn spans(&self) -> &[Span] {
        &self.recorded.spans
    }

    /// Lost cycles of all units.
    pub fn stalls(&self) -> &[StallEvent] {
        &self.recorded.stalls
    }

    /// What went over the bus.
    pub fn bursts(&self) -> &[BurstEvent] {
        &self.recorded.bursts
    }

    /// Instructions that have taken effect, in that order, with what each touched.
    pub fn done(&self) -> impl Iterator<Item = (usize, &Touched)> {
        let order = self.order.iter().map(|&(_, insn)| insn);
        order.zip(&self.applied)
    }

    /// Goes to the state behind a cycle, forwards or back; `None` is before the first.
    ///
    /// # Errors
    /// An instruction on the way that the oracle refuses. Those behind it don't take effect.
    pub fn go_to(&mut self, cycle: Option<u64>) -> Result<(), SimError> {
        let wanted = cycle.map_or(0, |cycle| {
            self.order.partition_point(|&(done, _)| done <= cycle)
        });
        if wanted < self.applied.len() {
            self.oracle = Oracle::new(self.case.config.clone());
            if let Ok(memory) = self.case.memory() {
                self.memory = memory;
            }
            self.applied.clear();
            self.fault = None;
        }
        while self.applied.len() < wanted && self.fault.is_none() {
            let (_, index) = self.order[self.applied.len()];
            let insn = self.case.insns[index];
            let touched = self.touched(index);
            match self.oracle.execute(&At { index, insn }, &mut self.memory) {
                Ok(()) => self.applied.push(touched),
                Err(fault) => self.fault = Some(fault),
            }
        }
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// The scratchpads as [`Self::go_to`] left them.
    pub fn pads(&self) -> Pads<'_> {
        self.oracle.pads()
    }

    /// DRAM as [`Self::go_to`] left it.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// What an instruction touches, with the micro-ops that are in the scratchpad now; nothing for one that leaves a
    /// scratchpad.
    pub fn touched(&self, index: usize) -> Touched {
        let insn = &self.case.insns[index];
        let known = uop_range(insn).and_then(|(from, to)| {
            let range = usize::from(from)..usize::from(to);
            self.oracle.pads().uop.get(range)
        });
        let uops = Uops::of(known.unwrap_or_default());
        touched(&self.case.config, insn, uops)
    }

    /// The state behind a cycle; `None` is before the first.
    pub fn state(&self, cycle: Option<u64>) -> State {
        let mut state = State::default();
        let Some(now) = cycle else { return state };
        for (index, span) in self.recorded.spans.iter().enumerate() {
            if span.dispatched.is_none_or(|at| at > now) {
                continue;
            }
            let module = self.case.insns[index].module() as usize;
            if span.done.is_none_or(|done| done > now) {
                state.running[module] |= span.start.is_some_and(|start| start <= now);
                state.queues[module].push(index);
            }
        }
        for &(at, edge, given) in &self.recorded.tokens {
            if at <= now {
                let tokens = &mut state.tokens[edge as usize];
                *tokens = if given { *tokens + 1 } else { *tokens - 1 };
            }
        }
        for stall in &self.recorded.stalls {
            if stall.from <= now && now < stall.to {
                state.stalls[stall.unit as usize] = Some(stall.reason);
            }
        }
        for burst in &self.recorded.bursts {
            if (burst.first_cycle..=burst.last_cycle).contains(&now) {
                let port = usize::from(burst.client == Client::Out);
                state.bus[port] = Some(burst.client);
            }
        }
        self.add_stuck(now, &mut state);
        state
    }

    /// Waits that never end are told by the error alone.
    fn add_stuck(&self, now: u64, state: &mut State) {
        let stuck = match &self.report {
            Ok(report) => &report.stuck,
            Err(CycleError::Deadlock { stuck, .. }) => stuck,
            Err(_) => return,
        };
        for waits in stuck.iter().filter(|_| now >= self.last_cycle()) {
            let unit = Unit::from(waits.module);
            if let Some(edge) = waits.waits_for.first() {
                state.stalls[unit as usize].get_or_insert(StallReason::Token(*edge));
            }
        }
    }
}

fn touched(config: &Config, insn: &Insn, uops: Uops<'_>) -> Touched {
    let touches = Resolved::of(config, insn, uops).map(|resolved| resolved.touches());
    let Touches { reads, writes } = touches.unwrap_or_default();
    let mut found = Touched {
        reads,
        writes: writes.into_iter().collect(),
    };
    if let Some((from, to)) = uop_range(insn).filter(|(from, to)| from < to) {
        let uops = TileSet::range(from.into()..to.into());
        found.reads.push((MemType::Uop, uops));
    }
    found
}

#[cfg(test)]
mod tests;
