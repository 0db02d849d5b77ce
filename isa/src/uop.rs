//! Micro-ops: 32 bits, the tile indices of one GEMM or ALU step.

use bitfield_struct::bitfield;

use crate::FieldError;

/// Bytes of one micro-op in DRAM.
pub const UOP_BYTES: usize = 4;

#[bitfield(u32)]
pub(crate) struct UopBits {
    #[bits(11)]
    dst: u16,
    #[bits(11)]
    src: u16,
    #[bits(10)]
    wgt: u16,
}

impl UopBits {
    /// Name, first bit and width of each field, for the generated OpenCL header.
    pub(crate) const FIELDS: [(&'static str, usize, usize); 3] = [
        ("dst", Self::DST_OFFSET, Self::DST_BITS),
        ("src", Self::SRC_OFFSET, Self::SRC_BITS),
        ("wgt", Self::WGT_OFFSET, Self::WGT_BITS),
    ];
}

/// One micro-op. GEMM reads `src` as an input tile, ALU as an accumulator tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uop {
    /// Accumulator tile, 0..=2047.
    pub dst: u16,
    /// Input tile (GEMM) or accumulator tile (ALU), 0..=2047.
    pub src: u16,
    /// Weight tile (GEMM), 0..=1023; unused by ALU.
    pub wgt: u16,
}

impl Uop {
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
        let bits = UopBits::new()
            .with_dst_checked(self.dst)
            .map_err(|()| FieldError::new("dst", self.dst, 11))?
            .with_src_checked(self.src)
            .map_err(|()| FieldError::new("src", self.src, 11))?
            .with_wgt_checked(self.wgt)
            .map_err(|()| FieldError::new("wgt", self.wgt, 10))?;
        Ok(bits.into_bits())
    }
}
