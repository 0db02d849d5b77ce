//! One program for each device, and the steps between them.
//!
//! What the host computes lies in the memory of a device, its home: the first that reads it, or
//! the first of all. So layers of the host read and write places like any copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vta_isa::Config;
use vta_program::{HostKernel, HostOutput, HostStep, MultiProgram, Part, Place, Step};

use super::{Placement, PlacementError, Target, TargetId, TensorCopy, Uses};
use crate::host::Segment;
use crate::lower::{self, LowerError, LowerOptions, Tiles};
use crate::qgraph::{NodeId, QGraph, QNode, QOp, TensorId, ordered};

/// Lowers a placed network: each device's nodes become one program, and layers of one device
/// stand together as far as their inputs allow.
///
/// # Errors
/// [`PlacementError::Lower`] when a device's nodes can't be lowered for it,
/// [`PlacementError::Batch`] for devices that differ in BATCH, [`PlacementError::Order`] when the
/// placement belongs to another graph.
pub fn compile(
    graph: &QGraph,
    targets: &[Target],
    placement: &Placement,
    options: &LowerOptions,
) -> Result<MultiProgram, PlacementError> {
    let untuned = |_: &QGraph, _: &Config| Ok(Tiles::default());
    compile_with(graph, targets, placement, options, &untuned)
}

/// The tiles that are known for a network, or a device's part of one, and a configuration.
pub type TilesOf<'a> = dyn Fn(&QGraph, &Config) -> Result<Tiles, LowerError> + 'a;

/// As [`compile`], with known tiles for what each device runs, as
/// [`lower::compile_with`](crate::lower::compile_with) takes them for a whole network.
///
/// # Errors
/// As for [`compile`], and what `tiles` says.
pub fn compile_with(
    graph: &QGraph,
    targets: &[Target],
    placement: &Placement,
    options: &LowerOptions,
    tiles: &TilesOf<'_>,
) -> Result<MultiProgram, PlacementError> {
    check_batches(targets, placement)?;
    let uses = Uses::of(graph)?;
    if placement.targets.len() != graph.nodes.len() {
        let node = graph
            .nodes
            .last()
            .map_or_else(String::new, |n| n.name.clone());
        return Err(PlacementError::Order { node });
    }
    let order = schedule(graph, &uses, &placement.targets);
    let mut split = Split {
        graph,
        placement,
        targets,
        uses,
        order,
        multi: MultiProgram::default(),
        places: BTreeMap::new(),
        homes: Vec::new(),
        layers: BTreeSet::new(),
    };
    let tensors = (0..graph.tensors.len()).map(TensorId);
    let first = targets.iter().position(|t| !t.host);
    let first = first.map(TargetId).ok_or(PlacementError::NoDevice)?;
    split.homes = tensors.map(|id| split.home_of(id, first)).collect();
    for (target, described) in targets.iter().enumerate() {
        if !described.host {
            split.part(TargetId(target), described, options, tiles)?;
        }
    }
    split.steps()?;
    let outputs = graph
        .outputs
        .iter()
        .map(|id| split.place(split.home(*id), *id));
    split.multi.outputs = outputs.collect::<Result<_, _>>()?;
    for id in &graph.inputs {
        let all = split.places.iter().filter(|((_, tensor), _)| tensor == id);
        split
            .multi
            .inputs
            .push(all.map(|(_, place)| *place).collect());
    }
    Ok(split.multi)
}

fn check_batches(targets: &[Target], placement: &Placement) -> Result<(), PlacementError> {
    let used: BTreeSet<TargetId> = placement.targets.iter().copied().collect();
    let used = used.iter().filter_map(|id| targets.get(id.0));
    let used: Vec<&Target> = used.filter(|target| !target.host).collect();
    let differ = |pair: &&[&Target]| pair[0].config.batch() != pair[1].config.batch();
    match used.windows(2).find(differ) {
        None => Ok(()),
        Some(pair) => Err(PlacementError::Batch {
            a: pair[0].name.clone(),
            batch_a: pair[0].config.batch(),
            b: pair[1].name.clone(),
            batch_b: pair[1].config.batch(),
        }),
    }
}

/// Nodes in an order that stays on a device while it has nodes whose inputs are there: the
/// earliest such node, else the earliest of all.
fn schedule(graph: &QGraph, uses: &Uses, placed: &[TargetId]) -> Vec<NodeId> {
    let writers = |node: &QNode| {
        let inputs = node.op.inputs();
        let writers = inputs.iter().filter_map(|id| uses.writer[id.0]);
        writers.map(|node| node.0).collect::<BTreeSet<usize>>()
    };
    let needs: Vec<_> = graph.nodes.iter().map(writers).collect();
    let mut at = None;
    let order = ordered(&needs, |ready| {
        let mut ready = ready.iter().copied();
        let first = ready.clone().next();
        let next = ready.find(|&node| at == Some(placed[node])).or(first)?;
        at = Some(placed[next]);
        Some(next)
    });
    order.into_iter().map(NodeId).collect()
}

struct Split<'a> {
    graph: &'a QGraph,
    placement: &'a Placement,
    targets: &'a [Target],
    uses: Uses,
    order: Vec<NodeId>,
    multi: MultiProgram,
    places: BTreeMap<(TargetId, TensorId), Place>,
    /// [`Self::home_of`] each network tensor.
    homes: Vec<TargetId>,
    /// Network tensors that a device's layer writes. A convolution's that a pool joins isn't
    /// among them.
    layers: BTreeSet<TensorId>,
}

impl Split<'_> {
    /// The device in whose memory a tensor lies first: the one that writes it, or, if the host
    /// does, the first that reads it, or else the first of all.
    fn home_of(&self, id: TensorId, first: TargetId) -> TargetId {
        let device = |node: &NodeId| {
            let target = self.target(*node);
            (!self.is_host(target)).then_some(target)
        };
        let written = self.uses.writer[id.0].as_ref().and_then(device);
        let read = || self.uses.readers[id.0].iter().find_map(device);
        written.or_else(read).unwrap_or(first)
    }

    fn home(&self, id: TensorId) -> TargetId {
        self.homes[id.0]
    }

    fn target(&self, node: NodeId) -> TargetId {
        self.placement.targets[node.0]
    }

    /// Where a tensor lies on a target.
    fn place(&self, target: TargetId, id: TensorId) -> Result<Place, PlacementError> {
        let place = self.places.get(&(target, id)).copied();
        place.ok_or_else(|| {
            let tensor = &self.graph.tensors[id.0].name;
            PlacementError::Internal(format!("tensor {tensor} isn't on target {}", target.0))
        })
    }

    fn is_host(&self, target: TargetId) -> bool {
        self.targets.get(target.0).is_some_and(|t| t.host)
    }

    /// Whether the host computes a tensor.
    fn of_host(&self, id: TensorId) -> bool {
        let writer = self.uses.writer[id.0];
        writer.is_some_and(|node| self.is_host(self.target(node)))
    }

    /// Whether the host reads a tensor.
    fn for_host(&self, id: TensorId) -> bool {
        let mut readers = self.uses.readers[id.0].iter();
        readers.any(|&node| self.is_host(self.target(node)))
    }

    /// Lowers what a target runs, if anything.
    fn part(
        &mut self,
        target: TargetId,
        described: &Target,
        options: &LowerOptions,
        tiles: &TilesOf<'_>,
    ) -> Result<(), PlacementError> {
        let mine = |n: &&NodeId| self.target(**n) == target;
        let nodes: Vec<NodeId> = self.order.iter().filter(mine).copied().collect();
        let unused =
            |id: &&TensorId| self.uses.writer[id.0].is_none() && self.uses.readers[id.0].is_empty();
        // An output that is an input nobody reads only passes through its home, and so does what
        // only the host knows.
        let outputs = self.graph.outputs.iter().filter(unused).copied();
        let known = (0..self.graph.tensors.len()).map(TensorId);
        let known = known.filter(|id| self.of_host(*id) || self.for_host(*id));
        let here = |id: &TensorId| self.home(*id) == target;
        let through: Vec<TensorId> = outputs.chain(known).filter(here).collect();
        if nodes.is_empty() && through.is_empty() {
            return Ok(());
        }
        let (part, tensors) = self.subgraph(target, &nodes, &through);
        let fail = |source| PlacementError::Lower {
            device: described.name.clone(),
            source,
        };
        let config = &described.config;
        let known = tiles(&part, config).map_err(fail)?;
        let program = lower::compile_with(&part, config, options, &known).map_err(fail)?;
        let written = program.layers.iter().map(|layer| layer.output as usize);
        self.layers.extend(written.map(|local| tensors[local]));
        let index = self.multi.parts.len();
        for (local, &tensor) in (0..).zip(&tensors) {
            let place = Place {
                part: index,
                tensor: local,
            };
            self.places.insert((target, tensor), place);
        }
        self.multi.parts.push(Part {
            target: target.0,
            program: Arc::new(program),
            network_tensors: tensors.iter().map(|id| id.0 as u32).collect(),
        });
        Ok(())
    }

    /// The nodes of a target as a network of its own, and which of the whole's its tensors are.
    fn subgraph(
        &self,
        target: TargetId,
        nodes: &[NodeId],
        through: &[TensorId],
    ) -> (QGraph, Vec<TensorId>) {
        let mut used = through.to_vec();
        for &node in nodes {
            let node = &self.graph.nodes[node.0];
            used.extend(node.op.inputs());
            used.push(node.output);
        }
        used.sort_unstable();
        used.dedup();
        // All that a node names is among `used`.
        let local = |id: TensorId| TensorId(used.partition_point(|other| *other < id));
        let copies = &self.placement.copies;
        let outputs: BTreeSet<TensorId> = self.graph.outputs.iter().copied().collect();
        let arrives =
            |id: TensorId| self.uses.writer[id.0].is_none_or(|w| self.target(w) != target);
        let leaves = |id: TensorId| {
            let copied = of(copies, id).iter().any(|c| c.from == target);
            let output = outputs.contains(&id);
            // The host reads these as tiles.
            let host = self.of_host(id) || self.for_host(id);
            copied || ((output || host) && self.home(id) == target)
        };
        let pick = |keep: &dyn Fn(TensorId) -> bool| -> Vec<TensorId> {
            let picked = used.iter().filter(|id| keep(**id));
            picked.map(|id| local(*id)).collect()
        };
        let move_node = |&node: &NodeId| {
            let mut node = self.graph.nodes[node.0].clone();
            rename(&mut node.op, &local);
            node.output = local(node.output);
            node
        };
        let graph = QGraph {
            numbers: self.graph.numbers,
            tensors: used
                .iter()
                .map(|id| self.graph.tensors[id.0].clone())
                .collect(),
            nodes: nodes.iter().map(move_node).collect(),
            inputs: pick(&arrives),
            outputs: pick(&leaves),
            metadata: self.graph.metadata.clone(),
            ends: None,
        };
        (graph, used)
    }

    /// Runs of layers on one part, each followed by the copies of what it computed, and layers of
    /// the host.
    fn steps(&mut self) -> Result<(), PlacementError> {
        let mut next = vec![0; self.multi.parts.len()];
        let same = |a: &NodeId, b: &NodeId| self.target(*a) == self.target(*b);
        let (mut steps, mut segments) = (Vec::new(), BTreeSet::new());
        for run in self.order.chunk_by(same) {
            let target = self.target(run[0]);
            if self.is_host(target) {
                for &node in run {
                    let node = &self.graph.nodes[node.0];
                    let QOp::Host { segment, .. } = &node.op else {
                        let node = node.name.clone();
                        return Err(PlacementError::Order { node });
                    };
                    if segments.insert(Arc::as_ptr(segment)) {
                        steps.push(Step::Host(self.host_step(segment)?));
                    }
                }
                continue;
            }
            let part = self.multi.parts.iter().position(|p| p.target == target.0);
            let part = part.ok_or_else(|| {
                let text = format!("target {} has nodes but no program", target.0);
                PlacementError::Internal(text)
            })?;
            let layer = |node: &&NodeId| self.layers.contains(&self.graph.nodes[node.0].output);
            let layers = next[part]..next[part] + run.iter().filter(layer).count();
            next[part] = layers.end;
            steps.push(Step::Run { part, layers });
            for &node in run {
                let tensor = self.graph.nodes[node.0].output;
                // The host reads a tensor where it lies.
                let copies = of(&self.placement.copies, tensor).iter();
                for copy in copies.filter(|copy| !self.is_host(copy.to)) {
                    steps.push(Step::Copy {
                        from: self.place(copy.from, tensor)?,
                        to: self.place(copy.to, tensor)?,
                    });
                }
            }
        }
        self.multi.steps = steps;
        Ok(())
    }

    /// The step of a segment: inputs from their homes, each output to its home and every other
    /// device that reads it.
    fn host_step(&self, segment: &Arc<Segment>) -> Result<HostStep, PlacementError> {
        let output_of = |node: &QNode| match &node.op {
            QOp::Host {
                segment: of,
                output,
                ..
            } if Arc::ptr_eq(of, segment) => Some(*output),
            _ => None,
        };
        let nodes = self.graph.nodes.iter();
        let mut nodes: Vec<_> = nodes.filter_map(|n| Some((output_of(n)?, n))).collect();
        nodes.sort_by_key(|(output, _)| *output);
        let Some(&(_, node)) = nodes.first() else {
            return Err(PlacementError::Internal(
                "a segment has no nodes".to_owned(),
            ));
        };
        let home = |id: TensorId| self.place(self.home(id), id);
        let inputs = node.op.inputs().into_iter().map(home);
        let mut outputs = Vec::with_capacity(nodes.len());
        for (index, (output, node)) in nodes.iter().enumerate() {
            if *output != index {
                let text = format!("{} is output {output}, not {index}", node.name);
                return Err(PlacementError::Internal(text));
            }
            let mut places = vec![home(node.output)?];
            for target in (0..self.targets.len()).map(TargetId) {
                let place = self.places.get(&(target, node.output)).copied();
                places.extend(place.filter(|place| !places.contains(place)));
            }
            outputs.push(HostOutput {
                places,
                network_tensor: node.output.0 as u32,
            });
        }
        Ok(HostStep {
            name: node.name.clone(),
            op: segment.kinds().join(", "),
            kernel: Arc::clone(segment) as Arc<dyn HostKernel>,
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs,
        })
    }
}

/// The copies of a tensor, of those of a network, which are in the order of tensors.
fn of(copies: &[TensorCopy], tensor: TensorId) -> &[TensorCopy] {
    let from = copies.partition_point(|c| c.tensor < tensor);
    let to = copies.partition_point(|c| c.tensor <= tensor);
    &copies[from..to]
}

/// Replaces every tensor that an operation reads.
fn rename(op: &mut QOp, local: &dyn Fn(TensorId) -> TensorId) {
    match op {
        QOp::Conv(conv) => {
            conv.input = local(conv.input);
            if let Some((id, _)) = &mut conv.residual {
                *id = local(*id);
            }
            let stored = conv
                .store
                .as_mut()
                .and_then(|store| store.residual.as_mut());
            if let Some((id, ..)) = stored {
                *id = local(*id);
            }
        }
        QOp::Add(pair) | QOp::Mul(pair) => {
            (pair.a, pair.b) = (local(pair.a), local(pair.b));
        }
        QOp::Host { inputs, .. } | QOp::Channels { inputs, .. } => {
            inputs.iter_mut().for_each(|id| *id = local(*id))
        }
        QOp::Eltwise { input, .. } | QOp::MaxPool { input, .. } | QOp::AvgPool { input, .. } => {
            *input = local(*input);
        }
    }
}
