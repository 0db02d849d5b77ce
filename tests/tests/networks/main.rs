//! Networks have the bits of the reference interpreter on every executor, and its accuracy.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod boards;
mod devices;
mod host;
mod models;
mod quantize;
mod trained;
mod zoo;
