//! What a network takes and gives as its model says it: with the model's dimensions and types, where
//! [`Tensor`] has what devices read and write.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vta_compiler::graph::{Element, Graph, ValueId};
use vta_files::printable;

use super::Tensor;
use super::tensor::read_inputs;

/// Where the metadata of a compiled network has them, as JSON.
const KEY: &str = "ports";

/// The inputs that something reads, and the outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// In the model's order.
    pub inputs: Vec<Port>,
    /// In the model's order.
    pub outputs: Vec<Port>,
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

    fn of_tensor(tensor: &Tensor) -> Self {
        let own = match (tensor.scale, tensor.chw) {
            (Some(_), [c, 1, 1]) => vec![c],
            _ => tensor.shape.clone(),
        };
        Self {
            name: tensor.name.clone(),
            // Callers give and take the real values of int8 steps.
            element: match tensor.scale {
                Some(_) => Element::F32,
                None => tensor.element,
            },
            shape: [1].into_iter().chain(own).collect(),
        }
    }

    /// Whether it is a tensor's.
    fn fits(&self, tensor: &Tensor) -> bool {
        let len = self
            .shape
            .iter()
            .try_fold(1, |n: usize, &d| n.checked_mul(d));
        len == Some(tensor.len())
    }
}

impl Ports {
    /// Those of a model's graph.
    pub fn of_graph(graph: &Graph) -> Self {
        let port = |id: &ValueId| {
            let value = &graph.values[id.0];
            Port {
                name: printable(&value.name).into_owned(),
                element: value.element,
                shape: value.shape.clone(),
            }
        };
        Self {
            inputs: read_inputs(graph).map(port).collect(),
            outputs: graph.outputs.iter().map(port).collect(),
        }
    }

    /// Tells them to who reads the compiled network's metadata.
    pub fn tell(&self, metadata: &mut BTreeMap<String, String>) {
        if let Ok(json) = serde_json::to_string(self) {
            metadata.insert(KEY.to_owned(), json);
        }
    }

    /// Those that a compiled network's metadata has; where it has none, or not those of the tensors,
    /// the tensors' own: with a batch of 1 in front, and without the position of what has only one.
    pub fn of_metadata(
        metadata: &BTreeMap<String, String>,
        inputs: &[Tensor],
        outputs: &[Tensor],
    ) -> Self {
        let told = metadata
            .get(KEY)
            .and_then(|json| serde_json::from_str(json).ok());
        let fits = |told: &Self| {
            let all = |ports: &[Port], tensors: &[Tensor]| {
                let mut pairs = ports.iter().zip(tensors);
                ports.len() == tensors.len() && pairs.all(|(port, tensor)| port.fits(tensor))
            };
            all(&told.inputs, inputs) && all(&told.outputs, outputs)
        };
        told.filter(fits).unwrap_or_else(|| Self {
            inputs: inputs.iter().map(Port::of_tensor).collect(),
            outputs: outputs.iter().map(Port::of_tensor).collect(),
        })
    }
}

/// Types of elements as numpy's names.
mod by_name {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use vta_compiler::graph::Element;

    const ALL: [Element; 6] = [
        Element::F32,
        Element::I8,
        Element::U8,
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
