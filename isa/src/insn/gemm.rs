//! GEMM: matrix products over a range of micro-ops inside two affine loops.

use super::looped::looped;
use crate::{Deps, FieldError, Opcode};

looped! {
    /// For `i < iter_out`, `j < iter_in`, `u` in `uop_bgn..uop_end`:
    /// `dst = uop.dst + i * dst_factor_out + j * dst_factor_in`, likewise `src` and `wgt`.
    /// With `reset`, `acc[dst] = 0`; else `acc[dst][b][o] += sum_k inp[src][b][k] * wgt[wgt][o][k]`
    /// in wrapping int32, or `=` with `overwrite`. One step takes a cycle on the RTL.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Gemm, GemmFields {
        members {
            /// Dependency tokens.
            deps: Deps;
        }
        codes {}
        before {
            overwrite: bool = [2, 1], Flag, "flag", "Replaces what the destination tiles hold instead of accumulating: the upper bit of the opcode, which is 6 then";
            reset: bool = [7, 1], Flag, "flag", "Clears the destination tiles instead of accumulating";
        }
        src "input tiles";
        after {
            wgt_factor_out: u16 = [108, 10], Number, "weight tiles", "Added to `wgt` with each outer trip";
            wgt_factor_in: u16 = [118, 10], Number, "weight tiles", "Added to `wgt` with each inner trip";
        }
    }
}

impl Gemm {
    #[inline]
    pub(crate) const fn decode(word: u128) -> Self {
        Self::unpack(word, Deps::unpack(word))
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        Ok(Opcode::Gemm.word(self.deps)? | self.pack()?)
    }
}
