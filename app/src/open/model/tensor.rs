//! What a network takes and gives.

use std::collections::BTreeSet;

use vta_compiler::graph::{Element, Graph, ValueId};
use vta_compiler::onnx::Port;
use vta_driver::Program;
use vta_files::printable;

use crate::error::Result;

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
    /// int8, or what the host takes or gives; of a run's outputs what the model says.
    pub element: Element,
    /// The real value of one int8 step; `None` for what isn't int8.
    pub scale: Option<f32>,
    /// The zero point: the step that stands for 0.
    pub zero: i8,
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
        Ok(Self {
            name: spec.name.clone(),
            chw: spec.chw.map(|d| d as usize),
            shape: spec.chw.iter().map(|&d| d as usize).collect(),
            element: Element::I8,
            scale: Some(spec.scale),
            zero: spec.zero,
        })
    }

    /// What the host takes or gives.
    pub(crate) fn of_host(port: &Port) -> Self {
        let shape = match &port.shape[..] {
            [1, rest @ ..] => rest,
            all => all,
        };
        let chw = match *shape {
            [c, h, w] => [c, h, w],
            [c, w] => [c, 1, w],
            _ => [shape.iter().product(), 1, 1],
        };
        Self {
            name: printable(&port.name).into_owned(),
            chw,
            shape: shape.to_vec(),
            element: port.element,
            scale: None,
            zero: 0,
        }
    }
}

/// What a network takes, in its order: the inputs that something reads.
pub(crate) fn inputs_of(graph: &Graph) -> Vec<Tensor> {
    let tensor = |id: &ValueId| {
        let value = &graph.values[id.0];
        Tensor::of_host(&Port {
            name: value.name.clone(),
            element: value.element,
            shape: value.shape.clone(),
        })
    };
    read_inputs(graph).map(tensor).collect()
}

/// The inputs that something reads, in order.
pub(super) fn read_inputs(graph: &Graph) -> impl Iterator<Item = &ValueId> {
    let read = graph.nodes.iter().flat_map(|node| &node.inputs);
    let read: BTreeSet<ValueId> = read.copied().collect();
    graph.inputs.iter().filter(move |id| read.contains(id))
}
