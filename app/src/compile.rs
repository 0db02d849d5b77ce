//! From networks to what devices run: tiles, places, programs.

use std::sync::Arc;

use vta_compiler::graph::Graph;
use vta_compiler::lower::LowerOptions;
use vta_compiler::passes;
use vta_compiler::placement::{self, Rules, Target as Place};
use vta_compiler::qgraph::{QGraph, QNode, QOp};
use vta_driver::{
    BufferId, HostStep, Layer, MultiProgram, NodeInfo, Packing, Place as TensorPlace, Program,
    Step, TensorInfo, TensorSpec,
};
use vta_isa::Config;

use crate::device::device_names;
use crate::error::{Context, Result, ensure};
use crate::files::read_text;
use crate::options::{Target, TilesOptions};
use crate::tiles::{self, Measured};

/// A network as devices run it.
#[derive(Clone)]
pub struct Compiled {
    /// The whole network; only its tensors and layers when it runs over several places.
    pub program: Arc<Program>,
    /// The network over several devices and the host, when it runs so.
    pub split: Option<Arc<MultiProgram>>,
    /// What every layer computes, for comparisons; `None` for what was a bundle.
    pub graph: Option<Arc<QGraph>>,
}

impl From<Program> for Compiled {
    fn from(program: Program) -> Self {
        Self {
            program: Arc::new(program),
            split: None,
            graph: None,
        }
    }
}

/// Of a bundle with layers of the host: one device's program and what is around it.
impl From<MultiProgram> for Compiled {
    fn from(network: MultiProgram) -> Self {
        let config = network
            .parts
            .first()
            .map(|part| part.program.config.clone());
        Self {
            program: Arc::new(overview(&network, &config.unwrap_or_default())),
            split: Some(Arc::new(network)),
            graph: None,
        }
    }
}

impl Compiled {
    /// Operators of each pass that the host computes.
    pub fn host_ops(&self) -> usize {
        self.split.as_ref().map_or(0, |split| split.host_ops())
    }

    /// Layers that the host computes them in.
    pub fn host_segments(&self) -> usize {
        let split = self.split.as_ref();
        split.map_or(0, |split| split.host_steps().count())
    }

    /// The bundle of a network that one device runs, with what the host computes.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a network over several devices, [`crate::Error::Model`] for what
    /// no bundle can hold.
    pub fn to_bundle(&self) -> Result<Vec<u8>> {
        let Some(split) = &self.split else {
            return Ok(self.program.to_bytes()?);
        };
        ensure!(
            split.parts.len() == 1,
            "a bundle is for one device, the network runs on {}",
            split.parts.len()
        );
        Ok(split.to_bytes()?)
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
pub fn for_target(target: &Target, graph: QGraph, config: &Config) -> Result<Compiled> {
    let split = split(target, &graph, config)?;
    let program = match &split {
        Some(split) => overview(split, config),
        None => tiles::lower(&graph, config, &target.tiles, board(target))?,
    };
    Ok(Compiled {
        program: Arc::new(program),
        split: split.map(Arc::new),
        graph: Some(Arc::new(graph)),
    })
}

/// Compiles a QDQ graph for one device, with the tiles that come with the compiler.
///
/// # Errors
/// What can't be quantised or lowered.
pub fn compile(graph: &Graph, config: &Config) -> Result<(QGraph, Program)> {
    let integer = passes::quantized(graph)?;
    let program = tiles::lower(&integer, config, &TilesOptions::default(), None)?;
    Ok((integer, program))
}

/// Tensors and layers of a network over several places, for tables: nothing that could run.
pub fn overview(split: &MultiProgram, config: &Config) -> Program {
    let number =
        |place: &TensorPlace| split.parts[place.part].network_tensors[place.tensor as usize];
    let metadata = split.parts.first().map(|p| p.program.metadata.clone());
    let mut program = Program {
        config: config.clone(),
        metadata: metadata.unwrap_or_default(),
        inputs: split.input.first().map(number).into_iter().collect(),
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
    let names = device_names(&target.device.device);
    let host = target.allow_host && needs_host(graph);
    if names.len() == 1 && target.placement.is_none() && !host {
        return Ok(None);
    }
    for (i, name) in names.iter().enumerate() {
        ensure!(
            !name.is_empty(),
            "`device`: a name between commas is missing"
        );
        ensure!(!names[..i].contains(name), "`device` names {name} twice");
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
    let mut places: Vec<Place> = names.iter().map(place).collect();
    if host {
        places.push(Place::host(config.clone()));
    }
    let measured = Measured::read(&target.tiles, config, board(target))?;
    Ok(Some(spread(graph, &places, &rules, &measured)?))
}

/// The board that a target names, whose tiles are wanted.
fn board(target: &Target) -> Option<&str> {
    let device = &target.device;
    device.board.as_deref().or(device.timing.as_deref())
}

/// Whether some operators are the host's.
fn needs_host(graph: &QGraph) -> bool {
    let of_host = |node: &QNode| matches!(node.op, QOp::Host { .. });
    graph.nodes.iter().any(of_host)
}

/// A network for one device and the host, if it needs the host.
///
/// # Errors
/// As for [`for_target`].
pub fn hosted(
    graph: &QGraph,
    config: &Config,
    tiles: &TilesOptions,
) -> Result<Option<MultiProgram>> {
    if !needs_host(graph) {
        return Ok(None);
    }
    let places = [
        Place::new("device", config.clone()),
        Place::host(config.clone()),
    ];
    let measured = Measured::read(tiles, config, None)?;
    Ok(Some(spread(graph, &places, &Rules::default(), &measured)?))
}

/// Places and lowers a network with the tiles that are known.
fn spread(
    graph: &QGraph,
    places: &[Place],
    rules: &Rules,
    measured: &Measured,
) -> Result<MultiProgram> {
    let placed = placement::place(graph, places, rules)?;
    let options = LowerOptions::default();
    let tiles = |part: &QGraph, config: &Config| measured.tiles(part, config);
    Ok(placement::compile_with(
        graph, places, &placed, &options, &tiles,
    )?)
}

/// A compiled program runs on no configuration but its own.
///
/// # Errors
/// When the configurations differ.
pub fn same_config(program: &Program, config: &Config) -> Result<()> {
    ensure!(
        program.config == *config,
        "`config`: the bundle was compiled for another configuration, {}",
        program.config.to_json()
    );
    Ok(())
}
