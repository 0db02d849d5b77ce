//! What networks and single layers become: verdicts and segments, and programs that have the bits of the reference
//! interpreter on every simulator, without hazards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod boards;
#[path = "../common/builder.rs"]
mod builder;
mod chains;
mod channels;
#[path = "../common/mod.rs"]
mod common;
mod edges;
mod grouped;
mod islands;
mod lowering;
mod pairs;
#[path = "../common/parts.rs"]
mod parts;
mod sequences;
mod tables;
mod tokens;
mod turns;
mod unrounded;
mod verdicts;
