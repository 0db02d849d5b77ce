//! What a network takes and gives, as devices read and write it, and as its model says it: with the model's
//! dimensions and types.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use vta_compiler::graph::{Element, Graph, ValueId};
use vta_compiler::onnx;
use vta_compiler::qgraph::Numbers;
use vta_driver::Program;
use vta_files::printable;
use vta_isa::{Config, MemType};

use crate::error::{Context, Result};

/// An input or output of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The model's name for it.
    pub name: String,
    /// Of one image: channels, rows, columns, as pictures are fitted to it.
    pub chw: [usize; 3],
    /// Of one image: `chw`, or the model's dimensions (but for a batch of 1) of what the host takes or
    /// gives in another form than int8.
    pub shape: Vec<usize>,
    /// int8 of steps, or what the host takes or gives; of a run's outputs what the model says.
    pub element: Element,
    /// The real value of one step; `None` for what has none.
    pub scale: Option<f32>,
    /// The zero point: the step that stands for 0.
    pub zero: i16,
    /// What devices hold steps as.
    pub numbers: Numbers,
    /// As its model says it. A bundle of an older version has the dimensions above.
    pub port: Port,
}

impl Tensor {
    /// Values of one image.
    pub fn len(&self) -> usize {
        self.chw.iter().product()
    }

    /// Whether it has no values, as no tensor of a network.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn of_program(program: &Program, index: u32) -> Result<Self> {
        let spec = program.tensor(index)?;
        let shape: Vec<usize> = spec.chw.iter().map(|&d| d as usize).collect();
        // The position of what has only one is no dimension of a model.
        let own = match shape[..] {
            [c, 1, 1] => vec![c],
            _ => shape.clone(),
        };
        Ok(Self {
            name: spec.name.clone(),
            chw: spec.chw.map(|d| d as usize),
            shape,
            element: Element::I8,
            scale: Some(spec.scale),
            zero: spec.zero,
            numbers: numbers(&program.config),
            port: Port {
                name: spec.name.clone(),
                // Callers give and take the real values of steps.
                element: Element::F32,
                shape: [1].into_iter().chain(own).collect(),
            },
        })
    }

    /// What the host takes or gives.
    pub(crate) fn of_host(port: &onnx::Port) -> Self {
        let port = Port {
            name: printable(&port.name).into_owned(),
            element: port.element,
            shape: port.shape.clone(),
        };
        let shape = port.image();
        let chw = match *shape {
            [c, h, w] => [c, h, w],
            [c, w] => [c, 1, w],
            _ => [shape.iter().product(), 1, 1],
        };
        Self {
            name: port.name.clone(),
            chw,
            shape: shape.to_vec(),
            element: port.element,
            scale: None,
            zero: 0,
            numbers: Numbers::Int8,
            port,
        }
    }

    /// As its model says it: a tensor of the device may stand for several, in another form.
    pub(crate) fn modelled(mut self) -> Self {
        (self.shape, self.element) = (self.port.image().to_vec(), self.port.element);
        self.name.clone_from(&self.port.name);
        self
    }
}

/// What a machine's networks have.
fn numbers(config: &Config) -> Numbers {
    match config.width(MemType::Inp) {
        8 => Numbers::Int8,
        _ => Numbers::Int16,
    }
}

/// What a network takes, in its order: the inputs that something reads.
pub(crate) fn inputs_of(graph: &Graph) -> Vec<Tensor> {
    let read = graph.nodes.iter().flat_map(|node| &node.inputs);
    let read: BTreeSet<ValueId> = read.copied().collect();
    let inputs = graph.inputs.iter().filter(|id| read.contains(id));
    inputs.map(|id| tensor(graph, *id)).collect()
}

/// What a network gives, in its order.
fn outputs_of(graph: &Graph) -> Vec<Tensor> {
    let outputs = graph.outputs.iter();
    outputs.map(|id| tensor(graph, *id)).collect()
}

fn tensor(graph: &Graph, id: ValueId) -> Tensor {
    let value = &graph.values[id.0];
    Tensor::of_host(&onnx::Port {
        name: value.name.clone(),
        element: value.element,
        shape: value.shape.clone(),
    })
}

/// Where the metadata of a compiled network has them, as JSON.
const KEY: &str = "ports";

/// The inputs that something reads, and the outputs, in the model's order.
#[derive(Serialize, Deserialize)]
struct Ports {
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    #[serde(with = "by_name")]
    pub element: Element,
    /// The model's dimensions.
    pub shape: Vec<usize>,
}

impl Port {
    /// The dimensions of one image: the model's without a batch of 1.
    pub fn image(&self) -> &[usize] {
        match &self.shape[..] {
            [1, rest @ ..] => rest,
            all => all,
        }
    }

    /// Whether it has as many values as a tensor.
    fn fits(&self, tensor: &Tensor) -> bool {
        let mut sides = self.shape.iter();
        sides.try_fold(1, |n: usize, &d| n.checked_mul(d)) == Some(tensor.len())
    }
}

/// Tells what a model says to who reads the compiled network's metadata.
pub(crate) fn tell(graph: &Graph, metadata: &mut BTreeMap<String, String>) {
    let ports = |tensors: Vec<Tensor>| tensors.into_iter().map(|tensor| tensor.port).collect();
    let ports = Ports {
        inputs: ports(inputs_of(graph)),
        outputs: ports(outputs_of(graph)),
    };
    if let Ok(json) = serde_json::to_string(&ports) {
        metadata.insert(KEY.to_owned(), json);
    }
}

/// Gives tensors what the compiled network's metadata says of them. Where it says nothing, or what doesn't fit
/// them, they stay as they are.
pub(crate) fn believe(
    metadata: &BTreeMap<String, String>,
    inputs: &mut [Tensor],
    outputs: &mut [Tensor],
) {
    let told = metadata.get(KEY).map(|json| serde_json::from_str(json));
    let Some(Ok(Ports {
        inputs: takes,
        outputs: gives,
    })) = told
    else {
        return;
    };
    let fit = |ports: &[Port], tensors: &[Tensor]| {
        let mut pairs = ports.iter().zip(tensors);
        ports.len() == tensors.len() && pairs.all(|(port, tensor)| port.fits(tensor))
    };
    if fit(&takes, inputs) && fit(&gives, outputs) {
        let ports = takes.into_iter().chain(gives);
        for (port, tensor) in ports.zip(inputs.iter_mut().chain(outputs)) {
            tensor.port = port;
        }
    }
}

/// Types of elements as numpy's names.
mod by_name {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use vta_compiler::graph::Element;

    const ALL: [Element; 8] = [
        Element::F32,
        Element::I8,
        Element::U8,
        Element::I16,
        Element::U16,
        Element::I32,
        Element::I64,
        Element::Bool,
    ];

    pub fn serialize<S: Serializer>(element: &Element, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(element.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Element, D::Error> {
        let name = String::deserialize(from)?;
        let found = ALL.into_iter().find(|element| element.name() == name);
        found.ok_or_else(|| de::Error::custom(format!("no type '{name}'")))
    }
}

/// The names of the classes that metadata has.
pub(crate) fn labels(metadata: &BTreeMap<String, String>) -> Result<Vec<String>> {
    match metadata.get("labels") {
        Some(json) => {
            let labels: Vec<String> = serde_json::from_str(json).context("the model's labels")?;
            Ok(labels.iter().map(|l| printable(l).into_owned()).collect())
        }
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::Model;
    use crate::{Session, Target};

    #[test]
    fn what_a_model_says_of_its_tensors_is_believed_where_it_fits_them() {
        let demo = Model::open("demo").unwrap();
        let session = Session::open(demo, &Target::default(), &()).unwrap();
        let (inputs, outputs) = (session.inputs(), session.outputs());
        let said = || Ports {
            inputs: inputs.iter().map(|t| t.port.clone()).collect(),
            outputs: outputs.iter().map(|t| t.port.clone()).collect(),
        };
        let told = |ports: &Ports| {
            let json = serde_json::to_string(ports).unwrap();
            let metadata = BTreeMap::from([(KEY.to_owned(), json)]);
            let (mut inputs, mut outputs) = (inputs.to_vec(), outputs.to_vec());
            believe(&metadata, &mut inputs, &mut outputs);
            (inputs, outputs)
        };
        assert_eq!(told(&said()), (inputs.to_vec(), outputs.to_vec()));
        let mut other = said();
        other.outputs[0].shape = vec![1, 2, 5];
        assert_eq!(told(&other).1[0].port, other.outputs[0]);
        let wrong: [fn(&mut Ports); 4] = [
            |ports| ports.outputs[0].shape = vec![1, 11],
            |ports| ports.inputs[0].shape = vec![usize::MAX, 3, 32, 32],
            |ports| ports.inputs.clear(),
            |ports| ports.outputs.push(ports.outputs[0].clone()),
        ];
        for spoil in wrong {
            let mut ports = said();
            spoil(&mut ports);
            // The tensors' own dimensions, which are the model's here.
            assert_eq!(told(&ports), (inputs.to_vec(), outputs.to_vec()));
        }
    }
}
