//! What a convolution layer is told by its network.

use std::ops::Range;

use super::super::{Fault, LowerError, Lowering};
use super::division::Division;
use super::join::Pooling;
use super::pack::{self, Digits};
use crate::qgraph::lane::{LaneKind, LaneOp, LaneOperand};
use crate::qgraph::window::Window;
use crate::qgraph::{QStore, TensorId};

/// Outputs that lack the same taps (`region`).
#[derive(Clone)]
pub(super) struct Region {
    /// Output rows and columns.
    pub places: [Range<usize>; 2],
    /// By channel, with what the outputs lack.
    pub bias: Vec<i32>,
}

/// The parts of a convolution node.
pub(super) struct Parts<'g> {
    pub name: &'g str,
    pub input: TensorId,
    pub output: TensorId,
    /// Of input and output.
    pub channels: [usize; 2],
    pub window: &'g Window,
    /// In parts that add up.
    pub weights: &'g [i8],
    /// A sum over windows, without weights of its own.
    pub ones: bool,
    pub group: usize,
    pub residual: Option<(TensorId, &'g [LaneOp])>,
    /// Without a bias that regions have.
    pub epilogue: &'g [LaneOp],
    /// What STOREs make of the sums.
    pub store: Option<&'g QStore>,
    /// Outputs with a bias of their own; none where all have one.
    pub regions: Vec<Region>,
    /// What padding holds, whose taps are products: 0 where these are left out.
    pub pad_value: i8,
    pub pool: Option<Pooling<'g>>,
}

impl<'g> Parts<'g> {
    /// Lane operations before the residual's sum, or between the digits of its product.
    pub(super) fn prologue<'p>(&self, product: Option<&'p Division>) -> &'p [LaneOp]
    where
        'g: 'p,
    {
        match (product, self.residual) {
            (Some(plan), _) => &plan.before,
            (None, Some((_, ops))) => ops,
            (None, None) => &[],
        }
    }

    /// Weights of one part.
    pub(super) fn weight_count(&self) -> usize {
        let [ci, co] = self.channels;
        co * (ci / self.group.max(1)) * self.window.area()
    }

    /// How many parts the weights have.
    pub(super) fn weight_parts(&self) -> usize {
        (self.weights.len() / self.weight_count().max(1)).max(1)
    }

    /// The bias of each channel that the epilogue starts with, and the rest of it.
    pub(super) fn bias(&self, channels: usize) -> (Vec<i32>, &'g [LaneOp]) {
        match self.epilogue {
            [first, rest @ ..] if first.kind == LaneKind::Add => {
                let of = |c| first.operand.of_channel(c).unwrap_or(0);
                ((0..channels).map(of).collect(), rest)
            }
            _ => (vec![0; channels], self.epilogue),
        }
    }

    /// The biases as digits for the matrix unit, if they are vectors within its reach.
    pub(super) fn digits(&self, block: usize) -> Option<Digits> {
        let regions = self.regions.iter().map(|region| &region.bias[..]);
        let biases: Vec<&[i32]> = match self.epilogue.first() {
            Some(LaneOp {
                kind: LaneKind::Add,
                operand: LaneOperand::Vec(bias),
            }) if self.regions.is_empty() => vec![bias],
            _ => regions.collect(),
        };
        let blocks = biases.first()?.len().div_ceil(block);
        pack::bias_weights(&biases, blocks, block)
    }

    /// The epilogue after a bias that the matrix unit adds.
    pub(super) fn after_bias(&self) -> &'g [LaneOp] {
        &self.epilogue[usize::from(self.regions.is_empty())..]
    }
}

impl Lowering<'_> {
    /// Sizes that must agree.
    pub(super) fn check_conv(&self, parts: &Parts<'_>) -> Result<(), LowerError> {
        let inconsistent = |reason: &str| Fault::Inconsistent(reason.to_owned()).of(parts.name);
        let out = self.graph.tensors[parts.output.0].chw;
        let [ci, h, w] = self.graph.tensors[parts.input.0].chw;
        if parts.window.output(h, w) != Some([out[1], out[2]]) {
            return Err(inconsistent("the window doesn't fit"));
        }
        let group = parts.group;
        if group == 0 || !ci.is_multiple_of(group) || !out[0].is_multiple_of(group) {
            return Err(inconsistent("its channels don't divide into its groups"));
        }
        let count = out[0] * (ci / group) * parts.window.area();
        if !parts.ones
            && (parts.weights.is_empty() || !parts.weights.len().is_multiple_of(count.max(1)))
        {
            return Err(inconsistent("the weights have another size"));
        }
        let added = parts.store.and_then(|store| store.residual);
        let mut tensors = parts.residual.map(|(id, _)| id).into_iter();
        if tensors
            .by_ref()
            .chain(added.map(|(id, ..)| id))
            .any(|id| self.graph.tensors[id.0].chw != out)
        {
            return Err(inconsistent("the residual has another shape"));
        }
        if parts
            .store
            .is_some_and(|store| store.rounding.len() != out[0])
        {
            return Err(inconsistent("its roundings have another length"));
        }
        let mut ops = parts.prologue(None).iter().chain(parts.epilogue);
        if ops.any(|op| op.plane().is_some() || op.vector().is_some_and(|v| v.len() != out[0])) {
            return Err(inconsistent("a lane vector has another length"));
        }
        Ok(())
    }
}
