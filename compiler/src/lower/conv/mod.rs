//! Convolutions and dense layers: what a layer needs, planned before anything is emitted.
//!
//! A bias with rounding constants is one more GEMM step for each output tile where it can be: a
//! constant input tile times weight tiles that hold the bias in digits (`pack`), both resident
//! for the whole layer at the ends of their scratchpads; a large bias takes two. A two-operand
//! addition takes two as well, and a vector in the accumulators.
//! A residual is added by the matrix unit too where that is cheaper (`division`).
//! A max pool that alone reads the convolution joins it (`join`).

mod choice;
mod division;
mod emit;
mod entry;
mod geometry;
mod join;
mod layer;
mod loads;
mod multiply;
mod pack;
mod parts;
mod pool;
mod region;
mod residual;
mod work;

use vta_isa::{Extension, MemType};
use vta_program::listing::Form;
use vta_program::{GemmSteps, Layer};

use super::emit::{Emitter, count_vectors};
use super::readers::Readers;
use super::tile::{ConvShape, ConvTile};
use super::{LowerError, Lowering};
use crate::qgraph::window::Pads;
use crate::qgraph::{NodeId, QGraph, QOp};
use choice::Choice;
pub(super) use pack::vectors as pack_vectors;
use parts::Parts;

/// Whether the node is a convolution that the max pool behind it joins.
pub(super) fn takes_pool(graph: &QGraph, readers: &Readers, id: NodeId) -> bool {
    join::fusable(graph, readers, id).is_some()
}

impl<'a> Lowering<'a> {
    /// The shape and the tile of a convolution; `None` for another node.
    pub(super) fn conv_tile(
        &self,
        id: NodeId,
    ) -> Result<Option<(ConvShape, ConvTile)>, LowerError> {
        let planned = self.plan_conv(id)?;
        Ok(planned.map(|(_, choice)| (choice.shape, choice.tile)))
    }

    /// Emits the layer of a convolution; the number of nodes that it covers (2 with a pool).
    pub(super) fn conv(&mut self, id: NodeId) -> Result<usize, LowerError> {
        let node = &self.graph.nodes[id.0];
        let planned = self.plan_conv(id)?;
        let no_conv = || self.internal(id, "it is no convolution");
        let (parts, choice) = planned.ok_or_else(no_conv)?;
        let [co, oh, ow] = self.graph.tensors[node.output.0].chw;
        let count = parts.weight_count([self.graph.tensors[parts.input.0].chw[0], co]);
        let mut layer = Layer {
            macs: (co * oh * ow) as u64 * (count / co.max(1)) as u64,
            steps: choice.steps(),
            ..self.layer(id)
        };
        if let Some(pool) = &parts.pool {
            layer.name = format!("{}+{}", node.name, self.graph.nodes[pool.node.0].name);
            layer.output = pool.output.0 as u32;
            layer.nodes.push(self.graph.describe_node(pool.node));
        }
        let conv = self.prepare(&parts, choice);
        self.form = Some(Form::Conv(conv.geometry(&parts)));
        layer.steps.products += conv.further_products();
        let mut emitter = Emitter::new(self, &node.name);
        conv.emit(&mut emitter)?;
        emitter.finish(layer)?;
        Ok(1 + usize::from(parts.pool.is_some()))
    }

    /// What a convolution does and how, with the pool that joins it where a tile holds both;
    /// `None` for another node.
    fn plan_conv(&self, id: NodeId) -> Result<Option<(Parts<'a>, Choice)>, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let QOp::Conv(conv) = &node.op else {
            return Ok(None);
        };
        let residual = conv.residual.as_ref();
        let parts = Parts {
            name: &node.name,
            input: conv.input,
            output: node.output,
            window: &conv.window,
            weights: &conv.weights,
            ones: false,
            group: conv.group,
            residual: residual.map(|(id, ops)| (*id, &ops[..])),
            epilogue: &conv.epilogue,
            regions: Vec::new(),
            pool: join::fusable(graph, &self.readers, id),
        };
        self.check_conv(&parts)?;
        let parts = self.divide(parts);
        match self.choose(&parts) {
            Err(error) if error.is_no_tile() && parts.pool.is_some() => {
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
    pub(super) fn average(&mut self, id: NodeId) -> Result<bool, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
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
        let whole = window.area();
        let one_divisor = *count_include_pad || window.pads == Pads::NONE;
        let mut divisors = ops_by_count.iter().filter(|_| one_divisor);
        let Some((_, ops)) = divisors.find(|(count, _)| *count == whole) else {
            return Ok(false);
        };
        if count_vectors(ops) > 0 || self.multiplies(ops) {
            return Ok(false);
        }
        let parts = Parts {
            name: &node.name,
            input: *input,
            output: node.output,
            window,
            weights: &[],
            ones: true,
            group: graph.tensors[input.0].chw[0],
            residual: None,
            epilogue: ops,
            regions: Vec::new(),
            pool: None,
        };
        self.check_conv(&parts)?;
        if graph.tensors[node.output.0].chw[0] != parts.group {
            return Err(self.inconsistent(id, "its channels differ"));
        }
        let choice = match self.choice(&parts, None, None) {
            Err(error) if error.is_no_tile() => return Ok(false),
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
            ..self.layer(id)
        };
        let conv = self.prepare(&parts, choice);
        let mut emitter = Emitter::new(self, &node.name);
        conv.emit(&mut emitter)?;
        emitter.finish(layer)?;
        Ok(true)
    }
}
