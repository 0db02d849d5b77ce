//! LOAD: rows of tiles from DRAM into a scratchpad, with zero padding.

use crate::transfer::transfer;
use crate::{DecodeError, Deps, FieldError, MemType, Opcode};

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
        Self::unpack(0, Deps::NONE, MemType::Inp)
    }
}

impl Load {
    pub(crate) fn decode(word: u128) -> Result<Self, DecodeError> {
        let mem = MemType::of(Self::FIELDS.memory_type, word)?;
        if mem == MemType::Out {
            return Err(DecodeError::LoadMemType(mem));
        }
        Ok(Self::unpack(word, Deps::unpack(word), mem))
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let mem = Self::FIELDS.memory_type.put(self.mem.code().into())?;
        Ok(Opcode::Load.word(self.deps)? | mem | self.pack()?)
    }

    /// Tiles written to the scratchpad, padding included; 0 for a synchronisation.
    pub const fn sram_tiles(&self) -> u64 {
        if self.is_sync() {
            return 0;
        }
        let rows = self.y_pad_0 as u64 + self.y_size as u64 + self.y_pad_1 as u64;
        let cols = self.x_pad_0 as u64 + self.x_size as u64 + self.x_pad_1 as u64;
        rows * cols
    }

    /// Elements read from DRAM (a repeated row counts each time).
    pub const fn dram_elems(&self) -> u64 {
        self.x_size as u64 * self.y_size as u64
    }
}
