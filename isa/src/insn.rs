//! The instruction: the sum of all kinds, dependency tokens, decoding and encoding.

use std::fmt;

use thiserror::Error;

use crate::{Alu, Finish, Gemm, Load, MemType, Store};

/// Bytes of one instruction in DRAM.
pub const INSN_BYTES: usize = 16;

/// The opcode field, bits 2:0 of every instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Moves tiles from DRAM into a scratchpad.
    Load,
    /// Moves accumulator tiles to DRAM, keeping the low 8 bits of each element.
    Store,
    /// Matrix products over micro-ops.
    Gemm,
    /// Ends the run.
    Finish,
    /// Vector operations over accumulator tiles.
    Alu,
}

impl Opcode {
    /// The value of the 3-bit field.
    pub const fn code(self) -> u8 {
        match self {
            Self::Load => 0,
            Self::Store => 1,
            Self::Gemm => 2,
            Self::Finish => 3,
            Self::Alu => 4,
        }
    }

    /// The opcode of a 3-bit code; `None` for 5, 6 and 7.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Load),
            1 => Some(Self::Store),
            2 => Some(Self::Gemm),
            3 => Some(Self::Finish),
            4 => Some(Self::Alu),
            _ => None,
        }
    }
}

/// The module that runs an instruction. Each runs strictly in order; the three run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Module {
    /// LOAD of INP and WGT.
    Load,
    /// LOAD of UOP, ACC and ACC8; GEMM, ALU, FINISH.
    Compute,
    /// STORE.
    Store,
}

impl Module {
    /// The three modules, left to right.
    pub const ALL: [Self; 3] = [Self::Load, Self::Compute, Self::Store];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Compute => "compute",
            Self::Store => "store",
        }
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The four dependency-token flags (bits 3 to 6). *prev* is the module to the left, *next* the
/// one to the right. An instruction pops before it starts and pushes when it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deps {
    /// Wait for a token of the module to the left.
    pub pop_prev: bool,
    /// Wait for a token of the module to the right.
    pub pop_next: bool,
    /// Give the module to the left a token.
    pub push_prev: bool,
    /// Give the module to the right a token.
    pub push_next: bool,
}

impl Deps {
    /// No token is taken or given.
    pub const NONE: Self = Self {
        pop_prev: false,
        pop_next: false,
        push_prev: false,
        push_next: false,
    };

    /// Bits 3 to 6 of word 0, shifted down to 0.
    pub(crate) const fn bits(self) -> u8 {
        self.pop_prev as u8
            | (self.pop_next as u8) << 1
            | (self.push_prev as u8) << 2
            | (self.push_next as u8) << 3
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self {
            pop_prev: bits & 1 != 0,
            pop_next: bits & 2 != 0,
            push_prev: bits & 4 != 0,
            push_next: bits & 8 != 0,
        }
    }
}

/// A field whose value doesn't fit its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{field} is {value}, but its {bits}-bit field holds at most {}", (1u64 << .bits) - 1)]
pub struct FieldError {
    /// The field's name, as in assembly text.
    pub field: &'static str,
    /// The value that doesn't fit.
    pub value: u64,
    /// Width of the field in bits.
    pub bits: u32,
}

impl FieldError {
    pub(crate) fn new(field: &'static str, value: impl Into<u64>, bits: u32) -> Self {
        Self {
            field,
            value: value.into(),
            bits,
        }
    }
}

/// A 128-bit pattern that is no instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Opcodes 5, 6 and 7 are not assigned.
    #[error("opcode is {0}, but only 0 (LOAD) to 4 (ALU) are defined")]
    Opcode(u8),
    /// Memory types 6 and 7 are not assigned.
    #[error("memory_type is {0}, but only 0 (uop) to 5 (acc8) are defined")]
    MemType(u8),
    /// LOAD can't fill the output scratchpad.
    #[error("memory_type of a LOAD is {0}, but it must be uop, wgt, inp, acc or acc8")]
    LoadMemType(MemType),
    /// STORE that moves data must name OUT.
    #[error("memory_type of a STORE is {0}, but it must be out")]
    StoreMemType(MemType),
    /// ALU opcodes 6 and 7 are reserved.
    #[error("alu_opcode is {0}, but only 0 (min) to 5 (shl) are defined")]
    AluOpcode(u8),
}

/// One instruction. Fields have the names of the VTA hardware headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insn {
    /// DRAM to scratchpad.
    Load(Load),
    /// Accumulator scratchpad to DRAM.
    Store(Store),
    /// Matrix products.
    Gemm(Gemm),
    /// End of the run.
    Finish(Finish),
    /// Vector operations.
    Alu(Alu),
}

impl Insn {
    /// Decodes a 128-bit little-endian word. Bits that no field covers are ignored: streams of
    /// the original runtime carry garbage there.
    ///
    /// # Errors
    /// [`DecodeError`] for an unassigned opcode, memory type or ALU opcode.
    pub fn decode(word: u128) -> Result<Self, DecodeError> {
        let code = (word & 7) as u8;
        match Opcode::from_code(code).ok_or(DecodeError::Opcode(code))? {
            Opcode::Load => Load::decode(word).map(Self::Load),
            Opcode::Store => Store::decode(word).map(Self::Store),
            Opcode::Gemm => Ok(Self::Gemm(Gemm::decode(word))),
            Opcode::Finish => Ok(Self::Finish(Finish::decode(word))),
            Opcode::Alu => Alu::decode(word).map(Self::Alu),
        }
    }

    /// Encodes the instruction; bits that no field covers are zero.
    ///
    /// # Errors
    /// [`FieldError`] for the first field whose value doesn't fit its bits.
    pub fn encode(&self) -> Result<u128, FieldError> {
        match self {
            Self::Load(x) => x.encode(),
            Self::Store(x) => x.encode(),
            Self::Gemm(x) => x.encode(),
            Self::Finish(x) => Ok(x.encode()),
            Self::Alu(x) => x.encode(),
        }
    }

    /// The instruction's opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Load(_) => Opcode::Load,
            Self::Store(_) => Opcode::Store,
            Self::Gemm(_) => Opcode::Gemm,
            Self::Finish(_) => Opcode::Finish,
            Self::Alu(_) => Opcode::Alu,
        }
    }

    /// The module that runs the instruction.
    pub const fn module(&self) -> Module {
        match self {
            Self::Load(load) => match load.mem {
                MemType::Wgt | MemType::Inp => Module::Load,
                MemType::Uop | MemType::Acc | MemType::Acc8 | MemType::Out => Module::Compute,
            },
            Self::Store(_) => Module::Store,
            Self::Gemm(_) | Self::Finish(_) | Self::Alu(_) => Module::Compute,
        }
    }

    /// The dependency-token flags.
    pub const fn deps(&self) -> Deps {
        match self {
            Self::Load(x) => x.deps,
            Self::Store(x) => x.deps,
            Self::Gemm(x) => x.deps,
            Self::Finish(x) => x.deps,
            Self::Alu(x) => x.deps,
        }
    }

    /// The dependency-token flags, to change.
    pub const fn deps_mut(&mut self) -> &mut Deps {
        match self {
            Self::Load(x) => &mut x.deps,
            Self::Store(x) => &mut x.deps,
            Self::Gemm(x) => &mut x.deps,
            Self::Finish(x) => &mut x.deps,
            Self::Alu(x) => &mut x.deps,
        }
    }
}

macro_rules! from_kind {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Insn {
            fn from(kind: $kind) -> Self {
                Self::$kind(kind)
            }
        }
    )*};
}
from_kind!(Load, Store, Gemm, Finish, Alu);
