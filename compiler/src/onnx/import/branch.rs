//! An If whose condition is a constant is the nodes of one of its branches, and another one those of both, of which a
//! Where takes; a Loop whose trips are known, those of its body as often as it runs.

mod scan;

use super::fused::{int, ints};
use super::order::{graphs, inner, node_error, read, sorted};
use super::state::{Arguments, Import};
use super::tensor::read_tensor;
use crate::graph::{Data, Element, Node, Op, ValueId};
use crate::onnx::{OnnxError, proto};

/// An If's branches: the one that is taken where its condition is true, and the other one.
const BRANCHES: [&str; 2] = ["then_branch", "else_branch"];

fn part<'n>(node: &'n proto::Node, name: &str) -> Option<&'n proto::Graph> {
    node.find(name)?.g.as_ref()
}

/// A node that makes a value of others, by whose name it goes.
fn made_of(
    kind: &str,
    input: Vec<String>,
    output: &str,
    attribute: Vec<proto::Attribute>,
) -> proto::Node {
    proto::Node {
        input,
        output: vec![output.to_owned()],
        name: output.to_owned(),
        op_type: kind.to_owned(),
        attribute,
        domain: String::new(),
    }
}

/// Nodes that some values make fail, so that they aren't computed where no one asks for them.
fn may_fail(import: &Import<'_>, node: &Node) -> bool {
    let computed = |id: &ValueId| import.graph.values[id.0].data.is_none();
    let Op::Onnx(op) = &node.op else {
        return false;
    };
    let by = op.place(1).and_then(|at| node.inputs.get(at));
    by.is_some_and(computed)
        && match op.kind {
            "Gather" | "GatherElements" | "GatherND" | "ScatterElements" | "ScatterND" => true,
            "Div" | "Mod" => import.graph.values[node.output.0].element != Element::F32,
            _ => false,
        }
}

impl Import<'_> {
    /// Reads a node that has branches or a body, if it is one of those. Whether it was.
    ///
    /// # Errors
    /// What isn't known before it runs, and errors of the nodes inside.
    pub(super) fn structured(
        &mut self,
        node: &proto::Node,
        arguments: &Arguments,
    ) -> Result<bool, OnnxError> {
        match &node.op_type[..] {
            "If" => {
                let [Some(yes), Some(no)] = BRANCHES.map(|name| part(node, name)) else {
                    return Err(node_error(node, "it lacks a branch".to_owned()));
                };
                let condition = arguments.first().copied().flatten();
                let data = condition.and_then(|id| self.graph.values[id.0].data.as_ref());
                match data {
                    Some(Data::Bool(values)) if values.len() == 1 => {
                        let taken = if values[0] { yes } else { no };
                        self.branch(node, taken)?;
                    }
                    _ => self.both(node, [yes, no])?,
                }
            }
            "Loop" | "Scan" => {
                let body = part(node, "body");
                let body = body.ok_or_else(|| node_error(node, "it has no body".to_owned()))?;
                if node.op_type == "Loop" {
                    self.unrolled(node, body, arguments)?;
                } else {
                    self.scanned(node, body, arguments)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads both branches, each of whose outputs is chosen as a run says.
    ///
    /// # Errors
    /// Branches whose outputs differ in shape or type, and such as may fail where they aren't taken.
    fn both(&mut self, node: &proto::Node, branches: [&proto::Graph; 2]) -> Result<(), OnnxError> {
        let fail = |text: &str| {
            let text = format!("which branch it takes depends on its input, and {text}");
            node_error(node, text)
        };
        // What both read isn't dropped behind one of them.
        self.keep(node);
        let mut made = Vec::with_capacity(2);
        for (branch, which) in branches.into_iter().zip(["then", "else"]) {
            let nodes = self.graph.nodes.len();
            made.push(self.inside(node, branch, which, |_| Ok(()))?);
            let own = &self.graph.nodes[nodes..];
            if let Some(own) = own.iter().find(|node| may_fail(self, node)) {
                return Err(fail(&format!(
                    "{} may fail in the one that it doesn't take",
                    own.name
                )));
            }
        }
        for (at, output) in node
            .output
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
        {
            let [Some(&yes), Some(&no)] = [0, 1].map(|which: usize| made[which].get(at)) else {
                return Err(fail(&format!("no branch makes {output}")));
            };
            let [one, other] = [yes, no].map(|id| &self.graph.values[id.0]);
            let is_open = [yes, no].iter().any(|id| self.open.contains(id));
            if (&one.shape, one.element) != (&other.shape, other.element) || is_open {
                return Err(fail(&format!(
                    "its branches give {output} other shapes or types"
                )));
            }
            let shape = one.shape.clone();
            let mut input = vec![node.input[0].clone()];
            for (id, which) in [(yes, "then"), (no, "else")] {
                input.push(format!("{output}/{which}"));
                self.alias(&input[input.len() - 1], id)?;
            }
            self.node(&made_of("Where", input, output, vec![]), 0)?;
            if self
                .names
                .get(output)
                .is_none_or(|id| self.graph.values[id.0].shape != shape)
            {
                return Err(fail("its condition isn't one value"));
            }
        }
        Ok(())
    }

    /// Keeps what a node and its branches or body read, however often they do.
    fn keep(&mut self, node: &proto::Node) {
        for id in read(node).filter_map(|name| self.names.get(name)) {
            self.budget.folded.remove(id);
        }
    }

    /// Reads a branch in the place of its node, whose outputs' names its outputs get.
    fn branch(&mut self, node: &proto::Node, branch: &proto::Graph) -> Result<(), OnnxError> {
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
    fn unrolled(
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
        self.keep(node);
        let stacks = node.output.get(count..).unwrap_or_default();
        let mut stacked = vec![Vec::new(); stacks.len()];
        let first = self.graph.values.len();
        let mut trip = 0;
        while on && trip < trips {
            self.budget.unroll(nodes).map_err(fail)?;
            let made = self.inside(node, body, &trip.to_string(), |import| {
                let own = Some(Data::I64(vec![trip]));
                import.define(&body.input[0].name, vec![], own)?;
                let own = Some(Data::Bool(vec![true]));
                import.define(&body.input[1].name, vec![], own)?;
                import.carry(&body.input[2..], &carried)
            })?;
            on = self.known(node, made[0])? != 0;
            carried.copy_from_slice(&made[1..=count]);
            self.gather(&mut stacked, &made[count + 1..], stacks, trip)?;
            trip += 1;
        }
        for (output, id) in node.output.iter().zip(carried) {
            self.give(output, id, first)?;
        }
        for (output, all) in stacks.iter().zip(stacked) {
            self.stack(node, output, all, 0)?;
        }
        Ok(())
    }

    /// Gives values the names that a body has for them.
    fn carry(&mut self, inputs: &[proto::ValueInfo], values: &[ValueId]) -> Result<(), OnnxError> {
        let mut all = inputs.iter().zip(values);
        all.try_for_each(|(input, id)| self.alias(&input.name, *id))
    }

    /// Adds what a trip makes to what others made, by names of their own.
    fn gather(
        &mut self,
        stacked: &mut [Vec<String>],
        made: &[ValueId],
        stacks: &[String],
        trip: i64,
    ) -> Result<(), OnnxError> {
        for ((all, id), stack) in stacked.iter_mut().zip(made).zip(stacks) {
            if !stack.is_empty() {
                let name = format!("{stack}.{trip}");
                self.alias(&name, *id)?;
                all.push(name);
            }
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

    /// Reads a branch or body once, with what `given` defines. Its names are forgotten, for the next time; those of its
    /// values and nodes end in `which`.
    fn inside(
        &mut self,
        node: &proto::Node,
        part: &proto::Graph,
        which: &str,
        given: impl FnOnce(&mut Self) -> Result<(), OnnxError>,
    ) -> Result<Vec<ValueId>, OnnxError> {
        let (values, nodes) = (self.graph.values.len(), self.graph.nodes.len());
        given(self)?;
        let made = self.enter(node, part)?;
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
            value.name = format!("{}.{which}", value.name);
        }
        for node in &mut self.graph.nodes[nodes..] {
            node.name = format!("{}.{which}", node.name);
        }
        Ok(made)
    }

    /// What each trip gave, one behind the other along a new dimension.
    fn stack(
        &mut self,
        node: &proto::Node,
        output: &str,
        all: Vec<String>,
        at: i64,
    ) -> Result<(), OnnxError> {
        if output.is_empty() {
            return Ok(());
        }
        if all.is_empty() {
            return Err(node_error(node, "it never runs, and gives nothing".into()));
        }
        let mut rows = Vec::with_capacity(all.len());
        for name in all {
            let row = format!("{name}.row");
            let axes = vec![ints("axes", vec![at])];
            self.node(&made_of("Unsqueeze", vec![name], &row, axes), 0)?;
            rows.push(row);
        }
        let along = vec![int("axis", at)];
        self.node(&made_of("Concat", rows, output, along), 0)
    }
}
