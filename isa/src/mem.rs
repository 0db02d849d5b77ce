//! Memory types: which scratchpad a LOAD or STORE moves, and in which element.

use std::fmt;

/// The memory type field of LOAD and STORE (bits 9:7 of word 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemType {
    /// Micro-ops, 4 bytes each, into the micro-op scratchpad.
    Uop,
    /// Weight tiles, `BLOCK_OUT * BLOCK_IN` int8, into the weight scratchpad.
    Wgt,
    /// Input tiles, `BATCH * BLOCK_IN` int8, into the input scratchpad.
    Inp,
    /// Accumulator tiles, `BATCH * BLOCK_OUT` int32, into the accumulator scratchpad.
    Acc,
    /// Output tiles, `BATCH * BLOCK_OUT` int8, written by STORE from the accumulator scratchpad.
    Out,
    /// Extension: int8 tiles of `BATCH * BLOCK_OUT` bytes in DRAM, sign-extended to int32 in the
    /// accumulator scratchpad.
    Acc8,
}

impl MemType {
    /// Every memory type, in encoding order.
    pub const ALL: [Self; 6] = [
        Self::Uop,
        Self::Wgt,
        Self::Inp,
        Self::Acc,
        Self::Out,
        Self::Acc8,
    ];

    /// The value of the 3-bit field.
    pub const fn code(self) -> u8 {
        match self {
            Self::Uop => 0,
            Self::Wgt => 1,
            Self::Inp => 2,
            Self::Acc => 3,
            Self::Out => 4,
            Self::Acc8 => 5,
        }
    }

    /// The memory type of a 3-bit code; `None` for the reserved codes 6 and 7.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Uop),
            1 => Some(Self::Wgt),
            2 => Some(Self::Inp),
            3 => Some(Self::Acc),
            4 => Some(Self::Out),
            5 => Some(Self::Acc8),
            _ => None,
        }
    }

    /// The name in assembly text, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uop => "uop",
            Self::Wgt => "wgt",
            Self::Inp => "inp",
            Self::Acc => "acc",
            Self::Out => "out",
            Self::Acc8 => "acc8",
        }
    }
}

impl fmt::Display for MemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
