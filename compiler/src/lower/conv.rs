//! Convolutions and dense layers.

use std::ops::Range;

use vta_driver::{BufferId, Layer, Packing};
use vta_isa::{AluOp, AluOperand, Load, MemType, Module, Store, Uop};

use super::emit::{Emitter, Loops, immediate, vector};
use super::tile::{self, ConvShape, ConvTile, LoopOrder};
use super::{LowerError, Lowering};
use crate::qgraph::{LaneOp, QOp, TensorId, Window};

/// One convolution with everything that its tiles need.
struct Conv<'g> {
    shape: ConvShape,
    tile: ConvTile,
    input: BufferId,
    weights: BufferId,
    vectors: Option<BufferId>,
    residual: Option<(BufferId, &'g [LaneOp])>,
    epilogue: &'g [LaneOp],
    output: BufferId,
    /// Where a part of each scratchpad starts, in tiles.
    inp_half: usize,
    wgt_half: usize,
    acc_half: usize,
    /// First accumulator tile of the vectors.
    vector_base: usize,
}

/// One output tile.
struct Work {
    co: Range<usize>,
    rows: Range<usize>,
    cols: Range<usize>,
    chunks: Vec<Chunk>,
}

/// One chunk of a tile's reduction.
#[derive(Clone, PartialEq, Eq)]
struct Chunk {
    ci: Range<usize>,
    kernel_rows: Range<usize>,
    rows: Span,
    cols: Span,
}

/// A stretch of input rows or columns with what lies outside the input on both sides.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    first: usize,
    len: usize,
    before: usize,
    after: usize,
}

impl Span {
    /// `len` positions from `start - pad` of an axis with `size`; `None` if all are outside.
    fn new(start: usize, pad: usize, len: usize, size: usize) -> Option<Self> {
        let before = pad.saturating_sub(start).min(len);
        let first = start.saturating_sub(pad);
        let inside = size.saturating_sub(first).min(len - before);
        let after = len - before - inside;
        (inside > 0).then_some(Self {
            first,
            len: inside,
            before,
            after,
        })
    }

    fn total(&self) -> usize {
        self.before + self.len + self.after
    }
}

/// What the halves hold and how many chunks were started, over a whole layer.
#[derive(Default)]
struct Progress {
    chunks: usize,
    tiles: usize,
    inputs: usize,
    weights: usize,
    loaded_input: Option<(Chunk, Range<usize>, Range<usize>)>,
    loaded_weights: Option<(Range<usize>, Range<usize>, Range<usize>)>,
    loaded_vectors: Option<Range<usize>>,
}

impl Lowering<'_> {
    pub(super) fn conv(&mut self, index: usize) -> Result<(), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[index];
        let QOp::Conv {
            input,
            window,
            weights,
            residual,
            epilogue,
            dense,
        } = &node.op
        else {
            return Ok(());
        };
        let inconsistent = |reason: &str| LowerError::Inconsistent {
            node: node.name.clone(),
            reason: reason.to_owned(),
        };
        let prologue = residual.as_ref().map_or(&[][..], |(_, ops)| ops);
        let shape = self.conv_shape(*input, node.output, window, prologue, epilogue);
        let shape = shape.ok_or_else(|| inconsistent("the window doesn't fit"))?;
        let [ci, ..] = graph.tensors[input.0].chw;
        let [co, oh, ow] = graph.tensors[node.output.0].chw;
        let taps = ci * window.kernel[0] * window.kernel[1];
        if weights.len() != co * taps {
            return Err(inconsistent("the weights have another size"));
        }
        if let Some((id, _)) = residual
            && graph.tensors[id.0].chw != [co, oh, ow]
        {
            return Err(inconsistent("the residual has another shape"));
        }
        let tile = tile::search(&shape, self.config).map_err(|reason| LowerError::NoTile {
            node: node.name.clone(),
            reason,
        })?;
        let packed = pack_weights(weights, [co, taps], &shape, self.config.block());
        let ops = || prologue.iter().chain(epilogue);
        if ops().filter_map(vector).any(|(_, v)| v.len() != co) {
            return Err(inconsistent("a lane vector has another length"));
        }
        let lists: Vec<&[i32]> = ops().filter_map(vector).map(|(_, v)| v).collect();
        let vectors = (!lists.is_empty()).then(|| {
            let bytes = pack_vectors(&lists, shape.co, self.config.batch(), self.config.block());
            self.constant(format!("{}.vectors", node.name), bytes)
        });
        let acc = self.config.depth(MemType::Acc);
        let vector_base = acc - shape.vectors * tile.co;
        let conv = Conv {
            shape,
            tile,
            input: BufferId(input.0 as u32),
            weights: self.constant(format!("{}.weights", node.name), packed),
            vectors,
            residual: residual
                .as_ref()
                .map(|(id, ops)| (BufferId(id.0 as u32), &ops[..])),
            epilogue,
            output: BufferId(node.output.0 as u32),
            inp_half: self.config.depth(MemType::Inp) / tile.halves,
            wgt_half: self.config.depth(MemType::Wgt) / tile.halves,
            acc_half: vector_base / tile.acc_halves,
            vector_base,
        };
        let layer = Layer {
            name: node.name.clone(),
            kind: if *dense { "dense" } else { "conv" }.to_owned(),
            macs: (co * oh * ow) as u64 * taps as u64,
            output: node.output.0 as u32,
            ..Layer::default()
        };
        let mut emitter = Emitter::new(self, &node.name);
        conv.emit(&mut emitter)?;
        emitter.finish(layer)
    }

    /// The convolution in blocks; gathered patches make it a 1x1 convolution.
    fn conv_shape(
        &self,
        input: TensorId,
        output: TensorId,
        window: &Window,
        prologue: &[LaneOp],
        epilogue: &[LaneOp],
    ) -> Option<ConvShape> {
        let ([ci, h, w], [co, oh, ow]) = (self.tile_chw(input), self.tile_chw(output));
        if window.output(h, w) != Some([oh, ow]) {
            return None;
        }
        let ops = || prologue.iter().chain(epilogue);
        let vectors = ops().filter(|op| vector(op).is_some()).count();
        let base = ConvShape {
            ci,
            co,
            input: [h, w],
            output: [oh, ow],
            kernel: window.kernel,
            stride: window.stride,
            dilation: window.dilation,
            pads: window.pads,
            alu_steps: ops().count() + vectors,
            vectors,
            residual: !matches!(prologue, []),
        };
        let spec = &self.program.tensors[input.0];
        Some(match spec.packing {
            Packing::Tiles => base,
            Packing::Im2col { .. } => ConvShape {
                ci: spec.packed_dims(self.config)?.0,
                input: [oh, ow],
                kernel: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                pads: [0; 4],
                ..base
            },
        })
    }
}

/// `[CO/B][CI/B][KH][KW][B out][B in]` from `[CO][CI][KH][KW]`; for gathered patches the kernel
/// is 1x1 and a row of `taps` weights is its channels.
fn pack_weights(
    weights: &[i8],
    [co, taps]: [usize; 2],
    shape: &ConvShape,
    block: usize,
) -> Vec<u8> {
    let area = shape.kernel[0] * shape.kernel[1];
    let channels = taps / area;
    let mut packed = vec![0u8; shape.co * shape.ci * area * block * block];
    for (o, row) in weights.chunks_exact(taps.max(1)).take(co).enumerate() {
        for c in 0..channels {
            for k in 0..area {
                let tile = (o / block * shape.ci + c / block) * area + k;
                let at = (tile * block + o % block) * block + c % block;
                packed[at] = row[c * area + k] as u8;
            }
        }
    }
    packed
}

/// `[vector][CO/B][BATCH][B]` int32, zero beyond the channels.
fn pack_vectors(lists: &[&[i32]], co: usize, batch: usize, block: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lists.len() * co * batch * block * 4);
    for list in lists {
        for group in 0..co {
            for _ in 0..batch {
                for lane in 0..block {
                    let value = list.get(group * block + lane).copied().unwrap_or(0);
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }
    bytes
}

fn pieces(total: usize, size: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..total)
        .step_by(size.max(1))
        .map(move |first| first..(first + size).min(total))
}

impl Conv<'_> {
    fn emit(&self, e: &mut Emitter<'_, '_>) -> Result<(), LowerError> {
        let works = self.works();
        let chunks = works.iter().map(|w| w.chunks.len()).sum();
        let mut progress = Progress::default();
        for work in &works {
            self.emit_tile(e, work, &mut progress, [works.len(), chunks])?;
        }
        Ok(())
    }

    /// Output tiles in execution order, with the chunks that see any input at all.
    fn works(&self) -> Vec<Work> {
        let (shape, tile) = (&self.shape, &self.tile);
        let [oh, ow] = shape.output;
        let groups = || pieces(shape.co, tile.co);
        let positions = || {
            pieces(oh, tile.output[0])
                .flat_map(move |r| pieces(ow, tile.output[1]).map(move |c| (r.clone(), c)))
        };
        let work = |co: Range<usize>, rows: Range<usize>, cols: Range<usize>| {
            let chunks = self.chunks(&rows, &cols);
            Work {
                co,
                rows,
                cols,
                chunks,
            }
        };
        match tile.order {
            LoopOrder::ChannelsOutside => groups()
                .flat_map(|co| positions().map(move |(r, c)| work(co.clone(), r, c)))
                .collect(),
            LoopOrder::PositionsOutside => positions()
                .flat_map(|(r, c)| groups().map(move |co| work(co, r.clone(), c.clone())))
                .collect(),
        }
    }

    fn chunks(&self, rows: &Range<usize>, cols: &Range<usize>) -> Vec<Chunk> {
        let (shape, tile) = (&self.shape, &self.tile);
        let width = shape.extent(1, cols.len(), shape.kernel[1]);
        let start = cols.start * shape.stride[1];
        let Some(cols) = Span::new(start, shape.pads[1], width, shape.input[1]) else {
            return Vec::new();
        };
        let mut chunks = Vec::new();
        for ci in pieces(shape.ci, tile.ci) {
            for kernel_rows in pieces(shape.kernel[0], tile.kernel_rows) {
                let height = shape.extent(0, rows.len(), kernel_rows.len());
                let start = rows.start * shape.stride[0] + kernel_rows.start * shape.dilation[0];
                // Rows of zeros add nothing.
                if let Some(rows) = Span::new(start, shape.pads[0], height, shape.input[0]) {
                    chunks.push(Chunk {
                        ci: ci.clone(),
                        kernel_rows,
                        rows,
                        cols,
                    });
                }
            }
        }
        chunks
    }

    fn emit_tile(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        progress: &mut Progress,
        [tiles, chunks]: [usize; 2],
    ) -> Result<(), LowerError> {
        let base = progress.tiles % self.tile.acc_halves * self.acc_half;
        let begin = e.len();
        self.load_vectors(e, &work.co, progress)?;
        self.start_sums(e, work, base)?;
        if progress.tiles >= self.tile.acc_halves
            && let Some(deps) = e.first_since(begin, Module::Compute)
        {
            deps.pop_next = true;
        }
        for chunk in &work.chunks {
            self.load_chunk(e, work, chunk, progress)?;
            let begin = e.len();
            self.multiply(e, work, chunk, base, progress)?;
            if let Some(deps) = e.first_since(begin, Module::Compute) {
                deps.pop_prev = true;
                deps.push_prev = progress.chunks + self.tile.halves < chunks;
            }
            progress.chunks += 1;
        }
        let prologue = self.residual.map_or(0, |(_, ops)| count_vectors(ops));
        self.lanes(e, self.epilogue, prologue, work, base)?;
        if let Some(deps) = e.last_of(Module::Compute) {
            deps.push_next = true;
        }
        self.store(e, work, base, progress.tiles + self.tile.acc_halves < tiles)?;
        progress.tiles += 1;
        Ok(())
    }

    fn load_vectors(
        &self,
        e: &mut Emitter<'_, '_>,
        co: &Range<usize>,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let Some(buffer) = self.vectors else {
            return Ok(());
        };
        if progress.loaded_vectors.as_ref() == Some(co) {
            return Ok(());
        }
        progress.loaded_vectors = Some(co.clone());
        // Rows lie `co.len()` apart in the scratchpad, however short the last group is.
        let load = Load {
            mem: MemType::Acc,
            sram_base: self.vector_base as u16,
            dram_base: co.start as u32,
            y_size: self.shape.vectors as u16,
            x_size: co.len() as u16,
            x_stride: self.shape.co as u16,
            ..Load::default()
        };
        e.load(buffer, load)
    }

    /// Zeroes the sums or starts them with the residual.
    fn start_sums(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        base: usize,
    ) -> Result<(), LowerError> {
        let (rows, cols) = (work.rows.len(), work.cols.len());
        let area = rows * cols;
        let Some((buffer, prologue)) = self.residual else {
            let uops = vec![Uop {
                dst: base as u16,
                src: 0,
                wgt: 0,
            }];
            let iter = [1, work.co.len() * area];
            return e.gemm(
                true,
                uops,
                Loops {
                    iter,
                    dst: [0, 1],
                    src: [0, 0],
                },
            );
        };
        for (i, co) in work.co.clone().enumerate() {
            let load = Load {
                mem: MemType::Acc8,
                sram_base: (base + i * area) as u16,
                dram_base: self.output_tile(co, work),
                y_size: rows as u16,
                x_size: cols as u16,
                x_stride: self.shape.output[1] as u16,
                ..Load::default()
            };
            e.load(buffer, load)?;
        }
        self.lanes(e, prologue, 0, work, base)
    }

    /// The DRAM tile of a work's first position in an output block.
    fn output_tile(&self, co: usize, work: &Work) -> u32 {
        let [oh, ow] = self.shape.output;
        ((co * oh + work.rows.start) * ow + work.cols.start) as u32
    }

    /// Loads what the chunk needs and the halves don't hold yet.
    fn load_chunk(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        progress: &mut Progress,
    ) -> Result<(), LowerError> {
        let begin = e.len();
        let input = (chunk.clone(), work.rows.clone(), work.cols.clone());
        if progress.loaded_input.as_ref() != Some(&input) {
            let half = progress.inputs % self.tile.halves * self.inp_half;
            self.load_input(e, chunk, half)?;
            progress.loaded_input = Some(input);
            progress.inputs += 1;
        }
        let weights = (work.co.clone(), chunk.ci.clone(), chunk.kernel_rows.clone());
        if progress.loaded_weights.as_ref() != Some(&weights) {
            let half = progress.weights % self.tile.halves * self.wgt_half;
            self.load_weights(e, work, chunk, half)?;
            progress.loaded_weights = Some(weights);
            progress.weights += 1;
        }
        if e.len() == begin {
            e.sync(Module::Load, vta_isa::Deps::NONE)?;
        }
        if progress.chunks >= self.tile.halves
            && let Some(deps) = e.first_since(begin, Module::Load)
        {
            deps.pop_next = true;
        }
        if let Some(deps) = e.last_of(Module::Load) {
            deps.push_next = true;
        }
        Ok(())
    }

    fn load_input(
        &self,
        e: &mut Emitter<'_, '_>,
        chunk: &Chunk,
        half: usize,
    ) -> Result<(), LowerError> {
        let [h, w] = self.shape.input;
        let (rows, cols) = (&chunk.rows, &chunk.cols);
        let area = rows.total() * cols.total();
        for (i, ci) in chunk.ci.clone().enumerate() {
            let load = Load {
                mem: MemType::Inp,
                sram_base: (half + i * area) as u16,
                dram_base: ((ci * h + rows.first) * w + cols.first) as u32,
                y_size: rows.len as u16,
                x_size: cols.len as u16,
                x_stride: w as u16,
                y_pad_0: rows.before as u8,
                y_pad_1: rows.after as u8,
                x_pad_0: cols.before as u8,
                x_pad_1: cols.after as u8,
                ..Load::default()
            };
            e.load(self.input, load)?;
        }
        Ok(())
    }

    fn load_weights(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        half: usize,
    ) -> Result<(), LowerError> {
        let [kh, kw] = self.shape.kernel;
        let row = self.shape.ci * kh * kw;
        let first = work.co.start * row + chunk.ci.start * kh * kw + chunk.kernel_rows.start * kw;
        let load = Load {
            mem: MemType::Wgt,
            sram_base: half as u16,
            dram_base: first as u32,
            y_size: work.co.len() as u16,
            x_size: (chunk.ci.len() * chunk.kernel_rows.len() * kw) as u16,
            x_stride: row as u16,
            ..Load::default()
        };
        e.load(self.weights, load)
    }

    fn multiply(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        chunk: &Chunk,
        base: usize,
        progress: &Progress,
    ) -> Result<(), LowerError> {
        let kw = self.shape.kernel[1];
        let [dh, dw] = self.shape.dilation;
        let area = work.rows.len() * work.cols.len();
        let (height, width) = (chunk.rows.total(), chunk.cols.total());
        // The halves loaded last.
        let inp = (progress.inputs + 1) % self.tile.halves * self.inp_half;
        let wgt = (progress.weights + 1) % self.tile.halves * self.wgt_half;
        let taps = chunk.kernel_rows.len();
        let mut uops = Vec::with_capacity(work.co.len() * chunk.ci.len() * taps * kw);
        for co in 0..work.co.len() {
            for ci in 0..chunk.ci.len() {
                for y in 0..taps {
                    for x in 0..kw {
                        let src = inp + (ci * height + y * dh) * width + x * dw;
                        let tile = wgt + ((co * chunk.ci.len() + ci) * taps + y) * kw + x;
                        let dst = base + co * area;
                        uops.push(Uop {
                            dst: dst as u16,
                            src: src as u16,
                            wgt: tile as u16,
                        });
                    }
                }
            }
        }
        // A factor of a loop with one trip is never used.
        let row = if work.rows.len() > 1 {
            self.shape.stride[0] * width
        } else {
            0
        };
        let loops = Loops {
            iter: [work.rows.len(), work.cols.len()],
            dst: [work.cols.len(), 1],
            src: [row, self.shape.stride[1]],
        };
        e.gemm(false, uops, loops)
    }

    /// Lane operations on a whole tile; the first vector is the `vectors`-th of the layer.
    fn lanes(
        &self,
        e: &mut Emitter<'_, '_>,
        ops: &[LaneOp],
        vectors: usize,
        work: &Work,
        base: usize,
    ) -> Result<(), LowerError> {
        let area = work.rows.len() * work.cols.len();
        let mut next = vectors;
        for op in ops {
            if let Some((op, imm)) = immediate(op) {
                e.immediate(
                    op,
                    imm,
                    base,
                    [1, work.co.len() * area],
                    work.co.len() * area,
                )?;
            } else if let Some((op, _)) = vector(op) {
                self.vector_op(e, op, next, work, base)?;
                next += 1;
            }
        }
        Ok(())
    }

    fn vector_op(
        &self,
        e: &mut Emitter<'_, '_>,
        op: AluOp,
        index: usize,
        work: &Work,
        base: usize,
    ) -> Result<(), LowerError> {
        let (area, blocks) = (work.rows.len() * work.cols.len(), work.co.len());
        let uop = |co: usize| Uop {
            dst: (base + co * area) as u16,
            src: (self.vector_base + index * blocks + co) as u16,
            wgt: 0,
        };
        let loops = Loops {
            iter: [1, area],
            dst: [0, 1],
            src: [0, 0],
        };
        e.alu(op, AluOperand::Acc, (0..blocks).map(uop).collect(), loops)
    }

    fn store(
        &self,
        e: &mut Emitter<'_, '_>,
        work: &Work,
        base: usize,
        awaited: bool,
    ) -> Result<(), LowerError> {
        let begin = e.len();
        let (rows, cols) = (work.rows.len(), work.cols.len());
        for (i, co) in work.co.clone().enumerate() {
            let store = Store {
                sram_base: (base + i * rows * cols) as u16,
                dram_base: self.output_tile(co, work),
                y_size: rows as u16,
                x_size: cols as u16,
                x_stride: self.shape.output[1] as u16,
                ..Store::default()
            };
            e.store(self.output, store)?;
        }
        if let Some(deps) = e.first_since(begin, Module::Store) {
            deps.pop_prev = true;
        }
        if let Some(deps) = e.last_of(Module::Store) {
            deps.push_prev = awaited;
        }
        Ok(())
    }
}

fn count_vectors(ops: &[LaneOp]) -> usize {
    ops.iter().filter(|op| vector(op).is_some()).count()
}
