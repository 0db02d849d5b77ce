//! GEMM: matrix products over a range of micro-ops inside two affine loops.

use bitfield_struct::bitfield;

use crate::{Deps, FieldError, Opcode};

#[bitfield(u128)]
pub(crate) struct GemmBits {
    #[bits(3)]
    opcode: u8,
    #[bits(4)]
    deps: u8,
    reset: bool,
    #[bits(13)]
    uop_bgn: u16,
    #[bits(14)]
    uop_end: u16,
    #[bits(14)]
    iter_out: u16,
    #[bits(14)]
    iter_in: u16,
    __: bool,
    #[bits(11)]
    dst_factor_out: u16,
    #[bits(11)]
    dst_factor_in: u16,
    #[bits(11)]
    src_factor_out: u16,
    #[bits(11)]
    src_factor_in: u16,
    #[bits(10)]
    wgt_factor_out: u16,
    #[bits(10)]
    wgt_factor_in: u16,
}

impl GemmBits {
    /// Name, first bit and width of each field, for the generated OpenCL header.
    pub(crate) const FIELDS: [(&'static str, usize, usize); 13] = [
        ("opcode", Self::OPCODE_OFFSET, Self::OPCODE_BITS),
        ("deps", Self::DEPS_OFFSET, Self::DEPS_BITS),
        ("reset", Self::RESET_OFFSET, Self::RESET_BITS),
        ("uop_bgn", Self::UOP_BGN_OFFSET, Self::UOP_BGN_BITS),
        ("uop_end", Self::UOP_END_OFFSET, Self::UOP_END_BITS),
        ("iter_out", Self::ITER_OUT_OFFSET, Self::ITER_OUT_BITS),
        ("iter_in", Self::ITER_IN_OFFSET, Self::ITER_IN_BITS),
        (
            "dst_factor_out",
            Self::DST_FACTOR_OUT_OFFSET,
            Self::DST_FACTOR_OUT_BITS,
        ),
        (
            "dst_factor_in",
            Self::DST_FACTOR_IN_OFFSET,
            Self::DST_FACTOR_IN_BITS,
        ),
        (
            "src_factor_out",
            Self::SRC_FACTOR_OUT_OFFSET,
            Self::SRC_FACTOR_OUT_BITS,
        ),
        (
            "src_factor_in",
            Self::SRC_FACTOR_IN_OFFSET,
            Self::SRC_FACTOR_IN_BITS,
        ),
        (
            "wgt_factor_out",
            Self::WGT_FACTOR_OUT_OFFSET,
            Self::WGT_FACTOR_OUT_BITS,
        ),
        (
            "wgt_factor_in",
            Self::WGT_FACTOR_IN_OFFSET,
            Self::WGT_FACTOR_IN_BITS,
        ),
    ];
}

/// For `i < iter_out`, `j < iter_in`, `u` in `uop_bgn..uop_end`:
/// `dst = uop.dst + i * dst_factor_out + j * dst_factor_in`, likewise `src` and `wgt`.
/// With `reset`, `acc[dst] = 0`; else `acc[dst][b][o] += sum_k inp[src][b][k] * wgt[wgt][o][k]`
/// in wrapping int32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Dependency tokens.
    pub deps: Deps,
    /// Clear the destination tiles instead of accumulating.
    pub reset: bool,
    /// First micro-op, 13 bits.
    pub uop_bgn: u16,
    /// One past the last micro-op, 14 bits.
    pub uop_end: u16,
    /// Trips of the outer loop, 14 bits.
    pub iter_out: u16,
    /// Trips of the inner loop, 14 bits.
    pub iter_in: u16,
    /// Accumulator tiles per outer trip, 11 bits.
    pub dst_factor_out: u16,
    /// Accumulator tiles per inner trip, 11 bits.
    pub dst_factor_in: u16,
    /// Input tiles per outer trip, 11 bits.
    pub src_factor_out: u16,
    /// Input tiles per inner trip, 11 bits.
    pub src_factor_in: u16,
    /// Weight tiles per outer trip, 10 bits.
    pub wgt_factor_out: u16,
    /// Weight tiles per inner trip, 10 bits.
    pub wgt_factor_in: u16,
}

impl Gemm {
    pub(crate) const fn decode(word: u128) -> Self {
        let bits = GemmBits::from_bits(word);
        Self {
            deps: Deps::from_bits(bits.deps()),
            reset: bits.reset(),
            uop_bgn: bits.uop_bgn(),
            uop_end: bits.uop_end(),
            iter_out: bits.iter_out(),
            iter_in: bits.iter_in(),
            dst_factor_out: bits.dst_factor_out(),
            dst_factor_in: bits.dst_factor_in(),
            src_factor_out: bits.src_factor_out(),
            src_factor_in: bits.src_factor_in(),
            wgt_factor_out: bits.wgt_factor_out(),
            wgt_factor_in: bits.wgt_factor_in(),
        }
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let wide = |field, value, bits| move |()| FieldError::new(field, value, bits);
        let bits = GemmBits::new()
            .with_opcode(Opcode::Gemm.code())
            .with_deps(self.deps.bits())
            .with_reset(self.reset)
            .with_uop_bgn_checked(self.uop_bgn)
            .map_err(wide("uop_bgn", self.uop_bgn, 13))?
            .with_uop_end_checked(self.uop_end)
            .map_err(wide("uop_end", self.uop_end, 14))?
            .with_iter_out_checked(self.iter_out)
            .map_err(wide("iter_out", self.iter_out, 14))?
            .with_iter_in_checked(self.iter_in)
            .map_err(wide("iter_in", self.iter_in, 14))?
            .with_dst_factor_out_checked(self.dst_factor_out)
            .map_err(wide("dst_factor_out", self.dst_factor_out, 11))?
            .with_dst_factor_in_checked(self.dst_factor_in)
            .map_err(wide("dst_factor_in", self.dst_factor_in, 11))?
            .with_src_factor_out_checked(self.src_factor_out)
            .map_err(wide("src_factor_out", self.src_factor_out, 11))?
            .with_src_factor_in_checked(self.src_factor_in)
            .map_err(wide("src_factor_in", self.src_factor_in, 11))?
            .with_wgt_factor_out_checked(self.wgt_factor_out)
            .map_err(wide("wgt_factor_out", self.wgt_factor_out, 10))?
            .with_wgt_factor_in_checked(self.wgt_factor_in)
            .map_err(wide("wgt_factor_in", self.wgt_factor_in, 10))?;
        Ok(bits.into_bits())
    }

    /// Micro-ops in the range; 0 when `uop_end < uop_bgn`, which the program check reports.
    pub const fn uop_count(&self) -> u64 {
        self.uop_end.saturating_sub(self.uop_bgn) as u64
    }

    /// Micro-op executions: `uops * iter_out * iter_in`, one per cycle on the RTL.
    pub const fn steps(&self) -> u64 {
        self.uop_count() * self.iter_out as u64 * self.iter_in as u64
    }
}
