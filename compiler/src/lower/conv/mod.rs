//! Convolutions and dense layers: what a layer needs, planned before anything is emitted.
//!
//! A bias with rounding constants is one more GEMM step for each output tile where it can be: a
//! constant input tile times weight tiles that hold the bias in digits (`pack`), both resident
//! for the whole layer at the ends of their scratchpads. A two-operand addition would take two.
//! A max pool that alone reads the convolution joins it (`pool`).

mod emit;
mod pack;
mod pool;
mod work;

use vta_driver::{BufferId, Layer, Packing};
use vta_isa::MemType;

use super::emit::{Emitter, vector};
use super::tile::{self, ConvShape, ConvTile};
use super::{LowerError, Lowering};
use crate::qgraph::{LaneOp, QOp, TensorId, Window};
use pool::Pooling;
use work::Work;

/// One convolution with everything that its tiles need.
struct Conv<'g> {
    shape: ConvShape,
    tile: ConvTile,
    input: BufferId,
    weights: BufferId,
    bias: Option<Bias>,
    vectors: Option<BufferId>,
    residual: Option<(BufferId, &'g [LaneOp])>,
    /// What is left of it after the bias.
    epilogue: &'g [LaneOp],
    pool: Option<&'g Window>,
    output: BufferId,
    /// Output rows and columns in memory.
    out_size: [usize; 2],
    /// Where a part of each scratchpad starts, in tiles.
    inp_half: usize,
    wgt_half: usize,
    acc_half: usize,
    /// First accumulator tile of the vectors.
    vector_base: usize,
}

/// The constants of a bias that the matrix unit adds.
struct Bias {
    input: BufferId,
    digits: BufferId,
    /// The scratchpad tile of the constant input.
    inp: usize,
    /// The scratchpad tile of the first block's digits.
    wgt: usize,
}

/// Where a tile's sums lie: for each block the first `kept` of every `pitch` tiles from `base`.
#[derive(Clone, Copy)]
struct Acc {
    base: usize,
    pitch: usize,
    kept: usize,
}

/// The parts of a convolution node.
struct Parts<'g> {
    name: &'g str,
    input: TensorId,
    output: TensorId,
    window: &'g Window,
    weights: &'g [i8],
    residual: Option<(TensorId, &'g [LaneOp])>,
    epilogue: &'g [LaneOp],
    pool: Option<Pooling<'g>>,
}

impl<'g> Parts<'g> {
    fn prologue(&self) -> &'g [LaneOp] {
        self.residual.map_or(&[], |(_, ops)| ops)
    }
}

/// What was decided for a convolution: its tile, and the digits of its bias if the matrix unit
/// adds it.
struct Choice {
    shape: ConvShape,
    tile: ConvTile,
    digits: Option<Vec<u8>>,
}

impl<'a> Lowering<'a> {
    /// Emits the layer of a convolution; the number of nodes that it covers (2 with a pool).
    pub(super) fn conv(&mut self, index: usize) -> Result<usize, LowerError> {
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
            return Ok(1);
        };
        let parts = Parts {
            name: &node.name,
            input: *input,
            output: node.output,
            window,
            weights,
            residual: residual.as_ref().map(|(id, ops)| (*id, &ops[..])),
            epilogue,
            pool: pool::fusable(graph, index),
        };
        self.check(&parts)?;
        let (parts, choice) = match self.choose(&parts) {
            Err(LowerError::NoTile { .. }) if parts.pool.is_some() => {
                let parts = Parts {
                    pool: None,
                    ..parts
                };
                let choice = self.choose(&parts)?;
                (parts, choice)
            }
            choice => (parts, choice?),
        };
        let [co, oh, ow] = graph.tensors[node.output.0].chw;
        let output = parts.pool.map_or(node.output, |p| p.output);
        let pooled = parts.pool.map(|p| format!("{}+{}", node.name, p.name));
        let layer = Layer {
            name: pooled.unwrap_or_else(|| node.name.clone()),
            kind: if *dense { "dense" } else { "conv" }.to_owned(),
            macs: (co * oh * ow) as u64 * (weights.len() / co.max(1)) as u64,
            output: output.0 as u32,
            ..Layer::default()
        };
        let conv = self.prepare(&parts, choice);
        let mut emitter = Emitter::new(self, &node.name);
        conv.emit(&mut emitter)?;
        emitter.finish(layer)?;
        Ok(1 + usize::from(parts.pool.is_some()))
    }

    /// Sizes that must agree.
    fn check(&self, parts: &Parts<'_>) -> Result<(), LowerError> {
        let inconsistent = |reason: &str| LowerError::Inconsistent {
            node: parts.name.to_owned(),
            reason: reason.to_owned(),
        };
        let out = self.graph.tensors[parts.output.0].chw;
        let [ci, h, w] = self.graph.tensors[parts.input.0].chw;
        if parts.window.output(h, w) != Some([out[1], out[2]]) {
            return Err(inconsistent("the window doesn't fit"));
        }
        let taps = ci * parts.window.kernel[0] * parts.window.kernel[1];
        if parts.weights.len() != out[0] * taps {
            return Err(inconsistent("the weights have another size"));
        }
        if let Some((id, _)) = parts.residual
            && self.graph.tensors[id.0].chw != out
        {
            return Err(inconsistent("the residual has another shape"));
        }
        let mut ops = parts.prologue().iter().chain(parts.epilogue);
        if ops.any(|op| vector(op).is_some_and(|(_, v)| v.len() != out[0])) {
            return Err(inconsistent("a lane vector has another length"));
        }
        Ok(())
    }

    /// The cheapest tile; the bias goes to the matrix unit if its digits reach it, if there is
    /// room, and if every output tile has a product at all.
    fn choose(&self, parts: &Parts<'_>) -> Result<Choice, LowerError> {
        let digits = match parts.epilogue.first() {
            Some(LaneOp::AddVec(bias)) => {
                let blocks = bias.len().div_ceil(self.config.block());
                pack::bias_weights(bias, blocks, self.config.block())
            }
            _ => None,
        };
        if digits.is_some() {
            let shape = self.conv_shape(parts, true)?;
            if let Ok(tile) = tile::search(&shape, self.config)
                && work::works(&shape, &tile)
                    .iter()
                    .all(|w| !w.chunks.is_empty())
            {
                return Ok(Choice {
                    shape,
                    tile,
                    digits,
                });
            }
        }
        let shape = self.conv_shape(parts, false)?;
        let tile = tile::search(&shape, self.config).map_err(|reason| LowerError::NoTile {
            node: parts.name.to_owned(),
            reason,
        })?;
        Ok(Choice {
            shape,
            tile,
            digits: None,
        })
    }

    /// The convolution in blocks; gathered patches make it a 1x1 convolution.
    fn conv_shape(&self, parts: &Parts<'_>, bias: bool) -> Result<ConvShape, LowerError> {
        let ([ci, h, w], [co, oh, ow]) = (self.tile_chw(parts.input), self.tile_chw(parts.output));
        let window = parts.window;
        let epilogue = &parts.epilogue[usize::from(bias)..];
        let ops = || parts.prologue().iter().chain(epilogue);
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
            alu_steps: ops().count() + vectors + usize::from(bias),
            vectors,
            residual: parts.residual.is_some(),
            bias,
            pool: parts.pool.map(|p| p.window.stride),
        };
        let spec = &self.program.tensors[parts.input.0];
        Ok(match spec.packing {
            Packing::Tiles => base,
            Packing::Im2col { .. } => ConvShape {
                ci: spec.packed_dims(self.config).map_or(0, |d| d.0),
                input: [oh, ow],
                kernel: [1, 1],
                stride: [1, 1],
                dilation: [1, 1],
                pads: [0; 4],
                ..base
            },
        })
    }

    /// Packs the constants and divides the scratchpads.
    fn prepare<'g>(&mut self, parts: &Parts<'g>, choice: Choice) -> Conv<'g> {
        let Choice {
            shape,
            tile,
            digits,
        } = choice;
        let (block, batch) = (self.config.block(), self.config.batch());
        let depth = |mem: MemType| self.config.depth(mem);
        let (inp, wgt) = shape.streamed(self.config);
        let vector_base = depth(MemType::Acc) - shape.vectors * tile.co;
        let channels = self.graph.tensors[parts.output.0].chw[0];
        let taps = parts.weights.len() / channels.max(1);
        let packed = pack::weights(parts.weights, [channels, taps], &shape, block);
        let weights = self.constant(format!("{}.weights", parts.name), packed);
        let bias = digits.map(|digits| Bias {
            input: self.constant(
                format!("{}.bias input", parts.name),
                pack::bias_input(batch, block),
            ),
            digits: self.constant(format!("{}.bias", parts.name), digits),
            inp,
            wgt,
        });
        let epilogue = &parts.epilogue[usize::from(bias.is_some())..];
        let ops = parts.prologue().iter().chain(epilogue);
        let lists: Vec<&[i32]> = ops.filter_map(vector).map(|(_, v)| v).collect();
        let vectors = (!lists.is_empty()).then(|| {
            let bytes = pack::vectors(&lists, shape.co, batch, block);
            self.constant(format!("{}.vectors", parts.name), bytes)
        });
        let output = parts.pool.map_or(parts.output, |p| p.output);
        let [_, oh, ow] = self.tile_chw(output);
        Conv {
            input: BufferId(parts.input.0 as u32),
            weights,
            bias,
            vectors,
            residual: parts.residual.map(|(id, ops)| (BufferId(id.0 as u32), ops)),
            epilogue,
            pool: parts.pool.map(|p| p.window),
            output: BufferId(output.0 as u32),
            out_size: [oh, ow],
            inp_half: inp / tile.halves,
            wgt_half: wgt / tile.halves,
            acc_half: vector_base / tile.acc_halves,
            vector_base,
            shape,
            tile,
        }
    }
}
