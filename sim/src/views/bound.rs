//! Cycles that a layer takes at least, whatever its schedule.

use std::collections::BTreeMap;

use serde::Serialize;
use vta_isa::{Config, Insn, Load, MemType, Store};

use super::spend::issue_cycles;
use crate::cycle::TimingConfig;

/// Resources of which each does one thing a cycle at best; none can be hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// GEMM steps that multiply: the matrix unit does one a cycle. Whoever knows which of them
    /// add biases and residuals may leave those out.
    pub gemm_cycles: u64,
    /// Beats of the distinct DRAM bytes that LOADs of INP, WGT, ACC and ACC8 name: the bus reads
    /// one a cycle, and bytes that are read twice could have been kept.
    pub read_cycles: u64,
    /// Time of the STOREs' bursts on an idle bus: 3 cycles, one a beat and one a tile for each
    /// burst where a tile is wider than the bus, else 4 cycles and one a beat.
    pub store_cycles: u64,
    /// Steps of the compute module, which does one thing at a time: GEMM with those that clear,
    /// ALU (two cycles with two operands), beats of accumulator loads. Another program may need
    /// fewer; this one can't be faster.
    pub compute_cycles: u64,
}

impl Bound {
    /// What no schedule of the products can beat: the largest of the first three.
    pub fn cycles(&self) -> u64 {
        self.gemm_cycles
            .max(self.read_cycles)
            .max(self.store_cycles)
    }

    /// What no schedule of these instructions can beat, however their overheads are hidden.
    pub fn of_compute(&self) -> u64 {
        self.cycles().max(self.compute_cycles)
    }

    /// Adds the bound of more instructions of the same layer. The bytes read count as distinct.
    pub fn add(&mut self, other: &Self) {
        self.gemm_cycles += other.gemm_cycles;
        self.read_cycles += other.read_cycles;
        self.store_cycles += other.store_cycles;
        self.compute_cycles += other.compute_cycles;
    }

    /// The bound of a layer's instructions.
    pub fn of<'a>(
        insns: impl IntoIterator<Item = &'a Insn>,
        config: &Config,
        timing: &TimingConfig,
    ) -> Self {
        let mut bound = Self::default();
        let mut read = ByteSet::default();
        for insn in insns {
            bound.compute_cycles += compute_cycles(insn, config, timing);
            match insn {
                Insn::Gemm(gemm) if !gemm.reset => bound.gemm_cycles += gemm.steps(),
                Insn::Load(load) => read.load(load, config),
                Insn::Store(store) => bound.store_cycles += store_cycles(store, config, timing),
                Insn::Gemm(_) | Insn::Alu(_) | Insn::Finish(_) => {}
            }
        }
        bound.read_cycles = read.beats(u64::from(timing.bus_bytes));
        bound
    }
}

/// Disjoint ranges of bytes, start to end, never touching.
#[derive(Debug, Default)]
struct ByteSet(BTreeMap<u64, u64>);

impl ByteSet {
    fn load(&mut self, load: &Load, config: &Config) {
        if load.is_sync() || load.mem == MemType::Uop {
            return;
        }
        let tile = config.elem_bytes(load.mem) as u64;
        let rows = if load.x_stride == 0 { 1 } else { load.y_size };
        for row in 0..u64::from(rows) {
            let start = (u64::from(load.dram_base) + row * u64::from(load.x_stride)) * tile;
            self.insert(start, start + u64::from(load.x_size) * tile);
        }
    }

    fn insert(&mut self, mut start: u64, mut end: u64) {
        // Most rows lie within or right behind the range before them.
        if let Some((&before, last)) = self.0.range_mut(..=start).next_back()
            && *last >= start
        {
            if *last >= end {
                return;
            }
            start = before;
        }
        while let Some((&next, &last)) = self.0.range(start..=end).next() {
            end = end.max(last);
            self.0.remove(&next);
        }
        self.0.insert(start, end);
    }

    fn beats(&self, bus_bytes: u64) -> u64 {
        let beats = |(start, end): (&u64, &u64)| end.div_ceil(bus_bytes) - start / bus_bytes;
        self.0.iter().map(beats).sum()
    }
}

fn compute_cycles(insn: &Insn, config: &Config, timing: &TimingConfig) -> u64 {
    match insn {
        Insn::Gemm(gemm) => gemm.steps(),
        Insn::Alu(alu) => issue_cycles(alu, timing),
        Insn::Load(load) if matches!(load.mem, MemType::Acc | MemType::Acc8) => {
            let bytes = u64::from(load.x_size) * config.elem_bytes(load.mem) as u64;
            u64::from(load.y_size) * bytes.div_ceil(u64::from(timing.bus_bytes))
        }
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => 0,
    }
}

fn store_cycles(store: &Store, config: &Config, timing: &TimingConfig) -> u64 {
    if store.is_sync() {
        return 0;
    }
    let tile = config.elem_bytes(MemType::Out) as u64;
    let bus = u64::from(timing.bus_bytes);
    let burst = u64::from(timing.burst_beats) * bus;
    let mut cycles = 0;
    for row in 0..u64::from(store.y_size) {
        let mut at = (u64::from(store.dram_base) + row * u64::from(store.x_stride)) * tile;
        let end = at + u64::from(store.x_size) * tile;
        while at < end {
            let stop = end.min((at / burst + 1) * burst);
            let beats = stop.div_ceil(bus) - at / bus;
            cycles += if tile > bus {
                3 + beats + stop.div_ceil(tile) - at / tile
            } else {
                4 + beats
            };
            at = stop;
        }
    }
    cycles
}

#[cfg(test)]
mod tests;
