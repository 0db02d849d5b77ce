//! Convolutions and dense layers: what a layer needs, planned before anything is emitted.
//!
//! A bias with rounding constants is one more GEMM step for each output tile where it can be: a
//! constant input tile times weight tiles that hold the bias in digits (`pack`), both resident
//! for the whole layer at the ends of their scratchpads; a large bias takes two. A two-operand
//! addition takes two as well, and a vector in the accumulators.
//! A residual is added by the matrix unit too where that is cheaper (`division`).
//! A max pool that alone reads the convolution joins it (`join`), and a depthwise convolution may take
//! turns with it (`turns`).

mod choice;
mod division;
mod emit;
mod entry;
mod join;
mod layer;
mod loads;
mod multiply;
mod pack;
mod parts;
mod pool;
mod region;
mod residual;
mod turns;
mod windows;
mod work;

use vta_isa::{Extension, MemType};
use vta_program::listing::LayerForm;
use vta_program::{GemmSteps, Layer};

use super::emit::{Emitter, count_vectors};
use super::tile::{ConvShape, ConvTile, Order, Room};
use super::{LowerError, Lowering};
use crate::qgraph::window::Pads;
use crate::qgraph::{NodeId, QConv, QOp};
use choice::Choice;
pub(super) use join::fusable;
use parts::Parts;

impl<'a> Lowering<'a> {
    /// The shape and the tile of a convolution.
    pub(super) fn conv_tile(
        &self,
        id: NodeId,
        conv: &'a QConv,
    ) -> Result<(ConvShape, ConvTile), LowerError> {
        let (_, choice) = self.plan_conv(id, conv)?;
        Ok((choice.shape, choice.tile))
    }

    /// Emits the layer of a convolution; the number of nodes that it covers (2 with a pool).
    pub(super) fn conv(&mut self, id: NodeId, conv: &'a QConv) -> Result<usize, LowerError> {
        let planned = self.plan_conv(id, conv)?;
        if let Some((other, order)) = self.plan_turns(id, &planned) {
            return self.take_turns(id, [planned, other], &order);
        }
        let (parts, choice) = planned;
        let mut layer = self.conv_layer(id, &parts, &choice);
        if let Some(pool) = &parts.pool {
            layer.name = format!("{}+{}", parts.name, self.graph.nodes[pool.node.0].name);
            layer.output = pool.output.0 as u32;
            layer.nodes.push(self.graph.describe_node(pool.node));
        }
        self.emit_conv(&parts, choice, layer)?;
        Ok(1 + usize::from(parts.pool.is_some()))
    }

    /// The layer of a convolution, without commands.
    fn conv_layer(&self, id: NodeId, parts: &Parts<'_>, choice: &Choice) -> Layer {
        let [co, oh, ow] = self.graph.tensors[parts.output.0].chw;
        let count = parts.weight_count();
        Layer {
            macs: (co * oh * ow) as u64 * (count / co.max(1)) as u64,
            steps: choice.steps(),
            ..self.layer(id)
        }
    }

    /// Emits one layer of two convolutions whose tiles take turns; how many nodes it covers.
    fn take_turns(
        &mut self,
        id: NodeId,
        plans: [(Parts<'a>, Choice); 2],
        order: &Order,
    ) -> Result<usize, LowerError> {
        let Some(rooms) = Room::divided(self.config, order.room) else {
            return Err(self.internal(id, "its layers have no room"));
        };
        let ids = [id, NodeId(id.0 + 1)];
        let [mut layer, other] = [0, 1].map(|at| {
            let (parts, choice) = &plans[at];
            self.conv_layer(ids[at], parts, choice)
        });
        layer.name = format!("{}+{}", layer.name, other.name);
        layer.output = other.output;
        layer.nodes.extend(other.nodes);
        layer.macs += other.macs;
        layer.steps.add(&other.steps);
        let [(first, mut choice), (second, mut other)] = plans;
        [choice.tile, other.tile] = order.tiles;
        let conv = self.prepare(&first, choice, &rooms[0]);
        self.form = Some(LayerForm::Conv(conv.geometry(&first)));
        self.before = Some(self.describe(ids[0]));
        let convs = [conv, self.prepare(&second, other, &rooms[1])];
        self.form = Some(LayerForm::Conv(convs[1].geometry(&second)));
        let works = turns::ordered(order, [&convs[0].shape, &convs[1].shape], self.config);
        let emitter = emit::emit(&convs, &works, Emitter::new(self, &layer.name))?;
        emitter.finish(layer)?;
        Ok(2)
    }

    fn emit_conv(
        &mut self,
        parts: &Parts<'a>,
        choice: Choice,
        mut layer: Layer,
    ) -> Result<(), LowerError> {
        let conv = self.prepare(parts, choice, &Room::all(self.config));
        // A sum over windows is listed as the pool that it is.
        self.form = (!parts.ones).then(|| LayerForm::Conv(conv.geometry(parts)));
        layer.steps.products += conv.further_products();
        let works = work::works(&conv.shape, &conv.tile);
        let conv = [conv];
        let emitter = emit::emit(&conv, &works, Emitter::new(self, parts.name))?;
        emitter.finish(layer)
    }

    /// What a convolution does and how, with the pool that joins it where a tile holds both.
    fn plan_conv(&self, id: NodeId, conv: &'a QConv) -> Result<(Parts<'a>, Choice), LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let residual = conv.residual.as_ref();
        let parts = Parts {
            name: &node.name,
            input: conv.input,
            output: node.output,
            channels: [conv.input, node.output].map(|id| graph.tensors[id.0].chw[0]),
            window: &conv.window,
            weights: &conv.weights,
            ones: false,
            group: conv.group,
            residual: residual.map(|(id, ops)| (*id, &ops[..])),
            epilogue: &conv.epilogue,
            store: conv.store.as_ref(),
            regions: Vec::new(),
            pad_value: 0,
            pool: fusable(graph, &self.readers, id),
        };
        self.check_conv(&parts)?;
        let padded = self.padded(&parts);
        let mut parts = self.divide(parts);
        let mut choice = self.choose(&parts);
        let padded = padded.filter(|_| !parts.regions.is_empty());
        // Where the bus decides, one bias for all outputs still leaves compute free.
        let is_better = |found: &Choice, own: &Choice| {
            let leaves_more = found.regions.len() < own.regions.len();
            found.cost < own.cost + u64::from(leaves_more)
        };
        for other in [self.borders(&parts), padded].into_iter().flatten() {
            if let Ok(found) = self.choose(&other)
                && choice.as_ref().map_or(true, |own| is_better(&found, own))
                && let works = work::works(&found.shape, &found.tile)
                && works.iter().all(|work| !work.chunks.is_empty())
            {
                (parts, choice) = (other, Ok(found));
            }
        }
        if choice.as_ref().is_err_and(LowerError::is_no_tile) && parts.pool.take().is_some() {
            choice = self.choose(&parts);
        }
        Ok((parts, choice?))
    }

    /// The shape and the tile of an average pool, if the matrix unit sums it.
    pub(super) fn average_tile(
        &self,
        id: NodeId,
    ) -> Result<Option<(ConvShape, ConvTile)>, LowerError> {
        let planned = self.plan_average(id)?;
        Ok(planned.map(|(_, choice)| (choice.shape, choice.tile)))
    }

    /// Emits an average pool that the matrix unit sums; whether it did.
    pub(super) fn average(&mut self, id: NodeId) -> Result<bool, LowerError> {
        let Some((parts, choice)) = self.plan_average(id)? else {
            return Ok(false);
        };
        let layer = Layer {
            // It is no product of the network's mathematics.
            steps: GemmSteps {
                dense: 0,
                ..choice.steps()
            },
            ..self.layer(id)
        };
        self.emit_conv(&parts, choice, layer)?;
        Ok(true)
    }

    /// An average pool whose windows all have one divisor as a sum by the matrix unit, with
    /// ones as weights: a step a tap, where loading it into the accumulators and adding it there
    /// takes the compute module four cycles. `None` for others: an input that the scratchpad holds
    /// at once is loaded before anything is added, and the ALU's way leaves the bus to the weights
    /// of the layer after, which is as good.
    fn plan_average(&self, id: NodeId) -> Result<Option<(Parts<'a>, Choice)>, LowerError> {
        let graph = self.graph;
        let node = &graph.nodes[id.0];
        let QOp::AvgPool {
            input,
            window,
            count_include_pad,
            ops_by_count,
        } = &node.op
        else {
            return Ok(None);
        };
        let tiles: usize = self.tile_chw(*input).iter().product();
        if self.has(Extension::Acc8) && tiles <= self.config.depth(MemType::Inp) {
            return Ok(None);
        }
        let whole = window.area();
        let one_divisor = *count_include_pad || window.pads == Pads::NONE;
        let mut divisors = ops_by_count.iter().filter(|_| one_divisor);
        let Some((_, ops)) = divisors.find(|(count, _)| *count == whole) else {
            return Ok(None);
        };
        if count_vectors(ops) > 0 || self.multiplies(ops) {
            return Ok(None);
        }
        let channels = [*input, node.output].map(|id| graph.tensors[id.0].chw[0]);
        let parts = Parts {
            name: &node.name,
            input: *input,
            output: node.output,
            channels,
            window,
            weights: &[],
            ones: true,
            group: channels[0],
            residual: None,
            epilogue: ops,
            store: None,
            regions: Vec::new(),
            pad_value: 0,
            pool: None,
        };
        self.check_conv(&parts)?;
        if channels[1] != parts.group {
            return Err(self.inconsistent(id, "its channels differ"));
        }
        let choice = match self.choice(&parts, None, None) {
            Err(error) if error.is_no_tile() => return Ok(None),
            choice => choice?,
        };
        let works = work::works(&choice.shape, &choice.tile);
        let empty = works.iter().any(|w| w.chunks.is_empty());
        Ok((!empty).then_some((parts, choice)))
    }
}
