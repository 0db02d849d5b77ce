//! What MODEL names: an ONNX file, a bundle, the demo, a network of the zoo.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use vta_compiler::graph::{Graph, Op};
use vta_compiler::host::HostCall;
use vta_compiler::lower::LowerOptions;
use vta_compiler::placement::{self, Rules, Target};
use vta_compiler::qgraph::{QGraph, QNode, QOp};
use vta_compiler::semantics::Requant;
use vta_compiler::{layer, onnx, passes, quantize, zoo};
use vta_driver::{
    BUNDLE_MAGIC, BufferId, Bundle, Device, HostKernel, Layer, MultiProgram, Packing, Place,
    Program, Step, TensorSpec,
};
use vta_hw_opencl::{OpenClDevice, Options, Selector};
use vta_isa::Config;
use vta_sim::SimDevice;

use crate::images::{self, Picture};
use crate::options::{RunOptions, TilesOptions};
use crate::preprocess::Preprocess;
use crate::tiles::{self, Measured};
use crate::{files, hints, source};

/// The demo's network, trained for this project on CIFAR-10.
pub const DEMO_MODEL: &[u8] = include_bytes!("../../models/demo/resnet20.onnx");
/// 200 labelled images of CIFAR-10's test set.
const DEMO_IMAGES: &[u8] = include_bytes!("../../models/demo/cifar10_test200.npz");
/// The images that the demo shows: one of each class.
const DEMO_CHOICE: [usize; 10] = [4, 1, 35, 15, 5, 3, 18, 12, 23, 14];
/// The demo's classes.
pub const CIFAR10: [&str; 10] = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
];

/// A network before it is compiled, or one that is compiled already.
pub enum Model {
    /// As the file has it, float or int8.
    Graph(Box<Graph>),
    /// Compiled, for one device.
    Program(Box<Program>),
    /// Compiled, with layers of the host.
    Hosted(Box<MultiProgram>),
}

/// Why a bundle with layers of the host isn't taken.
pub const NOT_ALONE: &str = "the host computes some of its layers; only `vta run` takes it";

/// Resolves MODEL.
pub fn load(name: &str) -> Result<Model> {
    if name == "demo" {
        let mut graph = onnx::load(DEMO_MODEL)?;
        let labels = serde_json::to_string(&CIFAR10)?;
        graph.metadata.insert("labels".to_owned(), labels);
        let preprocess = Preprocess {
            scale: 1.0 / 255.0,
            mean: vec![0.4914, 0.4822, 0.4465],
            std: vec![0.2470, 0.2435, 0.2616],
        };
        graph
            .metadata
            .insert("preprocess".to_owned(), preprocess.to_json());
        return Ok(Model::Graph(Box::new(graph)));
    }
    if let Some(network) = name.strip_prefix("zoo:") {
        let (network, mode) = match network.split_once(':') {
            None => (network, quantize::Mode::Multiply),
            Some((network, "multiply")) => (network, quantize::Mode::Multiply),
            Some((network, "shift")) => (network, quantize::Mode::Shift),
            Some((_, mode)) => bail!("{name}: no mode '{mode}' (there are multiply, shift)"),
        };
        let graph = zoo::graph_with(network, mode)?;
        return Ok(Model::Graph(Box::new(graph)));
    }
    let path = Path::new(name);
    exists(name)?;
    if is_bundle(path) {
        return Ok(match read_bundle(path)? {
            Bundle::Program(program) => Model::Program(program),
            Bundle::Network(network) => Model::Hosted(network),
        });
    }
    ensure!(
        !images::is_image(path),
        "{name} is a picture, not a network: write vta run MODEL --input {name}"
    );
    ensure!(
        !source::is_assembly(path),
        "{name} is assembly text: vta exec {name} runs it"
    );
    Ok(Model::Graph(Box::new(read_onnx(path)?)))
}

/// The network, or the layer as a network.
///
/// # Errors
/// A compiled program, a float model, a file that can't be read.
pub fn layer_or_network(name: &str) -> Result<QGraph> {
    let is_layer = ["conv:", "dw:", "gemm:", "resnet18."];
    let looks_like_one = is_layer.iter().any(|start| name.starts_with(start));
    match layer::parse(name) {
        Ok(spec) => return Ok(layer::build(&spec, 1)?),
        Err(error) if looks_like_one && !Path::new(name).exists() => {
            return Err(error.into());
        }
        Err(_) => {}
    }
    match load(name)? {
        Model::Program(_) | Model::Hosted(_) => {
            bail!("{name} is compiled already, so that it can't be varied")
        }
        Model::Graph(graph) => {
            ensure!(
                is_quantised(&graph),
                "{name} is a float model: run `vta quantize` first"
            );
            Ok(passes::quantized(&graph)?)
        }
    }
}

fn read_bundle(path: &Path) -> Result<Bundle> {
    let read = |text: &str| -> Result<Arc<dyn HostKernel>, String> {
        Ok(Arc::new(HostCall::from_text(text)?))
    };
    Bundle::load(path, &read).with_context(|| path.display().to_string())
}

/// What the device runs of a bundle, whatever the host computes between its layers.
///
/// # Errors
/// A file that can't be read or is no bundle.
pub fn bundle_program(path: &Path) -> Result<Arc<Program>> {
    Ok(match read_bundle(path)? {
        Bundle::Program(program) => Arc::new(*program),
        Bundle::Network(network) => {
            let part = network.parts.into_iter().next();
            part.context("the bundle has no program")?.program
        }
    })
}

/// Whether a file is a program bundle: by its name, or by its first bytes.
pub fn is_bundle(path: &Path) -> bool {
    let begins = || -> Option<bool> {
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut first = [0; BUNDLE_MAGIC.len()];
        File::open(path).ok()?.read_exact(&mut first).ok()?;
        Some(first == *BUNDLE_MAGIC)
    };
    path.extension().is_some_and(|e| e == "vta") || begins() == Some(true)
}

/// A name that is no file may be one of a network, misspelt.
fn exists(name: &str) -> Result<()> {
    let looks_like_a_path = name.contains(['/', '.', '\\']);
    if looks_like_a_path || Path::new(name).exists() {
        return Ok(());
    }
    let names: Vec<String> = zoo::NAMES.iter().map(|n| format!("zoo:{n}")).collect();
    let plain = names.iter().find(|n| n["zoo:".len()..] == *name);
    let known = names.iter().map(String::as_str).chain(["demo"]);
    let meant = match plain {
        Some(full) => format!("; did you mean {full}?"),
        None => hints::did_you_mean(name, known),
    };
    bail!("'{name}' is neither a file nor a built-in network{meant} (vta models lists those)");
}

/// Reads an ONNX file.
pub fn read_onnx(path: &Path) -> Result<Graph> {
    let bytes = files::read_file(path)?;
    ensure!(!bytes.is_empty(), "{}: the file is empty", path.display());
    onnx::load(&bytes).with_context(|| path.display().to_string())
}

/// Whether the graph has int8 tensors.
pub fn is_quantised(graph: &Graph) -> bool {
    graph
        .nodes
        .iter()
        .any(|n| matches!(n.op, Op::QuantizeLinear { .. }))
}

/// Quantises a float graph.
pub fn quantise(
    graph: &Graph,
    pictures: &[Picture],
    preprocess: &Preprocess,
    mode: quantize::Mode,
) -> Result<Graph> {
    let shape = &graph.values[graph.inputs[0].0].shape;
    let &[_, c, h, w] = &shape[..] else {
        bail!("the network's input has shape {shape:?}, not [1, C, H, W]");
    };
    let images: Vec<Vec<f32>> = pictures
        .iter()
        .map(|p| preprocess.apply(p, [c, h, w]))
        .collect::<Result<_>>()?;
    Ok(quantize::quantize(graph, &images, mode)?)
}

/// Puts the wanted requantisation into the graph's metadata, over what the model says.
pub fn choose_requant(graph: &mut Graph, requant: Option<Requant>) {
    if let Some(requant) = requant {
        let name = requant.name().to_owned();
        graph.metadata.insert(Requant::KEY.to_owned(), name);
    }
}

/// Compiles a QDQ graph.
pub fn compile(graph: &Graph, config: &Config) -> Result<(QGraph, Program)> {
    let integer = passes::quantized(graph)?;
    let program = tiles::lower(&integer, config, &TilesOptions::default(), None)?;
    Ok((integer, program))
}

/// The devices of a list, in order.
pub fn device_names(list: &str) -> Vec<&str> {
    list.split(',').collect()
}

/// What runs of a network need.
pub struct Plan {
    /// The whole network; only its tensors and layers when it runs over several places.
    pub program: Program,
    /// The network over several devices and the host, when it runs so.
    pub split: Option<MultiProgram>,
}

/// Compiles a network for the devices that the arguments name, and the host if it is needed and
/// allowed.
pub fn plan(args: &RunOptions, graph: &QGraph, config: &Config) -> Result<Plan> {
    let split = split(args, graph, config)?;
    let program = match &split {
        Some(split) => overview(split, config),
        None => {
            let board = args
                .device
                .board
                .as_deref()
                .or(args.device.timing.as_deref());
            tiles::lower(graph, config, &args.tiles, board)?
        }
    };
    Ok(Plan { program, split })
}

/// Tensors and layers of a network over several places, for tables: nothing that could run.
pub fn overview(split: &MultiProgram, config: &Config) -> Program {
    let number = |place: &Place| split.parts[place.part].network_tensors[place.tensor as usize];
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
                output: step.network_tensor,
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
                        ..Layer::default()
                    });
                }
            }
        }
    }
    program
}

/// A tensor that no place has.
fn nothing() -> TensorSpec {
    TensorSpec {
        name: String::new(),
        buffer: BufferId(0),
        chw: [0; 3],
        scale: 1.0,
        packing: Packing::Tiles,
    }
}

/// The network over several devices, when the arguments name several or place layers, or when
/// the host computes some.
fn split(args: &RunOptions, graph: &QGraph, config: &Config) -> Result<Option<MultiProgram>> {
    let names = device_names(&args.device.device);
    let host = args.allow_host && needs_host(graph);
    if names.len() == 1 && args.placement.is_none() && !host {
        return Ok(None);
    }
    for (i, name) in names.iter().enumerate() {
        ensure!(
            !name.is_empty(),
            "--device: a name between commas is missing"
        );
        ensure!(!names[..i].contains(name), "--device names {name} twice");
    }
    let rules = match &args.placement {
        None => Rules::default(),
        Some(path) => {
            let name = || path.display().to_string();
            let text = files::read_text(path)?;
            Rules::from_toml(&text).with_context(name)?
        }
    };
    let target = |name: &&str| Target::new(*name, config.clone());
    let mut targets: Vec<Target> = names.iter().map(target).collect();
    if host {
        targets.push(Target::host(config.clone()));
    }
    let board = args
        .device
        .board
        .as_deref()
        .or(args.device.timing.as_deref());
    let measured = Measured::read(&args.tiles, config, board)?;
    Ok(Some(spread(graph, &targets, &rules, &measured)?))
}

/// Whether some operators are the host's.
fn needs_host(graph: &QGraph) -> bool {
    let of_host = |node: &QNode| matches!(node.op, QOp::Host { .. });
    graph.nodes.iter().any(of_host)
}

/// A network for one device and the host, if it needs the host.
pub fn hosted(
    graph: &QGraph,
    config: &Config,
    tiles: &TilesOptions,
) -> Result<Option<MultiProgram>> {
    if !needs_host(graph) {
        return Ok(None);
    }
    let targets = [
        Target::new("device", config.clone()),
        Target::host(config.clone()),
    ];
    let measured = Measured::read(tiles, config, None)?;
    Ok(Some(spread(graph, &targets, &Rules::default(), &measured)?))
}

/// Places and lowers a network with the tiles that are known.
fn spread(
    graph: &QGraph,
    targets: &[Target],
    rules: &Rules,
    measured: &Measured,
) -> Result<MultiProgram> {
    let placed = placement::place(graph, targets, rules)?;
    let options = LowerOptions::default();
    let tiles = |part: &QGraph, config: &Config| measured.tiles(part, config);
    Ok(placement::compile_with(
        graph, targets, &placed, &options, &tiles,
    )?)
}

/// The configuration of a file, or the default.
pub fn config(path: Option<&PathBuf>) -> Result<Config> {
    let Some(path) = path else {
        return Ok(Config::default());
    };
    let text = files::read_text(path)?;
    Config::from_json(&text).with_context(|| path.display().to_string())
}

/// A compiled program runs on no configuration but its own.
///
/// # Errors
/// When the configurations differ.
pub fn same_config(program: &Program, config: &Config) -> Result<()> {
    ensure!(
        program.config == *config,
        "--config: the bundle was compiled for another configuration, {}",
        program.config.to_json()
    );
    Ok(())
}

/// A device by name; `bitstream` is for OpenCL devices only, and `threads`, which one batch may
/// use, for the fast simulator.
pub fn device(
    name: &str,
    bitstream: Option<&PathBuf>,
    config: &Config,
    threads: usize,
) -> Result<Arc<dyn Device>> {
    if is_opencl(name) {
        let selector: Selector = name.parse()?;
        let options = Options {
            bitstream: bitstream.cloned(),
            ..Options::from_env()
        };
        let device = OpenClDevice::open(&selector, config.clone(), options)?;
        return Ok(Arc::new(device));
    }
    ensure!(
        bitstream.is_none(),
        "--bitstream is for OpenCL devices, not for {name}"
    );
    Ok(match name {
        "sim" => {
            let kernel = SimDevice::kernel_from_env()?;
            Arc::new(SimDevice::functional_with_threads(
                config.clone(),
                kernel,
                threads,
            ))
        }
        "oracle" => Arc::new(SimDevice::oracle(config.clone())),
        _ => bail!(
            "no device '{name}' in this build (there are sim, cycle, oracle and opencl[:SEL]){}",
            meant_device(name)
        ),
    })
}

/// Kinds and makers of OpenCL devices are written behind `opencl:`.
fn meant_device(name: &str) -> String {
    const OPENCL: [&str; 7] = [
        "cpu",
        "gpu",
        "fpga",
        "accelerator",
        "nvidia",
        "intel",
        "pocl",
    ];
    match OPENCL.iter().find(|kind| name.eq_ignore_ascii_case(kind)) {
        Some(kind) => format!("; did you mean opencl:{kind}?"),
        None => hints::did_you_mean(name, ["sim", "cycle", "oracle", "opencl"]),
    }
}

/// Whether a name means an OpenCL device.
pub fn is_opencl(name: &str) -> bool {
    name.strip_prefix("opencl")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '+']))
}

/// Images for a model that was given none: one of each class for the demo, a synthetic one
/// otherwise.
pub fn default_images(model: &str, chw: [usize; 3]) -> Result<Vec<Picture>> {
    if model == "demo" {
        let all = images::npz_bytes(DEMO_IMAGES, usize::MAX).context("the demo's images")?;
        let mut chosen: Vec<Picture> = all
            .into_iter()
            .enumerate()
            .filter_map(|(i, picture)| DEMO_CHOICE.contains(&i).then_some(picture))
            .collect();
        chosen.sort_by_key(|p| p.label);
        return Ok(chosen);
    }
    let [c, h, w] = chw;
    if model.starts_with("zoo:") && c == 3 && h == w {
        let pixels = zoo::sample_image(h, 0).into_iter().map(f32::from).collect();
        let name = "synthetic".to_owned();
        return Ok(vec![Picture {
            name,
            chw,
            pixels,
            label: None,
            ready: false,
        }]);
    }
    bail!("which images? Give --input FILE, a folder, .npy or .npz")
}
