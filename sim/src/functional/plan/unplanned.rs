//! Batches that no plan has a form for.

use vta_driver::MemoryError;
use vta_isa::resolve;
use vta_isa::tokens::TokenError;

use crate::error::SimError;

/// Asked now and then while a plan is made: it may wait, and says whether to go on. Once it says no, it always does.
pub(crate) type GoOn<'a> = &'a dyn Fn() -> bool;

/// Why a batch isn't planned: it is run one instruction at a time, which also finds its fault.
#[derive(Debug)]
pub(crate) enum Unplanned {
    /// A fault; running finds it again, after the effects of what comes before.
    Fault,
    /// The instruction doesn't fit the plan's patterns.
    Pattern,
    /// The plan, or what is listed while it is made, takes more memory than it may.
    Memory,
    /// The plan would be good for one run only, as it depends on what was in the scratchpads.
    Once,
    /// Nobody wants the plan any more.
    Unwanted,
}

/// Errors that are faults of the batch.
macro_rules! faults {
    ($($Error:ty),*) => {
        $(impl From<$Error> for Unplanned {
            fn from(_: $Error) -> Self {
                Self::Fault
            }
        })*
    };
}

faults!(SimError, TokenError, MemoryError, resolve::Fault);
