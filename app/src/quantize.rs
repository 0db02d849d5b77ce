//! From a float model to an int8 one that other runtimes load, too.

use std::borrow::Cow;

use serde_json::{Value, json};
use vta_compiler::graph::Graph;
use vta_compiler::quantize::{self, LayerError};
use vta_compiler::{onnx, passes};

use crate::error::{Context, Error, Result, bail};
use crate::open::{Model, Network, Preprocess, model};
use crate::options::QuantizeOptions;
use crate::run::feeds::{self, Feeds};
use crate::run::values::Feed;
use crate::watch::Watch;

mod batches;
pub(crate) mod calibrate;

use batches::Batches;
use calibrate::Calibration;

/// Images that a report measures.
const MEASURED: usize = 4;
/// Fewer calibration images are worth a remark.
const FEW: usize = 32;

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
    network: quantize::Quantized,
    measured: Vec<Vec<f32>>,
}

/// What quantising each layer costs.
pub struct Report {
    /// Signal to noise, layer by layer.
    pub errors: quantize::Report,
    /// Images that were measured.
    pub images: usize,
    /// What to keep in mind of it all.
    pub remarks: Vec<String>,
}

impl Quantized {
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
                "name": layer.name, "kind": layer.kind, "own_db": layer.own_db,
                "so_far_db": layer.so_far_db, "output_db": layer.output_db, "advice": layer.advice,
            })
        });
        json!({
            "output_db": self.errors.output_db, "images": self.images, "remarks": self.remarks,
            "layers": layers.collect::<Vec<_>>(),
        })
    }
}

/// Quantises a float model; what comes out is known to compile.
///
/// # Errors
/// [`crate::Error::Io`] and [`crate::Error::Model`] for a file that can't be read or holds no model that can be
/// quantised, [`crate::Error::Input`] for images that can't be read or don't fit, [`crate::Error::Cancelled`]
/// when `watch` says so.
pub fn quantize(args: &QuantizeOptions, watch: &dyn Watch) -> Result<Quantized> {
    let mut graph = model::read_onnx(&args.model, &args.input_shape)?;
    let stated = graph.metadata.get("preprocess");
    let preprocess = Preprocess::choose(&args.preprocess, stated, watch)?;
    let inputs = model::inputs_of(&graph);
    let pictures = feeds::open(&args.calibration, args.limit, &inputs)?;
    let recipe = preprocess.to_json();
    graph.metadata.insert("preprocess".to_owned(), recipe);
    let images = Feeds::new(&pictures, &inputs, &preprocess, None);
    let name = args.model.display().to_string();
    calibrated(&name, graph, &images, &args.quantize, watch)
}

/// Quantises a float model with arrays: batches of images, each with a [`Feed`] for every input, as the
/// model takes them. What comes out is known to compile.
///
/// # Errors
/// [`crate::Error::Usage`] for a model that is compiled already, [`crate::Error::Input`] for arrays that aren't
/// the model's inputs, [`crate::Error::Model`] for what can't be quantised, [`crate::Error::Cancelled`] when
/// `watch` says so.
pub fn quantize_arrays(
    model: Model,
    batches: &[Vec<Feed<'_>>],
    options: &quantize::Options,
    watch: &dyn Watch,
) -> Result<Quantized> {
    let name = model.name().to_owned();
    let Network::Graph(graph) = model.into_network() else {
        bail!("{name} is compiled already");
    };
    let inputs = model::inputs_of(&graph);
    let images = Batches::new(&inputs, batches)?;
    calibrated(&name, *graph, &images, options, watch)
}

fn calibrated(
    name: &str,
    graph: Graph,
    images: &impl Calibration,
    options: &quantize::Options,
    watch: &dyn Watch,
) -> Result<Quantized> {
    let quantized = calibrate::quantize(Cow::Owned(graph), images, options, watch);
    let network = quantized.context(name)?;
    // What is written is known to compile.
    passes::quantized(&network.graph)?;
    Ok(Quantized {
        onnx: onnx::save(&network.graph),
        nodes: network.graph.nodes.len(),
        images: images.count(),
        equalized: network.equalized,
        measured: images.read(0..MEASURED.min(images.count()))?,
        network,
    })
}
