//! ALU: lane-wise operations on accumulator tiles inside two affine loops.

use super::looped::looped;
use crate::field::codes;
use crate::{Deps, Extension, FieldError, Opcode};

/// The operations: `Name = code, "name", extension, "meaning", |x, y| lane`. What knows them one by
/// one comes from these lines: codes, names and texts, the definition on a lane, the choice of a
/// loop over lanes (`for_alu_op`) and what the OpenCL kernels must have a function for. `$` is
/// given by name, since a macro inside a macro can't write it.
macro_rules! operations {
    ($d:tt $( $Op:ident = $code:literal, $name:literal, $extension:expr, $meaning:literal, |$x:ident, $y:ident| $lane:expr; )*) => {
        codes! {
            /// The operation of an ALU instruction on int32 lanes: `x = op(x, y)`.
            AluOp of Alu::FIELDS.alu_opcode; {
                $( $Op = $code, $name, $extension, $meaning; )*
            }
        }

        impl AluOp {
            /// The operation on one lane: the definition that every backend follows. Shift
            /// amounts are taken modulo 32 in both directions, which is what OpenCL C and the RTL
            /// do (the original C++ simulator leaves larger amounts undefined).
            #[inline(always)]
            pub const fn apply(self, x: i32, y: i32) -> i32 {
                match self {
                    $( Self::$Op => {
                        let ($x, $y) = (x, y);
                        $lane
                    } )*
                }
            }
        }

        /// An expression with the operation as a constant, so that loops over lanes are compiled
        /// once for each operation and need no change for a new one.
        ///
        /// ```
        /// use vta_isa::{AluOp, for_alu_op};
        ///
        /// fn all(op: AluOp, lanes: &mut [i32], y: i32) {
        ///     for_alu_op!(op, OP => lanes.iter_mut().for_each(|x| *x = OP.apply(*x, y)))
        /// }
        /// let mut lanes = [1, 5];
        /// all(AluOp::Min, &mut lanes, 3);
        /// assert_eq!(lanes, [1, 3]);
        /// ```
        #[macro_export]
        macro_rules! for_alu_op {
            ($d op:expr, $d OP:ident => $d body:expr) => {
                match $d op {
                    $( $crate::AluOp::$Op => {
                        const $d OP: $crate::AluOp = $crate::AluOp::$Op;
                        $d body
                    } )*
                }
            };
        }
    };
}

operations! { $
    Min = 0, "min", None, "Signed minimum", |x, y| if x < y { x } else { y };
    Max = 1, "max", None, "Signed maximum", |x, y| if x > y { x } else { y };
    Add = 2, "add", None, "Wrapping sum", |x, y| x.wrapping_add(y);
    Shr = 3, "shr", None, "`y >= 0`: arithmetic `x >> (y & 31)`; `y < 0`: `x << (-y & 31)`", |x, y| shift_right(x, y);
    Mul = 4, "mul", Some(Extension::Mul), "Low 32 bits of the product", |x, y| x.wrapping_mul(y);
    Shl = 5, "shl", Some(Extension::Shl), "`y >= 0`: `x << (y & 31)`; `y < 0`: arithmetic `x >> (-y & 31)`", |x, y| shift_right(x, y.wrapping_neg());
    Clip = 6, "clip", Some(Extension::Clip), "Signed minimum with the upper bound that `y` holds (bits 7:0), then maximum with the lower one (15:8)", |x, y| clip(x, y);
    Mov = 7, "mov", Some(Extension::Mov), "`y`", |_x, y| y;
}

/// Arithmetic right shift by `y`, left shift when `y < 0`; amounts modulo 32.
/// `i32::MIN` is its own negation and shifts by 0 either way.
#[inline(always)]
const fn shift_right(x: i32, y: i32) -> i32 {
    if y >= 0 {
        x.wrapping_shr(y as u32)
    } else {
        x.wrapping_shl(y.wrapping_neg() as u32)
    }
}

/// The minimum with the upper of CLIP's bounds, then the maximum with the lower one.
#[inline(always)]
const fn clip(x: i32, y: i32) -> i32 {
    let [low, high] = AluOp::clip_bounds(y);
    let x = if x < high { x } else { high };
    if x > low { x } else { low }
}

impl AluOp {
    /// The lower and the upper bound that CLIP's operand holds. Bits 15:8 and 7:0 are signed bytes.
    /// Bits 31:16, but for their sign, are 0 where an immediate was extended. Else 25:21 and 20:16 are
    /// thirty-seconds that are added to the bytes, and both are multiplied by 2 to the power of 30:26. Bounds
    /// are rounded down, and count modulo 2^27.
    ///
    /// ```
    /// use vta_isa::AluOp;
    ///
    /// assert_eq!(AluOp::clip_bounds(0x8005_u16 as i16 as i32), [-128, 5]);
    /// assert_eq!(AluOp::clip_bounds(10 << 26 | 3 << 16 | 127), [0, (127 * 32 + 3) << 5]);
    /// ```
    #[inline(always)]
    pub const fn clip_bounds(y: i32) -> [i32; 2] {
        let scale = (y ^ (y >> 31)) >> 16;
        let low = ((y >> 8) as i8 as i32) << 5 | (scale >> 5 & 31);
        let high = (y as i8 as i32) << 5 | (scale & 31);
        [
            low.wrapping_shl(scale as u32 >> 10) >> 5,
            high.wrapping_shl(scale as u32 >> 10) >> 5,
        ]
    }

    /// The operand with the widest bounds inside some, as far as CLIP's reach: to 2^26 on both sides.
    pub fn clip_operand(bounds: [i32; 2]) -> i32 {
        let mut scale = 0;
        loop {
            // In thirty-seconds. A scale below 5 takes no bit off a whole number.
            let unit = (1i64 << scale) - 1;
            let low = (((bounds[0] as i64) << 5) + unit) >> scale;
            let high = ((bounds[1] as i64) << 5) >> scale;
            let fits = [low, high]
                .iter()
                .all(|bound| (-4096..4096).contains(bound));
            if !fits && scale < 19 {
                scale += 1;
                continue;
            }
            let (low, high) = (low.clamp(-4096, 4095), high.clamp(-4096, 4095));
            let bytes = (low >> 5 & 255) << 8 | (high >> 5 & 255);
            let parts = scale << 10 | (low & 31) << 5 | (high & 31);
            // As an immediate is extended, where it is one.
            return match parts {
                0 => bytes as i16 as i32,
                _ => (parts << 16 | bytes) as i32,
            };
        }
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

looped! {
    /// For `i < iter_out`, `j < iter_in`, `u` in `uop_bgn..uop_end`:
    /// `acc[dst] = op(acc[dst], y)` with `y` the immediate or `acc[src]`, where
    /// `dst = uop.dst + i * dst_factor_out + j * dst_factor_in`, likewise `src`.
    /// The bit that is GEMM's `reset` is ignored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    Alu, AluFields {
        members {
            /// Dependency tokens.
            deps: Deps;
            /// The operation.
            op: AluOp;
            /// The second operand.
            operand: AluOperand;
        }
        codes {
            alu_opcode = [108, 3], Code, "code", "The operation";
            use_imm = [111, 1], Code, "flag", "The second operand is `imm`, not `acc[src]`";
            imm = [112, 16], Signed, "lane value", "The second operand of every lane";
        }
        before {}
        src "accumulator tiles";
        after {}
    }
}

impl Alu {
    /// Accumulator tiles that a step reads: what it writes, too, but for MOV, and the second operand.
    pub const fn tiles_read(&self) -> u32 {
        let first = match self.op {
            AluOp::Mov => 0,
            AluOp::Min
            | AluOp::Max
            | AluOp::Add
            | AluOp::Shr
            | AluOp::Mul
            | AluOp::Shl
            | AluOp::Clip => 1,
        };
        match self.operand {
            AluOperand::Imm(_) => first,
            AluOperand::Acc => first + 1,
        }
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        let operand = match self.operand {
            AluOperand::Acc => 0,
            AluOperand::Imm(imm) => {
                Self::FIELDS.use_imm.put(1)? | Self::FIELDS.imm.put(u64::from(imm as u16))?
            }
        };
        let op = Self::FIELDS.alu_opcode.put(self.op.code().into())?;
        Ok(Opcode::Alu.word(self.deps)? | op | operand | self.pack()?)
    }
}
