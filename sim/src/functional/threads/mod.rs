//! Plans on several threads: cut into units, put together as tasks, run by a crew.

mod cells;
mod clusters;
pub(super) mod crew;
mod cut;
mod flow;
mod pieces;
pub(super) mod schedule;
mod tasks;
pub(super) mod unit;
