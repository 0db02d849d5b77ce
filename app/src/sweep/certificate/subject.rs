//! What single operations take on a machine: lane operations, and operands that come to the accumulators.

use std::collections::BTreeSet;
use std::ops::Range;

use vta_compiler::lower::ConvShape;
use vta_compiler::qgraph::{LaneKind, LaneOp, LaneOperand, QGraph, QNode, TensorId, Window};
use vta_isa::{Config, Extension, MemType};
use vta_sim::cycle::TimingConfig;

/// The largest product of two bytes.
const PRODUCT: u64 = 1 << 14;

/// A network, one of its nodes, and the machine.
pub struct Subject<'a> {
    pub graph: &'a QGraph,
    pub node: &'a QNode,
    /// The convolution in blocks, if it is one.
    pub shape: Option<&'a ConvShape>,
    /// A pool that joined it.
    pub pool: Option<&'a QNode>,
    pub config: &'a Config,
    pub timing: &'a TimingConfig,
}

impl Subject<'_> {
    pub fn has(&self, extension: Extension) -> bool {
        self.config.extensions().contains(extension)
    }

    /// Tiles of a tensor.
    pub fn tiles(&self, tensor: TensorId) -> u64 {
        let [channels, rows, columns] = self.graph.tensors[tensor.0].chw;
        (channels.div_ceil(self.config.block()) * rows * columns) as u64
    }

    /// Bytes of int8 tiles.
    pub fn bytes(&self, tiles: u64) -> u64 {
        tiles * self.config.elem_bytes(MemType::Acc8) as u64
    }

    pub fn two_operands(&self) -> u64 {
        self.timing.alu_two_operand_cycles.into()
    }

    /// Cycles of lane operations for a tile.
    pub fn cycles_of(&self, ops: &[LaneOp]) -> u64 {
        let cycles = |op: &LaneOp| match (&op.operand, op.kind) {
            (LaneOperand::Imm(_), _) | (_, LaneKind::Mov) => 1,
            (LaneOperand::Vec(all), LaneKind::Add) => self.steps_of(all).min(self.two_operands()),
            (LaneOperand::Plane(_), LaneKind::Add) => 1,
            (LaneOperand::Vec(_) | LaneOperand::Plane(_), _) => self.two_operands(),
        };
        ops.iter().map(cycles).sum()
    }

    /// Steps in which the matrix unit adds a vector, of the block that takes fewest: one adds a product for each lane of a
    /// block.
    fn steps_of(&self, vector: &[i32]) -> u64 {
        let block = self.config.block();
        let most = |lanes: &[i32]| lanes.iter().map(|v| u64::from(v.unsigned_abs())).max();
        let all = vector.chunks(block).filter_map(most).min().unwrap_or(0);
        all.div_ceil(block as u64 * PRODUCT).max(1)
    }

    /// Beats of the compute module for an int8 operand of lane operations, and these.
    pub fn loaded(&self, ops: &[LaneOp]) -> u64 {
        let beats = self.config.elem_bytes(MemType::Acc8) as u64;
        let beats = match self.has(Extension::Preload) {
            true => 0,
            false => beats.div_ceil(self.timing.bus_bytes.into()),
        };
        beats + self.cycles_of(ops)
    }

    /// Cycles in which an operand comes to a tile of its own: by a LOAD, or by steps of the matrix unit on a tile that is
    /// clear, of which the weights may be the first factor.
    pub fn placed(&self, ops: &[LaneOp], epilogue: &[LaneOp]) -> u64 {
        let clear = u64::from(!self.has(Extension::Overwrite));
        let factor = usize::from(
            ops.first()
                .is_some_and(|op| digits(&[op], &[], 0..1).is_some()),
        );
        let stepped = match self.digits(ops, epilogue) {
            Some(digits) => digits,
            None => 1 + self.cycles_of(&ops[factor..]),
        };
        self.loaded(ops).min(clear + stepped)
    }

    /// Cycles in which an operand is added to a tile.
    pub fn joined(&self, ops: &[LaneOp], epilogue: &[LaneOp]) -> u64 {
        let apart = self.placed(ops, epilogue) + self.two_operands();
        let stepped = self.digits(ops, epilogue);
        stepped.map_or(apart, |digits| digits.min(apart))
    }

    /// The digits of the block that has fewest.
    fn digits(&self, ops: &[LaneOp], epilogue: &[LaneOp]) -> Option<u64> {
        let (ops, block): (Vec<_>, _) = (ops.iter().collect(), self.config.block());
        let of = |at: usize| digits(&ops, epilogue, block * at..block * (at + 1));
        (0..self.out_blocks() as usize).filter_map(of).min()
    }

    /// Bytes of the vectors of lane operations for so many output blocks and tiles: a byte a lane at least.
    pub fn vectors(&self, ops: &[LaneOp], blocks: u64) -> u64 {
        let vectors = |op: &&LaneOp| !matches!(op.operand, LaneOperand::Imm(_));
        self.bytes(blocks * ops.iter().filter(vectors).count() as u64)
    }

    pub fn out_blocks(&self) -> u64 {
        let [channels, ..] = self.graph.tensors[self.node.output.0].chw;
        channels.div_ceil(self.config.block()) as u64
    }
}

/// The fewest steps in which the matrix unit adds a tensor times its factors, those of some channels; `None` where it is more
/// than multiplied. Each adds a digit of at most 127. Where a shift follows the sum, some digits may come behind a part of
/// it, which is a step more if part is left.
pub fn digits(prologue: &[&LaneOp], epilogue: &[LaneOp], channels: Range<usize>) -> Option<u64> {
    let factors: Vec<i64> = match prologue {
        [] => vec![1],
        [op] if matches!(op.kind, LaneKind::Mul | LaneKind::Shl) && op.plane().is_none() => {
            let factor = |by: i32| match op.kind {
                LaneKind::Mul => i64::from(by),
                _ => 1 << by.clamp(0, 31),
            };
            let known = channels.filter_map(|channel| op.operand.of_channel(channel));
            known.map(factor).collect()
        }
        _ => return None,
    };
    let adds = epilogue.first().is_some_and(|op| op.kind == LaneKind::Add);
    let behind = epilogue.get(usize::from(adds));
    let shift = match behind.map(|op| (op.kind, &op.operand)) {
        Some((LaneKind::Shr, LaneOperand::Imm(by @ 0..=31))) => *by,
        _ => 0,
    };
    let steps = |part: &dyn Fn(i64) -> i64| {
        let most = factors.iter().map(|m| part(*m).max(0) as u64).max();
        most.unwrap_or(0).div_ceil(127)
    };
    let divided = |at: i16| {
        let (low, high) = (steps(&|m| m - (m >> at << at)), steps(&|m| m >> at));
        low + high + u64::from(0 < at && at < shift)
    };
    (0..=shift).map(divided).min().map(|steps| steps.max(1))
}

/// The positions of an axis, of `size`, that the windows of some outputs have.
pub fn touched(
    window: &Window,
    axis: usize,
    outputs: Range<usize>,
    size: usize,
) -> BTreeSet<usize> {
    let taps = 0..window.kernel[axis];
    let of = |output| window.positions(axis, output, taps.clone(), size);
    outputs.flat_map(of).collect()
}
