//! What instructions move and compute, counted from their fields alone.

use vta_isa::{Config, Insn, MemType};

/// DRAM bytes moved, by memory type, and operations done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Instructions.
    pub insns: u64,
    /// DRAM bytes loaded or stored, by [`MemType::index`]; padding moves none.
    pub bytes: [u64; MemType::ALL.len()],
    /// GEMM steps without reset: micro-op executions that multiply.
    pub gemm_steps: u64,
    /// GEMM steps with reset.
    pub reset_steps: u64,
    /// ALU steps.
    pub alu_steps: u64,
}

impl Traffic {
    /// Counts one instruction, and the elements of each memory type that it moves beside.
    fn count_but_bytes(&mut self, insn: &Insn, elems: &mut [u64; MemType::ALL.len()]) {
        let mut moved = |mem: MemType, more: u64| grow(&mut elems[mem.index()], more);
        match insn {
            Insn::Load(load) => moved(load.mem, load.dram_elems()),
            Insn::Store(store) => moved(MemType::Out, store.tiles()),
            Insn::Gemm(gemm) if gemm.reset => grow(&mut self.reset_steps, gemm.steps()),
            Insn::Gemm(gemm) => grow(&mut self.gemm_steps, gemm.steps()),
            Insn::Depthwise(insn) => grow(&mut self.gemm_steps, insn.steps()),
            Insn::Alu(alu) => grow(&mut self.alu_steps, alu.steps()),
            Insn::Finish(_) => {}
        }
        self.insns += 1;
    }

    /// Counts a run of instructions.
    pub fn of<'a>(insns: impl IntoIterator<Item = &'a Insn>, config: &Config) -> Self {
        let mut total = Self::default();
        // Elements first, bytes at the end: one multiplication for each memory type.
        let mut elems = [0; MemType::ALL.len()];
        for insn in insns {
            total.count_but_bytes(insn, &mut elems);
        }
        for mem in MemType::ALL {
            let at = mem.index();
            total.bytes[at] = elems[at].saturating_mul(config.elem_bytes(mem) as u64);
        }
        total
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.insns += other.insns;
        for (mine, theirs) in self.bytes.iter_mut().zip(other.bytes) {
            grow(mine, theirs);
        }
        grow(&mut self.gemm_steps, other.gemm_steps);
        grow(&mut self.reset_steps, other.reset_steps);
        grow(&mut self.alu_steps, other.alu_steps);
    }

    /// Steps of GEMMs and the ALU.
    pub fn steps(&self) -> u64 {
        let steps = [self.reset_steps, self.alu_steps];
        steps.into_iter().fold(self.gemm_steps, u64::saturating_add)
    }

    /// DRAM bytes of all memory types.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().fold(0, |n, &b| n.saturating_add(b))
    }
}

/// One GEMM can ask for 2^42 steps, so a few million overflow a sum that nobody has run.
fn grow(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use vta_isa::{Gemm, Load, Store};

    use super::*;

    #[test]
    fn fields_are_counted_and_sums_saturate() {
        let config = Config::default();
        let most = Gemm::FIELDS.iter_out.max() as u16;
        let gemm = Gemm {
            uop_end: 2,
            iter_out: most,
            iter_in: 3,
            ..Gemm::default()
        };
        let reset = Gemm {
            reset: true,
            ..gemm
        };
        let load = Load {
            y_size: 2,
            x_size: 3,
            x_pad_0: 1,
            ..Load::default()
        };
        let store = Store {
            y_size: 5,
            x_size: 1,
            ..Store::default()
        };
        let insns: [Insn; 4] = [gemm.into(), reset.into(), load.into(), store.into()];
        let mut traffic = Traffic::of(&insns, &config);
        let steps = 6 * u64::from(most);
        let expected = Traffic {
            insns: 4,
            bytes: [0, 0, 6 * 16, 0, 5 * 16, 0, 0],
            gemm_steps: steps,
            reset_steps: steps,
            alu_steps: 0,
        };
        assert_eq!(traffic, expected);
        assert_eq!(traffic.total_bytes(), 11 * 16);
        traffic.gemm_steps = u64::MAX - 1;
        traffic.bytes[0] = u64::MAX;
        traffic.add(&expected);
        assert_eq!(
            (traffic.gemm_steps, traffic.total_bytes()),
            (u64::MAX, u64::MAX)
        );
    }
}
