//! GEMM and ALU: pipelines whose end follows from the number of steps.

use vta_isa::{Alu, AluOperand, Gemm};

use super::TimingConfig;

/// Cycles from the start of an instruction to the cycle before its first issue.
const DECODE: u64 = 1;
/// Cycles from the last write-back to the done cycle.
const DRAIN: u64 = 1;

/// The done cycle of a GEMM that starts in `start`: one step a cycle, whatever its destinations.
pub(super) fn gemm_done(timing: &TimingConfig, gemm: &Gemm, start: u64) -> u64 {
    start + DECODE + gemm.steps() + u64::from(timing.gemm_pipeline_cycles) + DRAIN
}

/// The done cycle of an ALU that starts in `start`: operations of two accumulator operands issue
/// every `alu_two_operand_cycles`.
pub(super) fn alu_done(timing: &TimingConfig, alu: &Alu, start: u64) -> u64 {
    let step = match alu.operand {
        AluOperand::Imm(_) => 1,
        AluOperand::Acc => u64::from(timing.alu_two_operand_cycles),
    };
    start + DECODE + step * alu.steps() + u64::from(timing.alu_pipeline_cycles) + DRAIN
}
