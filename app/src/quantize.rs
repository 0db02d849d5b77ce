//! From a float model to an int8 or int16 one that other runtimes load, too, which knows how near it is to the float one.

use std::borrow::Cow;

use serde_json::{Value, json};
use vta_compiler::graph::Graph;
use vta_compiler::quantize::{self, Activations, Calibrated, LayerError};
use vta_compiler::{onnx, passes};

use crate::error::{Context, Error, Result, bail, ensure};
use crate::open::{Model, Network, Preprocess, model};
use crate::options::names::{CALIBRATION, HELD_OUT, KEEP_FLOAT, TARGET};
use crate::options::{QuantizeOptions, Quantizing, did_you_mean};
use crate::run::feeds::{self, Feeds};
use crate::run::values::Feed;
use crate::watch::Watch;

mod batches;
pub(crate) mod calibrate;
mod fidelity;
mod search;
mod trial;

use batches::Batches;
use calibrate::{Calibration, Split, Watched};
use fidelity::FEW;
pub use fidelity::Fidelity;
use search::Search;

/// Images that a report measures.
const MEASURED: usize = 4;

/// An int8 model.
pub struct Quantized {
    /// As ONNX with QuantizeLinear and DequantizeLinear, the recipe for images among its metadata.
    pub onnx: Vec<u8>,
    /// Of the graph.
    pub nodes: usize,
    /// Images that it was calibrated with.
    pub images: usize,
    /// Pairs of layers that were equalised.
    pub equalized: usize,
    /// How near it is to the float model.
    pub fidelity: Fidelity,
    network: quantize::Quantized,
    measured: Vec<Vec<f32>>,
}

/// What quantising each layer costs.
pub struct Report {
    /// Signal to noise, layer by layer.
    pub errors: quantize::Report,
    /// Bits of activations.
    pub activations: Activations,
    /// Images that were measured.
    pub images: usize,
    /// What to keep in mind of it all.
    pub remarks: Vec<String>,
}

impl Quantized {
    /// The int8 graph.
    pub(crate) fn into_graph(self) -> Graph {
        self.network.graph
    }

    /// What there is to say of it but for the model itself.
    pub fn json(&self) -> Value {
        let warnings = self.fidelity.warnings();
        let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        json!({
            "nodes": self.nodes, "images": self.images, "equalized": self.equalized,
            "bytes": self.onnx.len(), "fidelity": self.fidelity.json(), "warnings": warnings,
        })
    }

    /// Measures what quantising each layer costs; `watch` is told of layers.
    ///
    /// # Errors
    /// [`crate::Error::Model`] for a node that can't be computed, [`crate::Error::Cancelled`] when `watch` says so.
    pub fn report(&self, watch: &dyn Watch) -> Result<Report> {
        let progress = |done, all| {
            watch.progress(done, all);
            !watch.cancelled()
        };
        let Some(errors) = quantize::report(&self.network, &self.measured, &progress)? else {
            return Err(Error::Cancelled);
        };
        let mut remarks = Vec::new();
        if self.images < FEW {
            remarks.push(format!(
                "calibrated with {} images: of {FEW} or more fewer values of others are cut off",
                self.images
            ));
        }
        if errors
            .layers
            .iter()
            .any(|layer| layer.so_far_db < layer.own_db - 20.0)
        {
            remarks.push(
                "layers that are far worse so far than on their own inherit errors of those before them".to_owned(),
            );
        }
        Ok(Report {
            errors,
            activations: self.fidelity.options.activations,
            images: self.measured.len(),
            remarks,
        })
    }
}

impl Report {
    /// Layers, those first that cost the outputs most.
    pub fn worst(&self) -> Vec<&LayerError> {
        let mut layers: Vec<&LayerError> = self.errors.layers.iter().collect();
        layers.sort_by(|a, b| a.output_db.total_cmp(&b.output_db));
        layers
    }

    /// Everything, the worst layers first; ratios are in dB, `null` where nothing differs.
    pub fn json(&self) -> Value {
        let layers = self.worst().into_iter().map(|layer| {
            json!({
                "name": layer.name, "kind": layer.kind, "int4": layer.int4, "own_db": layer.own_db,
                "so_far_db": layer.so_far_db, "output_db": layer.output_db, "advice": layer.advice,
            })
        });
        json!({
            "output_db": self.errors.output_db, "activations": self.activations.to_string(), "images": self.images, "remarks": self.remarks,
            "layers": layers.collect::<Vec<_>>(),
        })
    }
}

/// Quantises a float model; what comes out is known to compile.
///
/// # Errors
/// [`crate::Error::Io`] and [`crate::Error::Model`] for a file that can't be read or holds no model that can be
/// quantised, [`crate::Error::Input`] for images that can't be read or don't fit, [`crate::Error::Usage`] for nodes
/// that there aren't, [`crate::Error::Cancelled`] when `watch` says so.
pub fn quantize(args: &QuantizeOptions, watch: &dyn Watch) -> Result<Quantized> {
    let mut graph = model::read_onnx(&args.model, &args.input_shape)?;
    let stated = graph.metadata.get("preprocess");
    let preprocess = Preprocess::choose(&args.preprocess, stated, watch)?;
    let inputs = model::inputs_of(&graph);
    let pictures = feeds::open(&args.calibration, args.limit, &inputs)?;
    let others = (!args.held_out.is_empty()).then(|| feeds::open(&args.held_out, None, &inputs));
    let others = others.transpose()?;
    let recipe = preprocess.to_json();
    graph.metadata.insert("preprocess".to_owned(), recipe);
    let images = Feeds::new(&pictures, &inputs, &preprocess, None);
    let others = others.as_deref();
    let others = others.map(|others| Feeds::new(others, &inputs, &preprocess, None));
    let given = Given {
        images: &images,
        others: others.as_ref().map(|others| others as &dyn Calibration),
    };
    calibrated(
        &args.model.display().to_string(),
        graph,
        &given,
        &args.quantize,
        watch,
    )
}

/// Quantises a float model with arrays: batches of images, each with a [`Feed`] for every input, as the
/// model takes them; `others` are compared with float, or some of these. What comes out is known to compile.
///
/// # Errors
/// [`crate::Error::Usage`] for a model that is compiled already and for nodes that there aren't,
/// [`crate::Error::Input`] for arrays that aren't the model's inputs, [`crate::Error::Model`] for what can't be
/// quantised, [`crate::Error::Cancelled`] when `watch` says so.
pub fn quantize_arrays(
    model: Model,
    batches: &[Vec<Feed<'_>>],
    others: &[Vec<Feed<'_>>],
    options: &Quantizing,
    watch: &dyn Watch,
) -> Result<Quantized> {
    let name = model.name().to_owned();
    let Network::Graph(graph) = model.into_network() else {
        bail!("{name} is compiled already");
    };
    let inputs = model::inputs_of(&graph);
    let images = Batches::new(&inputs, batches, CALIBRATION)?;
    let others = (!others.is_empty()).then(|| Batches::new(&inputs, others, HELD_OUT));
    let others = others.transpose()?;
    let given = Given {
        images: &images,
        others: others.as_ref().map(|others| others as &dyn Calibration),
    };
    calibrated(&name, *graph, &given, options, watch)
}

/// Images to quantise with.
pub(crate) struct Given<'a> {
    pub images: &'a dyn Calibration,
    /// To compare with float, if there are others.
    pub others: Option<&'a dyn Calibration>,
}

pub(crate) fn calibrated(
    name: &str,
    graph: Graph,
    given: &Given<'_>,
    options: &Quantizing,
    watch: &dyn Watch,
) -> Result<Quantized> {
    let none = Vec::new();
    let keep = if options.is_auto() {
        &none
    } else {
        &options.keep_float
    };
    if let Err(error) = options.options.check() {
        bail!("{error}");
    }
    check_names(&graph, keep)?;
    let target = options.target;
    ensure!(target > 0.0 && target <= 1.0, "{} is {}, above 0 and up to 1 it must be"; TARGET, target);
    let all: Vec<usize> = (0..given.images.count()).collect();
    let (split, compared) = match given.others {
        None => (Split::new(all.len(), options.held_out)?, given.images),
        Some(others) => {
            let out: Vec<usize> = (0..others.count()).collect();
            let calibrate = all;
            (
                Split {
                    calibrate,
                    ..Split::held(&out)
                },
                others,
            )
        }
    };
    let images = Watched {
        images: given.images,
        some: &split.calibrate,
        more: split.compare.len(),
        watch,
    };
    // What may be chosen is looked at once the choice comes to it.
    let first = quantize::Options {
        equalize: options.options.equalize && (!options.choose_equalize || split.choose.is_empty()),
        ..options.options
    };
    let calibrated = Calibrated::new(Cow::Owned(graph), &images, &first, keep);
    if watch.cancelled() {
        return Err(Error::Cancelled);
    }
    let calibrated = calibrated.and_then(|calibrated| calibrated.with_int4(&options.int4));
    let calibrated = calibrated.context(name)?;
    let search = Search {
        calibrated: &calibrated,
        calibration: &images,
        images: compared,
        split: &split,
        quantizing: options,
        watch,
    };
    let looks = if calibrated.equalizes() { 2 } else { 1 };
    let found = search.best(looks * split.calibrate.len());
    let (network, fidelity) = found.context(name)?;
    // What is written is known to compile: what the simulator computed was.
    if !fidelity.simulated {
        passes::quantized(&network.graph)?;
    }
    let measured = split.compare[..MEASURED.min(split.compare.len())].to_vec();
    Ok(Quantized {
        onnx: onnx::save(&network.graph),
        nodes: network.graph.nodes.len(),
        images: split.calibrate.len(),
        equalized: network.equalized,
        measured: compared.read(&measured)?,
        fidelity,
        network,
    })
}

/// Refuses names of nodes and outputs that there aren't.
fn check_names(graph: &Graph, names: &[String]) -> Result<()> {
    let known = || {
        let nodes = graph.nodes.iter();
        nodes.flat_map(|node| [&node.name[..], &graph.values[node.output.0].name])
    };
    for name in names {
        let meant = did_you_mean(name, known());
        ensure!(
            known().any(|known| known == name),
            "{}: no node or output '{}'{}"; KEEP_FLOAT, name, meant
        );
    }
    Ok(())
}
