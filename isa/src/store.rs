//! STORE: rows of accumulator tiles to DRAM, low 8 bits of each element.

use crate::load::MemBits;
use crate::{DecodeError, Deps, FieldError, MemType, Opcode};

/// STORE reads `y_size` rows of `x_size` consecutive accumulator tiles from `sram_base` and
/// writes the low 8 bits of each element (wrapping, never saturating) to DRAM rows at
/// `dram_base + y * x_stride` output tiles. With `x_size = 0` or `y_size = 0` only the tokens act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    /// Dependency tokens.
    pub deps: Deps,
    /// First accumulator tile.
    pub sram_base: u16,
    /// First DRAM element, in output tiles.
    pub dram_base: u32,
    /// Rows.
    pub y_size: u16,
    /// Tiles in a row.
    pub x_size: u16,
    /// Output tiles from one DRAM row to the next.
    pub x_stride: u16,
}

impl Store {
    pub(crate) fn decode(word: u128) -> Result<Self, DecodeError> {
        let bits = MemBits::from_bits(word);
        let store = Self {
            deps: Deps::from_bits(bits.deps()),
            sram_base: bits.sram_base(),
            dram_base: bits.dram_base(),
            y_size: bits.y_size(),
            x_size: bits.x_size(),
            x_stride: bits.x_stride(),
        };
        let code = bits.memory_type();
        let mem = MemType::from_code(code).ok_or(DecodeError::MemType(code))?;
        // Synchronisation STOREs of the original runtime carry memory type 0.
        if mem != MemType::Out && !store.is_sync() {
            return Err(DecodeError::StoreMemType(mem));
        }
        Ok(store)
    }

    // STORE has no field narrower than its type; the signature matches the other kinds.
    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let bits = MemBits::new()
            .with_opcode(Opcode::Store.code())
            .with_deps(self.deps.bits())
            .with_memory_type(MemType::Out.code())
            .with_sram_base(self.sram_base)
            .with_dram_base(self.dram_base)
            .with_y_size(self.y_size)
            .with_x_size(self.x_size)
            .with_x_stride(self.x_stride);
        Ok(bits.into_bits())
    }

    /// Whether the instruction moves nothing and only its tokens act.
    pub const fn is_sync(&self) -> bool {
        self.x_size == 0 || self.y_size == 0
    }

    /// Tiles read from the scratchpad and written to DRAM.
    pub const fn tiles(&self) -> u64 {
        self.x_size as u64 * self.y_size as u64
    }
}
