//! Convolutions and dense layers: what a layer needs, planned before anything is emitted.
//!
//! A bias with rounding constants is one more GEMM step for each output tile where it can be: a
//! constant input tile times weight tiles that hold the bias in digits (`pack`), both resident
//! for the whole layer at the ends of their scratchpads; a large bias takes two. A two-operand
//! addition takes two as well, and a vector in the accumulators.
//! A residual is added by the matrix unit too where that is cheaper (`residual`).
//! A max pool that alone reads the convolution joins it (`pool`).

mod emit;
mod entry;
mod multiply;
mod pack;
mod pool;
mod residual;
mod work;

use vta_driver::{BufferId, GemmSteps, Layer, Packing};
use vta_isa::{Extension, MemType};

use super::emit::{Emitter, vector};
use super::groups::Groups;
use super::readers::Readers;
use super::tile::{self, ConvShape, ConvTile, ResidualForm};
use super::{LowerError, Lowering};
use crate::qgraph::{LaneOp, QGraph, QOp, TensorId, Window};
use pack::Digits;
use pool::Pooling;
use residual::Product;
use work::Work;

/// What to do about sums that are multiplied.
const SHIFT: &str = ": `vta quantize --mode shift` makes a model that needs shifts only, and \
                     `zoo:NAME:shift` are such networks";

/// A residual that only a load into the accumulators can bring.
fn lacks_residual(parts: &Parts<'_>) -> LowerError {
    LowerError::Lacks {
        node: parts.name.to_owned(),
        reason: "its residual has a factor or a tile that the matrix unit can't add".to_owned(),
        extension: Extension::Acc8,
        hint: "",
    }
}

/// One convolution with everything that its tiles need.
struct Conv<'g> {
    shape: ConvShape,
    tile: ConvTile,
    input: BufferId,
    weights: BufferId,
    bias: Option<Bias>,
    vectors: Option<BufferId>,
    residual: Option<Residual<'g>>,
    /// The epilogue, after a bias that the matrix unit adds and without what comes before a
    /// residual that it adds.
    epilogue: Vec<LaneOp>,
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

/// A residual.
enum Residual<'g> {
    /// Loaded as the start of the sums, then aligned.
    Start(BufferId, &'g [LaneOp]),
    /// Added by the matrix unit.
    Product(Product),
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
    /// A sum over windows, without weights of its own.
    ones: bool,
    /// A dense layer of the network.
    dense: bool,
    group: usize,
    residual: Option<(TensorId, &'g [LaneOp])>,
    epilogue: &'g [LaneOp],
    pool: Option<Pooling<'g>>,
}

impl<'g> Parts<'g> {
    fn prologue(&self) -> &'g [LaneOp] {
        self.residual.map_or(&[], |(_, ops)| ops)
    }
}

/// What was decided for a convolution: its tile, the digits of its bias if the matrix unit adds
/// it, likewise the plan of a residual, and the other lane operations.
struct Choice {
    cost: u64,
    shape: ConvShape,
    tile: ConvTile,
    digits: Option<Digits>,
    product: Option<residual::Plan>,
    epilogue: Vec<LaneOp>,
}

impl Choice {
    fn steps(&self) -> GemmSteps {
        let outputs = (self.shape.co * self.shape.output[0] * self.shape.output[1]) as u64;
        let kept = outputs / self.shape.phases() as u64;
        let residual = self.product.as_ref().map_or(0, residual::Plan::steps);
        GemmSteps {
            dense: self.shape.dense_products(),
            products: self.shape.products(),
            bias: kept * self.shape.bias as u64,
            residual: outputs * residual as u64,
        }
    }
}

/// Whether the node is a convolution that the max pool behind it joins.
pub(super) fn takes_pool(graph: &QGraph, readers: &Readers, index: usize) -> bool {
    pool::fusable(graph, readers, index).is_some()
}

impl<'a> Lowering<'a> {
    /// The shape and the tile of a convolution; `None` for another node.
    pub(super) fn conv_tile(
        &self,
        index: usize,
    ) -> Result<Option<(ConvShape, ConvTile)>, LowerError> {
        let planned = self.plan_conv(index)?;
        Ok(planned.map(|(_, choice)| (choice.shape, choice.tile)))
    }

    /// Emits the layer of a convolution; the number of nodes that it covers (2 with a pool).
    pub(super) fn conv(&mut self, index: usize) -> Result<usize, LowerError> {
        let node = &self.graph.nodes[index];
        let Some((parts, choice)) = self.plan_conv(index)? else {
            return Ok(1);
        };
        let [co, oh, ow] = self.graph.tensors[node.output.0].chw;
        let output = parts.pool.map_or(node.output, |p| p.output);
        let pooled = parts.pool.map(|p| format!("{}+{}", node.name, p.name));
        let layer = Layer {
            name: pooled.unwrap_or_else(|| node.name.clone()),
            kind: if parts.dense { "dense" } else { "conv" }.to_owned(),
            macs: (co * oh * ow) as u64 * (parts.weights.len() / co.max(1)) as u64,
            steps: choice.steps(),
            output: output.0 as u32,
            ..Layer::default()
        };
        let conv = self.prepare(&parts, choice);
        let mut emitter = Emitter::new(self, &node.name);
        conv.emit(&mut emitter)?;
        emitter.finish(layer)?;
        Ok(1 + usize::from(parts.pool.is_some()))
    }

    /// What a convolution does and how, with the pool that joins it where a tile holds both;
    /// `None` for another node.
    fn plan_conv(&self, index: usize) -> Result<Option<(Parts<'a>, Choice)>, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[index];
        let QOp::Conv {
            input,
            window,
            weights,
            residual,
            epilogue,
            dense,
            group,
        } = &node.op
        else {
            return Ok(None);
        };
        let parts = Parts {
            name: &node.name,
            input: *input,
            output: node.output,
            window,
            weights,
            ones: false,
            dense: *dense,
            group: *group,
            residual: residual.as_ref().map(|(id, ops)| (*id, &ops[..])),
            epilogue,
            pool: pool::fusable(graph, &self.readers, index),
        };
        self.check(&parts)?;
        match self.choose(&parts) {
            Err(LowerError::NoTile { .. }) if parts.pool.is_some() => {
                let parts = Parts {
                    pool: None,
                    ..parts
                };
                let choice = self.choose(&parts)?;
                Ok(Some((parts, choice)))
            }
            choice => Ok(Some((parts, choice?))),
        }
    }

    /// Emits an average pool whose windows all have one divisor as a sum by the matrix unit, with
    /// ones as weights: a step a tap, where loading it into the accumulators and adding it there
    /// takes the compute module four cycles. Whether it did: an input that the scratchpad holds
    /// at once is loaded before anything is added, and the ALU's way leaves the bus to the weights
    /// of the layer after, which is as good.
    pub(super) fn average(&mut self, index: usize) -> Result<bool, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[index];
        let QOp::AvgPool {
            input,
            window,
            count_include_pad,
            ops_by_count,
        } = &node.op
        else {
            return Ok(false);
        };
        let tiles: usize = self.tile_chw(*input).iter().product();
        if self.has(Extension::Acc8) && tiles <= self.config.depth(MemType::Inp) {
            return Ok(false);
        }
        let whole = window.kernel[0] * window.kernel[1];
        let one_divisor = *count_include_pad || window.pads == [0; 4];
        let mut divisors = ops_by_count.iter().filter(|_| one_divisor);
        let Some((_, ops)) = divisors.find(|(count, _)| *count == whole) else {
            return Ok(false);
        };
        if ops.iter().any(|op| vector(op).is_some()) || self.multiplies(ops) {
            return Ok(false);
        }
        let parts = Parts {
            name: &node.name,
            input: *input,
            output: node.output,
            window,
            weights: &[],
            ones: true,
            dense: false,
            group: graph.tensors[input.0].chw[0],
            residual: None,
            epilogue: ops,
            pool: None,
        };
        self.check(&parts)?;
        if graph.tensors[node.output.0].chw[0] != parts.group {
            return Err(self.inconsistent(index, "its channels differ"));
        }
        let choice = match self.choice(&parts, None, None) {
            Err(LowerError::NoTile { .. }) => return Ok(false),
            choice => choice?,
        };
        let works = work::works(&choice.shape, &choice.tile);
        if works.iter().any(|w| w.chunks.is_empty()) {
            return Ok(false);
        }
        let layer = Layer {
            // It is no product of the network's mathematics.
            steps: GemmSteps {
                dense: 0,
                ..choice.steps()
            },
            ..self.layer(index)
        };
        let conv = self.prepare(&parts, choice);
        let mut emitter = Emitter::new(self, &node.name);
        conv.emit(&mut emitter)?;
        emitter.finish(layer)?;
        Ok(true)
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
        let group = parts.group;
        if group == 0 || !ci.is_multiple_of(group) || !out[0].is_multiple_of(group) {
            return Err(inconsistent("its channels don't divide into its groups"));
        }
        let taps = ci / group * parts.window.kernel[0] * parts.window.kernel[1];
        if !parts.ones && parts.weights.len() != out[0] * taps {
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

    /// The cheapest form and tile: the matrix unit may add the bias if its digits reach it, and a
    /// residual. Every output tile must have products then: their tokens tell when the constants
    /// are there and when a residual's place is free.
    fn choose(&self, parts: &Parts<'_>) -> Result<Choice, LowerError> {
        let digits = match parts.epilogue.first() {
            Some(LaneOp::AddVec(bias)) => {
                let blocks = bias.len().div_ceil(self.config.block());
                pack::bias_weights(bias, blocks, self.config.block())
            }
            _ => None,
        };
        let starts = parts.residual.is_none() || self.has(Extension::Acc8);
        let when = match starts {
            true => residual::When::Cheap,
            false => residual::When::Always,
        };
        let plain = match starts {
            true => self.choice(parts, None, None),
            false => Err(lacks_residual(parts)),
        };
        let mut best = None;
        for (bias, residual) in [(true, true), (true, false), (false, true)] {
            if !(starts || residual) {
                continue;
            }
            let digits = digits.clone().filter(|_| bias);
            let epilogue = &parts.epilogue[usize::from(digits.is_some())..];
            let product = parts.residual.filter(|_| residual);
            let product = product.and_then(|(_, ops)| residual::plan(ops, epilogue, when));
            if digits.is_some() != bias || product.is_some() != residual {
                continue;
            }
            let Ok(choice) = self.choice(parts, digits, product) else {
                continue;
            };
            let worth = |than: &Choice| choice.cost < than.cost;
            let works = || work::works(&choice.shape, &choice.tile);
            if plain.as_ref().map_or(true, worth)
                && best.as_ref().is_none_or(worth)
                && works().iter().all(|w| !w.chunks.is_empty())
            {
                best = Some(choice);
            }
        }
        best.map_or(plain, Ok)
    }

    /// Whether the machine has an extension.
    pub(super) fn has(&self, extension: Extension) -> bool {
        self.config.extensions().contains(extension)
    }

    /// Whether the machine has no operation for a factor among the operations.
    pub(super) fn multiplies(&self, ops: &[LaneOp]) -> bool {
        let factor = |op: &LaneOp| matches!(op, LaneOp::MulImm(_) | LaneOp::MulVec(_));
        !self.has(Extension::Mul) && ops.iter().any(factor)
    }

    /// Whether the machine has what the lane operations of a convolution's sums need.
    fn check_lanes<'o>(
        &self,
        parts: &Parts<'_>,
        ops: impl Iterator<Item = &'o LaneOp>,
    ) -> Result<(), LowerError> {
        let lacks = |reason: String, extension, hint| {
            Err(LowerError::Lacks {
                node: parts.name.to_owned(),
                reason,
                extension,
                hint,
            })
        };
        for op in ops {
            match op {
                LaneOp::MulImm(_) | LaneOp::MulVec(_) if !self.has(Extension::Mul) => {
                    return lacks("its sums are multiplied".to_owned(), Extension::Mul, SHIFT);
                }
                // By a register the original RTL shifts to the right only.
                LaneOp::ShrVec(v) if !self.has(Extension::Shl) => {
                    if let Some(n) = v.iter().find(|n| **n < 0) {
                        let reason = format!("a channel's sums are shifted left by {}", -n);
                        return lacks(reason, Extension::Shl, "");
                    }
                }
                LaneOp::MulImm(_)
                | LaneOp::MulVec(_)
                | LaneOp::ShrVec(_)
                | LaneOp::AddVec(_)
                | LaneOp::AddImm(_)
                | LaneOp::ShrImm(_)
                | LaneOp::ShlImm(_)
                | LaneOp::MinImm(_)
                | LaneOp::MaxImm(_)
                | LaneOp::MinVec(_)
                | LaneOp::MaxVec(_) => {}
            }
        }
        Ok(())
    }

    /// The cheapest tile of one form.
    fn choice(
        &self,
        parts: &Parts<'_>,
        digits: Option<Digits>,
        product: Option<residual::Plan>,
    ) -> Result<Choice, LowerError> {
        let epilogue = match &product {
            Some(plan) => plan.after.clone(),
            None => parts.epilogue[usize::from(digits.is_some())..].to_vec(),
        };
        let before = match &product {
            Some(plan) => &plan.before[..],
            None => parts.prologue(),
        };
        self.check_lanes(parts, before.iter().chain(&epilogue))?;
        let shape = self.conv_shape(
            parts,
            digits.as_ref().map_or(0, |d| d.steps),
            product.as_ref(),
            &epilogue,
        );
        let known = self.tiles.get(&shape);
        let known =
            known.and_then(|tile| Some((tile::appraise(&shape, self.config, tile)?, *tile)));
        let searched = || {
            tile::search(&shape, self.config).map_err(|reason| LowerError::NoTile {
                node: parts.name.to_owned(),
                reason,
            })
        };
        let (cost, tile) = known.map_or_else(searched, Ok)?;
        Ok(Choice {
            cost,
            shape,
            tile,
            digits,
            product,
            epilogue,
        })
    }

    /// The convolution in blocks; gathered patches make it a 1x1 convolution.
    fn conv_shape(
        &self,
        parts: &Parts<'_>,
        bias: usize,
        product: Option<&residual::Plan>,
        epilogue: &[LaneOp],
    ) -> ConvShape {
        let ([ci, h, w], [co, oh, ow]) = (self.tile_chw(parts.input), self.tile_chw(parts.output));
        let window = parts.window;
        let (residual, prologue) = match product {
            Some(plan) => (
                ResidualForm::Product {
                    weights: plan.tiles(co),
                },
                &plan.before[..],
            ),
            None if parts.residual.is_some() => (ResidualForm::Load, parts.prologue()),
            None => (ResidualForm::None, &[][..]),
        };
        let ops = || prologue.iter().chain(epilogue);
        let vectors = ops().filter(|op| vector(op).is_some()).count();
        let products = bias + product.map_or(0, residual::Plan::steps);
        let channels = |id: TensorId| self.graph.tensors[id.0].chw[0];
        let channels = [parts.output, parts.input].map(channels);
        let groups = Groups::new(parts.group, channels, self.config.block());
        let base = ConvShape {
            ci: groups.map_or(ci, |g| g.span()),
            co,
            input: [h, w],
            output: [oh, ow],
            kernel: window.kernel,
            stride: window.stride,
            dilation: window.dilation,
            pads: window.pads,
            alu_steps: ops().count() + vectors + products,
            vectors,
            residual,
            bias,
            pool: parts.pool.map(|p| p.window.stride),
            groups,
            ones: parts.ones,
        };
        let spec = &self.program.tensors[parts.input.0];
        match spec.packing {
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
        }
    }

    /// Packs the constants and divides the scratchpads.
    fn prepare<'g>(&mut self, parts: &Parts<'g>, choice: Choice) -> Conv<'g> {
        let Choice {
            cost: _,
            shape,
            tile,
            digits,
            product,
            epilogue,
        } = choice;
        let (block, batch) = (self.config.block(), self.config.batch());
        let depth = |mem: MemType| self.config.depth(mem);
        let sums = tile.co * tile.output[0] * tile.output[1];
        let (inp, wgt) = shape.streamed(self.config, sums);
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
            digits: self.constant(format!("{}.bias", parts.name), digits.tiles),
            inp: depth(MemType::Inp) - 1,
            wgt: depth(MemType::Wgt) - shape.bias * shape.co,
        });
        let prologue = match &product {
            Some(plan) => &plan.before[..],
            None => parts.prologue(),
        };
        let ops = prologue.iter().chain(&epilogue);
        let lists: Vec<&[i32]> = ops.filter_map(vector).map(|(_, v)| v).collect();
        let vectors = (!lists.is_empty()).then(|| {
            let bytes = pack::vectors(&lists, shape.co, batch, block);
            self.constant(format!("{}.vectors", parts.name), bytes)
        });
        let residual = parts.residual.map(|(id, ops)| {
            let input = BufferId(id.0 as u32);
            let Some(plan) = product else {
                return Residual::Start(input, ops);
            };
            let packed = plan.pack(shape.co, block);
            Residual::Product(Product {
                input,
                diagonals: self.constant(format!("{}.diagonals", parts.name), packed),
                inp,
                wgt,
                plan,
            })
        });
        let output = parts.pool.map_or(parts.output, |p| p.output);
        let [_, oh, ow] = self.tile_chw(output);
        Conv {
            input: BufferId(parts.input.0 as u32),
            weights,
            bias,
            vectors,
            residual,
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
