//! The part of a model between named values, written as the file has it: nodes, weights and all that the project
//! doesn't read keep their bytes.

mod data;
mod types;

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

use super::external::External;
use super::import::order::read;
use super::wire::{Field, fields, put, text_in as name_in};
use super::{OnnxError, ReadOptions, proto};
use data::inside;
use types::{FIRST, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE_INFO, Types};

/// Why a model can't be cut so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CutError {
    /// The file is no model, or a tensor's data can't be had.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// A name that no value has.
    #[error("the model has no value {name}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of those that nodes make and of the inputs.
        values: Vec<String>,
    },
    /// A value that the part can't begin or end at.
    #[error("{name} {why}")]
    Place {
        /// The value.
        name: String,
        /// What it is.
        why: &'static str,
    },
    /// The inputs don't determine an output.
    #[error("{output} depends on {input}, which is not among the inputs")]
    Missing {
        /// The output.
        output: String,
        /// The model's input that it depends on, too.
        input: String,
    },
}

/// A part of a model.
pub struct Part {
    /// As ONNX.
    pub onnx: Vec<u8>,
    /// Nodes in it, and in the whole model.
    pub nodes: [usize; 2],
}

/// Cuts a model: what computes `outputs` from `inputs`, all of them names of values. Without inputs it begins at
/// those of the model that it needs, without outputs it ends at the model's. Names may be as a file has them, or as
/// errors show them; a text may have several with commas between. Weights that lie in other files are put in.
///
/// # Errors
/// [`CutError`].
pub fn cut(
    bytes: Vec<u8>,
    inputs: &[String],
    outputs: &[String],
    options: &ReadOptions<'_>,
) -> Result<Part, CutError> {
    let bytes = Bytes::from(bytes);
    let decode = |error: prost::DecodeError| OnnxError::Decode(error.to_string());
    let model = fields(&bytes).map_err(decode)?;
    let mut graphs = model.iter().filter(|field| field.tag == MODEL_GRAPH);
    let (Some(graph), None) = (graphs.next(), graphs.next()) else {
        return Err(OnnxError::Model("the file has no graph, or several".to_owned()).into());
    };
    let file = File::read(fields(&graph.body).map_err(decode)?).map_err(decode)?;
    let asked = Asked {
        inputs: file.named(inputs)?,
        outputs: match outputs {
            [] => file.ends(GRAPH_OUTPUT).into_iter().collect(),
            names => file.named(names)?,
        },
    };
    let kept = file.between(&asked)?;
    let types = Types::new(&file.fields, &bytes, options);
    let graph = file.write(&asked, &kept, &types, options)?;
    let whole = (
        asked.inputs.iter().all(|name| file.is_input(name)),
        outputs.is_empty(),
    );
    let mut onnx = Vec::with_capacity(graph.len() + (1 << 12));
    for field in &model {
        match field.tag {
            MODEL_GRAPH => put(MODEL_GRAPH, &graph, &mut onnx),
            MODEL_METADATA if !still_true(field, whole) => {}
            _ => onnx.extend_from_slice(&field.whole),
        }
    }
    let all = file.fields.iter().filter(|f| f.tag == GRAPH_NODE).count();
    Ok(Part {
        onnx,
        nodes: [kept.nodes.len(), all],
    })
}

// Numbers of fields, from the public onnx.proto.
const MODEL_GRAPH: u32 = 7;
const MODEL_METADATA: u32 = 14;
const GRAPH_NODE: u32 = 1;
const GRAPH_INITIALIZER: u32 = 5;
const GRAPH_QUANTIZATION: u32 = 14;
const GRAPH_SPARSE: u32 = 15;
/// The name of a tensor.
const TENSOR_NAME: u32 = 8;

/// Whether an entry of the metadata is true of the part: a recipe for images needs the model's inputs, classes its
/// outputs.
fn still_true(entry: &Field, (inputs, outputs): (bool, bool)) -> bool {
    match &name_in(&entry.body, FIRST)[..] {
        "vta.preprocess" => inputs,
        "vta.labels" => outputs,
        _ => true,
    }
}

/// What the part begins and ends at.
struct Asked {
    inputs: Vec<String>,
    outputs: Vec<String>,
}

fn place(name: &str, why: &'static str) -> CutError {
    let name = name.to_owned();
    CutError::Place { name, why }
}

/// What is kept of a file.
#[derive(Default)]
struct Kept {
    /// Nodes, by their fields.
    nodes: BTreeSet<usize>,
    /// Values that they read or make, and the outputs.
    values: HashSet<String>,
    /// What the part takes.
    inputs: Vec<String>,
}

/// A graph, field by field.
struct File {
    fields: Vec<Field>,
    nodes: HashMap<usize, proto::Node>,
    /// The fields of the nodes that make each value.
    makers: HashMap<String, usize>,
    /// The fields of constants.
    constants: HashMap<String, usize>,
}

impl File {
    fn read(fields: Vec<Field>) -> Result<Self, prost::DecodeError> {
        let mut file = Self {
            fields,
            nodes: HashMap::new(),
            makers: HashMap::new(),
            constants: HashMap::new(),
        };
        for (index, field) in file.fields.iter().enumerate() {
            match field.tag {
                GRAPH_NODE => {
                    let node = proto::Node::decode(field.body.clone())?;
                    let made = node.output.iter().filter(|name| !name.is_empty());
                    file.makers.extend(made.map(|name| (name.clone(), index)));
                    file.nodes.insert(index, node);
                }
                GRAPH_INITIALIZER | GRAPH_SPARSE => {
                    file.constants.insert(constant_name(field), index);
                }
                _ => {}
            }
        }
        Ok(file)
    }

    /// The names of the graph's inputs without constants, or of its outputs.
    fn ends(&self, tag: u32) -> Vec<String> {
        let ends = self.fields.iter().filter(|field| field.tag == tag);
        let names = ends.map(|field| name_in(&field.body, FIRST));
        names
            .filter(|name| !self.constants.contains_key(name))
            .collect()
    }

    fn is_input(&self, name: &String) -> bool {
        self.ends(GRAPH_INPUT).contains(name)
    }

    /// Names of values as the file has them; each once.
    fn named(&self, asked: &[String]) -> Result<Vec<String>, CutError> {
        let inputs = self.ends(GRAPH_INPUT);
        let mut values: Vec<&String> = inputs.iter().chain(self.makers.keys()).collect();
        values.sort();
        let value = |name: &str| {
            let same = values
                .binary_search_by(|value| value.as_str().cmp(name))
                .ok();
            let shown = || {
                values
                    .iter()
                    .position(|value| vta_files::printable(value) == name)
            };
            same.or_else(shown).map(|at| values[at])
        };
        let mut found: Vec<String> = Vec::new();
        // A name may have commas itself.
        let single = |name: &str| self.constants.contains_key(name) || value(name).is_some();
        let names = asked.iter().flat_map(|names| {
            if single(names) {
                vec![names.as_str()]
            } else {
                names.split(',').collect()
            }
        });
        for name in names {
            if self.constants.contains_key(name) {
                return Err(place(name, "is a constant"));
            }
            let Some(value) = value(name) else {
                return Err(CutError::Unknown {
                    name: name.to_owned(),
                    values: values.into_iter().cloned().collect(),
                });
            };
            if found.contains(value) {
                return Err(place(name, "is named twice"));
            }
            found.push(value.clone());
        }
        Ok(found)
    }

    /// What computes the outputs, back to the inputs.
    fn between(&self, asked: &Asked) -> Result<Kept, CutError> {
        let inputs = self.ends(GRAPH_INPUT);
        let of_model: HashSet<&String> = inputs.iter().collect();
        let mut kept = Kept::default();
        let mut taken: HashSet<String> = HashSet::new();
        for output in &asked.outputs {
            if asked.inputs.contains(output) {
                return Err(place(output, "is an input and an output"));
            }
            if of_model.contains(output) {
                return Err(place(output, "is an input of the model: no node makes it"));
            }
            let mut open = vec![output];
            while let Some(name) = open.pop() {
                if !kept.values.insert(name.clone()) {
                    continue;
                }
                if asked.inputs.contains(name) || of_model.contains(name) {
                    if !asked.inputs.is_empty() && !asked.inputs.contains(name) {
                        return Err(CutError::Missing {
                            output: output.clone(),
                            input: name.clone(),
                        });
                    }
                    taken.insert(name.clone());
                } else if let Some(index) = self.makers.get(name) {
                    kept.nodes.insert(*index);
                    open.extend(read(&self.nodes[index]).filter(|input| !input.is_empty()));
                }
            }
        }
        if let Some(unread) = asked.inputs.iter().find(|name| !taken.contains(*name)) {
            return Err(place(unread, "is an input that no output depends on"));
        }
        for index in &kept.nodes {
            let made = self.nodes[index]
                .output
                .iter()
                .filter(|name| !name.is_empty());
            for name in made {
                if asked.inputs.contains(name) {
                    let why =
                        "is an input, and its node makes another value that the outputs depend on";
                    return Err(place(name, why));
                }
                kept.values.insert(name.clone());
            }
        }
        kept.inputs = match &asked.inputs[..] {
            // In the model's order.
            [] => inputs
                .into_iter()
                .filter(|name| taken.contains(name))
                .collect(),
            asked => asked.to_vec(),
        };
        Ok(kept)
    }

    fn write(
        &self,
        asked: &Asked,
        kept: &Kept,
        types: &Types<'_>,
        options: &ReadOptions<'_>,
    ) -> Result<Vec<u8>, CutError> {
        let mut out = Vec::new();
        let mut external = External::new(options);
        let ends: HashSet<&String> = kept.inputs.iter().chain(&asked.outputs).collect();
        for (index, field) in self.fields.iter().enumerate() {
            let named = |name: &String| kept.values.contains(name) && !ends.contains(name);
            let keeps = match field.tag {
                GRAPH_NODE => kept.nodes.contains(&index),
                GRAPH_INITIALIZER | GRAPH_SPARSE => named(&constant_name(field)),
                // Old files name their constants here, too.
                GRAPH_INPUT => {
                    let name = name_in(&field.body, FIRST);
                    self.constants.contains_key(&name) && named(&name)
                }
                GRAPH_OUTPUT => false,
                GRAPH_VALUE_INFO => named(&name_in(&field.body, FIRST)),
                GRAPH_QUANTIZATION => kept.values.contains(&name_in(&field.body, FIRST)),
                _ => true,
            };
            match field.tag {
                _ if !keeps => {}
                GRAPH_INITIALIZER => put(field.tag, &inside(field, &mut external)?, &mut out),
                _ => out.extend_from_slice(&field.whole),
            }
        }
        for name in &kept.inputs {
            const UNTYPED: &str = "has a type that neither the file says nor reading it finds";
            let info = types.of(name).ok_or_else(|| place(name, UNTYPED))?;
            put(GRAPH_INPUT, &info, &mut out);
        }
        for name in &asked.outputs {
            let unknown = || {
                let name = name.clone();
                proto::ValueInfo { name, r#type: None }
                    .encode_to_vec()
                    .into()
            };
            put(
                GRAPH_OUTPUT,
                &types.of(name).unwrap_or_else(unknown),
                &mut out,
            );
        }
        Ok(out)
    }
}

/// The name of an initializer; that of a sparse one is its values'.
fn constant_name(field: &Field) -> String {
    if field.tag == GRAPH_INITIALIZER {
        return name_in(&field.body, TENSOR_NAME);
    }
    let parts = fields(&field.body).unwrap_or_default();
    let values = parts.iter().find(|part| part.tag == FIRST);
    values.map_or_else(String::new, |values| name_in(&values.body, TENSOR_NAME))
}

#[cfg(test)]
mod tests;
