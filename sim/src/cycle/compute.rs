//! GEMM, DEPTHWISE and ALU: pipelines whose end follows from the number of steps.

use vta_isa::{Alu, Depthwise, Gemm};

use super::TimingConfig;

/// Cycles from the start of an instruction to the cycle before its first issue.
const DECODE: u64 = 1;
/// Cycles from the last write-back to the done cycle.
const DRAIN: u64 = 1;

/// The done cycle of a GEMM that starts in `start`: one step a cycle, whatever its destinations.
pub(super) fn gemm_done(timing: &TimingConfig, gemm: &Gemm, start: u64) -> u64 {
    start + DECODE + gemm.steps() + u64::from(timing.gemm_pipeline_cycles) + DRAIN
}

/// Cycles in which a DEPTHWISE issues its steps. Registers hold a window. Before a step the input scratchpad's port
/// reads what they lack, a tile a cycle: all of the window, or with one micro-op only the columns that the inner loop
/// moves on by.
pub(crate) fn window_cycles(insn: &Depthwise) -> u64 {
    let (rows, columns) = (u64::from(insn.rows), u64::from(insn.columns));
    let [outer, inner] = [insn.iter_out, insn.iter_in].map(u64::from);
    let whole = rows * columns;
    if insn.uop_count() != 1 || inner == 0 {
        return insn.steps() * whole;
    }
    let next = (rows * columns.min(insn.src_factor_in.into())).max(1);
    outer * (whole + (inner - 1) * next)
}

/// The done cycle of a DEPTHWISE that starts in `start`.
pub(super) fn depthwise_done(timing: &TimingConfig, insn: &Depthwise, start: u64) -> u64 {
    start + DECODE + window_cycles(insn) + u64::from(timing.gemm_pipeline_cycles) + DRAIN
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
