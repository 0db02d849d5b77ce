//! From checked instructions to the launches of the throughput structure: [`emit`] lists the passes.

mod chain;
pub(crate) mod decoder;
mod emit;
mod join;
mod looped;
pub(crate) mod ops;
mod place;
mod products;
mod runs;
pub(crate) mod schedule;
mod sets;
pub(crate) mod target;
pub(crate) mod versions;
pub(crate) mod views;
