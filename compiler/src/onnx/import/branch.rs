//! An If whose condition is a constant is the nodes of one of its branches; a Loop whose trips are known, those of its
//! body as often as it runs.

use super::order::{graphs, inner, node_error, read, sorted};
use super::state::{Arguments, Import};
use super::tensor::read_tensor;
use crate::graph::{Data, ValueId};
use crate::onnx::{OnnxError, proto};

/// The branch that a node takes; `None` for one that isn't known before it runs.
pub(super) fn taken<'n>(
    node: &'n proto::Node,
    condition: Option<&Data>,
) -> Option<&'n proto::Graph> {
    let name = match condition? {
        Data::Bool(values) if node.op_type == "If" && values.len() == 1 => {
            if values[0] {
                "then_branch"
            } else {
                "else_branch"
            }
        }
        _ => return None,
    };
    part(node, name)
}

/// The body of a Loop.
pub(super) fn body(node: &proto::Node) -> Option<&proto::Graph> {
    part(node, "body").filter(|_| node.op_type == "Loop")
}

fn part<'n>(node: &'n proto::Node, name: &str) -> Option<&'n proto::Graph> {
    node.find(name)?.g.as_ref()
}

impl Import<'_> {
    /// Reads a branch in the place of its node, whose outputs' names its outputs get.
    pub(super) fn branch(
        &mut self,
        node: &proto::Node,
        branch: &proto::Graph,
    ) -> Result<(), OnnxError> {
        let first = self.graph.values.len();
        let made = self.enter(node, branch)?;
        for (output, id) in node.output.iter().zip(made) {
            self.give(output, id, first)?;
        }
        Ok(())
    }

    /// Reads the constants and nodes of a branch or body; its outputs.
    fn enter(
        &mut self,
        node: &proto::Node,
        part: &proto::Graph,
    ) -> Result<Vec<ValueId>, OnnxError> {
        for tensor in &part.initializer {
            let (shape, data) = read_tensor(&tensor.name, tensor, &mut self.external)?;
            self.budget.add_constant(&data);
            self.define(&tensor.name, shape, Some(data))?;
        }
        for (index, inner) in sorted(&part.node, &self.names)?.into_iter().enumerate() {
            self.node(inner, index)?;
        }
        let made = part.output.iter().map(|inside| {
            let id = self.names.get(&inside.name).copied();
            id.ok_or_else(|| node_error(node, format!("its body doesn't make {}", inside.name)))
        });
        made.collect()
    }

    /// Names a value that was made behind the `first` ones.
    fn give(&mut self, name: &str, id: ValueId, first: usize) -> Result<(), OnnxError> {
        if name.is_empty() {
            return Ok(());
        }
        self.alias(name, id)?;
        if id.0 >= first {
            name.clone_into(&mut self.graph.values[id.0].name);
        }
        Ok(())
    }

    /// Reads the body of a Loop for each of its trips.
    ///
    /// # Errors
    /// Trips that aren't known before it runs, or too many.
    pub(super) fn unrolled(
        &mut self,
        node: &proto::Node,
        body: &proto::Graph,
        arguments: &Arguments,
    ) -> Result<(), OnnxError> {
        let fail = |reason: String| node_error(node, reason);
        let argument = |at: usize| arguments.get(at).copied().flatten();
        let trips = argument(0).map_or(Ok(i64::MAX), |id| self.known(node, id))?;
        let mut on = argument(1).map_or(Ok(1), |id| self.known(node, id))? != 0;
        let mut carried: Vec<ValueId> = (2..arguments.len()).filter_map(argument).collect();
        let (count, nodes) = (carried.len(), inner(node).len());
        if body.input.len() != count + 2 || body.output.len() <= count {
            return Err(fail("its body has other inputs or outputs".to_owned()));
        }
        // What trips share isn't dropped behind one of them.
        for id in read(node).filter_map(|name| self.names.get(name)) {
            self.budget.folded.remove(id);
        }
        let stacks = node.output.get(count..).unwrap_or_default();
        let mut stacked = vec![Vec::new(); stacks.len()];
        let first = self.graph.values.len();
        let mut trip = 0;
        while on && trip < trips {
            self.budget.unroll(nodes).map_err(fail)?;
            let made = self.trip(node, body, trip, &carried)?;
            on = self.known(node, made[0])? != 0;
            carried.copy_from_slice(&made[1..=count]);
            for ((all, id), stack) in stacked.iter_mut().zip(&made[count + 1..]).zip(stacks) {
                if !stack.is_empty() {
                    let name = format!("{stack}.{trip}");
                    self.alias(&name, *id)?;
                    all.push(name);
                }
            }
            trip += 1;
        }
        for (output, id) in node.output.iter().zip(carried) {
            self.give(output, id, first)?;
        }
        for (output, all) in stacks.iter().zip(stacked) {
            self.stack(node, output, all)?;
        }
        Ok(())
    }

    /// The number that says how often a Loop runs, or whether it goes on.
    fn known(&self, node: &proto::Node, id: ValueId) -> Result<i64, OnnxError> {
        let number = match &self.graph.values[id.0].data {
            Some(Data::Bool(v)) => v.first().map(|v| i64::from(*v)),
            Some(data) => data.integers().and_then(|v| v.first().copied()),
            None => None,
        };
        number.ok_or_else(|| {
            let text = "how often it runs depends on its input: only known trips are unrolled";
            node_error(node, text.to_owned())
        })
    }

    /// Reads a body once. Its names are forgotten, for the next time.
    fn trip(
        &mut self,
        node: &proto::Node,
        body: &proto::Graph,
        trip: i64,
        carried: &[ValueId],
    ) -> Result<Vec<ValueId>, OnnxError> {
        let (values, nodes) = (self.graph.values.len(), self.graph.nodes.len());
        let own = Some(Data::I64(vec![trip]));
        self.define(&body.input[0].name, vec![], own)?;
        let own = Some(Data::Bool(vec![true]));
        self.define(&body.input[1].name, vec![], own)?;
        for (input, id) in body.input[2..].iter().zip(carried) {
            self.alias(&input.name, *id)?;
        }
        let made = self.enter(node, body)?;
        for id in &made {
            self.budget.folded.remove(id);
        }
        let inside = inner(node);
        let parts = std::iter::once(node).chain(inside.iter().copied());
        let given = parts.flat_map(graphs).flat_map(|graph| {
            let constants = graph.initializer.iter().map(|tensor| &tensor.name);
            graph.input.iter().map(|info| &info.name).chain(constants)
        });
        for name in inside.iter().flat_map(|node| &node.output).chain(given) {
            self.names.remove(name);
        }
        for value in &mut self.graph.values[values..] {
            self.names.remove(&value.name);
            value.name = format!("{}.{trip}", value.name);
        }
        for node in &mut self.graph.nodes[nodes..] {
            node.name = format!("{}.{trip}", node.name);
        }
        Ok(made)
    }

    /// What each trip gave, one behind the other along a new first dimension.
    fn stack(
        &mut self,
        node: &proto::Node,
        output: &str,
        all: Vec<String>,
    ) -> Result<(), OnnxError> {
        if output.is_empty() {
            return Ok(());
        }
        if all.is_empty() {
            return Err(node_error(node, "it never runs, and gives nothing".into()));
        }
        let axis = |name: &str, kind, ints| proto::Attribute {
            name: name.to_owned(),
            kind,
            ints,
            ..proto::Attribute::default()
        };
        let made = |kind: &str, input: Vec<String>, output: String, attribute| proto::Node {
            input,
            name: output.clone(),
            output: vec![output],
            op_type: kind.to_owned(),
            attribute: vec![attribute],
            domain: String::new(),
        };
        let mut rows = Vec::with_capacity(all.len());
        for name in all {
            let row = format!("{name}.row");
            let axes = axis("axes", proto::ATTRIBUTE_INTS, vec![0]);
            self.node(&made("Unsqueeze", vec![name], row.clone(), axes), 0)?;
            rows.push(row);
        }
        let along = axis("axis", proto::ATTRIBUTE_INT, vec![]);
        self.node(&made("Concat", rows, output.to_owned(), along), 0)
    }
}
