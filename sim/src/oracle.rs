//! The oracle: slow and obvious, one function for each instruction, straight from the
//! instruction set's definition. Everything else is compared with it.

use std::time::Instant;

use vta_driver::{Budget, DeviceMemory, LayerMark, RunReport, StepBudget};
use vta_isa::tokens::{self, At};
use vta_isa::{Alu, AluOperand, Config, Gemm, Insn, Load, MemType, Store, Uop};

use crate::Executor;
use crate::error::SimError;

/// The slow executor. Scratchpads keep their contents between runs.
pub struct Oracle {
    config: Config,
    uop: Vec<Uop>,
    inp: Vec<Vec<i8>>,
    wgt: Vec<Vec<i8>>,
    acc: Vec<Vec<i32>>,
    max_steps: u64,
}

impl Oracle {
    /// An oracle with zeroed scratchpads.
    pub fn new(config: Config) -> Self {
        let (lanes, block) = (config.lanes(), config.block());
        Self {
            uop: vec![Uop::default(); config.depth(MemType::Uop)],
            inp: vec![vec![0; lanes]; config.depth(MemType::Inp)],
            wgt: vec![vec![0; block * block]; config.depth(MemType::Wgt)],
            acc: vec![vec![0; lanes]; config.depth(MemType::Acc)],
            config,
            max_steps: Budget::default().steps,
        }
    }

    /// Limits the GEMM and ALU steps of one run; [`Budget::steps`] of the default to begin with.
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: u64) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// The accumulators' tiles, for whoever makes an executor that computes wrong.
    pub fn accumulators(&mut self) -> &mut [Vec<i32>] {
        &mut self.acc
    }

    fn load(&mut self, at: &At, load: &Load, memory: &DeviceMemory) -> Result<(), SimError> {
        if load.is_sync() {
            return Ok(());
        }
        let depth = self.config.depth(load.mem);
        let end = u64::from(load.sram_base) + load.sram_tiles();
        index(at, "sram_base", end - 1, load.mem.name(), depth)?;
        let elem = self.config.elem_bytes(load.mem) as u64;
        let (top, left) = (u64::from(load.y_pad_0), u64::from(load.x_pad_0));
        let rows = top + u64::from(load.y_size) + u64::from(load.y_pad_1);
        let cols = left + u64::from(load.x_size) + u64::from(load.x_pad_1);
        for row in 0..rows {
            for col in 0..cols {
                let tile = (u64::from(load.sram_base) + row * cols + col) as usize;
                let y = row.checked_sub(top).filter(|&y| y < u64::from(load.y_size));
                let x = col
                    .checked_sub(left)
                    .filter(|&x| x < u64::from(load.x_size));
                let (Some(y), Some(x)) = (y, x) else {
                    self.fill(load.mem, tile, &vec![0; elem as usize]);
                    continue;
                };
                // A row lies in one allocation, so it is read as a whole.
                let first = u64::from(load.dram_base) + y * u64::from(load.x_stride);
                let bytes = memory.read(first * elem, u64::from(load.x_size) * elem);
                let bytes = bytes.map_err(|source| dram(at, source))?;
                let from = (x * elem) as usize;
                self.fill(load.mem, tile, &bytes[from..from + elem as usize]);
            }
        }
        Ok(())
    }

    /// Writes one element of DRAM bytes into its scratchpad.
    fn fill(&mut self, mem: MemType, tile: usize, bytes: &[u8]) {
        let int8 = |&b: &u8| b as i8;
        match mem {
            MemType::Uop => self.uop[tile] = Uop::decode(word(bytes) as u32),
            MemType::Inp => self.inp[tile] = bytes.iter().map(int8).collect(),
            MemType::Wgt => self.wgt[tile] = bytes.iter().map(int8).collect(),
            MemType::Acc => self.acc[tile] = bytes.chunks(4).map(word).collect(),
            // LOAD OUT doesn't decode; OUT shares the accumulators.
            MemType::Acc8 | MemType::Out => {
                self.acc[tile] = bytes.iter().map(|b| i32::from(int8(b))).collect();
            }
        }
    }

    fn store(&mut self, at: &At, store: &Store, memory: &mut DeviceMemory) -> Result<(), SimError> {
        if store.is_sync() {
            return Ok(());
        }
        let depth = self.config.depth(MemType::Out);
        let end = u64::from(store.sram_base) + store.tiles();
        index(at, "sram_base", end - 1, "acc", depth)?;
        let elem = self.config.elem_bytes(MemType::Out) as u64;
        for y in 0..u64::from(store.y_size) {
            // A row lies in one allocation: nothing of one that doesn't is written.
            let first = u64::from(store.dram_base) + y * u64::from(store.x_stride);
            let row = memory
                .write(first * elem, u64::from(store.x_size) * elem)
                .map_err(|source| dram(at, source))?;
            for (x, bytes) in row.chunks_exact_mut(elem as usize).enumerate() {
                let tile = u64::from(store.sram_base) + y * u64::from(store.x_size) + x as u64;
                for (byte, value) in bytes.iter_mut().zip(&self.acc[tile as usize]) {
                    *byte = *value as u8;
                }
            }
        }
        Ok(())
    }

    fn gemm(&mut self, at: &At, gemm: &Gemm) -> Result<(), SimError> {
        uop_range(at, gemm.uop_bgn, gemm.uop_end, self.uop.len())?;
        let block = self.config.block();
        for i in 0..u64::from(gemm.iter_out) {
            for j in 0..u64::from(gemm.iter_in) {
                for u in gemm.uop_bgn..gemm.uop_end {
                    let uop = self.uop[usize::from(u)];
                    let dst = affine(uop.dst, i, gemm.dst_factor_out, j, gemm.dst_factor_in);
                    let src = affine(uop.src, i, gemm.src_factor_out, j, gemm.src_factor_in);
                    let wgt = affine(uop.wgt, i, gemm.wgt_factor_out, j, gemm.wgt_factor_in);
                    let dst = index(at, "dst", dst, "acc", self.acc.len())?;
                    if gemm.reset {
                        self.acc[dst].fill(0);
                        continue;
                    }
                    let src = index(at, "src", src, "inp", self.inp.len())?;
                    let wgt = index(at, "wgt", wgt, "wgt", self.wgt.len())?;
                    for b in 0..self.config.batch() {
                        for o in 0..block {
                            for k in 0..block {
                                let x = i32::from(self.inp[src][b * block + k]);
                                let w = i32::from(self.wgt[wgt][o * block + k]);
                                let sum = &mut self.acc[dst][b * block + o];
                                *sum = sum.wrapping_add(x * w);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn alu(&mut self, at: &At, alu: &Alu) -> Result<(), SimError> {
        uop_range(at, alu.uop_bgn, alu.uop_end, self.uop.len())?;
        for i in 0..u64::from(alu.iter_out) {
            for j in 0..u64::from(alu.iter_in) {
                for u in alu.uop_bgn..alu.uop_end {
                    let uop = self.uop[usize::from(u)];
                    let dst = affine(uop.dst, i, alu.dst_factor_out, j, alu.dst_factor_in);
                    let dst = index(at, "dst", dst, "acc", self.acc.len())?;
                    let y = match alu.operand {
                        AluOperand::Imm(imm) => vec![i32::from(imm); self.config.lanes()],
                        AluOperand::Acc => {
                            let src = affine(uop.src, i, alu.src_factor_out, j, alu.src_factor_in);
                            self.acc[index(at, "src", src, "acc", self.acc.len())?].clone()
                        }
                    };
                    for (x, y) in self.acc[dst].iter_mut().zip(y) {
                        *x = alu.op.apply(*x, y);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Executor for Oracle {
    fn run(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        let start = Instant::now();
        let mut steps = StepBudget::new(self.max_steps);
        let leftover_tokens = tokens::run_in_token_order(insns, |i, insn| {
            let at = At {
                index: i,
                insn: *insn,
            };
            steps.spend(i, insn)?;
            match insn {
                Insn::Load(load) => self.load(&at, load, memory),
                Insn::Store(store) => self.store(&at, store, memory),
                Insn::Gemm(gemm) => self.gemm(&at, gemm),
                Insn::Alu(alu) => self.alu(&at, alu),
                Insn::Finish(_) => Ok(()),
            }
        })?;
        Ok(RunReport {
            wall: start.elapsed(),
            leftover_tokens,
            ..RunReport::of(insns, marks, &self.config)
        })
    }
}

fn word(bytes: &[u8]) -> i32 {
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    i32::from_le_bytes(word)
}

pub(crate) fn affine(base: u16, i: u64, factor_out: u16, j: u64, factor_in: u16) -> u64 {
    u64::from(base) + i * u64::from(factor_out) + j * u64::from(factor_in)
}

pub(crate) fn index(
    at: &At,
    field: &'static str,
    value: u64,
    scratchpad: &'static str,
    depth: usize,
) -> Result<usize, SimError> {
    if value < depth as u64 {
        Ok(value as usize)
    } else {
        Err(SimError::Scratchpad {
            at: Box::new(at.clone()),
            field,
            value,
            scratchpad,
            depth,
        })
    }
}

pub(crate) fn uop_range(at: &At, bgn: u16, end: u16, depth: usize) -> Result<(), SimError> {
    if end < bgn {
        return Err(SimError::UopRange {
            at: Box::new(at.clone()),
            bgn,
            end,
        });
    }
    if end > bgn {
        index(at, "uop_end", u64::from(end) - 1, "uop", depth)?;
    }
    Ok(())
}

pub(crate) fn dram(at: &At, source: vta_driver::MemoryError) -> SimError {
    SimError::Dram {
        at: Box::new(at.clone()),
        source,
    }
}
