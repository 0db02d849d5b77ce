//! Batches that no plan has a form for.

use vta_isa::tokens;

use crate::error::SimError;

/// Why a batch isn't planned: it is run one instruction at a time, which also finds its fault.
#[derive(Debug)]
pub(super) enum Unplanned {
    /// A fault; running finds it again, after the effects of what comes before.
    Fault,
    /// The instruction doesn't fit the plan's patterns.
    Pattern,
}

impl From<SimError> for Unplanned {
    fn from(_: SimError) -> Self {
        Self::Fault
    }
}

impl From<tokens::TokenError> for Unplanned {
    fn from(_: tokens::TokenError) -> Self {
        Self::Fault
    }
}
