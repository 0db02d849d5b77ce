//! The totals of a run, counted with every listener.

use serde::Serialize;
use vta_isa::tokens::Stuck;

use super::events::{BurstEvent, Client, Listener, StallEvent, StallReason, Unit};

/// Lost cycles of one unit for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StallTotal {
    /// Who waited.
    pub unit: Unit,
    /// Why.
    pub reason: StallReason,
    /// How many cycles.
    pub cycles: u64,
}

/// What a run took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CycleReport {
    /// Cycles of the run, as the RTL's counter reports them: the start of FINISH, counted from
    /// the launch at 0, plus one.
    pub cycles: u64,
    /// Read bursts that the memory took up, instruction fetches included. Requests and beats count
    /// until [`TimingConfig::end_poll_cycles`](super::TimingConfig::end_poll_cycles) after FINISH.
    pub read_requests: u64,
    /// Beats read.
    pub read_beats: u64,
    /// Write commands given.
    pub write_requests: u64,
    /// Beats written.
    pub write_beats: u64,
    /// Beats read by each of [`Client::READERS`].
    pub read_beats_by_client: [u64; Client::READERS.len()],
    /// GEMM steps, those of resets included.
    pub gemm_uops: u64,
    /// ALU steps.
    pub alu_uops: u64,
    /// Accumulator tiles written by GEMM (with reset) and ALU: the RTL's second counter.
    pub acc_writes: u64,
    /// Cycles in which each of [`Unit::ALL`] works on an instruction: from its start to its done
    /// cycle, both included; for fetch, from the launch to the last dispatch without the cycles
    /// in which a queue was full.
    pub busy: [u64; 4],
    /// Lost cycles, those over zero, by unit and then by reason.
    pub stalls: Vec<StallTotal>,
    /// Tokens there at the start of FINISH in each of [`Edge::ALL`](super::Edge::ALL).
    pub leftover_tokens: [u32; 4],
    /// Modules whose next instruction waits for tokens that never come, though FINISH was reached:
    /// the RTL ends such a run without them, and counts these cycles. Every executor of results
    /// refuses it as a deadlock. Empty for a program all of whose instructions run.
    #[serde(skip)]
    pub stuck: Vec<Stuck>,
}

impl CycleReport {
    /// Lost cycles of a unit for a reason.
    pub fn stall(&self, unit: Unit, reason: StallReason) -> u64 {
        let hit = |s: &&StallTotal| s.unit == unit && s.reason == reason;
        self.stalls.iter().find(hit).map_or(0, |s| s.cycles)
    }
}

/// Counts, and tells the listener.
pub(super) struct Sink<'l, L> {
    listener: &'l mut L,
    /// The run is over: only requests and beats still count.
    pub(super) over: bool,
    pub(super) report: CycleReport,
    stalls: [[u64; StallReason::COUNT]; 4],
}

impl<'l, L: Listener> Sink<'l, L> {
    pub(super) fn new(listener: &'l mut L) -> Self {
        Self {
            listener,
            over: false,
            report: CycleReport::default(),
            stalls: [[0; StallReason::COUNT]; 4],
        }
    }

    /// Tells the listener something that isn't counted.
    pub(super) fn tell(&mut self, event: impl FnOnce(&mut L)) {
        if !self.over {
            event(self.listener);
        }
    }

    /// Reports lost cycles, if there are any.
    pub(super) fn stall(&mut self, event: &StallEvent) {
        if event.from < event.to && !self.over {
            self.stalls[event.unit as usize][event.reason.index()] += event.to - event.from;
            self.listener.stall(event);
        }
    }

    /// Reports a burst, if any of its beats lie within the run.
    pub(super) fn burst(&mut self, event: &BurstEvent) {
        if event.beats == 0 {
            return;
        }
        if event.client == Client::Out {
            self.report.write_beats += event.beats;
        } else {
            self.report.read_beats += event.beats;
            self.report.read_beats_by_client[event.client as usize] += event.beats;
        }
        self.tell(|listener| listener.burst(event));
    }

    pub(super) fn busy(&mut self, unit: Unit, cycles: u64) {
        if !self.over {
            self.report.busy[unit as usize] += cycles;
        }
    }

    /// Ends the run: makes a list of the stalls.
    pub(super) fn end_run(&mut self) {
        self.over = true;
        for unit in Unit::ALL {
            for reason in StallReason::ALL {
                let cycles = self.stalls[unit as usize][reason.index()];
                if cycles > 0 {
                    self.report.stalls.push(StallTotal {
                        unit,
                        reason,
                        cycles,
                    });
                }
            }
        }
    }
}
