//! The instruction: the sum of all kinds, decoding and encoding.

use thiserror::Error;

use crate::opcode::{Deps, Module, OPCODE, Opcode};
use crate::{Alu, AluOp, Field, FieldError, Finish, Gemm, Load, MemType, Store};

/// Bytes of one instruction in DRAM.
pub const INSN_BYTES: usize = 16;

impl Opcode {
    /// The fields of this kind of instruction beside its opcode and tokens, by first bit.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Load => Load::LIST,
            Self::Store => Store::LIST,
            Self::Gemm => Gemm::LIST,
            Self::Finish => Finish::LIST,
            Self::Alu => Alu::LIST,
        }
    }
}

/// A 128-bit pattern that is no instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No kind of instruction has the opcode.
    #[error("opcode is {0}, but only {known} are defined", known = Opcode::assigned())]
    Opcode(u8),
    /// No memory type has the code.
    #[error("memory_type is {0}, but only {known} are defined", known = MemType::assigned())]
    MemType(u8),
    /// LOAD can't fill the output scratchpad.
    #[error("memory_type of a LOAD is {0}, but it must be uop, wgt, inp, acc or acc8")]
    LoadMemType(MemType),
    /// STORE that moves data must name OUT.
    #[error("memory_type of a STORE is {0}, but it must be out")]
    StoreMemType(MemType),
    /// No operation has the code.
    #[error("alu_opcode is {0}, but only {known} are defined", known = AluOp::assigned())]
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
        let code = OPCODE.get(word) as u8;
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
            Self::Finish(x) => x.encode(),
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
