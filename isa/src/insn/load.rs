//! LOAD: rows of tiles from DRAM into a scratchpad, with zero padding; memory types; which module runs it.

use super::transfer::transfer;
use crate::field::codes;
use crate::{Deps, Extension, FieldError, Opcode};

codes! {
    /// The memory type of LOAD and STORE.
    MemType of Load::FIELDS.memory_type; {
        Uop = 0, "uop", None, "Micro-ops, 4 bytes each, into the micro-op scratchpad";
        Wgt = 1, "wgt", None, "Weight tiles, `BLOCK_OUT * BLOCK_IN` int8, into the weight scratchpad";
        Inp = 2, "inp", None, "Input tiles, `BATCH * BLOCK_IN` int8, into the input scratchpad";
        Acc = 3, "acc", None, "Accumulator tiles, `BATCH * BLOCK_OUT` int32, into the accumulator scratchpad";
        Out = 4, "out", None, "Output tiles, `BATCH * BLOCK_OUT` int8, written by STORE from the accumulator scratchpad";
        Acc8 = 5, "acc8", Some(Extension::Acc8), "Tiles of `BATCH * BLOCK_OUT` int8 in DRAM, sign-extended to int32 in the accumulator scratchpad";
    }
}

impl MemType {
    /// Those that the load module loads, too, where a machine has PRELOAD: with the code that says so, and its meaning.
    pub const PRELOADED: [(Self, u8, &'static str); 2] = [
        (Self::Acc, 6, "As `acc`, by the load module"),
        (Self::Acc8, 7, "As `acc8`, by the load module"),
    ];

    /// The code that says that the load module fills accumulators.
    #[inline]
    const fn preloaded(self) -> Option<u8> {
        let mut at = 0;
        while at < Self::PRELOADED.len() {
            let (mem, code, _) = Self::PRELOADED[at];
            if mem as u8 == self as u8 {
                return Some(code);
            }
            at += 1;
        }
        None
    }
}

transfer! {
    /// LOAD writes `y_pad_0 + y_size + y_pad_1` rows of `x_pad_0 + x_size + x_pad_1` consecutive
    /// tiles from `sram_base`. Padding tiles are zero; row `y` of the payload comes from
    /// `dram_base + y * x_stride`. `x_stride = 0` repeats one row. With `x_size = 0` or `y_size = 0`
    /// nothing is written, padding neither: only the tokens act.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    Load, LoadFields {
        members {
            /// Dependency tokens.
            deps: Deps;
            /// What to load: any type but [`MemType::Out`].
            mem: MemType;
            /// The load module fills accumulators, not the compute module: a code of the memory type
            /// ([`MemType::PRELOADED`]). No other type has one.
            preload: bool;
        }
        after {
            y_pad_0: u8 = [112, 4], Number, "rows", "Zeros above";
            y_pad_1: u8 = [116, 4], Number, "rows", "Zeros below";
            x_pad_0: u8 = [120, 4], Number, "tiles", "Zeros left of each row";
            x_pad_1: u8 = [124, 4], Number, "tiles", "Zeros right of each row";
        }
    }
}

impl Default for Load {
    /// A LOAD INP that moves nothing.
    fn default() -> Self {
        Self::unpack(0, Deps::NONE, MemType::Inp, false)
    }
}

impl Load {
    /// The flag of assembly text that says that the load module fills accumulators.
    pub const PRELOAD: &'static str = "preload";

    /// The code of its memory type; `None` if that has none for the load module.
    #[inline]
    pub(crate) const fn code(&self) -> Option<u8> {
        match self.preload {
            true => self.mem.preloaded(),
            false => Some(self.mem.code()),
        }
    }

    #[inline]
    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let code = self.code().ok_or(FieldError {
            field: Self::PRELOAD,
            value: 1,
            bits: 0,
        })?;
        let mem = Self::FIELDS.memory_type.put(code.into())?;
        Ok(Opcode::Load.word(self.deps)? | mem | self.pack()?)
    }

    /// Tiles written to the scratchpad, padding included; 0 for a synchronisation.
    #[inline]
    pub const fn sram_tiles(&self) -> u64 {
        if self.is_sync() {
            return 0;
        }
        let rows = self.y_pad_0 as u64 + self.y_size as u64 + self.y_pad_1 as u64;
        let cols = self.x_pad_0 as u64 + self.x_size as u64 + self.x_pad_1 as u64;
        rows * cols
    }

    /// Elements read from DRAM (a repeated row counts each time).
    #[inline]
    pub const fn dram_elems(&self) -> u64 {
        self.x_size as u64 * self.y_size as u64
    }
}
