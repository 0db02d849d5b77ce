//! A Scan is its body for each entry of what it goes over.

use super::super::fused::int;
use super::super::order::{inner, node_error};
use super::super::state::{Arguments, Import};
use super::made_of;
use crate::graph::{Data, ValueId};
use crate::onnx::{OnnxError, proto};
use crate::operators::operator::axis;

/// An input that a Scan goes over, or an output that it makes entry by entry.
struct Entries {
    /// The dimension of the entries.
    axis: usize,
    /// From the last one to the first.
    is_backward: bool,
}

impl Entries {
    /// The `at`-th of each, as two attributes have them; `rank` is that of the whole tensor.
    fn new(node: &proto::Node, kind: &str, at: usize, rank: usize) -> Result<Self, String> {
        let entry = |what: &str| {
            let list = node.find(&format!("scan_{kind}_{what}")).map(|a| &a.ints);
            list.and_then(|list| list.get(at)).copied().unwrap_or(0)
        };
        Ok(Self {
            axis: axis(entry("axes"), rank)?,
            is_backward: entry("directions") != 0,
        })
    }
}

impl Import<'_> {
    /// Reads the body of a Scan for each of its trips.
    ///
    /// # Errors
    /// Inputs of lengths that differ or a run says, and too many trips.
    pub(super) fn scanned(
        &mut self,
        node: &proto::Node,
        body: &proto::Graph,
        arguments: &Arguments,
    ) -> Result<(), OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let all: Option<Vec<ValueId>> = arguments.iter().copied().collect();
        let over = node.find("num_scan_inputs").map_or(0, |a| a.i);
        let over = usize::try_from(over).unwrap_or(0);
        let parts = all.filter(|all| self.opset > 8 && over > 0 && over <= all.len());
        let all =
            parts.ok_or_else(|| fail("its inputs aren't those of opset 9 or later".to_owned()))?;
        let (states, scanned) = all.split_at(all.len() - over);
        let count = states.len();
        if body.input.len() != all.len() || body.output.len() < count {
            return Err(fail("its body has other inputs or outputs".to_owned()));
        }
        let mut lengths = Vec::with_capacity(over);
        let mut entries = Vec::with_capacity(over);
        for (at, id) in scanned.iter().enumerate() {
            let shape = &self.graph.values[id.0].shape;
            let own = Entries::new(node, "input", at, shape.len()).map_err(fail)?;
            lengths.push(shape[own.axis]);
            entries.push(own);
        }
        let length = lengths[0];
        if lengths.iter().any(|other| *other != length)
            || scanned.iter().any(|id| self.open.contains(id))
        {
            return Err(fail(format!(
                "it goes over {lengths:?} entries, or a run says how many"
            )));
        }
        // What trips share isn't dropped behind one of them.
        self.keep(node);
        let nodes = inner(node).len() + over;
        let stacks = node.output.get(count..).unwrap_or_default();
        let mut stacked = vec![Vec::new(); stacks.len()];
        let mut carried = states.to_vec();
        let first = self.graph.values.len();
        for trip in 0..length {
            self.budget.unroll(nodes).map_err(fail)?;
            let made = self.inside(node, body, &trip.to_string(), |import| {
                import.carry(&body.input[..count], &carried)?;
                for ((from, to), own) in node.input[count..]
                    .iter()
                    .zip(&body.input[count..])
                    .zip(&entries)
                {
                    let at = if own.is_backward {
                        length - 1 - trip
                    } else {
                        trip
                    };
                    import.entry(from, &to.name, own.axis, at)?;
                }
                Ok(())
            })?;
            carried.copy_from_slice(&made[..count]);
            self.gather(&mut stacked, &made[count..], stacks, trip as i64)?;
        }
        for (output, id) in node.output.iter().zip(carried) {
            self.give(output, id, first)?;
        }
        for (at, (output, mut all)) in stacks.iter().zip(stacked).enumerate() {
            let one = all.first().and_then(|name| self.names.get(name));
            let rank = one.map_or(0, |id| self.graph.values[id.0].shape.len()) + 1;
            let own = Entries::new(node, "output", at, rank).map_err(fail)?;
            if own.is_backward {
                all.reverse();
            }
            self.stack(node, output, all, own.axis as i64)?;
        }
        Ok(())
    }

    /// One entry of a dimension, which goes.
    fn entry(&mut self, from: &str, to: &str, axis: usize, at: usize) -> Result<(), OnnxError> {
        let place = format!("{to}/place");
        self.define(&place, vec![], Some(Data::I64(vec![at as i64])))?;
        let axis = vec![int("axis", axis as i64)];
        let input = vec![from.to_owned(), place];
        self.node(&made_of("Gather", input, to, axis), 0)
    }
}
