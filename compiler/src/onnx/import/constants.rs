//! Nodes that need no computing.

use super::order::node_error;
use super::state::{Arguments, Import};
use super::tensor::read_tensor;
use crate::graph::Data;
use crate::onnx::{OnnxError, elements, proto};

impl Import<'_> {
    /// What needs no computing: constants, shapes, and other names of constants. Whether the node
    /// was such.
    pub(super) fn known_here(
        &mut self,
        node: &proto::Node,
        output: &str,
        arguments: &Arguments,
    ) -> Result<bool, OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let first = arguments.first().copied().flatten();
        let longs = |v: Vec<i64>| (vec![v.len()], Data::I64(v));
        let third = arguments.get(2).copied().flatten();
        let third = third.map(|id| &self.graph.values[id.0]);
        let trains = third.is_some_and(|mode| mode.data != Some(Data::Bool(vec![false])));
        let (shape, data) = match (&node.op_type[..], first) {
            ("Constant", _) => self.constant_node(node, output)?,
            ("Shape", Some(x)) => {
                let shape = &self.graph.values[x.0].shape;
                let rank = shape.len() as i64;
                let at = |name: &str, default: i64| {
                    let at = node.find(name).map_or(default, |a| a.i);
                    (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize
                };
                let taken = shape.get(at("start", 0)..at("end", rank));
                let taken = taken.unwrap_or(&[]).iter();
                longs(taken.map(|&d| d as i64).collect())
            }
            ("Size", Some(x)) => {
                let count: usize = self.graph.values[x.0].shape.iter().product();
                (vec![], Data::I64(vec![count as i64]))
            }
            // In training mode, which its third input says, a Dropout is another matter.
            ("Dropout", _) if trains => return Ok(false),
            ("Identity" | "Dropout", Some(x)) if self.graph.values[x.0].data.is_some() => {
                return self.alias(output, x).map(|()| true);
            }
            // The engine takes no update without elements.
            ("ScatterND", Some(x)) if third.is_some_and(|updates| updates.shape.contains(&0)) => {
                return self.alias(output, x).map(|()| true);
            }
            _ => return Ok(false),
        };
        elements(output, &shape).map_err(|e| fail(e.to_string()))?;
        self.define(output, shape, Some(data)).map(|_| true)
    }

    /// The tensor of a Constant.
    fn constant_node(
        &mut self,
        node: &proto::Node,
        output: &str,
    ) -> Result<(Vec<usize>, Data), OnnxError> {
        if let Some(tensor) = node.find("value").and_then(|a| a.t.as_ref()) {
            let read = read_tensor(output, tensor, &mut self.external)?;
            self.budget.add_constant(&read.1);
            return Ok(read);
        }
        let list = |data: Data| (vec![data.len()], data);
        let found = node.attribute.iter().find_map(|a| {
            Some(match &a.name[..] {
                "value_float" => (vec![], Data::F32(vec![a.f])),
                "value_int" => (vec![], Data::I64(vec![a.i])),
                "value_floats" => list(Data::F32(a.floats.clone())),
                "value_ints" => list(Data::I64(a.ints.clone())),
                _ => return None,
            })
        });
        found.ok_or_else(|| node_error(node, "its value is neither numbers nor a tensor".into()))
    }
}
