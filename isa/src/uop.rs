//! Micro-ops: 32 bits, the tile indices of one GEMM or ALU step.

use bitfield_struct::bitfield;

use crate::{Field, FieldError, Notation};

/// Bytes of one micro-op in DRAM.
pub const UOP_BYTES: usize = 4;

/// A micro-op is nothing but three numbers, which the simulators decode by the million.
#[bitfield(u32)]
struct UopBits {
    #[bits(11)]
    dst: u16,
    #[bits(11)]
    src: u16,
    #[bits(10)]
    wgt: u16,
}

/// One micro-op. GEMM reads `src` as an input tile, ALU as an accumulator tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uop {
    /// As [`Uop::DST`] says.
    pub dst: u16,
    /// As [`Uop::SRC`] says.
    pub src: u16,
    /// As [`Uop::WGT`] says.
    pub wgt: u16,
}

const fn index(name: &'static str, first: usize, bits: usize, meaning: &'static str) -> Field {
    Field {
        name,
        first_bit: first as u32,
        bits: bits as u32,
        notation: Notation::Shown,
        unit: "tiles",
        meaning,
    }
}

impl Uop {
    /// The accumulator tile that is changed.
    pub const DST: Field = index(
        "dst",
        UopBits::DST_OFFSET,
        UopBits::DST_BITS,
        "The accumulator tile that is changed",
    );
    /// The input tile of a GEMM, the other accumulator tile of an ALU.
    pub const SRC: Field = index(
        "src",
        UopBits::SRC_OFFSET,
        UopBits::SRC_BITS,
        "The input tile of a GEMM, the other accumulator tile of an ALU",
    );
    /// The weight tile of a GEMM.
    pub const WGT: Field = index(
        "wgt",
        UopBits::WGT_OFFSET,
        UopBits::WGT_BITS,
        "The weight tile of a GEMM",
    );
    /// The fields by first bit.
    pub const LIST: &'static [Field] = &[Self::DST, Self::SRC, Self::WGT];

    /// Unpacks a micro-op. Every 32-bit pattern is one.
    pub const fn decode(word: u32) -> Self {
        let bits = UopBits::from_bits(word);
        Self {
            dst: bits.dst(),
            src: bits.src(),
            wgt: bits.wgt(),
        }
    }

    /// Packs the micro-op.
    ///
    /// # Errors
    /// [`FieldError`] naming the index that doesn't fit its field.
    pub fn encode(self) -> Result<u32, FieldError> {
        let fields = [
            (Self::DST, self.dst),
            (Self::SRC, self.src),
            (Self::WGT, self.wgt),
        ];
        let mut word = 0;
        for (field, value) in fields {
            word |= field.put(value.into())? as u32;
        }
        Ok(word)
    }
}
