//! What a layer needs of a machine whatever its tiles: steps, operands, results.
//!
//! All of it follows from the layer's operations and shapes. What a program does instead of another, as how it brings a
//! bias, counts as the least of the ways that the instruction set has.

use std::collections::BTreeSet;

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
                let [used, windows] = self.pooled(*input, window);
                let needs = self.brought(&[*input], used, ops);
                Some(Needs {
                    // A step joins two, so that what depends on each other takes as many as it has inputs, less one.
                    operands: needs.operands + (used - windows) * self.two_operands(),
                    ..needs
                })
            }
            QOp::AvgPool {
                input,
                window,
                ops_by_count,
                ..
            } => {
                let [used, windows] = self.pooled(*input, window);
                let cost = |ops: &&Vec<LaneOp>| self.cycles_of(ops);
                let ops = ops_by_count.iter().map(|(_, ops)| ops).min_by_key(cost);
                let needs = self.brought(&[*input], used, ops.map_or(&[][..], |ops| ops));
                Some(Needs {
                    operands: needs.operands.max(used - windows),
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

    /// Input tiles that some window has, and sets of them that no window joins.
    fn pooled(&self, input: TensorId, window: &Window) -> [u64; 2] {
        let [channels, rows, columns] = self.graph.tensors[input.0].chw;
        let [_, out_rows, out_columns] = self.graph.tensors[self.node.output.0].chw;
        let blocks = channels.div_ceil(self.config.block());
        let (sizes, outputs) = ([rows, columns], [out_rows, out_columns]);
        let axes = [0, 1].map(|axis| {
            let of = |output| touched(window, axis, output..output + 1, sizes[axis]);
            let windows: Vec<_> = (0..outputs[axis]).map(of).collect();
            let apart = windows.windows(2).filter(|two| two[0].is_disjoint(&two[1]));
            let used: BTreeSet<usize> = windows.iter().flatten().copied().collect();
            [used.len(), apart.count() + 1]
        });
        [0, 1].map(|figure| (blocks * axes[0][figure] * axes[1][figure]) as u64)
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
        let pool_ops = match self.pool.map(|pool| &pool.op) {
            Some(QOp::MaxPool { ops, .. }) => &ops[..],
            _ => &[],
        };
        let stored_residual = conv.store.as_ref().and_then(|s| s.residual.as_ref());
        let residual = conv.residual.as_ref().map(|(id, _)| *id);
        let beside = residual.or(stored_residual.map(|(id, ..)| *id));
        let (start, residual_cycles) = self.start(conv, [sums, stored], added);
        let inputs = self.inputs(conv.input, shape);
        let vectors = self.vectors(&conv.epilogue, shape.co as u64);
        let entries = if conv.store.is_some() { shape.co as u64 } else { 0 };
        let whole = shape.groups.is_none() && !shape.ones && shape.window_rows == 0;
        Needs {
            products: self.products(shape),
            start,
            // What a pool joins takes a step for each sum but one.
            operands: residual_cycles + (sums - stored.min(sums)) * self.two_operands(),
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
        let bias = if added { stored } else { 0 };
        let loaded = bias + sums * (beats + self.cycles_of(ops));
        let digits = start + sums * least_digits(ops, &conv.epilogue);
        let least = loaded.min(digits);
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
        let own = shape.groups.is_some_and(|g| g.inputs == 1 && g.outputs == 1);
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
                !window.valid(axis, *tap, shape.input[axis], shape.output[axis]).is_empty()
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

/// Digits of at most 127 in which the matrix unit multiplies a residual: one, or two where no shift of the sums takes the rest.
fn least_digits(prologue: &[LaneOp], epilogue: &[LaneOp]) -> u64 {
    let factor = match prologue {
        [op] => match (op.kind, &op.operand) {
            (LaneKind::Mul, LaneOperand::Imm(m)) => i32::from(*m),
            (LaneKind::Mul, LaneOperand::Vec(all)) => all.iter().copied().max().unwrap_or(0),
            _ => 1,
        },
        _ => 1,
    };
    let shift = epilogue.iter().find_map(|op| match (op.kind, &op.operand) {
        (LaneKind::Shr, LaneOperand::Imm(n @ 1..=30)) => Some(*n),
        _ => None,
    });
    let shift = shift.unwrap_or(0);
    let whole = factor >> shift << shift == factor && factor >> shift <= 127;
    if factor <= 127 || whole { 1 } else { 2 }
}

/// The positions of an axis, of `size`, that the windows of some outputs have.
pub fn touched(
    window: &Window,
    axis: usize,
    outputs: std::ops::Range<usize>,
    size: usize,
) -> BTreeSet<usize> {
    let taps = 0..window.kernel[axis];
    let of = |output| window.positions(axis, output, taps.clone(), size);
    outputs.flat_map(of).collect()
}
