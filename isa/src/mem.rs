//! Memory types: which scratchpad a LOAD or STORE moves, and in which element.

use crate::field::codes;
use crate::{DecodeError, Extension, Field, Load};

codes! {
    /// The memory type of LOAD and STORE.
    MemType of Load::FIELDS.memory_type; {
        Uop = 0, "uop", None, "Micro-ops, 4 bytes each, into the micro-op scratchpad";
        Wgt = 1, "wgt", None, "Weight tiles, `BLOCK_OUT * BLOCK_IN` int8, into the weight scratchpad";
        Inp = 2, "inp", None, "Input tiles, `BATCH * BLOCK_IN` int8, into the input scratchpad";
        Acc = 3, "acc", None, "Accumulator tiles, `BATCH * BLOCK_OUT` int32, into the accumulator scratchpad";
        Out = 4, "out", None, "Output tiles, `BATCH * BLOCK_OUT` int8, written by STORE from the accumulator scratchpad";
        Acc8 = 5, "acc8", Some(Extension::Acc8), "Tiles of `BATCH * BLOCK_OUT` int8 in DRAM, sign-extended to int32 in the accumulator scratchpad";
    }
}

impl MemType {
    /// What the field of a word says.
    pub(crate) fn of(field: Field, word: u128) -> Result<Self, DecodeError> {
        let code = field.get(word) as u8;
        Self::from_code(code).ok_or(DecodeError::MemType(code))
    }
}
