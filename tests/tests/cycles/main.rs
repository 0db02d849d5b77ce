//! Cycles are those of the RTL, and their views add up.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod device;
mod networks;
mod rtl;
mod views;
