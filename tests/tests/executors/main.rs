//! Every executor computes what the oracle computes, bit for bit, and refuses what it refuses.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod allocations;
mod conformance;
mod differential;
mod fuzzing;
mod original;
mod repeats;
mod replays;
mod threads;
