//! GEMM, DEPTHWISE and ALU: pipelines whose end follows from the number of steps.

use vta_isa::{Alu, Depthwise, Gemm, Insn};

use super::TimingConfig;

/// Cycles from the start of an instruction to the cycle before its first issue.
const DECODE: u64 = 1;
/// Cycles from the last write-back to the done cycle.
const DRAIN: u64 = 1;
/// Cycles before the done cycle in which the next instruction begins, if it does so ahead: its first issue is behind the last write-back.
pub(super) const AHEAD: u64 = DECODE + 1;

/// Whether an instruction issues steps into a pipeline.
pub(super) const fn has_pipeline(insn: &Insn) -> bool {
    matches!(insn, Insn::Gemm(_) | Insn::Depthwise(_) | Insn::Alu(_))
}

/// The done cycle of a GEMM that starts in `start`: one step a cycle, whatever its destinations.
pub(super) fn gemm_done(timing: &TimingConfig, gemm: &Gemm, start: u64) -> u64 {
    start + DECODE + gemm.steps() + u64::from(timing.gemm_pipeline_cycles) + DRAIN
}

/// Banks of the input scratchpad, which hold tiles in turns. A DEPTHWISE reads a tile of each in a cycle.
const BANKS: usize = 4;

/// Columns of windows that a DEPTHWISE reads. Registers hold a window: with one micro-op a step reads only those that the
/// inner loop moves on by, but for its first.
fn columns_read(insn: &Depthwise) -> u64 {
    let (columns, trips) = (u64::from(insn.columns), u64::from(insn.iter_in));
    if insn.uop_count() != 1 || trips == 0 {
        return insn.steps() * columns;
    }
    let moved = columns.min(insn.src_factor_in.into());
    u64::from(insn.iter_out) * (columns + (trips - 1) * moved)
}

/// Input tiles that a DEPTHWISE reads.
pub(crate) fn window_tiles(insn: &Depthwise) -> u64 {
    columns_read(insn) * u64::from(insn.rows)
}

/// Cycles in which a DEPTHWISE issues its steps: one for each, and more where the columns that it reads take longer, of
/// which each takes a cycle for every tile in the same bank.
pub(crate) fn window_cycles(insn: &Depthwise) -> u64 {
    let mut tiles = [0; BANKS];
    for row in 0..usize::from(insn.rows) {
        tiles[row * usize::from(insn.pitch) % BANKS] += 1;
    }
    let column = tiles.into_iter().max().unwrap_or(0);
    let stays = insn.uop_count() == 1 && insn.src_factor_in == 0;
    let inner = u64::from(insn.iter_in).saturating_sub(1);
    let repeated = u64::from(stays) * u64::from(insn.iter_out) * inner;
    columns_read(insn) * column + repeated
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
