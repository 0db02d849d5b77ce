//! LOAD: rows of tiles from DRAM into a scratchpad, with zero padding.

use bitfield_struct::bitfield;

use crate::{DecodeError, Deps, FieldError, MemType, Opcode};

/// Layout shared by LOAD and STORE.
#[bitfield(u128)]
pub(crate) struct MemBits {
    #[bits(3)]
    pub opcode: u8,
    #[bits(4)]
    pub deps: u8,
    #[bits(3)]
    pub memory_type: u8,
    pub sram_base: u16,
    pub dram_base: u32,
    #[bits(6)]
    __: u8,
    pub y_size: u16,
    pub x_size: u16,
    pub x_stride: u16,
    #[bits(4)]
    pub y_pad_0: u8,
    #[bits(4)]
    pub y_pad_1: u8,
    #[bits(4)]
    pub x_pad_0: u8,
    #[bits(4)]
    pub x_pad_1: u8,
}

impl MemBits {
    /// Name, first bit and width of each field, for the generated OpenCL header.
    pub(crate) const FIELDS: [(&'static str, usize, usize); 12] = [
        ("opcode", Self::OPCODE_OFFSET, Self::OPCODE_BITS),
        ("deps", Self::DEPS_OFFSET, Self::DEPS_BITS),
        (
            "memory_type",
            Self::MEMORY_TYPE_OFFSET,
            Self::MEMORY_TYPE_BITS,
        ),
        ("sram_base", Self::SRAM_BASE_OFFSET, Self::SRAM_BASE_BITS),
        ("dram_base", Self::DRAM_BASE_OFFSET, Self::DRAM_BASE_BITS),
        ("y_size", Self::Y_SIZE_OFFSET, Self::Y_SIZE_BITS),
        ("x_size", Self::X_SIZE_OFFSET, Self::X_SIZE_BITS),
        ("x_stride", Self::X_STRIDE_OFFSET, Self::X_STRIDE_BITS),
        ("y_pad_0", Self::Y_PAD_0_OFFSET, Self::Y_PAD_0_BITS),
        ("y_pad_1", Self::Y_PAD_1_OFFSET, Self::Y_PAD_1_BITS),
        ("x_pad_0", Self::X_PAD_0_OFFSET, Self::X_PAD_0_BITS),
        ("x_pad_1", Self::X_PAD_1_OFFSET, Self::X_PAD_1_BITS),
    ];
}

/// LOAD writes `y_pad_0 + y_size + y_pad_1` rows of `x_pad_0 + x_size + x_pad_1` consecutive
/// tiles from `sram_base`. Padding tiles are zero; row `y` of the payload comes from
/// `dram_base + y * x_stride`. `x_stride = 0` repeats one row. With `x_size = 0` or `y_size = 0`
/// nothing is written, padding neither: only the tokens act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// Dependency tokens.
    pub deps: Deps,
    /// What to load: any type but [`MemType::Out`].
    pub mem: MemType,
    /// First scratchpad tile (micro-op for UOP).
    pub sram_base: u16,
    /// First DRAM element, in elements of the memory type.
    pub dram_base: u32,
    /// Payload rows.
    pub y_size: u16,
    /// Payload tiles in a row.
    pub x_size: u16,
    /// Elements from one DRAM row to the next.
    pub x_stride: u16,
    /// Zero rows above, 0..=15.
    pub y_pad_0: u8,
    /// Zero rows below, 0..=15.
    pub y_pad_1: u8,
    /// Zero tiles left of each row, 0..=15.
    pub x_pad_0: u8,
    /// Zero tiles right of each row, 0..=15.
    pub x_pad_1: u8,
}

impl Default for Load {
    /// A LOAD INP that moves nothing.
    fn default() -> Self {
        Self {
            deps: Deps::NONE,
            mem: MemType::Inp,
            sram_base: 0,
            dram_base: 0,
            y_size: 0,
            x_size: 0,
            x_stride: 0,
            y_pad_0: 0,
            y_pad_1: 0,
            x_pad_0: 0,
            x_pad_1: 0,
        }
    }
}

impl Load {
    pub(crate) fn decode(word: u128) -> Result<Self, DecodeError> {
        let bits = MemBits::from_bits(word);
        let code = bits.memory_type();
        let mem = MemType::from_code(code).ok_or(DecodeError::MemType(code))?;
        if mem == MemType::Out {
            return Err(DecodeError::LoadMemType(mem));
        }
        Ok(Self {
            deps: Deps::from_bits(bits.deps()),
            mem,
            sram_base: bits.sram_base(),
            dram_base: bits.dram_base(),
            y_size: bits.y_size(),
            x_size: bits.x_size(),
            x_stride: bits.x_stride(),
            y_pad_0: bits.y_pad_0(),
            y_pad_1: bits.y_pad_1(),
            x_pad_0: bits.x_pad_0(),
            x_pad_1: bits.x_pad_1(),
        })
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let pad = |field, value| move |()| FieldError::new(field, value, 4);
        let bits = MemBits::new()
            .with_opcode(Opcode::Load.code())
            .with_deps(self.deps.bits())
            .with_memory_type(self.mem.code())
            .with_sram_base(self.sram_base)
            .with_dram_base(self.dram_base)
            .with_y_size(self.y_size)
            .with_x_size(self.x_size)
            .with_x_stride(self.x_stride)
            .with_y_pad_0_checked(self.y_pad_0)
            .map_err(pad("y_pad_0", self.y_pad_0))?
            .with_y_pad_1_checked(self.y_pad_1)
            .map_err(pad("y_pad_1", self.y_pad_1))?
            .with_x_pad_0_checked(self.x_pad_0)
            .map_err(pad("x_pad_0", self.x_pad_0))?
            .with_x_pad_1_checked(self.x_pad_1)
            .map_err(pad("x_pad_1", self.x_pad_1))?;
        Ok(bits.into_bits())
    }

    /// Whether the instruction moves nothing and only its tokens act.
    pub const fn is_sync(&self) -> bool {
        self.x_size == 0 || self.y_size == 0
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
