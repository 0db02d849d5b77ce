//! The oracle: slow and obvious, one function for each instruction, straight from the
//! instruction set's definition. Everything else is compared with it.

use web_time::Instant;

use vta_driver::{Budget, DeviceMemory, LayerMark, RunReport, StepBudget};
use vta_isa::tokens::{self, At};
use vta_isa::{
    Alu, AluOperand, Config, Depthwise, Gemm, Insn, Load, MemType, Requantize, Rounding, Store,
    Uop, factor, number,
};

use crate::Executor;
use crate::error::SimError;

/// The slow executor. Scratchpads keep their contents between runs.
pub struct Oracle {
    config: Config,
    uop: Vec<Uop>,
    inp: Vec<u8>,
    wgt: Vec<u8>,
    acc: Vec<i32>,
    max_steps: u64,
}

impl Oracle {
    /// An oracle with zeroed scratchpads.
    pub fn new(config: Config) -> Self {
        let lanes = config.lanes();
        Self {
            uop: vec![Uop::default(); config.depth(MemType::Uop)],
            inp: vec![0; config.elem_bytes(MemType::Inp) * config.depth(MemType::Inp)],
            wgt: vec![0; config.elem_bytes(MemType::Wgt) * config.depth(MemType::Wgt)],
            acc: vec![0; lanes * config.depth(MemType::Acc)],
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

    /// Runs one instruction, whatever its tokens.
    ///
    /// # Errors
    /// As [`Executor::run`]: what the instruction did before its fault stays.
    pub fn execute(&mut self, at: &At, memory: &mut DeviceMemory) -> Result<(), SimError> {
        self.machine().execute(at, memory)
    }

    /// What the scratchpads hold.
    pub fn pads(&self) -> Pads<'_> {
        Pads {
            uop: &self.uop,
            inp: &self.inp,
            wgt: &self.wgt,
            acc: &self.acc,
        }
    }

    fn machine(&mut self) -> Machine<'_> {
        Machine {
            config: &self.config,
            uop: &mut self.uop,
            inp: &mut self.inp,
            wgt: &mut self.wgt,
            acc: &mut self.acc,
        }
    }

    /// The lanes of all accumulators, tile after tile, for whoever makes an executor that computes wrong.
    pub fn accumulators(&mut self) -> &mut [i32] {
        &mut self.acc
    }
}

/// What the scratchpads hold, tile after tile.
#[derive(Clone, Copy, Debug)]
pub struct Pads<'a> {
    /// Micro-ops.
    pub uop: &'a [Uop],
    /// Numbers of [`Config::width`] bits, as bytes.
    pub inp: &'a [u8],
    /// Likewise: `[tile][output][input]`.
    pub wgt: &'a [u8],
    /// Lanes.
    pub acc: &'a [i32],
}

/// The scratchpads, tile after tile, for one instruction. Other executors lend theirs where they leave an instruction
/// to the oracle's definition.
pub(crate) struct Machine<'a> {
    pub config: &'a Config,
    pub uop: &'a mut [Uop],
    /// Numbers of [`Config::width`] bits, as bytes.
    pub inp: &'a mut [u8],
    /// Likewise: `[tile][output][input]`.
    pub wgt: &'a mut [u8],
    pub acc: &'a mut [i32],
}

impl Machine<'_> {
    /// Runs one instruction whose tokens are there.
    ///
    /// # Errors
    /// As [`Executor::run`]: what the instruction did before its fault stays.
    pub fn execute(&mut self, at: &At, memory: &mut DeviceMemory) -> Result<(), SimError> {
        match &at.insn {
            Insn::Load(load) => self.load(at, load, memory),
            Insn::Store(store) => self.store(at, store, memory),
            Insn::Gemm(gemm) => self.gemm(at, gemm),
            Insn::Alu(alu) => self.alu(at, alu),
            Insn::Depthwise(insn) => self.depthwise(at, insn),
            Insn::Finish(_) => Ok(()),
        }
    }

    /// An index of a scratchpad, if it is inside.
    fn index(
        &self,
        at: &At,
        field: &'static str,
        value: u64,
        mem: MemType,
    ) -> Result<usize, SimError> {
        let depth = self.config.depth(mem);
        if value < depth as u64 {
            return Ok(value as usize);
        }
        Err(SimError::Scratchpad {
            at: Box::new(at.clone()),
            field,
            value,
            scratchpad: mem.name(),
            depth,
        })
    }

    fn check_uops(&self, at: &At, bgn: u16, end: u16) -> Result<(), SimError> {
        if end < bgn {
            return Err(SimError::UopRange {
                at: Box::new(at.clone()),
                bgn,
                end,
            });
        }
        if end > bgn {
            self.index(at, "uop_end", u64::from(end) - 1, MemType::Uop)?;
        }
        Ok(())
    }

    fn load(&mut self, at: &At, load: &Load, memory: &DeviceMemory) -> Result<(), SimError> {
        if load.is_sync() {
            return Ok(());
        }
        let end = u64::from(load.sram_base) + load.sram_tiles();
        self.index(at, "sram_base", end - 1, load.mem)?;
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
                    // Only inputs have one that isn't 0.
                    let value = i32::from(load.pad_value).to_le_bytes();
                    let value = &value[..self.config.width(load.mem).div_ceil(8)];
                    let pad: Vec<u8> = value.iter().copied().cycle().take(elem as usize).collect();
                    self.fill(load.mem, tile, &pad);
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
        let words = bytes.as_chunks::<4>().0;
        let acc = self.config.lanes() * tile..;
        match mem {
            MemType::Uop => self.uop[tile] = Uop::decode(u32::from_le_bytes(words[0])),
            MemType::Inp => self.inp[tile * bytes.len()..][..bytes.len()].copy_from_slice(bytes),
            MemType::Wgt => self.wgt[tile * bytes.len()..][..bytes.len()].copy_from_slice(bytes),
            MemType::Wgt4 => {
                let size = self.config.elem_bytes(MemType::Wgt);
                let width = self.config.width(MemType::Wgt) / 8;
                let weights = self.wgt[tile * size..][..size].chunks_exact_mut(width);
                for (at, weight) in weights.enumerate() {
                    let half = (bytes[at / 2] << (4 * ((at + 1) % 2))) as i8 >> 4;
                    weight.copy_from_slice(&i32::from(half).to_le_bytes()[..width]);
                }
            }
            MemType::Acc => {
                for (lane, word) in self.acc[acc].iter_mut().zip(words) {
                    *lane = i32::from_le_bytes(*word);
                }
            }
            // LOAD OUT doesn't decode; OUT shares the accumulators.
            MemType::Acc8 | MemType::Out => {
                let values = self.config.numbers(mem, bytes);
                for (lane, value) in self.acc[acc].iter_mut().zip(values) {
                    *lane = value;
                }
            }
        }
    }

    fn store(&mut self, at: &At, store: &Store, memory: &mut DeviceMemory) -> Result<(), SimError> {
        if store.is_sync() {
            return Ok(());
        }
        let end = u64::from(store.sram_base) + store.tiles();
        self.index(at, "sram_base", end - 1, MemType::Acc)?;
        for (field, tiles) in store.operands() {
            self.index(at, field, tiles.end - 1, MemType::Acc)?;
        }
        let elem = self.config.elem_bytes(MemType::Out) as u64;
        for y in 0..u64::from(store.y_size) {
            // A row lies in one allocation: nothing of one that doesn't is written.
            let first = u64::from(store.dram_base) + y * u64::from(store.x_stride);
            let row = memory
                .write(first * elem, u64::from(store.x_size) * elem)
                .map_err(|source| dram(at, source))?;
            let tile = u64::from(store.sram_base) + y * u64::from(store.x_size);
            let first = tile as usize * self.config.lanes();
            let width = self.config.width(MemType::Out) / 8;
            let (low, high) = self.config.bounds(MemType::Out);
            for (i, stored) in row.chunks_exact_mut(width).enumerate() {
                let value = match &store.requantize {
                    None if store.saturate => self.acc[first + i].clamp(low, high),
                    None => self.acc[first + i],
                    Some(how) => self.requantized(how, y as usize, first + i),
                };
                // The lowest bits, as many as an output has.
                stored.copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
        Ok(())
    }

    /// A lane of the inputs.
    fn input(&self, at: usize) -> i32 {
        number(self.inp, self.config.width(MemType::Inp), at)
    }

    /// A weight.
    fn weight(&self, at: usize) -> i32 {
        number(self.wgt, self.config.width(MemType::Wgt), at)
    }

    /// What a STORE that requantises makes of a lane of the accumulators, in one of its rows.
    fn requantized(&self, how: &Requantize, row: usize, lane: usize) -> i32 {
        let lanes = self.config.lanes();
        let word = |tile: usize| self.acc[(how.entry(row) + tile) * lanes + lane % lanes];
        let rounded = Rounding::of([word(0), word(1), word(2)]).apply(self.acc[lane]);
        let Some(distance) = how.distance() else {
            return rounded.into();
        };
        let residual = self.acc[lane + distance * lanes] as i8;
        let sum = Rounding::of([word(3), word(4), word(5)]);
        sum.add(rounded, residual, factor(word(6))).into()
    }

    fn gemm(&mut self, at: &At, gemm: &Gemm) -> Result<(), SimError> {
        self.check_uops(at, gemm.uop_bgn, gemm.uop_end)?;
        let (lanes, block) = (self.config.lanes(), self.config.block());
        for i in 0..u64::from(gemm.iter_out) {
            for j in 0..u64::from(gemm.iter_in) {
                for u in gemm.uop_bgn..gemm.uop_end {
                    let uop = self.uop[usize::from(u)];
                    let dst = affine(uop.dst, i, gemm.dst_factor_out, j, gemm.dst_factor_in);
                    let src = affine(uop.src, i, gemm.src_factor_out, j, gemm.src_factor_in);
                    let wgt = affine(uop.wgt, i, gemm.wgt_factor_out, j, gemm.wgt_factor_in);
                    let dst = self.index(at, "dst", dst, MemType::Acc)? * lanes;
                    if gemm.reset {
                        self.acc[dst..dst + lanes].fill(0);
                        continue;
                    }
                    let src = self.index(at, "src", src, MemType::Inp)? * lanes;
                    let wgt = self.index(at, "wgt", wgt, MemType::Wgt)? * block * block;
                    if gemm.overwrite {
                        self.acc[dst..dst + lanes].fill(0);
                    }
                    for b in 0..self.config.batch() {
                        for o in 0..block {
                            for k in 0..block {
                                let x = self.input(src + b * block + k);
                                let w = self.weight(wgt + o * block + k);
                                let sum = &mut self.acc[dst + b * block + o];
                                *sum = sum.wrapping_add(x.wrapping_mul(w));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn depthwise(&mut self, at: &At, insn: &Depthwise) -> Result<(), SimError> {
        self.check_uops(at, insn.uop_bgn, insn.uop_end)?;
        let (lanes, block) = (self.config.lanes(), self.config.block());
        let (rows, columns) = (u64::from(insn.rows), u64::from(insn.columns));
        if rows * columns == 0 || rows * columns > block as u64 {
            return Err(SimError::Window {
                at: Box::new(at.clone()),
                rows: insn.rows,
                columns: insn.columns,
                most: block,
            });
        }
        for i in 0..u64::from(insn.iter_out) {
            for j in 0..u64::from(insn.iter_in) {
                for u in insn.uop_bgn..insn.uop_end {
                    let uop = self.uop[usize::from(u)];
                    let dst = affine(uop.dst, i, insn.dst_factor_out, j, insn.dst_factor_in);
                    let src = affine(uop.src, i, insn.src_factor_out, j, insn.src_factor_in);
                    let dst = self.index(at, "dst", dst, MemType::Acc)? * lanes;
                    let last = src + (rows - 1) * u64::from(insn.pitch) + columns - 1;
                    self.index(at, "src", last, MemType::Inp)?;
                    let wgt = u64::from(uop.wgt);
                    let wgt = self.index(at, "wgt", wgt, MemType::Wgt)? * block * block;
                    for lane in 0..lanes {
                        let (mut sum, channel) = (0i32, lane % block);
                        for y in 0..rows {
                            for x in 0..columns {
                                let tile = (src + y * u64::from(insn.pitch) + x) as usize;
                                let tap = (y * columns + x) as usize;
                                let x = self.input(tile * lanes + lane);
                                let w = self.weight(wgt + channel * block + tap);
                                sum = sum.wrapping_add(x.wrapping_mul(w));
                            }
                        }
                        let acc = &mut self.acc[dst + lane];
                        *acc = if insn.overwrite {
                            sum
                        } else {
                            acc.wrapping_add(sum)
                        };
                    }
                }
            }
        }
        Ok(())
    }

    fn alu(&mut self, at: &At, alu: &Alu) -> Result<(), SimError> {
        self.check_uops(at, alu.uop_bgn, alu.uop_end)?;
        let lanes = self.config.lanes();
        for i in 0..u64::from(alu.iter_out) {
            for j in 0..u64::from(alu.iter_in) {
                for u in alu.uop_bgn..alu.uop_end {
                    let uop = self.uop[usize::from(u)];
                    let dst = affine(uop.dst, i, alu.dst_factor_out, j, alu.dst_factor_in);
                    let dst = self.index(at, "dst", dst, MemType::Acc)? * lanes;
                    let y = match alu.operand {
                        AluOperand::Imm(imm) => vec![i32::from(imm); lanes],
                        AluOperand::Acc => {
                            let src = affine(uop.src, i, alu.src_factor_out, j, alu.src_factor_in);
                            let src = self.index(at, "src", src, MemType::Acc)? * lanes;
                            self.acc[src..src + lanes].to_vec()
                        }
                    };
                    for (x, y) in self.acc[dst..dst + lanes].iter_mut().zip(y) {
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
        let mut machine = self.machine();
        let leftover_tokens = tokens::run_in_token_order(insns, |index, insn| {
            steps.spend(index, insn)?;
            machine.execute(&At { index, insn: *insn }, memory)
        })?;
        Ok(RunReport {
            wall: start.elapsed(),
            leftover_tokens,
            ..RunReport::of(insns, marks, &self.config)
        })
    }
}

fn affine(base: u16, i: u64, factor_out: u16, j: u64, factor_in: u16) -> u64 {
    u64::from(base) + i * u64::from(factor_out) + j * u64::from(factor_in)
}

fn dram(at: &At, source: vta_driver::MemoryError) -> SimError {
    SimError::Dram {
        at: Box::new(at.clone()),
        source,
    }
}
