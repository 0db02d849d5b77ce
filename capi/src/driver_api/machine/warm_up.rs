//! What runs before a caller's first program: code is in no cache before it ran, and pages aren't in the process, which
//! takes ten times as long as a program of few instructions.

use vta_isa::original::{Layout, LayoutError};
use vta_isa::{Insn, MemType, asm};

use super::{Machine, SIMULATOR, Stats, align_bytes};
use crate::error::Failure;

/// Runs of each program: a first, a second and later ones differ in what they do.
const RUNS: usize = 4;
/// Accumulator tiles of each program, and the loops that go over them. The second has other vectors, and comes as a
/// caller's does, when the simulator knows another.
const PROGRAMS: [(u64, u64); 2] = [(2, 1), (16, 4)];

/// Programs in a machine's memory.
pub(in crate::driver_api) struct WarmUp {
    buffers: [usize; 3],
    /// Addresses and numbers of instructions.
    programs: Vec<(u32, u32)>,
    layout: Result<Option<Layout>, LayoutError>,
}

impl WarmUp {
    /// Takes memory for the programs; there are none for devices that work elsewhere. Until the end the machine reads
    /// instructions as it has them itself.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(machine: &mut Machine) -> Result<Self, Failure> {
        let config = machine.config().clone();
        let [.., (most, _)] = PROGRAMS;
        let sizes = MemType::ALL.map(|mem| most * config.elem_bytes(mem) as u64);
        let size = sizes.into_iter().fold(align_bytes(&config), u64::max) as usize;
        let [zeros, out, words] = [(); 3].map(|()| machine.alloc(size));
        let mut warm_up = Self {
            buffers: [zeros?.addr(), out?.addr(), words?.addr()],
            programs: Vec::new(),
            layout: std::mem::replace(&mut machine.layout, Ok(None)),
        };
        let [zeros, out, words] = warm_up.buffers;
        let [zeros, out] = [machine.memory.phys(zeros)?, machine.memory.phys(out)?];
        let base = |mem, at: u32| at / config.elem_bytes(mem) as u32;
        let fits = |&(tiles, loops): &(u64, u64)| {
            let has = |mem, tiles| config.depth(mem) as u64 >= tiles;
            has(MemType::Acc, tiles) && has(MemType::Inp, loops + 1) && has(MemType::Wgt, loops)
        };
        let here = machine.device.info().name == SIMULATOR;
        let mut at = words;
        for (tiles, n) in PROGRAMS.into_iter().filter(|_| here).take_while(fits) {
            let alu = ["min", "max", "add", "shr"].map(|op| {
                format!(
                    "alu.{op} imm=1 uop_end=1 iter_out=1 iter_in={tiles} dst_factor_in=1
                     alu.{op} imm=-1 uop_end=1 iter_out={tiles} iter_in=1 dst_factor_out=1
                     alu.{op} uop_end=1 iter_out=1 iter_in=1\n"
                )
            });
            let text = format!(
                "load.uop y_size=1 x_size=2 dram_base={uop}
                 load.acc y_size=1 x_size={tiles} dram_base={acc}
                 load.acc y_size=1 x_size=1 y_pad_0=1 dram_base={acc}
                 load.inp y_size=1 x_size=1 x_pad_1=1 dram_base={inp}
                 load.inp y_size=2 x_size={n} x_stride={n} dram_base={inp}
                 load.wgt y_size=1 x_size={n} dram_base={wgt} push_next
                 gemm reset uop_end=1 iter_out={n} iter_in={n} dst_factor_out={n} dst_factor_in=1
                 gemm uop_end=2 iter_out={n} iter_in={n} dst_factor_out={n} dst_factor_in=1 src_factor_out=1 \
                    wgt_factor_in=1 pop_prev
                 {alu}
                 alu.add imm=1 uop_end=1 iter_out=1 iter_in=1 push_next
                 store y_size={n} x_size={n} x_stride={n} dram_base={out} pop_prev push_prev
                 finish pop_next",
                uop = base(MemType::Uop, zeros),
                acc = base(MemType::Acc, zeros),
                inp = base(MemType::Inp, zeros),
                wgt = base(MemType::Wgt, zeros),
                alu = alu.concat(),
                out = base(MemType::Out, out),
            );
            let insns = asm::parse(&text).map_err(|error| Failure::internal(error.to_string()))?;
            let encoded: Vec<u128> = insns.iter().map(Insn::encode).collect::<Result<_, _>>()?;
            let bytes: Vec<u8> = encoded.iter().flat_map(|w| w.to_le_bytes()).collect();
            machine.memory.write(at, &bytes)?;
            let program = (machine.memory.phys(at)?, insns.len() as u32);
            warm_up.programs.push(program);
            at += bytes.len();
        }
        Ok(warm_up)
    }

    /// The address and the number of instructions of each run.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let programs = self.programs.iter();
        programs.flat_map(|&program| std::iter::repeat_n(program, RUNS))
    }

    /// Gives the memory back, and leaves nothing of the runs behind.
    ///
    /// # Errors
    /// The machine refuses it.
    pub fn end(self, machine: &mut Machine) -> Result<(), Failure> {
        machine.layout = self.layout;
        machine.streams.clear();
        machine.stats = Stats::default();
        let mut buffers = self.buffers.into_iter();
        buffers.try_for_each(|at| machine.memory.free(at))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vta_isa::Config;
    use vta_sim::SimDevice;

    use super::*;
    use crate::driver_api::calls::warmed;

    #[test]
    fn nothing_of_it_is_left() {
        // One whose scratchpads have room for the first program alone, one for none, one of another layout.
        let keys = [
            "{}",
            r#"{"LOG_ACC_BUFF_SIZE": 9, "LOG_OUT_BUFF_SIZE": 7}"#,
            r#"{"LOG_INP_BUFF_SIZE": 4}"#,
            r#"{"LOG_UOP_BUFF_SIZE": 14}"#,
        ];
        let mut programs = Vec::new();
        for keys in keys {
            let config = Config::from_json(keys).unwrap();
            let new = || Machine::new(Arc::new(SimDevice::functional(config.clone())));
            let mut machine = new();
            machine.layout =
                Layout::of(&config).map(|layout| Some(layout).filter(|l| !l.is_ours()));
            let layout = format!("{:?}", machine.layout);
            let warm_up = WarmUp::new(&mut machine).unwrap();
            programs.push(warm_up.programs.len());
            warm_up.end(&mut machine).unwrap();
            let mut machine = warmed(machine).unwrap();
            assert_eq!(format!("{:?}", machine.layout), layout);
            assert_eq!(machine.stats.json(), Stats::default().json());
            assert!(machine.streams.is_empty() && machine.tokens == [0; 4]);
            // Its memory is free again.
            let phys = |machine: &mut Machine| {
                let at = machine.alloc(100).unwrap().addr();
                machine.memory.phys(at).unwrap()
            };
            assert_eq!(phys(&mut machine), phys(&mut new()));
        }
        assert_eq!(programs, [2, 1, 0, 2]);
        let oracle = SimDevice::oracle(Config::default());
        let warm_up = WarmUp::new(&mut Machine::new(Arc::new(oracle))).unwrap();
        assert_eq!(warm_up.runs().count(), 0);
    }
}
