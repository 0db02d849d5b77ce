//! DEPTHWISE: windows of input tiles, channel by channel, over a range of micro-ops inside two affine loops.

use super::looped::looped;
use crate::{Deps, FieldError, Opcode};

looped! {
    /// For `i < iter_out`, `j < iter_in`, `u` in `uop_bgn..uop_end`:
    /// `dst = uop.dst + i * dst_factor_out + j * dst_factor_in`, likewise `src`; `wgt = uop.wgt`.
    /// `acc[dst][b][c] += sum over y < rows, x < columns of inp[src + y * pitch + x][b][c] * wgt[wgt][c][y * columns + x]`
    /// in wrapping int32, or `=` with `overwrite`. A row of the weight tile has the taps of a channel, so that a window has
    /// at most `BLOCK` of them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Depthwise, DepthwiseFields {
        members {
            /// Dependency tokens.
            deps: Deps;
        }
        codes {}
        before {
            overwrite: bool = [7, 1], Flag, "flag", "Replaces what the destination tiles hold instead of accumulating";
            rows: u8 = [108, 4], Number, "taps", "Rows of a window";
            columns: u8 = [112, 4], Number, "taps", "Columns of a window";
            pitch: u16 = [116, 11], Number, "input tiles", "From a row of a window to the next";
        }
        src "input tiles";
        after {}
    }
}

impl Depthwise {
    #[inline]
    pub(crate) const fn decode(word: u128) -> Self {
        Self::unpack(word, Deps::unpack(word))
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        Ok(Opcode::Depthwise.word(self.deps)? | self.pack()?)
    }

    /// Taps of a window.
    pub const fn taps(&self) -> usize {
        self.rows as usize * self.columns as usize
    }

    /// From the first input tile of a window to its last; 0 if it has no tap.
    pub const fn extent(&self) -> u64 {
        let [rows, columns] = [self.rows as u64, self.columns as u64];
        rows.saturating_sub(1) * self.pitch as u64 + columns.saturating_sub(1)
    }
}
