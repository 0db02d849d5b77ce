//! The fast functional executor: the oracle's results from flat scratchpads and SIMD kernels.
//!
//! Inputs are widened to int16 when they are loaded. Each weight tile is laid out for the
//! kernel when a GEMM first uses it and kept until the tile is overwritten. Indices are checked
//! once an instruction, from the affine form, so the inner loops see only slices.

use std::time::{Duration, Instant};

use vta_driver::{DeviceMemory, LayerMark, RunReport, Traffic};
use vta_isa::tokens::{self, At};
use vta_isa::{Alu, AluOp, AluOperand, Config, Gemm, Insn, Load, MemType, Module, Store, Uop};

use crate::error::SimError;
use crate::kernel::{self, GemmKernel};
use crate::oracle::{dram, index, uop_range};
use crate::{Executor, StepBudget};

/// The fast executor. Scratchpads keep their contents between runs.
pub struct Functional {
    config: Config,
    kernel: GemmKernel,
    uop: Vec<Uop>,
    /// Widened to int16.
    inp: Vec<i16>,
    wgt: Vec<i8>,
    /// Weight tiles as the kernel wants them, valid where `laid_out` says so.
    wgt_layout: Vec<i16>,
    laid_out: Vec<bool>,
    acc: Vec<i32>,
    /// One tile: the second operand of an ALU step whose tiles may overlap.
    tile: Vec<i32>,
    max_steps: u64,
}

impl Functional {
    /// An executor with zeroed scratchpads and the best kernel of this CPU.
    pub fn new(config: Config) -> Self {
        let kernel = GemmKernel::detect();
        Self::with_kernel(config, kernel)
    }

    /// An executor with a kernel of choice. A kernel that this CPU lacks, or that doesn't cover
    /// the configuration's block, is replaced by the scalar one.
    pub fn with_kernel(config: Config, kernel: GemmKernel) -> Self {
        let tile = |mem: MemType, elems: usize| config.depth(mem) * elems;
        let (lanes, block) = (config.lanes(), config.block());
        Self {
            kernel: kernel.usable(block),
            uop: vec![Uop::default(); config.depth(MemType::Uop)],
            inp: vec![0; tile(MemType::Inp, lanes)],
            wgt: vec![0; tile(MemType::Wgt, block * block)],
            wgt_layout: vec![0; tile(MemType::Wgt, block * block)],
            laid_out: vec![false; config.depth(MemType::Wgt)],
            acc: vec![0; tile(MemType::Acc, lanes)],
            tile: vec![0; lanes],
            config,
            max_steps: crate::DEFAULT_MAX_STEPS,
        }
    }

    /// Limits the GEMM and ALU steps of one run.
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: u64) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// The kernel in use.
    pub fn kernel(&self) -> GemmKernel {
        self.kernel
    }

    fn load(&mut self, at: &At, load: &Load, memory: &DeviceMemory) -> Result<(), SimError> {
        if load.is_sync() {
            return Ok(());
        }
        let depth = self.config.depth(load.mem);
        let end = u64::from(load.sram_base) + load.sram_tiles();
        index(at, "sram_base", end - 1, load.mem.name(), depth)?;
        let elem = self.config.elem_bytes(load.mem);
        let (left, x) = (usize::from(load.x_pad_0), usize::from(load.x_size));
        let cols = left + x + usize::from(load.x_pad_1);
        let mut tile = usize::from(load.sram_base);
        self.clear(load.mem, tile, usize::from(load.y_pad_0) * cols);
        tile += usize::from(load.y_pad_0) * cols;
        for y in 0..u64::from(load.y_size) {
            let first = u64::from(load.dram_base) + y * u64::from(load.x_stride);
            let row = memory.read(first * elem as u64, (x * elem) as u64);
            let row = row.map_err(|source| dram(at, source))?;
            self.clear(load.mem, tile, left);
            self.fill(load.mem, tile + left, row);
            self.clear(load.mem, tile + left + x, cols - left - x);
            tile += cols;
        }
        self.clear(load.mem, tile, usize::from(load.y_pad_1) * cols);
        Ok(())
    }

    /// Zeroes `tiles` consecutive elements.
    fn clear(&mut self, mem: MemType, first: usize, tiles: usize) {
        if tiles == 0 {
            return;
        }
        let (lanes, block) = (self.config.lanes(), self.config.block());
        let end = first + tiles;
        match mem {
            MemType::Uop => self.uop[first..end].fill(Uop::default()),
            MemType::Inp => self.inp[first * lanes..end * lanes].fill(0),
            MemType::Wgt => {
                self.wgt[first * block * block..end * block * block].fill(0);
                self.laid_out[first..end].fill(false);
            }
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                self.acc[first * lanes..end * lanes].fill(0);
            }
        }
    }

    /// Writes a row of DRAM elements from `first` on.
    fn fill(&mut self, mem: MemType, first: usize, row: &[u8]) {
        let (lanes, area) = (
            self.config.lanes(),
            self.config.block() * self.config.block(),
        );
        match mem {
            MemType::Uop => {
                for (to, from) in self.uop[first..].iter_mut().zip(row.chunks_exact(4)) {
                    *to = Uop::decode(u32::from_le_bytes([from[0], from[1], from[2], from[3]]));
                }
            }
            MemType::Inp => {
                for (to, &from) in self.inp[first * lanes..].iter_mut().zip(row) {
                    *to = i16::from(from as i8);
                }
            }
            MemType::Wgt => {
                for (to, &from) in self.wgt[first * area..].iter_mut().zip(row) {
                    *to = from as i8;
                }
                self.laid_out[first..first + row.len() / area].fill(false);
            }
            MemType::Acc => {
                for (to, from) in self.acc[first * lanes..]
                    .iter_mut()
                    .zip(row.chunks_exact(4))
                {
                    *to = i32::from_le_bytes([from[0], from[1], from[2], from[3]]);
                }
            }
            MemType::Acc8 | MemType::Out => {
                for (to, &from) in self.acc[first * lanes..].iter_mut().zip(row) {
                    *to = i32::from(from as i8);
                }
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
        let (elem, lanes) = (
            self.config.elem_bytes(MemType::Out) as u64,
            self.config.lanes(),
        );
        let x = usize::from(store.x_size);
        for y in 0..u64::from(store.y_size) {
            let first = u64::from(store.dram_base) + y * u64::from(store.x_stride);
            let row = memory.write(first * elem, x as u64 * elem);
            let row = row.map_err(|source| dram(at, source))?;
            let tile = usize::from(store.sram_base) + y as usize * x;
            for (to, from) in row.iter_mut().zip(&self.acc[tile * lanes..]) {
                *to = *from as u8;
            }
        }
        Ok(())
    }

    fn gemm(&mut self, at: &At, gemm: &Gemm) -> Result<(), SimError> {
        uop_range(at, gemm.uop_bgn, gemm.uop_end, self.uop.len())?;
        if gemm.steps() == 0 {
            return Ok(());
        }
        let uops = &self.uop[usize::from(gemm.uop_bgn)..usize::from(gemm.uop_end)];
        let reach = |factor_out: u16, factor_in: u16| {
            u64::from(gemm.iter_out - 1) * u64::from(factor_out)
                + u64::from(gemm.iter_in - 1) * u64::from(factor_in)
        };
        let dst_reach = reach(gemm.dst_factor_out, gemm.dst_factor_in);
        let src_reach = reach(gemm.src_factor_out, gemm.src_factor_in);
        let wgt_reach = reach(gemm.wgt_factor_out, gemm.wgt_factor_in);
        let (acc, inp, wgt) = (
            self.config.depth(MemType::Acc),
            self.config.depth(MemType::Inp),
            self.config.depth(MemType::Wgt),
        );
        for uop in uops {
            index(at, "dst", u64::from(uop.dst) + dst_reach, "acc", acc)?;
            if !gemm.reset {
                index(at, "src", u64::from(uop.src) + src_reach, "inp", inp)?;
                index(at, "wgt", u64::from(uop.wgt) + wgt_reach, "wgt", wgt)?;
            }
        }
        if gemm.reset {
            self.reset(gemm);
        } else {
            self.lay_out_weights(gemm);
            let uops = &self.uop[usize::from(gemm.uop_bgn)..usize::from(gemm.uop_end)];
            let pads = kernel::Scratchpads {
                inp: &self.inp,
                wgt: &self.wgt,
                wgt_layout: &self.wgt_layout,
                acc: &mut self.acc,
            };
            self.kernel
                .run(gemm, uops, self.config.batch(), self.config.block(), pads);
        }
        Ok(())
    }

    fn reset(&mut self, gemm: &Gemm) {
        let lanes = self.config.lanes();
        let (out, inner) = (
            usize::from(gemm.dst_factor_out),
            usize::from(gemm.dst_factor_in),
        );
        for uop in &self.uop[usize::from(gemm.uop_bgn)..usize::from(gemm.uop_end)] {
            for i in 0..usize::from(gemm.iter_out) {
                let first = usize::from(uop.dst) + i * out;
                let n = usize::from(gemm.iter_in);
                if inner == 1 {
                    self.acc[first * lanes..(first + n) * lanes].fill(0);
                    continue;
                }
                for j in 0..n {
                    let dst = first + j * inner;
                    self.acc[dst * lanes..(dst + 1) * lanes].fill(0);
                }
            }
        }
    }

    /// Brings every weight tile that the instruction reads into the kernel's layout.
    fn lay_out_weights(&mut self, gemm: &Gemm) {
        if self.kernel == GemmKernel::Scalar {
            return;
        }
        let block = self.config.block();
        let (out, inner) = (
            usize::from(gemm.wgt_factor_out),
            usize::from(gemm.wgt_factor_in),
        );
        let outer = if out == 0 {
            1
        } else {
            usize::from(gemm.iter_out)
        };
        let inners = if inner == 0 {
            1
        } else {
            usize::from(gemm.iter_in)
        };
        for uop in &self.uop[usize::from(gemm.uop_bgn)..usize::from(gemm.uop_end)] {
            for i in 0..outer {
                for j in 0..inners {
                    let tile = usize::from(uop.wgt) + i * out + j * inner;
                    if !self.laid_out[tile] {
                        let area = tile * block * block..(tile + 1) * block * block;
                        kernel::lay_out(&self.wgt[area.clone()], &mut self.wgt_layout[area], block);
                        self.laid_out[tile] = true;
                    }
                }
            }
        }
    }

    fn alu(&mut self, at: &At, alu: &Alu) -> Result<(), SimError> {
        uop_range(at, alu.uop_bgn, alu.uop_end, self.uop.len())?;
        if alu.steps() == 0 {
            return Ok(());
        }
        let depth = self.config.depth(MemType::Acc);
        let reach = |factor_out: u16, factor_in: u16| {
            u64::from(alu.iter_out - 1) * u64::from(factor_out)
                + u64::from(alu.iter_in - 1) * u64::from(factor_in)
        };
        let dst_reach = reach(alu.dst_factor_out, alu.dst_factor_in);
        let src_reach = reach(alu.src_factor_out, alu.src_factor_in);
        let two = alu.operand == AluOperand::Acc;
        for uop in &self.uop[usize::from(alu.uop_bgn)..usize::from(alu.uop_end)] {
            index(at, "dst", u64::from(uop.dst) + dst_reach, "acc", depth)?;
            if two {
                index(at, "src", u64::from(uop.src) + src_reach, "acc", depth)?;
            }
        }
        // One closure for each operation, so that the lane loops are vectorised.
        match alu.op {
            AluOp::Min => self.alu_steps(alu, |x, y| x.min(y)),
            AluOp::Max => self.alu_steps(alu, |x, y| x.max(y)),
            AluOp::Add => self.alu_steps(alu, i32::wrapping_add),
            AluOp::Shr => self.alu_steps(alu, |x, y| AluOp::Shr.apply(x, y)),
            AluOp::Mul => self.alu_steps(alu, i32::wrapping_mul),
            AluOp::Shl => self.alu_steps(alu, |x, y| AluOp::Shl.apply(x, y)),
        }
        Ok(())
    }

    fn alu_steps(&mut self, alu: &Alu, op: impl Fn(i32, i32) -> i32 + Copy) {
        let lanes = self.config.lanes();
        let uops = usize::from(alu.uop_bgn)..usize::from(alu.uop_end);
        let inner = usize::from(alu.iter_in);
        for i in 0..usize::from(alu.iter_out) {
            let (dst_out, src_out) = (
                i * usize::from(alu.dst_factor_out),
                i * usize::from(alu.src_factor_out),
            );
            if let (AluOperand::Imm(imm), 1, 1) = (alu.operand, alu.dst_factor_in, uops.len()) {
                let first = usize::from(self.uop[uops.start].dst) + dst_out;
                for x in &mut self.acc[first * lanes..(first + inner) * lanes] {
                    *x = op(*x, i32::from(imm));
                }
                continue;
            }
            for j in 0..inner {
                for u in uops.clone() {
                    let uop = self.uop[u];
                    let dst = usize::from(uop.dst) + dst_out + j * usize::from(alu.dst_factor_in);
                    let src = usize::from(uop.src) + src_out + j * usize::from(alu.src_factor_in);
                    self.alu_tile(dst * lanes, alu.operand, src * lanes, op);
                }
            }
        }
    }

    fn alu_tile(
        &mut self,
        dst: usize,
        operand: AluOperand,
        src: usize,
        op: impl Fn(i32, i32) -> i32 + Copy,
    ) {
        let lanes = self.config.lanes();
        match operand {
            AluOperand::Imm(imm) => {
                for x in &mut self.acc[dst..dst + lanes] {
                    *x = op(*x, i32::from(imm));
                }
            }
            AluOperand::Acc => {
                self.tile.copy_from_slice(&self.acc[src..src + lanes]);
                for (x, y) in self.acc[dst..dst + lanes].iter_mut().zip(&self.tile) {
                    *x = op(*x, *y);
                }
            }
        }
    }
}

impl Executor for Functional {
    fn run(
        &mut self,
        insns: &[Insn],
        marks: &[LayerMark],
        memory: &mut DeviceMemory,
    ) -> Result<RunReport, SimError> {
        let start = Instant::now();
        let mut steps = StepBudget::new(self.max_steps);
        let mut clock = MarkClock::new(marks, start);
        let leftover_tokens = tokens::run_in_token_order(insns, |i, insn| {
            let at = At {
                index: i,
                insn: *insn,
            };
            steps.spend(&at)?;
            if insn.module() == Module::Compute {
                clock.reach(i);
            }
            match insn {
                Insn::Load(load) => self.load(&at, load, memory),
                Insn::Store(store) => self.store(&at, store, memory),
                Insn::Gemm(gemm) => self.gemm(&at, gemm),
                Insn::Alu(alu) => self.alu(&at, alu),
                Insn::Finish(_) => Ok(()),
            }
        })?;
        let walls = clock.finish();
        let wall = start.elapsed();
        let marks = crate::mark_reports(insns, marks, &self.config, &walls);
        let traffic = Traffic::of(insns, &self.config);
        Ok(RunReport {
            traffic,
            wall,
            cycles: None,
            marks,
            leftover_tokens,
        })
    }
}

/// Wall time of each mark: from the compute module's first instruction in it to the next's.
struct MarkClock<'a> {
    marks: &'a [LayerMark],
    next: usize,
    last: Instant,
    walls: Vec<Duration>,
}

impl<'a> MarkClock<'a> {
    fn new(marks: &'a [LayerMark], start: Instant) -> Self {
        Self {
            marks,
            next: 0,
            last: start,
            walls: Vec::with_capacity(marks.len()),
        }
    }

    fn reach(&mut self, insn: usize) {
        while self
            .marks
            .get(self.next)
            .is_some_and(|mark| mark.first_insn <= insn)
        {
            self.lap();
            self.next += 1;
        }
    }

    /// Ends the mark before `next`; what comes before the first mark counts for the first.
    fn lap(&mut self) {
        if self.next > 0 {
            let now = Instant::now();
            self.walls.push(now - self.last);
            self.last = now;
        }
    }

    fn finish(mut self) -> Vec<Duration> {
        self.lap();
        self.walls
    }
}
