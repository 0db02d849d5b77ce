//! What each layer took: cycles and their uses, stalls, beats, steps.

use serde::Serialize;
use vta_driver::LayerMark;
use vta_isa::{Config, Insn, Module};

use super::spend::{Spend, parts};
use super::windows::{Layers, Windows};
use super::{Bound, Costs, Energy, Work};
use crate::cycle::{
    BurstEvent, Client, CycleReport, Listener, StallEvent, StallReason, TimingConfig, Unit,
};

/// Spans that may wait for the end of their layer before some are settled.
const MAX_PENDING: usize = 1024;

/// One layer of a timed run.
///
/// Layers overlap a little: the load module may be ahead. So that cycles of layers add up to those
/// of the run, a layer's window begins where that of the layer before it ends, and ends with the
/// last done cycle of its instructions (that of the last layer with the run). Uses and stalls count
/// cycles of the window, whoever caused them; steps and beats count the layer's own instructions,
/// whenever they ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayerCycles {
    /// The mark's name; `(run)` without marks, `(start)` for instructions before the first.
    pub name: String,
    /// Its instructions.
    pub insns: u64,
    /// The window's first cycle.
    pub start: u64,
    /// Length of the window.
    pub cycles: u64,
    /// The start of its first instruction, maybe before the window.
    pub first_start: u64,
    /// One past the last done cycle of its instructions.
    pub last_done: u64,
    /// Uses of the compute module's cycles, indexed as [`Spend::ALL`]: they add up to `cycles`.
    pub spend: [u64; Spend::COUNT],
    /// Lost cycles of each of [`Unit::ALL`] for each of [`StallReason::ALL`].
    pub stalls: [[u64; StallReason::COUNT]; 4],
    /// Beats read for its instructions by each of [`Client::READERS`].
    pub read_beats: [u64; Client::READERS.len()],
    /// Beats written by its STOREs.
    pub write_beats: u64,
    /// GEMM steps that multiply.
    pub gemm_uops: u64,
    /// GEMM steps that clear.
    pub reset_uops: u64,
    /// ALU steps.
    pub alu_uops: u64,
    /// Bytes of a beat.
    pub bus_bytes: u64,
    /// MACs of a GEMM step.
    pub macs_per_step: u64,
    /// Operations and scratchpad bytes.
    pub work: Work,
    /// What no schedule can beat.
    pub bound: Bound,
}

impl LayerCycles {
    /// Multiply-adds done, those on padded channels included.
    pub fn macs(&self) -> u64 {
        self.gemm_uops * self.macs_per_step
    }

    /// Beats read by all clients.
    pub fn total_read_beats(&self) -> u64 {
        self.read_beats.iter().sum()
    }

    /// Bytes over the bus, both ways.
    pub fn dram_bytes(&self) -> u64 {
        (self.total_read_beats() + self.write_beats) * self.bus_bytes
    }

    /// Share of the cycles in which the matrix unit multiplies, 0 to 1 (a layer that overlaps with
    /// its neighbours can have more steps than cycles).
    pub fn gemm_utilization(&self) -> f64 {
        self.gemm_uops as f64 / self.cycles.max(1) as f64
    }

    /// Cycles spent for one use.
    pub fn spent(&self, spend: Spend) -> u64 {
        self.spend[spend as usize]
    }

    /// Lost cycles of a unit for a reason.
    pub fn stalled(&self, unit: Unit, reason: StallReason) -> u64 {
        self.stalls[unit as usize][reason.index()]
    }

    /// Cycles of the window in which a unit works on an instruction and is not held up: it moves
    /// data, computes, or starts and ends an instruction.
    pub fn active(&self, unit: Unit) -> u64 {
        let lost: u64 = self.stalls[unit as usize].iter().sum();
        self.cycles.saturating_sub(lost)
    }

    /// The energy estimate.
    pub fn energy(&self, table: &Costs) -> Energy {
        table.energy(&self.work, self.dram_bytes(), self.cycles)
    }

    /// Adds a later part of the same layer, or another layer for a total; `start` and the name
    /// stay.
    pub fn add(&mut self, other: &Self) {
        let sum = |mine: &mut [u64], theirs: &[u64]| {
            mine.iter_mut().zip(theirs).for_each(|(m, t)| *m += t);
        };
        self.insns += other.insns;
        self.cycles += other.cycles;
        self.first_start = self.first_start.min(other.first_start);
        self.last_done = self.last_done.max(other.last_done);
        sum(&mut self.spend, &other.spend);
        for (mine, theirs) in self.stalls.iter_mut().zip(&other.stalls) {
            sum(mine, theirs);
        }
        sum(&mut self.read_beats, &other.read_beats);
        self.write_beats += other.write_beats;
        self.gemm_uops += other.gemm_uops;
        self.reset_uops += other.reset_uops;
        self.alu_uops += other.alu_uops;
        self.bus_bytes = self.bus_bytes.max(other.bus_bytes);
        self.macs_per_step = self.macs_per_step.max(other.macs_per_step);
        self.work.add(&other.work);
        self.bound.add(&other.bound);
    }
}

/// To what a span of cycles is added.
#[derive(Clone, Copy, Debug)]
enum Account {
    Spend(Spend),
    Stall(Unit, StallReason),
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
    account: Account,
}

/// The listener behind [`LayerCycles`]. Its memory grows with layers, not with instructions.
#[derive(Clone, Debug)]
pub struct LayerTotals<'p> {
    insns: &'p [Insn],
    timing: &'p TimingConfig,
    layers: Layers,
    windows: Windows,
    rows: Vec<LayerCycles>,
    /// Spans that may reach beyond the open layer's window.
    pending: Vec<Span>,
    /// Where the compute module's instruction started.
    compute: Option<(usize, u64)>,
    now: u64,
}

impl<'p> LayerTotals<'p> {
    /// Listens to a run of `insns` whose layers are `marks`.
    pub fn new(
        insns: &'p [Insn],
        marks: &[LayerMark],
        config: &Config,
        timing: &'p TimingConfig,
    ) -> Self {
        let layers = Layers::new(marks);
        let row = |name: &String| LayerCycles {
            name: name.clone(),
            first_start: u64::MAX,
            bus_bytes: timing.bus_bytes.into(),
            macs_per_step: config.macs_per_step(),
            ..LayerCycles::default()
        };
        let mut rows: Vec<_> = layers.names().iter().map(row).collect();
        let mut of_layer = vec![0..0; rows.len()];
        for (index, insn) in insns.iter().enumerate() {
            let layer = layers.of(index);
            let (row, range) = (&mut rows[layer], &mut of_layer[layer]);
            if row.insns == 0 {
                *range = index..index;
            }
            range.end = index + 1;
            row.insns += 1;
            row.work.count(insn, config);
            match insn {
                Insn::Gemm(gemm) if gemm.reset => row.reset_uops += gemm.steps(),
                Insn::Gemm(gemm) => row.gemm_uops += gemm.steps(),
                Insn::Depthwise(insn) => row.gemm_uops += insn.steps(),
                Insn::Alu(alu) => row.alu_uops += alu.steps(),
                Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {}
            }
        }
        for (row, range) in rows.iter_mut().zip(of_layer) {
            row.bound = Bound::of(&insns[range], config, timing);
        }
        Self {
            insns,
            timing,
            windows: Windows::new(&layers, insns.len()),
            layers,
            rows,
            pending: Vec::with_capacity(MAX_PENDING + 16),
            compute: None,
            now: 0,
        }
    }

    /// The layers, when the run is over.
    pub fn finish(mut self, report: &CycleReport) -> Vec<LayerCycles> {
        if let Some((insn, start)) = self.compute.take() {
            self.spend(insn, start, report.cycles);
        }
        self.windows.finish(report.cycles);
        let pending = std::mem::take(&mut self.pending);
        for span in pending {
            let rest = self.settle(span);
            debug_assert!(rest.is_none(), "a span lies beyond the run");
        }
        for (layer, row) in self.rows.iter_mut().enumerate() {
            row.start = self.windows.start_of(layer);
            let end = self.windows.end_of(layer).unwrap_or(report.cycles);
            row.cycles = end - row.start;
            // Only FINISH starts without being done.
            row.last_done = row
                .last_done
                .max(row.first_start.saturating_add(1).min(end));
            row.first_start = row.first_start.min(row.last_done);
        }
        self.rows
    }

    fn spend(&mut self, insn: usize, from: u64, to: u64) {
        for (from, to, spend) in parts(&self.insns[insn], self.timing, from, to) {
            let account = Account::Spend(spend);
            self.add(Span { from, to, account });
        }
    }

    /// Keeps a span until its layers are known.
    fn add(&mut self, span: Span) {
        if span.from < span.to {
            self.pending.push(span);
        }
        if self.pending.len() > MAX_PENDING {
            self.sweep();
        }
    }

    /// Settles all that lies before the end of the open layer, which is not over before `now`.
    fn sweep(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain_mut(|span| match self.settle(*span) {
            Some(rest) if rest.to <= self.now => {
                let open = self.windows.open();
                credit(&mut self.rows[open], rest.account, rest.to - rest.from);
                false
            }
            Some(rest) => {
                *span = rest;
                true
            }
            None => false,
        });
        self.pending = pending;
    }

    /// Gives each layer that is over its part of the span; what is left.
    fn settle(&mut self, mut span: Span) -> Option<Span> {
        let over = self.windows.ended();
        let first = over.partition_point(|&end| end <= span.from);
        for (layer, &end) in over.iter().enumerate().skip(first) {
            let to = span.to.min(end);
            credit(
                &mut self.rows[layer],
                span.account,
                to.saturating_sub(span.from),
            );
            span.from = span.from.max(to);
            if span.from >= span.to {
                return None;
            }
        }
        Some(span)
    }
}

fn credit(row: &mut LayerCycles, account: Account, cycles: u64) {
    match account {
        Account::Spend(spend) => row.spend[spend as usize] += cycles,
        Account::Stall(unit, reason) => row.stalls[unit as usize][reason.index()] += cycles,
    }
}

impl Listener for LayerTotals<'_> {
    fn insn_start(&mut self, module: Module, insn: usize, cycle: u64) {
        let row = &mut self.rows[self.layers.of(insn)];
        row.first_start = row.first_start.min(cycle);
        if module == Module::Compute {
            self.compute = Some((insn, cycle));
        }
    }

    fn insn_done(&mut self, module: Module, insn: usize, cycle: u64) {
        let layer = self.layers.of(insn);
        let row = &mut self.rows[layer];
        row.last_done = row.last_done.max(cycle + 1);
        self.now = self.now.max(cycle);
        if module == Module::Compute
            && let Some((insn, start)) = self.compute.take()
        {
            self.spend(insn, start, cycle + 1);
        }
        self.windows.done(layer, cycle);
    }

    fn burst(&mut self, event: &BurstEvent) {
        let row = &mut self.rows[self.layers.of(event.insn)];
        if event.client == Client::Out {
            row.write_beats += event.beats;
        } else {
            row.read_beats[event.client as usize] += event.beats;
        }
    }

    fn stall(&mut self, event: &StallEvent) {
        let (from, to) = (event.from, event.to);
        if event.unit == Unit::Compute
            && let Some(spend) = Spend::of_stall(event.reason)
        {
            let account = Account::Spend(spend);
            self.add(Span { from, to, account });
        }
        let account = Account::Stall(event.unit, event.reason);
        self.add(Span { from, to, account });
    }
}

#[cfg(test)]
mod tests;
