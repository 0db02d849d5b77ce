//! FINISH: the end of a run.

use crate::{Deps, Opcode};

/// Ends the run. It must be the last instruction, and every token queue should be empty then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// Dependency tokens.
    pub deps: Deps,
}

impl Finish {
    pub(crate) const fn decode(word: u128) -> Self {
        Self {
            deps: Deps::from_bits((word >> 3) as u8 & 15),
        }
    }

    pub(crate) const fn encode(&self) -> u128 {
        Opcode::Finish.code() as u128 | (self.deps.bits() as u128) << 3
    }
}
