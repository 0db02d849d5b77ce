//! What a layer needs of a machine whatever its tiles: steps, operands, results.
//!
//! All of it follows from the layer's operations and shapes. What a program does instead of another, as how it brings a
//! bias, counts as the least of the ways that the instruction set has.

use std::collections::BTreeSet;
use std::ops::Range;

use vta_compiler::lower::ConvShape;
use vta_compiler::qgraph::{LaneKind, LaneOp, LaneOperand, QConv, QGraph, QNode, QOp, QPair};
use vta_compiler::qgraph::{TensorId, Window};
use vta_isa::{Config, Extension, MemType};
use vta_sim::cycle::TimingConfig;

/// What a layer needs. Cycles are those of the compute module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Steps that multiply.
    pub products: u64,
    /// Cycles in which sums get their first contents, bias among them. LOADs of the load module may do so instead
    /// (PRELOAD), at two beats a tile or more.
    pub start: u64,
    /// Cycles in which operands come to the accumulators or are added there.
    pub operands: u64,
    /// Cycles of lane operations.
    pub lanes: u64,
    /// Lane operations, each of which is an instruction of its own.
    pub kinds: u64,
    /// Accumulator tiles with a sum.
    pub sums: u64,
    /// Tiles that are stored.
    pub stored: u64,
    /// Whether STOREs read a residual beside each sum.
    pub residual_stored: bool,
    /// Tiles and bytes of distinct inputs of the matrix unit.
    pub inputs: u64,
    /// Weight tiles.
    pub weights: u64,
    /// Bytes of other operands: residuals, vectors.
    pub others: u64,
    /// What decides how often a convolution reads its inputs and weights; nothing for others, and for those of groups.
    pub reuse: Option<Reuse>,
}

/// The sides of a convolution, of which tiles are parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Input blocks.
    pub ci: usize,
    /// Output blocks.
    pub co: usize,
    /// Input rows and columns.
    pub input: [usize; 2],
    /// Output rows and columns.
    pub output: [usize; 2],
    /// From inputs to outputs.
    pub window: Window,
}

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
    /// What the layer needs; `None` for one whose instructions depend on where its tensors lie, and for the host's.
    pub fn needs(&self) -> Option<Needs> {
        match &self.node.op {
            QOp::Conv(conv) => Some(self.conv(conv, self.shape?)),
            QOp::Add(pair) => Some(self.pair(pair, 0)),
            QOp::Mul(pair) => Some(self.pair(pair, self.two_operands())),
            QOp::Eltwise { input, ops } => {
                let count = self.tiles(*input);
                Some(self.brought(&[*input], count, ops))
            }
            QOp::MaxPool { input, window, ops } => {
                let [used, _] = self.pooled(*input, window, self.node);
                let needs = self.brought(&[*input], used, ops);
                Some(Needs {
                    operands: needs.operands + self.maxima(*input, window, self.node),
                    ..needs
                })
            }
            QOp::AvgPool {
                input,
                window,
                ops_by_count,
                ..
            } => {
                let [used, apart] = self.pooled(*input, window, self.node);
                let cost = |ops: &&Vec<LaneOp>| self.cycles_of(ops);
                let ops = ops_by_count.iter().map(|(_, ops)| ops).min_by_key(cost);
                let needs = self.brought(&[*input], used, ops.map_or(&[][..], |ops| ops));
                Some(Needs {
                    operands: needs.operands.max(used - apart),
                    ..needs
                })
            }
            QOp::Channels { .. } | QOp::Host { .. } => None,
        }
    }

    fn has(&self, extension: Extension) -> bool {
        self.config.extensions().contains(extension)
    }

    /// Tiles of a tensor.
    fn tiles(&self, tensor: TensorId) -> u64 {
        let [channels, rows, columns] = self.graph.tensors[tensor.0].chw;
        (channels.div_ceil(self.config.block()) * rows * columns) as u64
    }

    /// Bytes of int8 tiles.
    fn bytes(&self, tiles: u64) -> u64 {
        tiles * self.config.elem_bytes(MemType::Acc8) as u64
    }

    fn two_operands(&self) -> u64 {
        self.timing.alu_two_operand_cycles.into()
    }

    /// Cycles of lane operations for a tile. The matrix unit may add a vector in one.
    fn cycles_of(&self, ops: &[LaneOp]) -> u64 {
        let cycles = |op: &LaneOp| match (&op.operand, op.kind) {
            (LaneOperand::Imm(_), _) | (_, LaneKind::Add | LaneKind::Mov) => 1,
            (LaneOperand::Vec(_) | LaneOperand::Plane(_), _) => self.two_operands(),
        };
        ops.iter().map(cycles).sum()
    }

    /// Bytes of the vectors of lane operations for so many output blocks and tiles: a byte a lane at least.
    fn vectors(&self, ops: &[LaneOp], blocks: u64) -> u64 {
        let vectors = |op: &&LaneOp| !matches!(op.operand, LaneOperand::Imm(_));
        self.bytes(blocks * ops.iter().filter(vectors).count() as u64)
    }

    fn out_blocks(&self) -> u64 {
        let [channels, ..] = self.graph.tensors[self.node.output.0].chw;
        channels.div_ceil(self.config.block()) as u64
    }

    /// A layer whose operands come to the accumulators: by a step of the matrix unit or a beat, a tile, unless the load
    /// module brings them.
    fn brought(&self, inputs: &[TensorId], tiles: u64, ops: &[LaneOp]) -> Needs {
        let stored = self.tiles(self.node.output);
        let others = inputs.iter().skip(1).map(|id| self.tiles(*id));
        let others = others.sum::<u64>() + tiles;
        Needs {
            operands: if self.has(Extension::Preload) {
                0
            } else {
                others
            },
            lanes: stored * self.cycles_of(ops),
            kinds: ops.len() as u64,
            sums: stored,
            stored,
            others: self.bytes(others) + self.vectors(ops, self.out_blocks()),
            ..Needs::default()
        }
    }

    fn pair(&self, pair: &QPair, join: u64) -> Needs {
        let distinct = if pair.a == pair.b {
            vec![pair.a]
        } else {
            vec![pair.a, pair.b]
        };
        let needs = self.brought(&distinct, self.tiles(pair.a), &pair.epilogue);
        let tiles = |of, ops: &[LaneOp]| self.tiles(of) * self.cycles_of(ops);
        Needs {
            operands: needs.operands + needs.stored * join,
            lanes: needs.lanes + tiles(pair.a, &pair.a_ops) + tiles(pair.b, &pair.b_ops),
            residual_stored: pair.store.is_some(),
            ..needs
        }
    }

    /// Input tiles that some window of a pool has, and how many sets of them no window joins.
    fn pooled(&self, input: TensorId, window: &Window, pool: &QNode) -> [u64; 2] {
        let [channels, sizes @ ..] = self.graph.tensors[input.0].chw;
        let [_, outputs @ ..] = self.graph.tensors[pool.output.0].chw;
        let blocks = channels.div_ceil(self.config.block());
        let axes = [0, 1].map(|axis| {
            let of = |output| touched(window, axis, output..output + 1, sizes[axis]);
            let windows: Vec<_> = (0..outputs[axis]).map(of).collect();
            let apart = windows.windows(2).filter(|two| two[0].is_disjoint(&two[1]));
            let used: BTreeSet<usize> = windows.iter().flatten().copied().collect();
            [used.len(), apart.count() + 1]
        });
        [0, 1].map(|figure| (blocks * axes[0][figure] * axes[1][figure]) as u64)
    }

    /// Cycles of the maxima of a pool: those of ALU steps that read two tiles. Inputs that depend on each other take as
    /// many as they are, less one. Each whole 3x3 window of stride 2 takes six.
    fn maxima(&self, input: TensorId, window: &Window, pool: &QNode) -> u64 {
        let [channels, sizes @ ..] = self.graph.tensors[input.0].chw;
        let [_, outputs @ ..] = self.graph.tensors[pool.output.0].chw;
        let [used, apart] = self.pooled(input, window, pool);
        let whole = |axis: usize| {
            let inside = |at: &usize| touched(window, axis, *at..at + 1, sizes[axis]).len() == 3;
            (0..outputs[axis]).filter(inside).count()
        };
        let six = [window.kernel, window.stride, window.dilation] == [[3, 3], [2, 2], [1, 1]];
        let windows = if six { 6 * whole(0) * whole(1) } else { 0 };
        let windows = (windows * channels.div_ceil(self.config.block())) as u64;
        (used - apart).max(windows) * self.two_operands()
    }

    fn conv(&self, conv: &QConv, shape: &ConvShape) -> Needs {
        let outputs = shape.output[0] * shape.output[1];
        let sums = (shape.co * outputs) as u64;
        let last = self.pool.unwrap_or(self.node);
        let stored = self.tiles(last.output);
        let (added, rest) = match &conv.epilogue[..] {
            [first, rest @ ..] if first.kind == LaneKind::Add => (true, rest),
            all => (false, all),
        };
        let (pool_ops, pooling) = match self.pool.map(|pool| (pool, &pool.op)) {
            Some((pool, QOp::MaxPool { input, window, ops })) => {
                (&ops[..], self.maxima(*input, window, pool))
            }
            _ => (&[][..], 0),
        };
        let stored_residual = conv.store.as_ref().and_then(|s| s.residual.as_ref());
        let residual = conv.residual.as_ref().map(|(id, _)| *id);
        let beside = residual.or(stored_residual.map(|(id, ..)| *id));
        let (start, residual_cycles) = self.start(conv, [sums, stored], added);
        let inputs = self.inputs(conv.input, shape);
        let vectors = self.vectors(&conv.epilogue, shape.co as u64);
        let entries = if conv.store.is_some() {
            shape.co as u64
        } else {
            0
        };
        let whole = shape.groups.is_none() && !shape.ones && shape.window_rows == 0;
        Needs {
            products: self.products(shape),
            start,
            operands: residual_cycles + pooling,
            lanes: stored * (self.cycles_of(rest) + self.cycles_of(pool_ops)),
            kinds: (rest.len() + pool_ops.len()) as u64,
            sums,
            stored,
            residual_stored: stored_residual.is_some(),
            inputs,
            weights: self.weights(shape),
            others: vectors + self.bytes(beside.map_or(0, |id| self.tiles(id)) + entries),
            reuse: whole.then_some(Reuse {
                ci: shape.ci,
                co: shape.co,
                input: shape.input,
                output: shape.output,
                window: shape.window,
            }),
        }
    }

    /// Cycles in which sums start with their bias, and those of a residual.
    fn start(&self, conv: &QConv, [sums, stored]: [u64; 2], added: bool) -> (u64, u64) {
        let (overwrite, copies) = (self.has(Extension::Overwrite), self.has(Extension::Mov));
        let clear = if overwrite { 0 } else { sums };
        let apart = clear + if added { stored } else { 0 };
        let start = match added {
            true if copies || overwrite => apart.min(sums),
            _ => apart,
        };
        let Some((_, ops)) = &conv.residual else {
            let loads = conv.store.as_ref().is_some_and(|s| s.residual.is_some());
            let own = loads && !self.has(Extension::Preload);
            return (start, if own { sums } else { 0 });
        };
        // Loaded it starts the sums; as products it takes a step a digit.
        let acc8 = self.config.elem_bytes(MemType::Acc8) as u64;
        let beats = match self.has(Extension::Preload) {
            true => 0,
            false => acc8.div_ceil(self.timing.bus_bytes.into()),
        };
        let (blocks, bias) = (self.out_blocks(), if added { stored } else { 0 });
        let loaded = (bias + sums * (beats + self.cycles_of(ops))) / blocks;
        let of_block = |block: u64| {
            let channels = self.config.block() * block as usize;
            let lanes = channels..channels + self.config.block();
            let digits = digits(ops, &conv.epilogue, lanes);
            loaded.min((start + sums * digits) / blocks)
        };
        let least: u64 = (0..blocks).map(of_block).sum();
        (start.min(least), least - start.min(least))
    }

    /// Steps of the products: of the matrix unit, or of DEPTHWISE where channels have weights of their own.
    fn products(&self, shape: &ConvShape) -> u64 {
        let parts = shape.weight_parts as u64;
        let gemm = ConvShape {
            window_rows: 0,
            ..*shape
        };
        let steps = gemm.products() * parts;
        match self.rows_of_windows(shape) {
            Some(rows) => {
                let outputs = shape.co * shape.output[0] * shape.output[1];
                let windows = outputs * shape.window.kernel[0].div_ceil(rows);
                steps.min(windows as u64 * parts)
            }
            None => steps,
        }
    }

    /// Kernel rows of a step of DEPTHWISE, where it may multiply.
    fn rows_of_windows(&self, shape: &ConvShape) -> Option<usize> {
        let own = shape
            .groups
            .is_some_and(|g| g.inputs == 1 && g.outputs == 1);
        let rows = self.config.block() / shape.window.kernel[1].max(1);
        (own && self.has(Extension::Depthwise) && rows > 0).then_some(rows)
    }

    /// Weight tiles that some output needs.
    fn weights(&self, shape: &ConvShape) -> u64 {
        if shape.ones {
            return 1;
        }
        if let Some(rows) = self.rows_of_windows(shape) {
            return (shape.co * shape.window.kernel[0].div_ceil(rows)) as u64;
        }
        let axis = |axis: usize| {
            let inside = |tap: &usize| {
                let window = &shape.window;
                !window
                    .valid(axis, *tap, shape.input[axis], shape.output[axis])
                    .is_empty()
            };
            (0..shape.window.kernel[axis]).filter(inside).count()
        };
        let all = shape.output[0] * shape.output[1] * shape.window.area();
        let pairs = shape.dense_products() / all.max(1) as u64;
        pairs * (axis(0) * axis(1) * shape.weight_parts) as u64
    }

    /// Input tiles that some output needs.
    fn inputs(&self, input: TensorId, shape: &ConvShape) -> u64 {
        let of = |axis: usize| {
            let outputs = 0..shape.output[axis];
            touched(&shape.window, axis, outputs, shape.input[axis]).len()
        };
        let blocks = match shape.groups {
            Some(_) => {
                let [channels, ..] = self.graph.tensors[input.0].chw;
                channels.div_ceil(self.config.block())
            }
            None => shape.ci,
        };
        (blocks * of(0) * of(1)) as u64
    }
}

/// The fewest steps in which the matrix unit adds a residual times its factors, those of some channels. Each adds a digit of at
/// most 127. Where a shift follows the sum, some digits may come behind a part of it, which is a step more if part is left.
fn digits(prologue: &[LaneOp], epilogue: &[LaneOp], channels: Range<usize>) -> u64 {
    let factor = |channel: usize| match prologue {
        [] => Some(1),
        [op] => match (op.kind, op.operand.of_channel(channel)) {
            (LaneKind::Mul, Some(factor @ 0..)) => Some(i64::from(factor)),
            (LaneKind::Shl, Some(by @ 0..31)) => Some(1 << by),
            _ => None,
        },
        _ => None,
    };
    let factors = channels.filter_map(factor).collect::<Vec<i64>>();
    let adds = epilogue.first().is_some_and(|op| op.kind == LaneKind::Add);
    let shift = match epilogue
        .get(usize::from(adds))
        .map(|op| (op.kind, &op.operand))
    {
        Some((LaneKind::Shr, LaneOperand::Imm(by @ 0..=31))) => *by,
        _ => 0,
    };
    let steps = |part: &dyn Fn(i64) -> i64| {
        let most = factors.iter().map(|m| part(*m)).max().unwrap_or(0);
        most.div_euclid(127) + i64::from(most % 127 > 0)
    };
    let divided = |at: i16| {
        let (low, high) = (steps(&|m| m - (m >> at << at)), steps(&|m| m >> at));
        (low + high + i64::from(0 < at && at < shift)) as u64
    };
    (0..=shift).map(divided).min().unwrap_or(1).max(1)
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
