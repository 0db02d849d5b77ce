//! FINISH: the end of a run.

use crate::{Deps, Field, FieldError, Opcode};

/// Ends the run. It must be the last instruction, and every token queue should be empty then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// Dependency tokens.
    pub deps: Deps,
}

impl Finish {
    /// It has no field of its own.
    pub const LIST: &'static [Field] = &[];

    #[inline]
    pub(crate) const fn decode(word: u128) -> Self {
        Self {
            deps: Deps::unpack(word),
        }
    }

    pub(crate) fn encode(&self) -> Result<u128, FieldError> {
        Opcode::Finish.word(self.deps)
    }
}
