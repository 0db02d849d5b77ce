//! Walking a batch in an order that its tokens allow, with every bound checked.
//!
//! Kernels check nothing: whatever reaches a device was found legal here first. That needs the
//! micro-ops, so the host keeps what the micro-op scratchpad holds, reading the loads of micro-ops
//! from a mirror of device memory.

use std::collections::BTreeMap;
use std::ops::Range;

use vta_driver::{Batch, DeviceMemory};
use vta_isa::check::{self, Finding};
use vta_isa::tokens::{self, At, TokenError};
use vta_isa::{Alu, AluOperand, Config, Gemm, Insn, Load, MemType, Store, Uop};

use crate::error::BatchError;
use crate::mirror::Mirror;

/// What becomes of the instructions: operations of the throughput structure, or a stream for
/// the core. Each call is checked; micro-ops are those of `uop_bgn..uop_end`, encoded.
pub(crate) trait Sink {
    fn load(&mut self, load: &Load);
    fn store(&mut self, store: &Store);
    fn gemm(&mut self, gemm: &Gemm, uops: &[u32]);
    fn alu(&mut self, alu: &Alu, uops: &[u32]);
}

/// The host's copy of the micro-op scratchpad.
pub(crate) struct UopPad {
    words: Vec<u32>,
    /// Which entries this batch has loaded.
    loaded: Vec<bool>,
    /// Entries that the batch used as it found them.
    found: BTreeMap<usize, u32>,
}

impl UopPad {
    pub fn new(config: &Config) -> Self {
        let depth = config.depth(MemType::Uop);
        Self {
            words: vec![0; depth],
            loaded: vec![false; depth],
            found: BTreeMap::new(),
        }
    }

    /// Begins a batch; `clear` for a device whose scratchpads are zero then.
    pub fn begin(&mut self, clear: bool) {
        self.loaded.fill(clear);
        self.found.clear();
        if clear {
            self.words.fill(0);
        }
    }

    /// What the batch used and hasn't loaded itself: a repetition does the same when it finds
    /// the same.
    pub fn found(&self) -> Vec<(usize, u32)> {
        self.found.iter().map(|(&i, &word)| (i, word)).collect()
    }

    /// What the batch left, so that a repetition can leave it, too.
    pub fn contents(&self) -> Vec<(usize, u32)> {
        let loaded = self.loaded.iter().enumerate().filter(|(_, l)| **l);
        loaded.map(|(i, _)| (i, self.words[i])).collect()
    }

    /// Whether the scratchpad holds these words.
    pub fn holds(&self, words: &[(usize, u32)]) -> bool {
        words.iter().all(|&(i, word)| self.words[i] == word)
    }

    pub fn restore(&mut self, contents: &[(usize, u32)]) {
        for &(i, word) in contents {
            self.words[i] = word;
        }
    }

    fn set(&mut self, first: usize, words: impl Iterator<Item = u32>) {
        let slots = self.words[first..]
            .iter_mut()
            .zip(&mut self.loaded[first..]);
        for ((slot, loaded), word) in slots.zip(words) {
            (*slot, *loaded) = (word, true);
        }
    }

    fn get(&mut self, range: Range<usize>) -> &[u32] {
        for i in range.clone().filter(|&i| !self.loaded[i]) {
            self.found.insert(i, self.words[i]);
        }
        &self.words[range]
    }
}

/// The order in which instructions run and the tokens that are left.
///
/// # Errors
/// Wrong flags, a deadlock, a missing or early FINISH.
pub(crate) fn order(batch: &Batch) -> Result<(Vec<u32>, [u32; 4]), TokenError> {
    let mut order = Vec::with_capacity(batch.insns.len());
    let left = tokens::run_in_token_order(&batch.insns, |index, _| {
        order.push(index as u32);
        Ok::<(), TokenError>(())
    })?;
    Ok((order, left))
}

/// Where a walk stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At the end.
    End,
    /// Before the instruction at this place of the order: it loads micro-ops from bytes that the
    /// device wrote, so they must be read back to the mirror first.
    ReadBack {
        position: usize,
        ranges: Vec<(u32, u64)>,
    },
}

/// A walk over one batch.
pub(crate) struct Walk<'a> {
    pub config: &'a Config,
    pub batch: &'a Batch,
    pub order: &'a [u32],
    pub uops: &'a mut UopPad,
    /// GEMM and ALU steps left, and the limit they started from.
    pub steps: [u64; 2],
    /// DRAM that was read as micro-ops: address and length.
    pub uop_sources: Vec<(u32, u32)>,
}

impl Walk<'_> {
    /// Walks from `from` on. The instruction at `fresh` may load micro-ops although the device
    /// wrote them: they were read back.
    pub fn run(
        &mut self,
        mirror: &mut Mirror,
        from: usize,
        fresh: Option<usize>,
        sink: &mut impl Sink,
    ) -> Result<Stop, BatchError> {
        for position in from..self.order.len() {
            let index = self.order[position] as usize;
            let at = At {
                index,
                insn: self.batch.insns[index],
            };
            match &at.insn {
                Insn::Load(load) => {
                    self.check_load(&at, load, mirror.memory())?;
                    if load.mem == MemType::Uop && !load.is_sync() {
                        let ranges = stale_rows(load, mirror);
                        if !ranges.is_empty() && fresh != Some(position) {
                            return Ok(Stop::ReadBack { position, ranges });
                        }
                        self.load_uops(load, mirror.memory());
                    }
                    sink.load(load);
                }
                Insn::Store(store) => {
                    self.check_store(&at, store, mirror)?;
                    sink.store(store);
                }
                Insn::Gemm(gemm) => {
                    self.spend(&at, gemm.steps())?;
                    let uops = self.check_gemm(&at, gemm)?;
                    sink.gemm(gemm, uops);
                }
                Insn::Alu(alu) => {
                    self.spend(&at, alu.steps())?;
                    let uops = self.check_alu(&at, alu)?;
                    sink.alu(alu, uops);
                }
                Insn::Finish(_) => {}
            }
        }
        Ok(Stop::End)
    }

    fn spend(&mut self, at: &At, steps: u64) -> Result<(), BatchError> {
        let [left, limit] = &mut self.steps;
        match left.checked_sub(steps) {
            Some(rest) => *left = rest,
            None => {
                return Err(BatchError::StepLimit {
                    at: Box::new(at.clone()),
                    limit: *limit,
                });
            }
        }
        Ok(())
    }

    fn check_load(&self, at: &At, load: &Load, memory: &DeviceMemory) -> Result<(), BatchError> {
        if load.is_sync() {
            return Ok(());
        }
        let last = u64::from(load.sram_base) + load.sram_tiles() - 1;
        check::tile(at, self.config, "sram_base", last, load.mem)?;
        let elem = self.config.elem_bytes(load.mem) as u64;
        for (first, len) in rows(load.dram_base, load.y_size, load.x_size, load.x_stride) {
            let read = memory.read(first * elem, len * elem);
            read.map_err(|source| dram(at, source))?;
            if load.x_stride == 0 {
                break;
            }
        }
        Ok(())
    }

    fn check_store(&self, at: &At, store: &Store, mirror: &mut Mirror) -> Result<(), BatchError> {
        if store.is_sync() {
            return Ok(());
        }
        let last = u64::from(store.sram_base) + store.tiles() - 1;
        check::tile(at, self.config, "sram_base", last, MemType::Out)?;
        let elem = self.config.elem_bytes(MemType::Out) as u64;
        for (first, len) in rows(store.dram_base, store.y_size, store.x_size, store.x_stride) {
            let read = mirror.memory().read(first * elem, len * elem);
            read.map_err(|source| dram(at, source))?;
        }
        for (first, len) in rows(store.dram_base, store.y_size, store.x_size, store.x_stride) {
            mirror.device_writes(first * elem, len * elem);
        }
        Ok(())
    }

    fn load_uops(&mut self, load: &Load, memory: &DeviceMemory) {
        let cols = usize::from(load.x_pad_0) + usize::from(load.x_size) + usize::from(load.x_pad_1);
        let tiles = load.sram_tiles() as usize;
        let first = usize::from(load.sram_base);
        self.uops.set(first, std::iter::repeat_n(0, tiles));
        let mut to = first + usize::from(load.y_pad_0) * cols + usize::from(load.x_pad_0);
        for (row, len) in rows(load.dram_base, load.y_size, load.x_size, load.x_stride) {
            // The rows were checked above, so this reads them all.
            let bytes = memory.read(row * 4, len * 4).unwrap_or_default();
            let words = bytes.chunks_exact(4);
            let words = words.map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
            self.uops.set(to, words);
            self.uop_sources.push((row as u32 * 4, len as u32 * 4));
            to += cols;
        }
    }

    fn uop_range(&mut self, at: &At, bgn: u16, end: u16) -> Result<&[u32], BatchError> {
        if end < bgn {
            let at = Box::new(at.clone());
            return Err(Finding::UopRange { at, bgn, end }.into());
        }
        if end > bgn {
            check::tile(at, self.config, "uop_end", u64::from(end) - 1, MemType::Uop)?;
        }
        Ok(self.uops.get(usize::from(bgn)..usize::from(end)))
    }

    fn check_gemm(&mut self, at: &At, gemm: &Gemm) -> Result<&[u32], BatchError> {
        let config = self.config;
        let uops = self.uop_range(at, gemm.uop_bgn, gemm.uop_end)?;
        if gemm.steps() == 0 {
            return Ok(&[]);
        }
        let iter = (gemm.iter_out, gemm.iter_in);
        let dst = reach(iter, (gemm.dst_factor_out, gemm.dst_factor_in));
        let src = reach(iter, (gemm.src_factor_out, gemm.src_factor_in));
        let tile = reach(iter, (gemm.wgt_factor_out, gemm.wgt_factor_in));
        for uop in uops.iter().map(|w| Uop::decode(*w)) {
            check::tile(at, config, "dst", u64::from(uop.dst) + dst, MemType::Acc)?;
            if !gemm.reset {
                check::tile(at, config, "src", u64::from(uop.src) + src, MemType::Inp)?;
                check::tile(at, config, "wgt", u64::from(uop.wgt) + tile, MemType::Wgt)?;
            }
        }
        Ok(uops)
    }

    fn check_alu(&mut self, at: &At, alu: &Alu) -> Result<&[u32], BatchError> {
        let config = self.config;
        let uops = self.uop_range(at, alu.uop_bgn, alu.uop_end)?;
        if alu.steps() == 0 {
            return Ok(&[]);
        }
        let iter = (alu.iter_out, alu.iter_in);
        let dst = reach(iter, (alu.dst_factor_out, alu.dst_factor_in));
        let src = reach(iter, (alu.src_factor_out, alu.src_factor_in));
        for uop in uops.iter().map(|w| Uop::decode(*w)) {
            check::tile(at, config, "dst", u64::from(uop.dst) + dst, MemType::Acc)?;
            if alu.operand == AluOperand::Acc {
                check::tile(at, config, "src", u64::from(uop.src) + src, MemType::Acc)?;
            }
        }
        Ok(uops)
    }
}

/// First element and length of each DRAM row.
pub(crate) fn rows(base: u32, y: u16, x: u16, stride: u16) -> impl Iterator<Item = (u64, u64)> {
    (0..u64::from(y)).map(move |row| (u64::from(base) + row * u64::from(stride), u64::from(x)))
}

/// Rows of a load of micro-ops that the device has written, as addresses and lengths.
fn stale_rows(load: &Load, mirror: &Mirror) -> Vec<(u32, u64)> {
    let all = rows(load.dram_base, load.y_size, load.x_size, load.x_stride);
    let bytes = all.map(|(first, len)| (first * 4, len * 4));
    let stale = bytes.filter(|&(first, len)| mirror.is_stale(first, len));
    stale.map(|(first, len)| (first as u32, len)).collect()
}

/// How far the loops go beyond a micro-op's index; both run at least once.
pub(crate) fn reach(iter: (u16, u16), factor: (u16, u16)) -> u64 {
    u64::from(iter.0.saturating_sub(1)) * u64::from(factor.0)
        + u64::from(iter.1.saturating_sub(1)) * u64::from(factor.1)
}

fn dram(at: &At, source: vta_driver::MemoryError) -> BatchError {
    BatchError::Dram {
        at: Box::new(at.clone()),
        source,
    }
}
