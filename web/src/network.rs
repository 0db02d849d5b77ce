//! Networks: opened, run on photos, timed, checked and quantised.

use std::path::Path;

use serde_json::{Value, json};
use vta_app::check::{self, Also};
use vta_app::images::{self, Picture, default_images};
use vta_app::open::Preprocess;
use vta_app::options::Quantizing;
use vta_app::quantize::quantize_arrays;
use vta_app::run::rank;
use vta_app::{Error, Feed, Model, Report, Session, Target, Values};
use wasm_bindgen::prelude::*;

use crate::{Tab, said, target};

/// Classes that are told of each image.
const TOP: usize = 5;

/// A network that runs on the fast simulator, and on the cycle model when its report is asked for.
#[wasm_bindgen]
pub struct Network {
    name: String,
    onnx: Option<Vec<u8>>,
    machine: Target,
    session: Session,
    recipe: Preprocess,
    labels: Vec<String>,
    report: Option<Report>,
}

#[wasm_bindgen]
impl Network {
    /// Opens `demo`, `zoo:NAME`, or an ONNX file that is in memory. The machine's device is `sim`.
    ///
    /// # Errors
    /// A network that can't be read or compiled.
    #[wasm_bindgen(constructor)]
    pub fn open(name: &str, onnx: Option<Vec<u8>>, machine: &str) -> Result<Self, JsError> {
        let machine = target(machine)?;
        Self::new(name, onnx, machine).map_err(|e| said(&e))
    }

    /// Its inputs, outputs and classes, and the images that it brings along.
    pub fn info(&self) -> String {
        let tensor = |t: &vta_app::Tensor| json!({"name": t.name, "shape": t.shape});
        let samples = default_images(&self.name, self.session.inputs()[0].chw).unwrap_or_default();
        let sample = |p: &Picture| {
            let label = p.label.and_then(|label| self.labels.get(label));
            json!({"name": p.name, "chw": p.chw, "rgb": p.rgb(), "label": label})
        };
        let layers = self.session.program().layers.iter();
        json!({
            "name": self.name,
            "inputs": self.session.inputs().iter().map(tensor).collect::<Vec<_>>(),
            "outputs": self.session.outputs().iter().map(tensor).collect::<Vec<_>>(),
            "labels": self.labels,
            "macs": layers.map(|layer| layer.macs).sum::<u64>(),
            "samples": samples.iter().map(sample).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Runs a photo: png, jpeg, webp or bmp.
    ///
    /// # Errors
    /// A photo that can't be read or doesn't fit.
    pub fn classify(&mut self, name: &str, photo: &[u8]) -> Result<String, JsError> {
        let found = images::of_photo(name, photo).and_then(|picture| self.run(picture));
        found.map(|found| found.to_string()).map_err(|e| said(&e))
    }

    /// Runs one of the images that it brings along.
    ///
    /// # Errors
    /// There is no such image.
    pub fn sample(&mut self, index: usize) -> Result<String, JsError> {
        let found = default_images(&self.name, self.session.inputs()[0].chw);
        let found = found.and_then(|mut samples| {
            if index >= samples.len() {
                return Ok(Value::Null);
            }
            self.run(samples.swap_remove(index))
        });
        found.map(|found| found.to_string()).map_err(|e| said(&e))
    }

    /// Where the cycles of a pass go, as `vta run --device cycle --json` has it.
    ///
    /// # Errors
    /// A program that can't be timed.
    pub fn cycles(&mut self) -> Result<String, JsError> {
        let report = self.timed().map_err(|e| said(&e))?;
        Ok(report.json().to_string())
    }

    /// The page that `vta run --report` writes.
    ///
    /// # Errors
    /// As [`Self::cycles`].
    pub fn report(&mut self) -> Result<String, JsError> {
        Ok(self.timed().map_err(|e| said(&e))?.html())
    }
}

impl Network {
    fn new(name: &str, onnx: Option<Vec<u8>>, machine: Target) -> vta_app::Result<Self> {
        let model = machine.open(name, onnx.clone())?;
        let labels = model.labels()?;
        let stated = model.metadata().get("preprocess");
        let recipe = Preprocess::choose(&Preprocess::default(), stated, &Tab)?;
        let session = Session::open(model, &machine, &Tab)?;
        Ok(Self {
            name: name.to_owned(),
            onnx,
            machine,
            session,
            recipe,
            labels,
            report: None,
        })
    }

    fn run(&mut self, picture: Picture) -> vta_app::Result<Value> {
        let input = self.session.inputs()[0].clone();
        let name = picture.name.clone();
        let truth = picture.label;
        let values = self.recipe.shaped(picture, &input)?;
        let feed = Feed {
            name: &input.name,
            values: Values::Real(values.into()),
        };
        let found = self.session.run(&[feed], &())?;
        let output = &found.outputs[0];
        let confident = self.session.gives_confidences();
        let label = |(class, share): &(usize, f32)| {
            let label = self.labels.get(*class).cloned();
            json!({"class": class, "label": label.unwrap_or_else(|| format!("class {class}")), "share": share})
        };
        let ranking = rank(&output.real(), confident, TOP);
        Ok(json!({
            "name": name,
            "truth": truth.and_then(|truth| self.labels.get(truth)),
            "ranking": ranking.iter().map(label).collect::<Vec<_>>(),
            "output": output.real(), "int8": output.steps(),
        }))
    }

    /// The report of a pass, which is made once.
    fn timed(&mut self) -> vta_app::Result<&Report> {
        if self.report.is_none() {
            let target = Target {
                device: "cycle".to_owned(),
                timing_only: true,
                ..self.machine.clone()
            };
            let model = target.open(&self.name, self.onnx.clone())?;
            let mut session = Session::open(model, &target, &Tab)?;
            session.run(&[], &())?;
            self.report = session.report();
        }
        let missing = || Error::from(std::io::Error::other("the run has no cycles"));
        self.report.as_ref().ok_or_else(missing)
    }
}

/// Runs a layer on seeded data, and compares it with the reference interpreter: what `vta layer --json` prints.
///
/// # Errors
/// As `vta layer`.
#[wasm_bindgen]
pub fn layer(name: &str, machine: &str) -> Result<String, JsError> {
    let ran = vta_app::run::layer::run(name, 1, &target(machine)?, &Tab);
    let ran = ran.map_err(|e| said(&e))?;
    Ok(ran.json().to_string())
}

/// What becomes of the nodes of an ONNX file that is in memory: faults, and for each node where it runs and why.
///
/// # Errors
/// A file that is no network.
#[wasm_bindgen]
pub fn check_model(name: &str, onnx: &[u8], machine: &str) -> Result<String, JsError> {
    let found = check::check(
        Path::new(name),
        Some(onnx),
        &target(machine)?,
        Also::default(),
    );
    let found = found.map_err(|e| said(&e))?;
    let network = found.network.as_ref();
    let node = |node: &check::NodeVerdict| {
        let (place, why) = node.place();
        json!({"name": node.name, "op": node.operator, "place": place, "why": why})
    };
    Ok(json!({
        "faults": found.faults, "notes": found.notes,
        "float": network.is_some_and(|n| n.is_float),
        "refused": network.is_some_and(|n| n.is_refused()),
        "nodes": network.map(|n| n.nodes.iter().map(node).collect::<Vec<_>>()),
    })
    .to_string())
}

/// Photos to quantise a float model with.
#[wasm_bindgen]
pub struct Quantizer {
    name: String,
    onnx: Vec<u8>,
    pictures: Vec<Picture>,
}

#[wasm_bindgen]
impl Quantizer {
    /// Of an ONNX file that is in memory.
    #[wasm_bindgen(constructor)]
    pub fn new(name: &str, onnx: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            onnx,
            pictures: Vec::new(),
        }
    }

    /// Takes a photo.
    ///
    /// # Errors
    /// One that can't be read.
    pub fn add(&mut self, name: &str, photo: &[u8]) -> Result<(), JsError> {
        let picture = images::of_photo(name, photo).map_err(|e| said(&e))?;
        self.pictures.push(picture);
        Ok(())
    }

    /// The int8 model as ONNX, which says what it was made of.
    ///
    /// # Errors
    /// A model that can't be quantised, photos that don't fit.
    pub fn quantize(&mut self) -> Result<Vec<u8>, JsError> {
        self.quantized().map_err(|e| said(&e))
    }
}

impl Quantizer {
    fn quantized(&mut self) -> vta_app::Result<Vec<u8>> {
        let model = Model::from_onnx(&self.name, &self.onnx)?;
        let stated = model.metadata().get("preprocess");
        let recipe = Preprocess::choose(&Preprocess::default(), stated, &Tab)?;
        let input = model.inputs()?.swap_remove(0);
        let mut batches = Vec::with_capacity(self.pictures.len());
        for picture in self.pictures.drain(..) {
            let values = recipe.shaped(picture, &input)?;
            let values = Values::Real(values.into());
            batches.push(vec![Feed {
                name: &input.name,
                values,
            }]);
        }
        let done = quantize_arrays(model, &batches, &[], &Quantizing::default(), &Tab)?;
        Ok(done.onnx)
    }
}
