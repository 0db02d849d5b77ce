//! What a listing proves: every output byte is stored exactly once, every product of every output is computed
//! exactly once, and every byte that is read was written before.
//!
//! The instructions are walked through in program order on a machine that holds, instead of numbers, what numbers
//! are made of. A tile of DRAM holds the buffer whose bytes it has. A tile of the input scratchpad holds where it
//! came from, a weight tile likewise. An accumulator tile holds terms: a step of the matrix unit adds the pair of
//! its weight and its input tile, a load adds what was loaded, an instruction with two operands joins the terms
//! of both, and a reset clears them. When a tile is stored, its terms are compared with those that the layer's
//! geometry asks of this output, one by one, none left out, none twice and no other. Nothing is drawn or hashed:
//! what passes has exactly these terms.
//!
//! What is not proven: arithmetic. Which constants the weights are, immediates, shifts and which operation of
//! the ALU joins operands are not looked at; simulators and conformance tests are there for that. Likewise
//! the order of modules beside each other, which the check of hazards is for.

mod expect;
mod found;
mod machine;
mod stored;
mod sums;
mod term;

pub use found::{Coverage, CoverageError, Fault, FaultKind, LayerCoverage};

use crate::listing::Listing;
use machine::Machine;

/// Proves or refutes a listing.
///
/// # Errors
/// [`CoverageError`] for loops that are too long to be followed.
pub fn coverage(listing: &Listing) -> Result<Coverage, CoverageError> {
    let mut machine = Machine::new(listing);
    for at in 0..listing.layers.len() {
        machine.layer(at)?;
    }
    Ok(machine.finish())
}
