//! STORE: rows of accumulator tiles to DRAM, low 8 bits of each element.

use super::transfer::transfer;
use crate::{Deps, FieldError, MemType, Opcode};

transfer! {
    /// STORE reads `y_size` rows of `x_size` consecutive accumulator tiles from `sram_base` and
    /// writes the low 8 bits of each element (wrapping, never saturating) to DRAM rows at
    /// `dram_base + y * x_stride` output tiles. With `x_size = 0` or `y_size = 0` only the tokens act.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Store, StoreFields {
        members {
            /// Dependency tokens.
            deps: Deps;
        }
        after {}
    }
}

impl Store {
    #[inline]
    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let mem = Self::FIELDS.memory_type.put(MemType::Out.code().into())?;
        Ok(Opcode::Store.word(self.deps)? | mem | self.pack()?)
    }

    /// Tiles read from the scratchpad and written to DRAM.
    #[inline]
    pub const fn tiles(&self) -> u64 {
        self.x_size as u64 * self.y_size as u64
    }
}
