//! A library with the interface of a Verilated VTA design, made from the cycle model: a test double.
//!
//! It fetches its instructions through the memory callback, asks for every burst in the cycle in which the
//! model has it on the bus, computes what its LOADs got with the oracle, one instruction after the other when
//! the model is done with each, and says in its counter the model's cycles, and those for which the memory
//! made it wait. So it takes a host and memory of a real design's kind: `ffi` is the interface,
//! [`design`] the registers and the bus, `run` one run, [`options`] what `VTA_RTL_DOUBLE` says, which is
//! mostly what it shall do wrong.

pub mod design;
mod ffi;
pub mod options;
mod run;
mod schedule;
