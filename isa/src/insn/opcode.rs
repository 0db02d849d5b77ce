//! What every instruction begins with: its opcode and its dependency tokens; who runs it.

use std::fmt;

use crate::field::{codes, layout};
use crate::{Extension, Field, FieldError, Notation};

/// Which bits of every instruction are its opcode.
pub(crate) const OPCODE: Field = Field {
    name: "opcode",
    first_bit: 0,
    bits: 3,
    notation: Notation::Code,
    unit: "code",
    meaning: "The kind of instruction",
};

codes! {
    /// The kind of an instruction.
    Opcode of OPCODE; {
        Load = 0, "load", None, "Moves tiles from DRAM into a scratchpad";
        Store = 1, "store", None, "Moves accumulator tiles to DRAM, keeping the low 8 bits of each element";
        Gemm = 2, "gemm", None, "Matrix products over micro-ops";
        Finish = 3, "finish", None, "Ends the run";
        Alu = 4, "alu", None, "Vector operations over accumulator tiles";
        Depthwise = 7, "depthwise", Some(Extension::Depthwise), "Products of windows, channel by channel, over micro-ops";
    }
}

impl Opcode {
    /// The field of every instruction that holds the opcode.
    pub const FIELD: Field = OPCODE;

    /// What every word of this kind begins with.
    #[inline]
    pub(crate) fn word(self, deps: Deps) -> Result<u128, FieldError> {
        Ok(OPCODE.put(self.code().into())? | deps.pack()?)
    }
}

/// The module that runs an instruction. Each runs strictly in order; the three run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Module {
    /// LOAD of INP, WGT and WGT4, and with `preload` of ACC and ACC8.
    Load,
    /// LOAD of UOP, ACC and ACC8; GEMM, DEPTHWISE, ALU, FINISH.
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

layout! {
    /// The four dependency-token flags. *prev* is the module to the left, *next* the one to the
    /// right. An instruction pops before it starts and pushes when it is done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    Deps, DepsFields {
        members {}
        codes {}
        fields {
            pop_prev: bool = [3, 1], Flag, "flag", "Waits for a token of the module to the left";
            pop_next: bool = [4, 1], Flag, "flag", "Waits for a token of the module to the right";
            push_prev: bool = [5, 1], Flag, "flag", "Gives the module to the left a token";
            push_next: bool = [6, 1], Flag, "flag", "Gives the module to the right a token";
        }
    }
}

impl Deps {
    /// No token is taken or given.
    pub const NONE: Self = Self::unpack(0);
}
