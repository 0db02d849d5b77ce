//! What of an instruction must be known to move its transfers and to keep them inside.

use crate::isa::{
    ACC, ACC8, ALU, DEPTHWISE, DRAM_BASE, FINISH, Field, GEMM, INP, LOAD, MEMORY_TYPE, OPCODE, OUT,
    OVERWRITING, PADDED_Y_SIZE, PRELOAD_ACC, PRELOAD_ACC8, REQUANTIZING, SATURATED, STORE, UOP,
    WGT, WGT4, WGT4_FLAG, X_SIZE, X_STRIDE, Y_SIZE,
};

/// Where instructions find the network's buffers.
pub(crate) const WORK_AT: u32 = 1 << 30;

/// The two parts of the space that an image's instructions address.
#[derive(Clone, Copy)]
pub(crate) struct Regions {
    pub(crate) log_batch: u32,
    pub(crate) log_block: u32,
    /// Bytes of constants from 0 on.
    pub(crate) constants: u32,
    /// Bytes of the network's buffers from [`WORK_AT`] on.
    pub(crate) work: u32,
}

/// Where the two parts are on the accelerator's bus.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) constants: u64,
    pub(crate) work: u64,
}

/// An instruction's two halves.
#[derive(Clone, Copy)]
pub(crate) struct Insn(pub(crate) [u64; 2]);

impl Insn {
    /// A field's bits. The field is a constant wherever this is called.
    #[inline(always)]
    fn get(self, (first, bits): Field) -> u32 {
        let [low, high] = self.0;
        let half = if first < 64 { low } else { high };
        (half >> (first % 64)) as u32 & (u32::MAX >> (32 - bits))
    }

    /// The same with other bits in a field of the lower half.
    #[inline(always)]
    fn with(self, (first, bits): Field, value: u32) -> Self {
        let [low, high] = self.0;
        let mask = (u64::MAX >> (64 - bits)) << first;
        Self([low & !mask | u64::from(value) << first & mask, high])
    }

    fn opcode(self) -> u32 {
        self.get(OPCODE)
    }

    pub(crate) fn is_finish(self) -> bool {
        self.opcode() == FINISH
    }

    /// Its memory type. No LOAD fills the output scratchpad: that code is the one of 4-bit weights, or of inputs that are
    /// padded with a value. A STORE that saturates has another code for it.
    fn mem(self) -> u32 {
        match self.get(MEMORY_TYPE) {
            OUT if self.opcode() == LOAD && self.get(WGT4_FLAG) != 0 => WGT4,
            SATURATED if self.opcode() == STORE => OUT,
            mem => mem,
        }
    }

    /// log2 of an element's bytes; `None` for a memory type that isn't one.
    fn log_elem(self, regions: &Regions) -> Option<u32> {
        let tile = regions.log_batch + regions.log_block;
        match self.mem() {
            UOP => Some(2),
            WGT => Some(2 * regions.log_block),
            WGT4 => Some((2 * regions.log_block).saturating_sub(1)),
            INP | OUT | ACC8 | PRELOAD_ACC8 => Some(tile),
            ACC | PRELOAD_ACC => Some(tile + 2),
            _ => None,
        }
    }

    /// Its rows in DRAM: those of inputs that are padded with a value have fewer bits.
    fn rows(self) -> u32 {
        let padded = self.opcode() == LOAD && self.mem() == OUT;
        self.get(if padded { PADDED_Y_SIZE } else { Y_SIZE })
    }

    /// Whether it moves any bytes.
    fn moves(self) -> bool {
        matches!(self.opcode(), LOAD | STORE | REQUANTIZING)
            && self.rows() != 0
            && self.get(X_SIZE) != 0
    }

    /// Whether it is an instruction, and all that it moves lies in one of the two parts; what it
    /// stores, in the network's buffers.
    pub(crate) fn fits(self, regions: &Regions) -> bool {
        match self.opcode() {
            LOAD | STORE | REQUANTIZING => {}
            GEMM | OVERWRITING | DEPTHWISE | FINISH | ALU => return true,
            _ => return false,
        }
        let store = self.opcode() != LOAD;
        let Some(log) = self.log_elem(regions) else {
            return false;
        };
        // Nothing but outputs is stored.
        if store && self.mem() != OUT && self.moves() {
            return false;
        }
        if !self.moves() {
            return true;
        }
        let rows = u64::from(self.rows());
        let fields = [X_SIZE, X_STRIDE, DRAM_BASE];
        let [columns, stride, from] = fields.map(|field| u64::from(self.get(field)));
        let to = from + (rows - 1) * stride + columns;
        let (from, to) = (from << log, to << log);
        let work = u64::from(WORK_AT);
        let inside = from >= work && to <= work + u64::from(regions.work);
        inside || !store && to <= regions.constants.into()
    }

    /// The same for where the parts lie; `None` for an address that doesn't fit.
    pub(crate) fn moved(self, regions: &Regions, places: &Places) -> Option<Self> {
        if !self.moves() {
            return Some(self);
        }
        let log = self.log_elem(regions)?;
        let from = u64::from(self.get(DRAM_BASE)) << log;
        let address = match from.checked_sub(WORK_AT.into()) {
            Some(offset) => places.work.checked_add(offset)?,
            None => places.constants.checked_add(from)?,
        };
        let base = u32::try_from(address >> log).ok()?;
        Some(self.with(DRAM_BASE, base))
    }
}
