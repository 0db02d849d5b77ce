//! What a graph computes in float32: for calibration, and to see what quantisation costs.
//!
//! The engine of the host computes it, so that results don't depend on the number of threads.

use std::borrow::Cow;

use thiserror::Error;

use crate::engine::{self, Engine, EngineError, Lent, Tensor};
use crate::graph::{Data, Element, Graph, Op, Value, ValueId};
use crate::onnx;

/// A graph or input that can't be run in floats.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FloatError {
    /// The input has another length.
    #[error("the input has {found} values, the network needs {expected}")]
    Input {
        /// Values given.
        found: usize,
        /// Values needed.
        expected: usize,
    },
    /// The engine refuses the graph, or a node of it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A graph that is loaded once, to be run on many images.
#[derive(Debug)]
pub struct FloatNetwork<'g> {
    graph: Cow<'g, Graph>,
    engine: Engine,
    /// Weights that each run reads from the graph.
    lent: Vec<ValueId>,
    wanted: Vec<ValueId>,
    /// Whether each of `wanted` comes of a run: a node computes it, or it is an input.
    comes: Vec<bool>,
    /// By value, whether it may be smaller than its shape: what is left of it is filled.
    open: Vec<bool>,
}

impl<'g> FloatNetwork<'g> {
    /// Loads a graph of which some values are wanted. A run holds those, and of the others what
    /// is still to be read.
    ///
    /// # Errors
    /// [`FloatError::Engine`] naming the node that can't be loaded.
    pub fn new(graph: &'g Graph, wanted: Vec<ValueId>) -> Result<Self, FloatError> {
        let graph = onnx::with_unique_names(graph);
        let mut computed = vec![false; graph.values.len()];
        graph
            .nodes
            .iter()
            .for_each(|node| computed[node.output.0] = true);
        let comes = |id: &ValueId| computed[id.0] || graph.inputs.contains(id);
        let comes = wanted.iter().map(comes).collect();
        let mut given: Vec<ValueId> = wanted.clone();
        given.retain(|id| std::mem::take(&mut computed[id.0]));
        // The engine would keep a copy of them beside the graph's own.
        let lent = weights(&graph);
        let engine = match &lent[..] {
            [] => Engine::new(engine::model(&graph, &given))?,
            lent => Engine::new(engine::model(&without(&graph, lent), &given))?,
        };
        Ok(Self {
            open: graph.open(),
            graph,
            engine,
            lent,
            wanted,
            comes,
        })
    }

    /// The wanted values on one image (float32, NCHW, the values of all inputs one behind the other), in
    /// their order; integers as floats.
    ///
    /// # Errors
    /// [`FloatError`] for an image of another length or a node that can't be computed.
    pub fn run(&self, image: &[f32]) -> Result<Vec<Vec<f32>>, FloatError> {
        let images = self.images(image)?;
        let given = images.iter().map(|(id, image)| (*id, image));
        let wanted = || self.wanted.iter().zip(&self.comes);
        let asked = wanted().filter(|(_, comes)| **comes).map(|(id, _)| *id);
        let mut found = self.compute(given, asked)?.into_iter();
        let value = |(id, comes): (&ValueId, &bool)| {
            let constant = || self.graph.values[id.0].data.clone().map(floats);
            let value = if *comes { found.next() } else { constant() };
            value.unwrap_or_default()
        };
        Ok(wanted().map(value).collect())
    }

    /// Values of a run on others, in floats.
    fn compute<'t>(
        &'t self,
        given: impl Iterator<Item = (ValueId, &'t Data)>,
        asked: impl Iterator<Item = ValueId>,
    ) -> Result<Vec<Vec<f32>>, FloatError> {
        let values = &self.graph.values;
        let weight = |id: &ValueId| Some((*id, values[id.0].data.as_ref()?));
        let lend = |(id, data): (ValueId, &'t Data)| Lent {
            name: &values[id.0].name,
            shape: &values[id.0].shape,
            data,
        };
        let given = given.chain(self.lent.iter().filter_map(weight));
        let given: Vec<Lent<'_>> = given.map(lend).collect();
        let asked: Vec<ValueId> = asked.collect();
        let names: Vec<&str> = asked.iter().map(|id| &values[id.0].name[..]).collect();
        let found = self.engine.run(&given, &names)?.into_iter();
        let whole = |(tensor, id): (Tensor, &ValueId)| {
            let value = &values[id.0];
            if !self.open[id.0] {
                return Ok(floats(tensor.data));
            }
            let tensor = tensor.within(&value.shape);
            let larger = || EngineError::Run(format!("{} is larger than it may be", value.name));
            Ok(floats(tensor.ok_or_else(larger)?.data))
        };
        found.zip(&asked).map(whole).collect()
    }

    /// What each input takes of an image.
    fn images(&self, image: &[f32]) -> Result<Vec<(ValueId, Data)>, FloatError> {
        let len = |id: &ValueId| {
            let shape = self.graph.values[id.0].shape.iter();
            shape.copied().try_fold(1usize, usize::checked_mul)
        };
        let lens: Option<Vec<usize>> = self.graph.inputs.iter().map(len).collect();
        let expected = lens.as_ref().map(|lens| lens.iter().sum::<usize>());
        let lens = lens.filter(|_| expected == Some(image.len()));
        let lens = lens.ok_or(FloatError::Input {
            found: image.len(),
            expected: expected.unwrap_or(usize::MAX),
        })?;
        let mut rest = image;
        let own = |(id, len): (&ValueId, usize)| {
            let own = rest.split_off(..len).unwrap_or_default();
            (*id, input(&self.graph.values[id.0], own))
        };
        Ok(self.graph.inputs.iter().zip(lens).map(own).collect())
    }

    /// Some of the wanted values on one image, by their places, where others of them are given in place of what
    /// computes them: only what depends on neither is the image's. Float32 values alone can be given.
    ///
    /// # Errors
    /// As for [`FloatNetwork::run`], and for a value that isn't as large as it should be.
    pub(crate) fn resume(
        &self,
        image: &[f32],
        given: &[(usize, &Data)],
        places: &[usize],
    ) -> Result<Vec<Vec<f32>>, FloatError> {
        let known = |id: &ValueId| given.iter().any(|(at, _)| self.wanted[*at] == *id);
        let mut images = self.images(image)?;
        images.retain(|(id, _)| !known(id));
        let images = images.iter().map(|(id, image)| (*id, image));
        let given = given.iter().map(|(at, data)| (self.wanted[*at], *data));
        self.compute(
            images.chain(given),
            places.iter().map(|at| self.wanted[*at]),
        )
    }
}

/// Every value of the graph on one image (float32, NCHW), indexed by [`ValueId`].
///
/// # Errors
/// [`FloatError`] for an image of another length or a node that can't be computed.
pub fn run_all(graph: &Graph, image: &[f32]) -> Result<Vec<Vec<f32>>, FloatError> {
    let all = (0..graph.values.len()).map(ValueId).collect();
    FloatNetwork::new(graph, all)?.run(image)
}

/// The network's outputs on one image.
///
/// # Errors
/// As [`run_all`].
pub fn run(graph: &Graph, image: &[f32]) -> Result<Vec<Vec<f32>>, FloatError> {
    FloatNetwork::new(graph, graph.outputs.clone())?.run(image)
}

/// Floats of weights that aren't copied into a model.
const MANY: usize = 1 << 16;

/// Constants that only products read, as their weights, and that are large.
fn weights(graph: &Graph) -> Vec<ValueId> {
    let mut others = graph.uses();
    for node in &graph.nodes {
        let products = matches!(
            node.op,
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::Gemm { .. } | Op::MatMul { .. }
        );
        let weights = node.inputs.get(1).filter(|_| products);
        if let Some(uses) = weights.and_then(|id| others.get_mut(id)) {
            *uses -= 1;
        }
    }
    let is_lent = |(id, uses): (&ValueId, &usize)| match &graph.values[id.0].data {
        Some(Data::F32(data)) if *uses == 0 && data.len() >= MANY => Some(*id),
        _ => None,
    };
    others.iter().filter_map(is_lent).collect()
}

/// A graph that takes some of its constants as inputs.
fn without(graph: &Graph, constants: &[ValueId]) -> Graph {
    let mut is_input = vec![false; graph.values.len()];
    constants.iter().for_each(|id| is_input[id.0] = true);
    let mut without = graph.without_data(|id| is_input[id.0]);
    without.inputs.extend(constants);
    without
}

/// An image as an input takes it.
fn input(value: &Value, image: &[f32]) -> Data {
    let each = || image.iter().copied();
    match value.element {
        Element::F32 => Data::F32(image.to_vec()),
        Element::I8 => Data::I8(each().map(|x| x as i8).collect()),
        Element::U8 => Data::U8(each().map(|x| x as u8).collect()),
        Element::I16 => Data::I16(each().map(|x| x as i16).collect()),
        Element::U16 => Data::U16(each().map(|x| x as u16).collect()),
        Element::I32 => Data::I32(each().map(|x| x as i32).collect()),
        Element::I64 => Data::I64(each().map(|x| x as i64).collect()),
        Element::Bool => Data::Bool(each().map(|x| x != 0.0).collect()),
    }
}

fn floats(data: Data) -> Vec<f32> {
    match data {
        Data::F32(v) => v,
        Data::I8(v) => v.into_iter().map(f32::from).collect(),
        Data::U8(v) => v.into_iter().map(f32::from).collect(),
        Data::I16(v) => v.into_iter().map(f32::from).collect(),
        Data::U16(v) => v.into_iter().map(f32::from).collect(),
        Data::I32(v) => v.into_iter().map(|x| x as f32).collect(),
        Data::I64(v) => v.into_iter().map(|x| x as f32).collect(),
        Data::Bool(v) => v.into_iter().map(|x| f32::from(u8::from(x))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;

    /// Two dense layers, of which the first has many weights; the same ones are added to what it gives.
    fn graph(shared: bool) -> Graph {
        const SIZE: usize = 256;
        let mut graph = Graph::default();
        let mut value = |name: &str, shape: &[usize], data: Option<Vec<f32>>| {
            let value = Value::new(name, shape.to_vec(), data.map(Data::F32));
            graph.values.push(value);
            ValueId(graph.values.len() - 1)
        };
        let many = (0..SIZE * SIZE).map(|i| (i % 37) as f32 / 16.0 - 1.0);
        let x = value("x", &[1, SIZE], None);
        let large = value("large", &[SIZE, SIZE], Some(many.collect()));
        let small = value("small", &[2, SIZE], Some(vec![0.5; 2 * SIZE]));
        let y = value("y", &[1, SIZE], None);
        let z = value("z", &[1, 2], None);
        let sum = value("sum", &[SIZE, SIZE], None);
        let node = |op, inputs: &[ValueId], output| Node {
            name: format!("n{output:?}"),
            op,
            inputs: inputs.to_vec(),
            output,
        };
        let dense = Op::Gemm { trans_b: true };
        graph.nodes = vec![
            node(dense.clone(), &[x, large], y),
            node(dense, &[y, small], z),
        ];
        if shared {
            graph.nodes.push(node(Op::Add, &[large, y], sum));
        }
        (graph.inputs, graph.outputs) = (vec![x], vec![z]);
        graph
    }

    #[test]
    fn large_weights_are_lent_and_give_what_constants_do() {
        let image: Vec<f32> = (0..256).map(|i| (i % 11) as f32 - 5.0).collect();
        let graph = graph(false);
        assert_eq!(weights(&graph), [ValueId(1)]);
        let network = FloatNetwork::new(&graph, vec![ValueId(3), ValueId(4)]).unwrap();
        let lent = network.run(&image).unwrap();
        let whole = Engine::new(engine::model(&graph, &network.wanted)).unwrap();
        let data = &input(&graph.values[0], &image);
        let (name, shape) = ("x", &[1, 256][..]);
        let whole = whole
            .run(&[Lent { name, shape, data }], &["y", "z"])
            .unwrap();
        let whole: Vec<Vec<f32>> = whole.into_iter().map(|t| floats(t.data)).collect();
        assert_eq!(lent, whole);
    }

    #[test]
    fn what_others_read_stays_a_constant() {
        assert_eq!(weights(&graph(true)), []);
    }
}
