//! GEMM and ALU: pipelines whose end follows from the number of steps.

use vta_isa::{Alu, Gemm};

use super::TimingConfig;

/// Cycles from the start of an instruction to the cycle before its first issue.
const DECODE: u64 = 1;
/// Cycles from the last write-back to the done cycle.
const DRAIN: u64 = 1;

/// The done cycle of a GEMM that starts in `start`: one step a cycle, whatever its destinations.
pub(super) fn gemm_done(timing: &TimingConfig, gemm: &Gemm, start: u64) -> u64 {
    start + DECODE + gemm.steps() + u64::from(timing.gemm_pipeline_cycles) + DRAIN
}

/// Cycles in which an ALU instruction issues its steps: operations that read two accumulator tiles issue every
/// `alu_two_operand_cycles`.
pub(crate) fn issue_cycles(alu: &Alu, timing: &TimingConfig) -> u64 {
    match alu.tiles_read() {
        0 | 1 => alu.steps(),
        _ => alu.steps() * u64::from(timing.alu_two_operand_cycles),
    }
}

/// The done cycle of an ALU that starts in `start`.
pub(super) fn alu_done(timing: &TimingConfig, alu: &Alu, start: u64) -> u64 {
    start + DECODE + issue_cycles(alu, timing) + u64::from(timing.alu_pipeline_cycles) + DRAIN
}
