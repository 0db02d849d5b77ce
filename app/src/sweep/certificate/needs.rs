//! What a layer needs of a machine whatever its tiles: steps, operands, results.
//!
//! All of it follows from the layer's operations and shapes. What a program does instead of another, as how it brings a
//! bias, counts as the least of the ways that the instruction set has.

use std::collections::BTreeSet;

use vta_compiler::lower::ConvShape;
use vta_compiler::qgraph::{LaneKind, LaneOp, QConv, QNode, QOp, QPair, TensorId, Window};
use vta_isa::{Extension, MemType};

use super::subject::{Subject, digits, touched};

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
    /// Whether these have 4 bits of each weight in DRAM.
    pub wgt4: bool,
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

impl Subject<'_> {
    /// What the layer needs; `None` for one whose instructions depend on where its tensors lie, and for the host's.
    pub fn needs(&self) -> Option<Needs> {
        match &self.node.op {
            QOp::Conv(conv) => Some(self.conv(conv, self.shape?)),
            QOp::Add(pair) => Some(self.pair(pair, false)),
            QOp::Mul(pair) => Some(self.pair(pair, true)),
            QOp::Eltwise { input, ops } => {
                let count = self.tiles(*input);
                Some(self.brought(count, self.placed(&[], ops), ops))
            }
            QOp::MaxPool { input, window, ops } => {
                let [used, _] = self.pooled(*input, window, self.node);
                let needs = self.brought(used, self.placed(&[], &[]), ops);
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
                let taken = u64::from(!self.has(Extension::Preload));
                let needs = self.brought(used, taken, ops.map_or(&[][..], |ops| ops));
                Some(Needs {
                    operands: needs.operands.max(used - apart),
                    ..needs
                })
            }
            QOp::Channels { .. } | QOp::Host { .. } => None,
        }
    }

    /// A layer of so many tiles of operands, each of which takes some cycles to come to the accumulators.
    fn brought(&self, tiles: u64, cycles: u64, ops: &[LaneOp]) -> Needs {
        let stored = self.tiles(self.node.output);
        Needs {
            operands: tiles * cycles,
            lanes: stored * self.cycles_of(ops),
            kinds: ops.len() as u64,
            sums: stored,
            stored,
            others: self.bytes(tiles) + self.vectors(ops, self.out_blocks()),
            ..Needs::default()
        }
    }

    /// Two tensors that are joined. One of a single position meets all tiles of the other.
    fn pair(&self, pair: &QPair, multiplied: bool) -> Needs {
        let (a, b) = ((pair.a, &pair.a_ops[..]), (pair.b, &pair.b_ops[..]));
        let [first, second] = if self.tiles(a.0) < self.tiles(b.0) {
            [b, a]
        } else {
            [a, b]
        };
        let (epilogue, stored) = (&pair.epilogue[..], self.tiles(self.node.output));
        let placed = |of: &[LaneOp]| self.placed(of, epilogue);
        let whole = self.tiles(second.0) == stored;
        // STOREs make the sum.
        let added = pair.store.is_some_and(|(factor, _)| factor.is_some());
        let cycles = match (multiplied, added) {
            _ if pair.a == pair.b => 0,
            (true, _) if whole => placed(first.1) + placed(second.1) + self.two_operands(),
            (true, _) => placed(first.1) + self.two_operands(),
            (false, true) => placed(first.1) + if whole { placed(second.1) } else { 0 },
            (false, false) => {
                let either = |x: &[LaneOp], y: &[LaneOp]| placed(x) + self.joined(y, epilogue);
                match whole {
                    true => either(first.1, second.1).min(either(second.1, first.1)),
                    false => placed(first.1) + 1,
                }
            }
        };
        let needs = self.brought(stored, cycles, epilogue);
        let second = if pair.a == pair.b {
            0
        } else {
            self.tiles(second.0)
        };
        Needs {
            others: needs.others + self.bytes(second),
            residual_stored: added,
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
        let adds = conv
            .epilogue
            .first()
            .is_some_and(|op| op.kind == LaneKind::Add);
        let (bias, rest) = conv.epilogue.split_at(usize::from(adds));
        let (pool_ops, pooling) = match self.pool.map(|pool| (pool, &pool.op)) {
            Some((pool, QOp::MaxPool { input, window, ops })) => {
                (&ops[..], self.maxima(*input, window, pool))
            }
            _ => (&[][..], 0),
        };
        let stored_residual = conv.store.as_ref().and_then(|s| s.residual.as_ref());
        let residual = conv.residual.as_ref().map(|(id, _)| *id);
        let beside = residual.or(stored_residual.map(|(id, ..)| *id));
        let (start, residual_cycles) = self.start(conv, [sums, stored], bias);
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
            wgt4: shape.wgt4,
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
    fn start(&self, conv: &QConv, [sums, stored]: [u64; 2], bias: &[LaneOp]) -> (u64, u64) {
        let beats = |mem: MemType| {
            let bytes = self.config.elem_bytes(mem) as u64;
            bytes.div_ceil(self.timing.bus_bytes.into())
        };
        let clear = if self.has(Extension::Overwrite) {
            0
        } else {
            sums
        };
        let added = self.cycles_of(bias);
        let mut start = clear + stored * added;
        if added > 0 {
            // A LOAD of the bias, or a copy of it, is a start, too.
            let loads = beats(if added > 1 {
                MemType::Acc
            } else {
                MemType::Acc8
            });
            let copies = if self.has(Extension::Mov) { 1 } else { loads };
            start = start.min(sums * loads.min(copies));
        }
        let Some((_, ops)) = &conv.residual else {
            let read = conv.store.as_ref().is_some_and(|s| s.residual.is_some());
            return (
                start,
                if read {
                    sums * self.placed(&[], &[])
                } else {
                    0
                },
            );
        };
        // Loaded it starts the sums; as products it takes a step a digit.
        let blocks = self.out_blocks();
        let apart = |cycles: u64| (stored * added + sums * cycles) / blocks;
        let of_block = |block: u64| {
            let channels = self.config.block() * block as usize;
            let lanes = channels..channels + self.config.block();
            let digits = digits(&ops.iter().collect::<Vec<_>>(), &conv.epilogue, lanes);
            match digits {
                Some(digits) => apart(self.loaded(ops)).min((start + sums * digits) / blocks),
                None => apart(self.placed(ops, &conv.epilogue)),
            }
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
