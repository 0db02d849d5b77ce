//! Operators that give channels another place.

use super::super::error::PassError;
use super::super::net::{NetNode, NetOp, NetTensor};
use super::values::{HOST, Reading, Val, error, real};
use crate::graph::{Data, Entries, Node};
use crate::qgraph::{ChannelOf, Spread, TensorId};

/// What a Concat joins: a tensor or zeros, with channels, rows and columns.
type Piece = (Option<TensorId>, [usize; 3]);

impl<'g> Reading<'g> {
    /// An operand whose channels are those of its tensor: not one that was flattened.
    pub(crate) fn channels(&self, node: &Node, index: usize) -> Result<TensorId, PassError> {
        let id = self.tensor(node, index)?;
        let chw = self.net.tensors[id.0].chw;
        let shape = &self.graph.values[node.inputs[index].0].shape;
        let own = match shape[..] {
            [1, c] => chw == [c, 1, 1],
            [1, c, h, w] => chw == [c, h, w],
            _ => false,
        };
        let flattened = || error(node, "its input was flattened");
        own.then_some(id).ok_or_else(flattened)
    }

    /// A tensor of one channel as one of several, all like it.
    pub(crate) fn repeated(&mut self, node: &Node, id: TensorId, channels: usize) -> TensorId {
        let op = NetOp::channels_of(id, vec![0; channels], Spread::NONE);
        let tensor = &self.net.tensors[id.0];
        let [_, h, w] = tensor.chw;
        let tensor = NetTensor {
            name: format!("{}.repeated", tensor.name),
            chw: [channels, h, w],
            ..tensor.clone()
        };
        let output = self.push_tensor(tensor);
        let name = format!("{}.repeat", node.name);
        self.net
            .nodes
            .push(NetNode::new(name, op, output, self.net.numbers));
        output
    }

    /// Channels of an operand of a Concat: those of a tensor, or so many of zeros.
    fn joined(&self, node: &Node, index: usize) -> Result<Piece, PassError> {
        if let Some((shape, values)) = self.reals(node, index) {
            let zeros = values.iter().all(|&v| v == 0.0);
            return match shape[..] {
                [1, c, h, w] if zeros => Ok((None, [c, h, w])),
                [1, c] if zeros => Ok((None, [c, 1, 1])),
                _ => Err(error(node, "a constant operand has other values than 0")),
            };
        }
        let id = self.channels(node, index)?;
        Ok((Some(id), self.net.tensors[id.0].chw))
    }

    pub(crate) fn concat(&self, node: &Node, axis: usize) -> Result<Val<'g>, PassError> {
        if axis != 1 {
            return Err(error(node, HOST));
        }
        let pieces = (0..node.inputs.len()).map(|i| self.joined(node, i));
        let pieces: Vec<Piece> = pieces.collect::<Result<_, _>>()?;
        let first = pieces.first().map(|(_, chw)| *chw);
        let first = first.ok_or_else(|| error(node, "it has no input"))?;
        if pieces.iter().any(|(_, chw)| chw[1..] != first[1..]) {
            return Err(error(node, "its inputs don't fit each other"));
        }
        let (mut inputs, mut map) = (Vec::new(), Vec::new());
        for (tensor, [channels, ..]) in pieces {
            let input = inputs.len();
            let of = |channel: usize| tensor.map(|_| ChannelOf { input, channel });
            map.extend((0..channels).map(of));
            inputs.extend(tensor);
        }
        let chw = [map.len(), first[1], first[2]];
        let op = NetOp::Channels {
            inputs,
            map,
            spread: Spread::NONE,
        };
        Ok(real(node, op, chw))
    }

    /// Some channels, rows and columns of the first input.
    pub(crate) fn sliced(&self, node: &Node, entries: &[Entries]) -> Result<Val<'g>, PassError> {
        let shape = &self.graph.values[node.inputs[0].0].shape;
        let mut channels = (0..shape.get(1).copied().unwrap_or(0)).collect();
        let mut spread = Spread::NONE;
        for of in entries {
            match of.axis {
                1 => channels = (0..of.len).map(|i| of.start + i * of.step).collect(),
                2 | 3 => {
                    let axis = of.axis - 2;
                    (spread.skip[axis], spread.step[axis]) = (of.start, of.step);
                }
                _ => return Err(error(node, HOST)),
            }
        }
        self.entries(node, channels, spread)
    }

    fn entries(
        &self,
        node: &Node,
        channels: Vec<usize>,
        spread: Spread,
    ) -> Result<Val<'g>, PassError> {
        let id = self.channels(node, 0)?;
        let [c, ..] = self.net.tensors[id.0].chw;
        if channels.iter().any(|&channel| channel >= c) {
            return Err(error(
                node,
                format!("it takes channels that aren't among {c}"),
            ));
        }
        let plane = match self.graph.values[node.output.0].shape[..] {
            [_, _, h, w] => [h, w],
            _ => [1, 1],
        };
        let chw = [channels.len(), plane[0], plane[1]];
        Ok(real(node, NetOp::channels_of(id, channels, spread), chw))
    }

    pub(crate) fn gather(&self, node: &Node) -> Result<Val<'g>, PassError> {
        let list = node.inputs.get(1).map(|id| &self.graph.values[id.0].data);
        let Some(Some(Data::I64(list))) = list else {
            return Err(error(node, "its entries must be a constant"));
        };
        let places = list.iter().map(|&i| usize::try_from(i).ok());
        let places: Option<Vec<usize>> = places.collect();
        let places = places.ok_or_else(|| error(node, "an entry is negative"))?;
        self.entries(node, places, Spread::NONE)
    }
}
