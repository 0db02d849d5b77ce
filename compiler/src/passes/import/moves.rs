//! Operators that give channels another place.

use super::super::error::PassError;
use super::super::net::NetOp;
use super::values::{HOST, Reading, Val, error, real};
use crate::graph::{Data, Node};
use crate::qgraph::{ChannelOf, Spread, TensorId};

/// Channels of some tensors, position by position.
fn taken(node: &Node, inputs: Vec<TensorId>, map: Vec<Option<ChannelOf>>, chw: [usize; 3]) -> Val {
    let spread = Spread::NONE;
    let op = NetOp::Channels {
        inputs,
        map,
        spread,
    };
    real(node, op, chw)
}

impl Reading<'_> {
    /// An operand whose channels are those of its tensor: not one that was flattened.
    pub(super) fn channels(
        &self,
        node: &Node,
        index: usize,
    ) -> Result<Option<TensorId>, PassError> {
        let id = self.tensor(node, index)?;
        let chw = self.net.tensors[id.0].chw;
        let shape = &self.graph.values[node.inputs[index].0].shape;
        Ok(match shape[..] {
            [1, c] => chw == [c, 1, 1],
            [1, c, h, w] => chw == [c, h, w],
            _ => false,
        }
        .then_some(id))
    }

    pub(super) fn concat(&self, node: &Node, axis: usize) -> Result<Val, PassError> {
        let inputs = (0..node.inputs.len()).map(|i| self.channels(node, i));
        let inputs: Option<Vec<TensorId>> = inputs.collect::<Result<_, _>>()?;
        let Some(inputs) = inputs.filter(|_| axis == 1) else {
            return Err(error(node, HOST));
        };
        let shapes: Vec<[usize; 3]> = inputs.iter().map(|id| self.net.tensors[id.0].chw).collect();
        let first = *shapes
            .first()
            .ok_or_else(|| error(node, "it has no input"))?;
        if shapes.iter().any(|chw| chw[1..] != first[1..]) {
            return Err(error(node, "its inputs don't fit each other"));
        }
        let of = |(input, chw): (usize, &[usize; 3])| {
            (0..chw[0]).map(move |channel| Some(ChannelOf { input, channel }))
        };
        let map: Vec<_> = shapes.iter().enumerate().flat_map(of).collect();
        let chw = [map.len(), first[1], first[2]];
        Ok(taken(node, inputs, map, chw))
    }

    /// Some channels of the first input.
    pub(super) fn entries(&self, node: &Node, channels: Vec<usize>) -> Result<Val, PassError> {
        let Some(id) = self.channels(node, 0)? else {
            return Err(error(node, "its input was flattened"));
        };
        let [c, h, w] = self.net.tensors[id.0].chw;
        if channels.iter().any(|&channel| channel >= c) {
            return Err(error(
                node,
                format!("it takes channels that aren't among {c}"),
            ));
        }
        let of = |channel: usize| Some(ChannelOf { input: 0, channel });
        let map: Vec<_> = channels.into_iter().map(of).collect();
        let chw = [map.len(), h, w];
        let inputs = vec![id];
        Ok(taken(node, inputs, map, chw))
    }

    pub(super) fn gather(&self, node: &Node) -> Result<Val, PassError> {
        let list = node.inputs.get(1).map(|id| &self.graph.values[id.0].data);
        let Some(Some(Data::I64(list))) = list else {
            return Err(error(node, "its entries must be a constant"));
        };
        let places = list.iter().map(|&i| usize::try_from(i).ok());
        let places: Option<Vec<usize>> = places.collect();
        self.entries(
            node,
            places.ok_or_else(|| error(node, "an entry is negative"))?,
        )
    }
}
