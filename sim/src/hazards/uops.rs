//! What is known of the DRAM that micro-ops are loaded from, without running the program.

use std::ops::Range;

use vta_driver::DeviceMemory;
use vta_isa::resolve::{Changed, Fault, Interval, UopDram, UopScratchpad, Uops};
use vta_isa::{Config, Insn, MemType};

/// Where the checker learns the micro-ops from.
#[derive(Clone, Copy, Debug)]
pub enum UopSource<'a> {
    /// Nothing is known: what GEMM and ALU touch is left unchecked, and noted.
    Unknown,
    /// DRAM before the run, which LOAD UOP reads.
    Memory(&'a DeviceMemory),
}

/// DRAM before the run, but for what STOREs have written since, with what isn't known here.
#[derive(Debug)]
struct KnownDram<'a> {
    source: UopSource<'a>,
    stored: Changed,
    /// All bytes that any LOAD UOP of the run reads lie in here.
    hull: Range<u64>,
}

impl UopDram for KnownDram<'_> {
    fn uop_bytes(&self, bytes: Range<u64>) -> Option<&[u8]> {
        match self.source {
            UopSource::Memory(memory) if !self.stored.meets(&bytes) => memory.uop_bytes(bytes),
            UopSource::Memory(_) | UopSource::Unknown => None,
        }
    }
}

/// The micro-ops of a run's instructions, as far as they are known.
#[derive(Debug)]
pub(super) struct KnownUops<'a> {
    config: &'a Config,
    dram: KnownDram<'a>,
    scratchpad: UopScratchpad,
}

impl<'a> KnownUops<'a> {
    pub fn new(source: UopSource<'a>, config: &'a Config, insns: &[Insn]) -> Self {
        let of_uops = |insn: &&Insn| matches!(insn, Insn::Load(load) if load.mem == MemType::Uop);
        let loads = insns.iter().filter(of_uops);
        let spans = loads.filter_map(|load| Some(load.dram_rows(config)?.span()));
        let hull = spans.reduce(|a, b| a.hull(&b));
        Self {
            config,
            dram: KnownDram {
                source,
                stored: Changed::default(),
                hull: hull.unwrap_or_default(),
            },
            scratchpad: UopScratchpad::unknown(config),
        }
    }

    /// The micro-ops of the next instruction, which does its part: a LOAD UOP fills the
    /// scratchpad, a STORE changes the DRAM behind it.
    ///
    /// # Errors
    /// [`Fault`] when its range of micro-ops leaves the scratchpad.
    pub fn next(&mut self, insn: &Insn) -> Result<Uops<'_>, Fault> {
        match insn {
            Insn::Load(load) => self.scratchpad.fill(self.config, load, &self.dram),
            Insn::Store(_) => {
                let rows = insn.dram_rows(self.config).into_iter();
                let rows = rows.flat_map(|rows| rows.apart());
                let inside = rows.filter(|row| row.overlaps(&self.dram.hull));
                inside.for_each(|row| self.dram.stored.add(row));
            }
            Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => {}
        }
        self.scratchpad.uops_of(insn)
    }
}

#[cfg(test)]
mod tests {
    use vta_isa::{Gemm, Load, Store};

    use super::*;

    #[test]
    fn bytes_that_a_store_may_have_changed_are_unknown() {
        let config = Config::default();
        let mut memory = DeviceMemory::new();
        memory.map(0x1000, 64).unwrap();
        let load = Insn::from(Load {
            mem: MemType::Uop,
            dram_base: 0x400,
            y_size: 1,
            x_size: 4,
            ..Load::default()
        });
        let store = |dram_base| {
            Insn::from(Store {
                dram_base,
                y_size: 1,
                x_size: 1,
                ..Store::default()
            })
        };
        let gemm = Insn::from(Gemm {
            uop_end: 4,
            ..Gemm::default()
        });
        let insns = [store(0x200), load, gemm, store(0x100), load, gemm];
        let mut uops = KnownUops::new(UopSource::Memory(&memory), &config, &insns);
        let unknown = insns.map(|insn| uops.next(&insn).unwrap().some_unknown);
        assert_eq!(unknown, [false, false, false, false, false, true]);
    }
}
