//! What MODEL names: an ONNX file, a bundle, the demo, a network of the zoo.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use vta_compiler::graph::{Graph, Op};
use vta_compiler::host::Segment;
use vta_compiler::onnx::{Partial, ReadOptions};
use vta_compiler::qgraph::QGraph;
use vta_compiler::semantics::Requant;
use vta_compiler::{layer, onnx, passes, quantize, zoo};
use vta_driver::{BUNDLE_MAGIC, Bundle, HostKernel, Program};

use crate::compile::Compiled;
use crate::error::{Context, Error, Result, bail, ensure};
use crate::files;
use crate::images;

use crate::open::{Preprocess, source};
use crate::options::hints;
use crate::options::names::{EXEC, INPUT, INPUT_SHAPE, MODELS};
use crate::room;

mod tensor;

pub use tensor::{Port, Tensor};
pub(crate) use tensor::{believe, inputs_of, labels, tell};

/// The demo's network, trained for this project on CIFAR-10.
pub const DEMO_MODEL: &[u8] = include_bytes!("../../demo/resnet20.onnx");
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

/// A network: opened by name, as the file has it, or compiled.
pub struct Model {
    name: String,
    network: Network,
}

impl Model {
    /// Opens an ONNX file, a program bundle, `demo` or `zoo:NAME`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a name that is nothing, [`Error::Io`] and [`Error::Model`] for a file
    /// that can't be read or holds no network.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_with(name, &BTreeMap::new())
    }

    /// [`Model::open`] with shapes of inputs whose dimensions an ONNX file leaves open.
    ///
    /// # Errors
    /// As for [`Model::open`]; [`Error::Model`] for a shape that the file excludes, or of an input
    /// that it hasn't; [`Error::Usage`] for shapes of what is no ONNX file.
    pub(crate) fn open_with(name: &str, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Self> {
        let network = load(name, shapes)?;
        let name = name.to_owned();
        Ok(Self { name, network })
    }

    /// Reads ONNX from memory; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Model`] for what is no ONNX or has operators that aren't supported.
    pub fn from_onnx(name: &str, bytes: &[u8]) -> Result<Self> {
        Self::from_onnx_with(name, bytes.to_vec(), &BTreeMap::new())
    }

    /// [`Model::from_onnx`] with shapes of inputs whose dimensions the model leaves open.
    ///
    /// # Errors
    /// As for [`Model::from_onnx`], and for a shape that the model excludes, or of an input that it hasn't.
    pub(crate) fn from_onnx_with(
        name: &str,
        bytes: Vec<u8>,
        shapes: &BTreeMap<String, Vec<usize>>,
    ) -> Result<Self> {
        let graph = part_of_bytes(bytes, name, None, shapes)?.whole();
        Ok(Self::of_graph(name, graph.context(name)?))
    }

    pub(crate) fn of_graph(name: &str, graph: Graph) -> Self {
        Self {
            name: name.to_owned(),
            network: Network::Graph(Box::new(graph)),
        }
    }

    /// The name that it was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As what it was opened.
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// As what it was opened, taken apart.
    pub(crate) fn into_network(self) -> Network {
        self.network
    }

    /// What it takes: as its model has it where it isn't compiled yet, and else as devices do.
    ///
    /// # Errors
    /// [`Error::Model`] for a bundle that contradicts itself.
    pub fn inputs(&self) -> Result<Vec<Tensor>> {
        match &self.network {
            Network::Graph(graph) => Ok(inputs_of(graph)),
            Network::Compiled(compiled) => {
                let [inputs, _] = compiled.tensors()?;
                Ok(inputs)
            }
        }
    }

    /// Whether it is what a device runs already.
    pub fn is_compiled(&self) -> bool {
        matches!(self.network, Network::Compiled(_))
    }

    /// Whether it is compiled, with layers of the host.
    pub(crate) fn is_hosted(&self) -> bool {
        matches!(&self.network, Network::Compiled(compiled) if compiled.split.is_some())
    }

    /// Whether it must be quantised before it can be compiled.
    pub fn is_float(&self) -> bool {
        matches!(&self.network, Network::Graph(graph) if !is_quantized(graph))
    }

    /// What the model says of itself: `labels` and `preprocess` among it, JSON text each.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        match &self.network {
            Network::Graph(graph) => &graph.metadata,
            Network::Compiled(compiled) => &compiled.program.metadata,
        }
    }

    /// The names of the classes; empty when the model has none.
    ///
    /// # Errors
    /// [`Error::Input`] when they are no list of names.
    pub fn labels(&self) -> Result<Vec<String>> {
        labels(self.metadata())
    }

    /// How the model wants its input made, if it says so.
    ///
    /// # Errors
    /// [`Error::Input`] when what it says can't be read.
    pub fn preprocess(&self) -> Result<Option<Preprocess>> {
        let stated = self.metadata().get("preprocess");
        stated.map(|json| Preprocess::stated(json)).transpose()
    }

    /// How int32 sums become int8, over what the model says. A compiled network stays as it is.
    pub fn set_requant(&mut self, requant: Requant) {
        self.tell(Requant::KEY, requant.name().to_owned());
    }

    /// Says more of the model, for what it is compiled to.
    pub(crate) fn tell(&mut self, key: &str, value: String) {
        if let Network::Graph(graph) = &mut self.network {
            graph.metadata.insert(key.to_owned(), value);
        }
    }

    /// The network as ONNX, which other runtimes load, too.
    ///
    /// # Errors
    /// [`Error::Usage`] for a compiled network.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        match &self.network {
            Network::Graph(graph) => Ok(onnx::save(graph)),
            Network::Compiled(_) => bail!("{} is compiled already", self.name),
        }
    }
}

/// A network before it is compiled, or one that is compiled already.
pub(crate) enum Network {
    /// As the file has it, float or int8.
    Graph(Box<Graph>),
    /// As a device runs it, of a bundle.
    Compiled(Box<Compiled>),
}

/// Resolves MODEL with shapes that an ONNX file leaves open.
///
/// # Errors
/// As for [`Model::open_with`].
fn load(name: &str, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Network> {
    let is_file = || name != "demo" && !name.starts_with("zoo:") && !is_bundle(Path::new(name));
    ensure!(
        shapes.is_empty() || is_file(),
        "{} has its shapes: {} is for ONNX files";
        name, INPUT_SHAPE
    );
    if name == "demo" {
        return Ok(Network::Graph(Box::new(demo()?)));
    }
    if let Some(network) = name.strip_prefix("zoo:") {
        let (network, mode) = match network.split_once(':') {
            None => (network, quantize::Mode::Multiply),
            Some((network, "multiply")) => (network, quantize::Mode::Multiply),
            Some((network, "shift")) => (network, quantize::Mode::Shift),
            Some((_, mode)) => bail!("{name}: no mode '{mode}' (there are multiply, shift)"),
        };
        let weights = zoo::outline(network)?.weights;
        room::ask(weights.saturating_mul(room::PER_WEIGHT), || name.to_owned())?;
        let graph = zoo::graph_with(network, mode)?;
        return Ok(Network::Graph(Box::new(graph)));
    }
    let path = Path::new(name);
    exists(name)?;
    if is_bundle(path) {
        return Ok(Network::Compiled(Box::new(read_bundle(path)?)));
    }
    ensure!(
        !images::is_image(path),
        "{} is a picture, not a network: run one with {} {}";
        name, INPUT, name
    );
    ensure!(!source::is_assembly(path), "{} is assembly text: write {} {}"; name, EXEC, name);
    Ok(Network::Graph(Box::new(read_onnx(path, shapes)?)))
}

/// The demo's network, which knows its labels and recipe.
pub(crate) fn demo() -> Result<Graph> {
    let mut graph = onnx::load(DEMO_MODEL)?;
    let labels = serde_json::to_string(&CIFAR10)?;
    graph.metadata.insert("labels".to_owned(), labels);
    let recipe = Preprocess::named("cifar10")
        .map_err(Error::input)?
        .to_json();
    graph.metadata.insert("preprocess".to_owned(), recipe);
    Ok(graph)
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
    match load(name, &BTreeMap::new())? {
        Network::Compiled(_) => {
            bail!("{name} is compiled already, so that it can't be varied")
        }
        Network::Graph(graph) => {
            if !is_quantized(&graph) {
                return Err(Error::Float(name.to_owned()));
            }
            Ok(passes::quantized(&graph)?)
        }
    }
}

fn read_bundle(path: &Path) -> Result<Compiled> {
    let read = |bytes: &[u8]| -> Result<Arc<dyn HostKernel>, String> {
        Ok(Arc::new(
            Segment::from_bytes(bytes).map_err(|e| e.to_string())?,
        ))
    };
    let name = || path.display().to_string();
    match Bundle::load(path, &read).with_context(name)? {
        Bundle::Program(program) => Ok(Arc::new(*program).into()),
        Bundle::Network(network) => Compiled::of_network(*network).with_context(name),
    }
}

/// What the device runs of a bundle, whatever the host computes between its layers.
///
/// # Errors
/// A file that can't be read or is no bundle.
pub fn bundle_program(path: &Path) -> Result<Arc<Program>> {
    read_bundle(path)?.device_program()
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
    let meant = match (plain, hints::nearest_file(Path::new(name))) {
        (Some(full), _) => format!("; did you mean {full}?"),
        (None, Some(file)) => format!("; did you mean {}?", file.display()),
        (None, None) => hints::did_you_mean(name, known),
    };
    bail!("'{}' is neither a file nor a built-in network{} ({} lists those)"; name, meant, MODELS);
}

/// Reads an ONNX file, with the files beside it that its tensors lie in.
pub fn read_onnx(path: &Path, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Graph> {
    let part = read_part(path, shapes)?;
    part.whole().with_context(|| path.display().to_string())
}

/// [`read_onnx`], as far as the file can be read.
pub(crate) fn read_part(path: &Path, shapes: &BTreeMap<String, Vec<usize>>) -> Result<Partial> {
    let bytes = files::read_file(path)?;
    ensure!(!bytes.is_empty(), "{}: the file is empty", path.display());
    let folder = hints::folder(path);
    part_of_bytes(bytes, &path.display().to_string(), Some(folder), shapes)
}

/// [`read_part`] of bytes, whose external tensors lie in a folder; for which, and for compiling it, there is room.
pub(crate) fn part_of_bytes(
    bytes: Vec<u8>,
    name: &str,
    folder: Option<&Path>,
    shapes: &BTreeMap<String, Vec<usize>>,
) -> Result<Partial> {
    // What is made of the message.
    room::ask(2 * bytes.len() as u64, || name.to_owned())?;
    let options = ReadOptions {
        shapes: shapes.clone(),
        folder,
        ask: &|bytes| room::ask(2 * bytes, || name.to_owned()).map_err(|e| e.to_string()),
    };
    let part = onnx::load_part(bytes, &options).with_context(|| name.to_owned())?;
    let more = part.graph.weights().saturating_mul(room::PER_WEIGHT);
    room::ask(more, || name.to_owned())?;
    Ok(part)
}

/// Whether the graph has int8 tensors.
pub fn is_quantized(graph: &Graph) -> bool {
    graph
        .nodes
        .iter()
        .any(|n| matches!(n.op, Op::QuantizeLinear { .. }))
}
