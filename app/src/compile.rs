//! From networks to what devices run: tiles, places, programs.

pub(crate) mod bundle;
pub(crate) mod dump;
pub mod listing;
mod listing_html;
mod model;
pub(crate) mod tiles;

pub use self::bundle::{bundle, of_model};
pub use self::dump::{Plans, passes};

use std::sync::Arc;

use vta_compiler::host::{EndOutput, Ends};
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::passes::Unfused;
use vta_compiler::placement::{self, Rules, Target as Place};
use vta_compiler::qgraph::{QGraph, QNode, QOp};
use vta_driver::{
    BufferId, BundleImage, HostStep, Layer, MultiProgram, NodeInfo, Packing, Part,
    Place as TensorPlace, Program, Step, TensorInfo, TensorSpec,
};
use vta_isa::Config;

use crate::compile::tiles::Measured;
use crate::error::{Context, Error, Result, ensure};
use crate::files::read_text;
use crate::open::model::{Tensor, believe};
use crate::options::Target;
use crate::options::names::{CONFIG, DEVICE};
use crate::report::host_share::HostShare;

/// A network as devices run it.
#[derive(Clone)]
pub struct Compiled {
    /// The whole network; only its tensors and layers when it runs over several places.
    pub program: Arc<Program>,
    /// The network over several devices and the host, when it runs so.
    pub split: Option<Arc<MultiProgram>>,
    /// What every layer computes, for comparisons; `None` for what was a bundle.
    pub graph: Option<Arc<QGraph>>,
    /// The model without fusions, where a run compares its layers with the reference interpreter, and that with this.
    pub unfused: Option<Arc<Unfused>>,
    /// What the host computes around it; `None` where callers give and take its tensors.
    pub ends: Option<Arc<Ends>>,
}

impl From<Arc<Program>> for Compiled {
    fn from(program: Arc<Program>) -> Self {
        Self {
            program,
            split: None,
            graph: None,
            unfused: None,
            ends: None,
        }
    }
}

impl Compiled {
    /// Of a bundle with layers of the host: one device's program and what is around it.
    ///
    /// # Errors
    /// [`crate::Error::Model`] for ends that can't be read or don't fit the network.
    pub fn of_network(network: MultiProgram) -> Result<Self> {
        let ends = match &network.ends[..] {
            [] => None,
            bytes => Some(Arc::new(Ends::from_bytes(bytes)?)),
        };
        let config = network
            .parts
            .first()
            .map(|part| part.program.config.clone());
        let program = Arc::new(overview(&network, &config.unwrap_or_default()));
        let compiled = Self {
            split: Some(Arc::new(network)),
            ends,
            ..Self::from(program)
        };
        let len = |tensors: Vec<Tensor>| tensors.iter().map(Tensor::len).collect::<Vec<_>>();
        let program = &compiled.program;
        let [inputs, outputs] = [&program.inputs, &program.outputs].map(|i| compiled.of_program(i));
        let [inputs, outputs] = [inputs?, outputs?].map(len);
        if let Some(ends) = &compiled.ends
            && !ends.fits(&inputs, &outputs)
        {
            return Err(Error::input(
                "the bundle's ends aren't those of its network",
            ));
        }
        Ok(compiled)
    }

    /// What the network takes, and what it gives, in the model's order.
    ///
    /// # Errors
    /// [`crate::Error::Model`] for a program that contradicts itself.
    pub fn tensors(&self) -> Result<[Vec<Tensor>; 2]> {
        let mut inputs = match self.ends.as_ref().and_then(|ends| ends.inputs()) {
            Some(ports) => ports.iter().map(Tensor::of_host).collect(),
            None => self.of_program(&self.program.inputs)?,
        };
        let mut outputs = self.step_outputs()?;
        if let Some(ends) = &self.ends {
            let lost = || Error::input("an output of the network is lost");
            let output = |output: &EndOutput| match output {
                EndOutput::Tensor(at) => outputs.get(*at).cloned().ok_or_else(lost),
                EndOutput::Value { name, index } => {
                    let mut port = ends.value(*index).ok_or_else(lost)?.clone();
                    port.name.clone_from(name);
                    Ok(Tensor::of_host(&port))
                }
            };
            outputs = ends.outputs().iter().map(output).collect::<Result<_>>()?;
        }
        believe(&self.program.metadata, &mut inputs, &mut outputs);
        Ok([inputs, outputs])
    }

    /// Some of the program's tensors.
    fn of_program(&self, indices: &[u32]) -> Result<Vec<Tensor>> {
        let tensor = |index: &u32| Tensor::of_program(&self.program, *index);
        indices.iter().map(tensor).collect()
    }

    /// The tensors that the program gives.
    ///
    /// # Errors
    /// As for [`Self::tensors`].
    pub(crate) fn step_outputs(&self) -> Result<Vec<Tensor>> {
        self.of_program(&self.program.outputs)
    }

    /// What every layer of a run is compared with.
    pub(crate) fn compared(&self) -> Option<&QGraph> {
        self.graph.as_deref().filter(|_| self.unfused.is_some())
    }

    /// Operators of each pass that the host computes.
    pub fn host_ops(&self) -> usize {
        let ends = self.ends.as_ref().map_or(0, |ends| ends.nodes().count());
        ends + self.split.as_ref().map_or(0, |split| split.host_ops())
    }

    /// What the host takes of a pass.
    ///
    /// # Errors
    /// [`crate::Error::Model`] for a network that contradicts itself.
    pub fn host_share(&self) -> Result<HostShare> {
        let batch = self.program.config.batch() as u64;
        HostShare::of(batch, self.split.as_deref(), self.ends.as_deref())
    }

    /// The bundle of a network that one device runs, with what the host computes.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a network over several devices, [`crate::Error::Model`] for what
    /// no bundle can hold.
    pub fn to_bundle(&self) -> Result<Vec<u8>> {
        self.with_bundle(|image| Ok(image.to_vec()))
    }

    /// Shows its bundle to a function.
    ///
    /// # Errors
    /// As for [`Self::to_bundle`], and those of the function.
    fn with_bundle<T>(&self, see: impl FnOnce(&BundleImage<'_>) -> Result<T>) -> Result<T> {
        let Some(split) = &self.split else {
            return match &self.ends {
                None => see(&self.program.image()?),
                Some(ends) => see(&alone(&self.program, ends)?.image()?),
            };
        };
        ensure!(
            split.parts.len() == 1,
            "a bundle is for one device, the network runs on {}",
            split.parts.len()
        );
        let mut network = MultiProgram::clone(split);
        if let Some(ends) = &self.ends {
            network.ends = ends.to_bytes()?;
        }
        see(&network.image()?)
    }

    /// What the first device runs, whatever the host computes between its layers.
    ///
    /// # Errors
    /// [`crate::Error::Input`] for a network without a device.
    pub fn device_program(&self) -> Result<Arc<Program>> {
        let first = self.programs().first().copied().cloned();
        first.context("the network has no device")
    }

    /// The program of each device.
    pub fn programs(&self) -> Vec<&Arc<Program>> {
        match &self.split {
            None => vec![&self.program],
            Some(split) => split.parts.iter().map(|part| &part.program).collect(),
        }
    }
}

/// Compiles a network for the devices of a target, and the host if it is needed and allowed.
///
/// # Errors
/// Names or rules that mean no device, a cache of tiles that can't be read, a node that a device
/// can't run.
pub(crate) fn for_target(target: &Target, graph: QGraph, config: &Config) -> Result<Compiled> {
    let config = match target.config {
        // Nobody said what its numbers are.
        None => &config.clone().with_tensors_of(graph.numbers.bits()),
        Some(_) => config,
    };
    let graph = lower::for_machine(&graph, config).into_owned();
    let split = split(target, &graph, config)?;
    if !target.allow_host && needs_host(&graph) {
        return Err(lower::of_host(&graph).into());
    }
    let program = match &split {
        // Its programs are in the parts.
        Some(split) => overview(split, config),
        None => tiles::lower(&graph, config, target)?,
    };
    Ok(Compiled {
        split: split.map(Arc::new),
        ends: graph.ends.clone(),
        graph: Some(Arc::new(graph)),
        ..Compiled::from(Arc::new(program))
    })
}

/// Tensors and layers of a network over several places, for tables: nothing that could run.
fn overview(split: &MultiProgram, config: &Config) -> Program {
    let number =
        |place: &TensorPlace| split.parts[place.part].network_tensors[place.tensor as usize];
    let metadata = split.parts.first().map(|p| p.program.metadata.clone());
    // Tensors have the numbers of the network here: each part counts its own.
    let mut program = Program {
        config: config.clone(),
        metadata: metadata.unwrap_or_default(),
        inputs: split
            .inputs
            .iter()
            .filter_map(|places| places.first())
            .map(number)
            .collect(),
        outputs: split.outputs.iter().map(number).collect(),
        ..Program::default()
    };
    for part in &split.parts {
        for (tensor, &number) in part.program.tensors.iter().zip(&part.network_tensors) {
            let tensors = &mut program.tensors;
            let missing = (number as usize + 1).saturating_sub(tensors.len());
            tensors.extend((0..missing).map(|_| nothing()));
            tensors[number as usize] = TensorSpec {
                buffer: BufferId(number),
                offset_bytes: 0,
                packing: Packing::Tiles,
                ..tensor.clone()
            };
        }
    }
    for step in &split.steps {
        match step {
            Step::Copy { .. } => {}
            Step::Host(step) => program.layers.push(Layer {
                name: step.name.clone(),
                kind: format!("host {}", step.op),
                output: step.outputs.first().map_or(0, |o| o.network_tensor),
                nodes: vec![host_node(split, step)],
                ..Layer::default()
            }),
            Step::Run { part, layers } => {
                let part = &split.parts[*part];
                for layer in &part.program.layers[layers.clone()] {
                    program.layers.push(Layer {
                        name: layer.name.clone(),
                        kind: layer.kind.clone(),
                        macs: layer.macs,
                        output: part.network_tensors[layer.output as usize],
                        nodes: layer.nodes.clone(),
                        ..Layer::default()
                    });
                }
            }
        }
    }
    program
}

/// What a layer of the host says of itself.
fn host_node(split: &MultiProgram, step: &HostStep) -> NodeInfo {
    let tensor = |place: &TensorPlace| {
        let spec = &split.parts[place.part].program.tensors[place.tensor as usize];
        TensorInfo {
            name: spec.name.clone(),
            shape: spec.chw.iter().map(|&d| d as usize).collect(),
        }
    };
    NodeInfo {
        name: step.name.clone(),
        kind: "host".into(),
        attributes: step.kernel.attributes(),
        inputs: step.inputs.iter().map(tensor).collect(),
        output: tensor(&step.outputs[0].places[0]),
    }
}

/// A tensor that no place has.
fn nothing() -> TensorSpec {
    TensorSpec {
        name: String::new(),
        buffer: BufferId(0),
        offset_bytes: 0,
        chw: [0; 3],
        scale: 1.0,
        zero: 0,
        packing: Packing::Tiles,
    }
}

/// The network over several devices, when the arguments name several or place layers, or when
/// the host computes some.
fn split(target: &Target, graph: &QGraph, config: &Config) -> Result<Option<MultiProgram>> {
    let names = target.devices();
    let host = target.allow_host && has_host(graph);
    if names.len() == 1 && target.placement.is_none() && !host {
        return Ok(None);
    }
    for (i, name) in names.iter().enumerate() {
        ensure!(!name.is_empty(), "{}: a name between commas is missing"; DEVICE);
        ensure!(!names[..i].contains(name), "{} names {} twice"; DEVICE, name);
    }
    let rules = match &target.placement {
        None => Rules::default(),
        Some(path) => {
            let name = || path.display().to_string();
            let text = read_text(path)?;
            Rules::from_toml(&text).with_context(name)?
        }
    };
    let place = |name: &&str| Place::new(*name, config.clone());
    // Devices first, since parts name their device by its number in the target's list.
    let mut places: Vec<Place> = names.iter().map(place).collect();
    if host {
        places.push(Place::host(config.clone()));
    }
    let measured = Measured::read(target, config)?;
    let placed = placement::place(graph, &places, &rules)?;
    let options = LowerOptions::default();
    let tiles = |part: &QGraph, config: &Config| measured.tiles(part, config);
    let network = placement::compile_with(graph, &places, &placed, &options, &tiles)?;
    Ok(Some(network))
}

/// Whether some layers are the host's.
fn has_host(graph: &QGraph) -> bool {
    let of_host = |node: &QNode| matches!(node.op, QOp::Host { .. });
    graph.nodes.iter().any(of_host)
}

/// Whether the host computes operators of the model.
fn needs_host(graph: &QGraph) -> bool {
    has_host(graph) || graph.ends.as_ref().is_some_and(|ends| ends.segments() > 0)
}

/// A program with what the host computes around it, as a bundle has it.
fn alone(program: &Arc<Program>, ends: &Ends) -> Result<MultiProgram> {
    let place = |&tensor: &u32| TensorPlace { part: 0, tensor };
    Ok(MultiProgram {
        steps: vec![Step::Run {
            part: 0,
            layers: 0..program.layers.len(),
        }],
        inputs: program.inputs.iter().map(|i| vec![place(i)]).collect(),
        outputs: program.outputs.iter().map(place).collect(),
        ends: ends.to_bytes()?,
        parts: vec![Part {
            target: 0,
            network_tensors: (0..program.tensors.len() as u32).collect(),
            program: Arc::clone(program),
        }],
    })
}

/// A compiled program runs on no configuration but its own.
///
/// # Errors
/// When the configurations differ.
pub(crate) fn same_config(program: &Program, config: &Config) -> Result<()> {
    ensure!(
        program.config == *config,
        "{}: the bundle was compiled for another configuration, {}";
        CONFIG, program.config.to_json()
    );
    Ok(())
}
