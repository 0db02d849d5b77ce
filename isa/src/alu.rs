//! ALU: lane-wise operations on accumulator tiles inside two affine loops.

use std::fmt;

use bitfield_struct::bitfield;

use crate::{DecodeError, Deps, FieldError, Opcode};

#[bitfield(u128)]
pub(crate) struct AluBits {
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
    #[bits(3)]
    alu_opcode: u8,
    use_imm: bool,
    imm: i16,
}

impl AluBits {
    /// Name, first bit and width of each field, for the generated OpenCL header.
    pub(crate) const FIELDS: [(&'static str, usize, usize); 14] = [
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
        ("alu_opcode", Self::ALU_OPCODE_OFFSET, Self::ALU_OPCODE_BITS),
        ("use_imm", Self::USE_IMM_OFFSET, Self::USE_IMM_BITS),
        ("imm", Self::IMM_OFFSET, Self::IMM_BITS),
    ];
}

/// The operation of an ALU instruction on int32 lanes: `x = op(x, y)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AluOp {
    /// Signed minimum.
    Min,
    /// Signed maximum.
    Max,
    /// Wrapping sum.
    Add,
    /// `y >= 0`: arithmetic `x >> (y & 31)`; `y < 0`: `x << (-y & 31)`.
    Shr,
    /// Extension: low 32 bits of the product.
    Mul,
    /// Extension: `y >= 0`: `x << (y & 31)`; `y < 0`: arithmetic `x >> (-y & 31)`.
    Shl,
}

impl AluOp {
    /// Every operation, in encoding order.
    pub const ALL: [Self; 6] = [
        Self::Min,
        Self::Max,
        Self::Add,
        Self::Shr,
        Self::Mul,
        Self::Shl,
    ];

    /// The value of the 3-bit field.
    pub const fn code(self) -> u8 {
        match self {
            Self::Min => 0,
            Self::Max => 1,
            Self::Add => 2,
            Self::Shr => 3,
            Self::Mul => 4,
            Self::Shl => 5,
        }
    }

    /// The operation of a 3-bit code; `None` for the reserved codes 6 and 7.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Min),
            1 => Some(Self::Max),
            2 => Some(Self::Add),
            3 => Some(Self::Shr),
            4 => Some(Self::Mul),
            5 => Some(Self::Shl),
            _ => None,
        }
    }

    /// The name in assembly text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Add => "add",
            Self::Shr => "shr",
            Self::Mul => "mul",
            Self::Shl => "shl",
        }
    }

    /// The operation on one lane: the definition that every backend follows. Shift amounts are
    /// taken modulo 32 in both directions, which is what OpenCL C and the RTL do (the original
    /// C++ simulator leaves larger amounts undefined).
    pub const fn apply(self, x: i32, y: i32) -> i32 {
        match self {
            Self::Min => {
                if x < y {
                    x
                } else {
                    y
                }
            }
            Self::Max => {
                if x > y {
                    x
                } else {
                    y
                }
            }
            Self::Add => x.wrapping_add(y),
            Self::Shr => shift_right(x, y),
            Self::Mul => x.wrapping_mul(y),
            Self::Shl => shift_right(x, y.wrapping_neg()),
        }
    }
}

/// Arithmetic right shift by `y`, left shift when `y < 0`; amounts modulo 32.
/// `i32::MIN` is its own negation and shifts by 0 either way.
const fn shift_right(x: i32, y: i32) -> i32 {
    if y >= 0 {
        x.wrapping_shr(y as u32)
    } else {
        x.wrapping_shl(y.wrapping_neg() as u32)
    }
}

impl fmt::Display for AluOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The second operand of an ALU instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AluOperand {
    /// The accumulator tile `src`, lane by lane (`use_imm = 0`).
    Acc,
    /// A sign-extended immediate for every lane (`use_imm = 1`).
    Imm(i16),
}

/// For `i < iter_out`, `j < iter_in`, `u` in `uop_bgn..uop_end`:
/// `acc[dst] = op(acc[dst], y)` with `y` the immediate or `acc[src]`, where
/// `dst = uop.dst + i * dst_factor_out + j * dst_factor_in`, likewise `src`.
/// The `reset` bit is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alu {
    /// Dependency tokens.
    pub deps: Deps,
    /// The operation.
    pub op: AluOp,
    /// The second operand.
    pub operand: AluOperand,
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
    /// Accumulator tiles of the second operand per outer trip, 11 bits.
    pub src_factor_out: u16,
    /// Accumulator tiles of the second operand per inner trip, 11 bits.
    pub src_factor_in: u16,
}

impl Alu {
    pub(crate) fn decode(word: u128) -> Result<Self, DecodeError> {
        let bits = AluBits::from_bits(word);
        let code = bits.alu_opcode();
        Ok(Self {
            deps: Deps::from_bits(bits.deps()),
            op: AluOp::from_code(code).ok_or(DecodeError::AluOpcode(code))?,
            operand: if bits.use_imm() {
                AluOperand::Imm(bits.imm())
            } else {
                AluOperand::Acc
            },
            uop_bgn: bits.uop_bgn(),
            uop_end: bits.uop_end(),
            iter_out: bits.iter_out(),
            iter_in: bits.iter_in(),
            dst_factor_out: bits.dst_factor_out(),
            dst_factor_in: bits.dst_factor_in(),
            src_factor_out: bits.src_factor_out(),
            src_factor_in: bits.src_factor_in(),
        })
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let wide = |field, value, bits| move |()| FieldError::new(field, value, bits);
        let (use_imm, imm) = match self.operand {
            AluOperand::Acc => (false, 0),
            AluOperand::Imm(imm) => (true, imm),
        };
        let bits = AluBits::new()
            .with_opcode(Opcode::Alu.code())
            .with_deps(self.deps.bits())
            .with_alu_opcode(self.op.code())
            .with_use_imm(use_imm)
            .with_imm(imm)
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
            .map_err(wide("src_factor_in", self.src_factor_in, 11))?;
        Ok(bits.into_bits())
    }

    /// Micro-ops in the range; 0 when `uop_end < uop_bgn`, which the program check reports.
    pub const fn uop_count(&self) -> u64 {
        self.uop_end.saturating_sub(self.uop_bgn) as u64
    }

    /// Micro-op executions: `uops * iter_out * iter_in`.
    pub const fn steps(&self) -> u64 {
        self.uop_count() * self.iter_out as u64 * self.iter_in as u64
    }
}
