//! Every OpenCL device of this machine, with every structure, is the oracle bit for bit.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod binaries;
mod kit;
mod memory;
mod networks;
mod programs;
mod refusals;
mod scopes;
