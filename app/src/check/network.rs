//! What becomes of each node of a network: the device computes it, the host, or nothing does.

use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;

use serde_json::{Map, Value, json};
use vta_compiler::graph::{Graph, Node, Op, ValueId};
use vta_compiler::lower::LowerError;
use vta_compiler::onnx::{Given, OnnxError, Partial};
use vta_compiler::passes::{self, Verdict};
use vta_compiler::quantize::{self, QuantizeError};
use vta_compiler::reflect::{Attribute, AttributeValue, Reflect};
use vta_isa::Config;

use super::cuts::{self, Cut};
use crate::compile::{self, Compiled};
use crate::error::{Context, Error, Result, bail};
use crate::open::model::{self, Network};
use crate::options::Target;
use crate::report::host_share::HostShare;

/// A node and what becomes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeVerdict {
    /// The model's name.
    pub name: String,
    /// ONNX's operator.
    pub operator: String,
    /// Of its output; empty where it isn't known.
    pub shape: Vec<usize>,
    /// Multiply-adds of one image.
    pub macs: u64,
    /// What it is told beside its tensors; nothing where it couldn't be read.
    pub attributes: Vec<Attribute>,
    /// What becomes of it.
    pub verdict: Verdict,
}

impl NodeVerdict {
    /// Where it runs, and why it isn't on the device.
    pub fn place(&self) -> (&'static str, &str) {
        match &self.verdict {
            Verdict::Device => ("device", ""),
            Verdict::Host { reason } => ("host", reason),
            Verdict::Refused { reason } => ("refused", reason),
            Verdict::Behind => ("unknown", "it depends on a refused node"),
        }
    }
}

/// Attributes as JSON: their values by name.
pub fn attributes(all: &[Attribute]) -> Value {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Flag(value) => json!(value),
        AttributeValue::Int(value) => json!(value),
        AttributeValue::Ints(values) => json!(values),
        AttributeValue::Float(value) => json!(value),
        AttributeValue::Texts(texts) => json!(texts),
    };
    let pairs = all.iter().map(|a| (a.name.to_string(), value(&a.value)));
    pairs.collect::<Map<_, _>>().into()
}

/// What becomes of a network.
#[derive(Default)]
pub struct NetworkVerdict {
    /// It is a float model: scales stand in for those of a calibration.
    pub is_float: bool,
    /// Its nodes, in execution order, without QuantizeLinear and DequantizeLinear that are sound. Those that
    /// can't be read are last.
    pub nodes: Vec<NodeVerdict>,
    /// Nodes that weren't read, since they depend on refused ones.
    pub unread: usize,
    /// Values at which the model can end, so that refused nodes are left out.
    pub ends: Vec<String>,
    /// The part that leaves most to the device, where something is refused.
    pub cut: Option<Cut>,
    /// What is refused of the network as a whole, a line each.
    pub faults: Vec<String>,
    /// What the host takes of a pass.
    pub host: HostShare,
    /// What it is compiled to; `None` where something is refused.
    pub compiled: Option<Compiled>,
}

impl NetworkVerdict {
    /// Nodes on the device, on the host, refused, and not judged, since they depend on refused ones.
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0, 0, 0, self.unread];
        for node in &self.nodes {
            counts[match node.verdict {
                Verdict::Device => 0,
                Verdict::Host { .. } => 1,
                Verdict::Refused { .. } => 2,
                Verdict::Behind => 3,
            }] += 1;
        }
        counts
    }

    /// Multiply-adds of one image: of the nodes on the device, and of all.
    pub fn macs(&self) -> [u64; 2] {
        let device = self.nodes.iter().filter(|n| n.verdict == Verdict::Device);
        let sum = |sum: u64, node: &NodeVerdict| sum.saturating_add(node.macs);
        [device.fold(0, sum), self.nodes.iter().fold(0, sum)]
    }

    /// Whether something can't be computed.
    pub fn is_refused(&self) -> bool {
        let [_, _, refused, _] = self.counts();
        refused > 0 || !self.faults.is_empty()
    }
}

/// Compiles a network for a target, and says what becomes of each node. Scales of a float model are
/// stand-ins. `part` reads as much of it as can be read, where not all can.
///
/// # Errors
/// A file that is none, or whose fault is of no node.
pub(super) fn judge(
    name: &str,
    opened: Result<Network>,
    part: impl FnOnce() -> Result<Partial>,
    target: &Target,
    config: &Config,
) -> Result<NetworkVerdict> {
    let graph = match opened {
        Ok(Network::Graph(graph)) => graph,
        Ok(Network::Compiled(_)) => bail!("{name} is compiled already"),
        Err(error) => return unread(name, part, target, config, error),
    };
    judge_graph(name, graph, None, target, config)
}

/// [`judge`] of a graph, the whole of a file or a part with inputs that stand for what refused nodes give.
fn judge_graph(
    name: &str,
    graph: Box<Graph>,
    part: Option<&[Given]>,
    target: &Target,
    config: &Config,
) -> Result<NetworkVerdict> {
    let mut found = NetworkVerdict {
        is_float: !model::is_quantized(&graph),
        ..NetworkVerdict::default()
    };
    let judged = if found.is_float {
        match quantize::stand_in(&graph) {
            Ok(stand_in) => {
                let judged = passes::judged(&stand_in);
                passes::Judged {
                    nodes: own(&graph, &stand_in, &judged.nodes),
                    ..judged
                }
            }
            Err(error) => return not_quantized(&graph, error).with_context(|| name),
        }
    } else {
        passes::judged(&graph)
    };
    found.nodes = rows(&graph, &judged.nodes);
    match judged.network {
        Err(error) => found.fail(error.each().iter().filter(|e| e.node().is_none())),
        Ok(network) => match compile::for_target(target, network, config) {
            Ok(compiled) => {
                found.host = compiled.host_share()?;
                found.compiled = Some(compiled);
            }
            Err(error) => found.refuse(error)?,
        },
    }
    if part.is_some() || found.is_refused() {
        let rows = found.nodes.iter().map(|row| (&row.name, &row.verdict));
        let refused = rows.filter(|(_, verdict)| matches!(verdict, Verdict::Refused { .. }));
        // What lowering refuses is told in the rows alone.
        let refused: HashMap<&String, &Verdict> = refused.collect();
        let own = graph.nodes.iter().zip(&judged.nodes);
        let own =
            own.map(|(node, verdict)| refused.get(&node.name).map_or(verdict, |v| *v).clone());
        found.cut = cuts::largest(&graph, &own.collect::<Vec<_>>(), part.unwrap_or(&[]));
    }
    Ok(found)
}

impl NetworkVerdict {
    fn fail<'e>(&mut self, errors: impl Iterator<Item = &'e (impl ToString + 'e)>) {
        self.faults.extend(errors.map(ToString::to_string));
    }

    /// Marks the nodes that can't be lowered; any other error goes on.
    fn refuse(&mut self, error: Error) -> Result<()> {
        let Some(lower) = cause::<LowerError>(&error) else {
            return Err(error);
        };
        for error in lower.each() {
            let text = error.to_string();
            let own = error.node().and_then(|name| {
                let row = self.nodes.iter_mut().find(|row| row.name == name)?;
                let reason = text.strip_prefix("node ")?.strip_prefix(name)?;
                Some((row, reason.trim_start_matches([':', ' ']).to_owned()))
            });
            match own {
                Some((row, reason)) => row.verdict = Verdict::Refused { reason },
                None => self.faults.push(text),
            }
        }
        Ok(())
    }
}

/// An error of a type among the causes of another.
fn cause<E: StdError + 'static>(error: &Error) -> Option<&E> {
    let mut next: Option<&(dyn StdError + 'static)> = match error {
        Error::Model { source, .. } => Some(&**source),
        _ => None,
    };
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What becomes of the nodes before those that can't be read, and these; any other error goes on.
fn unread(
    name: &str,
    part: impl FnOnce() -> Result<Partial>,
    target: &Target,
    config: &Config,
    error: Error,
) -> Result<NetworkVerdict> {
    let Some(onnx) = cause::<OnnxError>(&error) else {
        return Err(error);
    };
    let row = |error: &OnnxError| match error {
        OnnxError::Node { node, op, reason } => Some(NodeVerdict {
            name: node.clone(),
            operator: op.clone(),
            shape: Vec::new(),
            macs: 0,
            attributes: Vec::new(),
            verdict: Verdict::Refused {
                reason: reason.clone(),
            },
        }),
        _ => None,
    };
    // An error that is of no node, as a damaged file, leaves nothing to judge.
    let refused: Option<Vec<NodeVerdict>> = onnx.each().iter().map(row).collect();
    let Some(refused) = refused else {
        return Err(error);
    };
    let part = part()?;
    let unread = part.behind;
    let mut found = if part.graph.nodes.is_empty() {
        NetworkVerdict::default()
    } else {
        judge_graph(
            name,
            Box::new(part.graph),
            Some(&part.given),
            target,
            config,
        )?
    };
    if !part.given.is_empty() {
        // They may be of the inputs that stand for what is refused.
        found.faults.clear();
    }
    // What can be read may compile, but isn't the network that was asked about.
    found.compiled = None;
    found.nodes.extend(refused);
    found.unread += unread;
    found.ends = part.ends;
    Ok(found)
}

/// A float graph of which a node can't be quantised: the others aren't judged.
fn not_quantized(graph: &Graph, error: QuantizeError) -> Result<NetworkVerdict> {
    let QuantizeError::Node { node, reason } = &error else {
        return Err(error.into());
    };
    let Some(at) = graph.nodes.iter().position(|n| n.name == *node) else {
        return Err(error.into());
    };
    let reason = reason.clone();
    let node = row(graph, &graph.nodes[at], &Verdict::Refused { reason });
    Ok(NetworkVerdict {
        is_float: true,
        nodes: vec![node],
        unread: graph.nodes.len() - 1,
        ..NetworkVerdict::default()
    })
}

/// The verdicts of a float graph's nodes, of those of its quantised form: this has the same nodes in
/// the same order, but for roundings, for normalisations and parts that joined others, and for biases of products.
fn own(graph: &Graph, quantized: &Graph, verdicts: &[Verdict]) -> Vec<Verdict> {
    let named = |node: &Node| (node.name.clone(), node.op.kind());
    let names: HashSet<(String, &str)> = graph.nodes.iter().map(named).collect();
    let all = quantized.nodes.iter().zip(verdicts);
    let all = all.filter(|(node, _)| !is_rounding(node));
    // What others were joined to is of another kind.
    let (same, joined): (Vec<_>, Vec<_>) = all.partition(|(node, _)| names.contains(&named(node)));
    let joined: HashMap<&str, &Verdict> = joined
        .into_iter()
        .map(|(node, v)| (&node.name[..], v))
        .collect();
    let mut judged = same.into_iter().peekable();
    let mut makers: HashMap<ValueId, usize> = HashMap::new();
    let mut own: Vec<Verdict> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let same = judged
            .next_if(|(other, _)| other.name == node.name && other.op.kind() == node.op.kind());
        let same = same.map(|(_, verdict)| verdict);
        let before = || own.get(*makers.get(node.inputs.first()?)?);
        let verdict = same
            .or_else(|| joined.get(&node.name[..]).copied())
            .or_else(before);
        let verdict = verdict.cloned().unwrap_or(Verdict::Device);
        makers.insert(node.output, own.len());
        own.push(verdict);
    }
    own
}

fn is_rounding(node: &Node) -> bool {
    matches!(
        node.op,
        Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
    )
}

fn row(graph: &Graph, node: &Node, verdict: &Verdict) -> NodeVerdict {
    NodeVerdict {
        name: node.name.clone(),
        operator: node.op.kind().to_owned(),
        shape: graph.values[node.output.0].shape.clone(),
        macs: graph.node_macs(node),
        attributes: node.op.attributes(),
        verdict: verdict.clone(),
    }
}

/// A row for each node but for roundings that are no one's concern. Of a node with several outputs there
/// is one.
fn rows(graph: &Graph, verdicts: &[Verdict]) -> Vec<NodeVerdict> {
    let mut rows: Vec<NodeVerdict> = Vec::new();
    let mut last: Option<&Node> = None;
    for (node, verdict) in graph.nodes.iter().zip(verdicts) {
        let refused = matches!(verdict, Verdict::Refused { .. });
        if is_rounding(node) && !refused {
            continue;
        }
        let again = last.is_some_and(|last| {
            let kept = matches!(node.op, Op::Onnx(_));
            kept && last.name == node.name && last.inputs == node.inputs
        });
        last = Some(node);
        if !again {
            rows.push(row(graph, node, verdict));
        }
    }
    rows
}
