//! The invariants of ARCHITECTURE.md.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod architecture;
mod layers;
mod release;
