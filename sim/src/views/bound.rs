//! Cycles that a layer takes at least, whatever its schedule.

use std::ops::Range;

use serde::Serialize;
use vta_isa::resolve::{Rows, merge};
use vta_isa::{Config, Insn, MemType, Module};

use crate::cycle::{TimingConfig, issue_cycles, store_cycles, window_cycles};

/// Rows of loads that are listed beyond twice those that are apart: programs load the same bytes often, and memory grows
/// with distinct ones.
const MOST_UNMERGED: usize = 1 << 12;

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
    /// burst where a tile is wider than the bus, else 4 cycles and one a beat; and what those that requantise take beyond
    /// that.
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
        let (mut read, mut room) = (Vec::new(), MOST_UNMERGED);
        for insn in insns {
            bound.compute_cycles += compute_cycles(insn, config, timing);
            match insn {
                Insn::Gemm(gemm) if !gemm.reset => bound.gemm_cycles += gemm.steps(),
                Insn::Depthwise(insn) => bound.gemm_cycles += window_cycles(insn),
                Insn::Load(load) if load.mem != MemType::Uop => {
                    read.extend(load.dram_rows(config).iter().flat_map(Rows::apart));
                    if read.len() > room {
                        merge(&mut read);
                        room = 2 * read.len() + MOST_UNMERGED;
                    }
                }
                Insn::Store(store) => bound.store_cycles += store_cycles(timing, config, store),
                Insn::Load(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Finish(_) => {}
            }
        }
        merge(&mut read);
        let bus = u64::from(timing.bus_bytes);
        let beats = |bytes: &Range<u64>| bytes.end.div_ceil(bus) - bytes.start / bus;
        bound.read_cycles = read.iter().map(beats).sum();
        bound
    }
}

fn compute_cycles(insn: &Insn, config: &Config, timing: &TimingConfig) -> u64 {
    match insn {
        Insn::Gemm(gemm) => gemm.steps(),
        Insn::Depthwise(insn) => window_cycles(insn),
        Insn::Alu(alu) => issue_cycles(alu, timing),
        Insn::Load(load) if load.mem != MemType::Uop && insn.module() == Module::Compute => {
            let bytes = u64::from(load.x_size) * config.elem_bytes(load.mem) as u64;
            u64::from(load.y_size) * bytes.div_ceil(u64::from(timing.bus_bytes))
        }
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => 0,
    }
}

#[cfg(test)]
mod tests;
