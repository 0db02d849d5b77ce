//! The hazard checker finds what goes wrong on the hardware, and nothing else.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod brute;
mod compiled;
mod kit;
mod programs;
mod random;
