//! What instructions move and compute, counted from their fields alone.

use vta_isa::{Config, Insn, MemType};

/// DRAM bytes moved, by memory type, and operations done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Instructions.
    pub insns: u64,
    /// DRAM bytes loaded or stored, indexed by [`MemType::code`]; padding moves none.
    pub bytes: [u64; 6],
    /// GEMM steps without reset: micro-op executions that multiply.
    pub gemm_steps: u64,
    /// GEMM steps with reset.
    pub reset_steps: u64,
    /// ALU steps.
    pub alu_steps: u64,
}

impl Traffic {
    /// Counts one instruction.
    pub fn count(&mut self, insn: &Insn, config: &Config) {
        let mut moved = |mem: MemType, elems: u64| {
            self.bytes[mem.code() as usize] += elems * config.elem_bytes(mem) as u64;
        };
        match insn {
            Insn::Load(load) => moved(load.mem, load.dram_elems()),
            Insn::Store(store) => moved(MemType::Out, store.tiles()),
            Insn::Gemm(gemm) if gemm.reset => self.reset_steps += gemm.steps(),
            Insn::Gemm(gemm) => self.gemm_steps += gemm.steps(),
            Insn::Alu(alu) => self.alu_steps += alu.steps(),
            Insn::Finish(_) => {}
        }
        self.insns += 1;
    }

    /// Counts a run of instructions.
    pub fn of<'a>(insns: impl IntoIterator<Item = &'a Insn>, config: &Config) -> Self {
        let mut total = Self::default();
        for insn in insns {
            total.count(insn, config);
        }
        total
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.insns += other.insns;
        for (mine, theirs) in self.bytes.iter_mut().zip(other.bytes) {
            *mine += theirs;
        }
        self.gemm_steps += other.gemm_steps;
        self.reset_steps += other.reset_steps;
        self.alu_steps += other.alu_steps;
    }

    /// DRAM bytes of all memory types.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}
