//! A model whose operators the library has in part: it runs up to those that it lacks, which are computed here, and
//! goes on behind them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use prost::Message;

use super::library::Library;
use super::own::{self, Compute};
use super::{EngineError, Lent, Tensor};
use crate::onnx::{External, ReadOptions, proto, read_tensor};

/// A loaded ONNX model.
#[derive(Debug)]
pub struct Engine {
    library: Library,
    /// Where the library lacks an operator of the model.
    stages: Option<Stages>,
}

impl Engine {
    /// Loads a model from the bytes of an ONNX file, which may refer to no others. Bytes that are given away
    /// aren't copied.
    ///
    /// # Errors
    /// [`EngineError::Load`], with the node where one is at fault; [`EngineError::Thread`].
    pub fn new<'m>(model: impl Into<Cow<'m, [u8]>>) -> Result<Self, EngineError> {
        let bytes = Bytes::from(model.into().into_owned());
        let (library, stages) = match Stages::cut(bytes.clone())? {
            Some((stages, rest)) => (rest, Some(stages)),
            None => (bytes.into(), None),
        };
        let library = Library::new(library)?;
        Ok(Self { library, stages })
    }

    /// Values of the model on inputs, by their names, in the order in which they are asked for.
    ///
    /// Outputs needn't be the model's: every value that a node computes can be asked for, and those
    /// that nothing needs aren't computed. Integers are of 32 bits inside: int64 inputs and
    /// constants beyond become the nearest, and what ONNX gives as int64 or bool comes as
    /// [`Data::I32`](crate::graph::Data::I32).
    ///
    /// # Errors
    /// [`EngineError`], also where the library panics: such a panic goes no further, but its message has
    /// gone to the process's panic hook.
    pub fn run(&self, inputs: &[Lent<'_>], outputs: &[&str]) -> Result<Vec<Tensor>, EngineError> {
        let Self { library, stages } = self;
        match stages {
            Some(stages) => stages.run(library, inputs, outputs),
            None => library.run(inputs, outputs),
        }
    }
}

/// All nodes of a model some of which the library lacks.
#[derive(Debug)]
struct Stages {
    /// In the file's order.
    steps: Vec<Step>,
    /// Those that nodes outside the library read.
    constants: HashMap<String, Tensor>,
}

#[derive(Debug)]
struct Step {
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// How many operators that the library lacks stand one behind the other before it.
    level: usize,
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    node: proto::Node,
    compute: Compute,
}

impl Stages {
    /// The stages of a model, and the bytes of what the library computes of it; `None` where that is all.
    fn cut(bytes: Bytes) -> Result<Option<(Self, Vec<u8>)>, EngineError> {
        // What is no model is left to the library to say so.
        let Ok(mut model) = proto::Model::decode(bytes) else {
            return Ok(None);
        };
        let Some(graph) = &mut model.graph else {
            return Ok(None);
        };
        if !graph.node.iter().any(|node| own::find(node).is_some()) {
            return Ok(None);
        }
        let mut steps = Vec::with_capacity(graph.node.len());
        let mut levels: HashMap<&str, usize> = HashMap::new();
        for node in &graph.node {
            let before = node.input.iter().filter_map(|name| levels.get(&name[..]));
            let level = before.copied().max().unwrap_or(0);
            let compute = own::find(node);
            let after = level + usize::from(compute.is_some());
            levels.extend(node.output.iter().map(|name| (&name[..], after)));
            steps.push(Step {
                inputs: node.input.clone(),
                outputs: node.output.clone(),
                level,
                own: compute.map(|compute| Own {
                    node: node.clone(),
                    compute,
                }),
            });
        }
        let names = |is_own: bool| {
            let steps = steps
                .iter()
                .filter(move |step| step.own.is_some() == is_own);
            let all: HashSet<&str> = steps
                .flat_map(|step| step.inputs.iter().map(String::as_str))
                .collect();
            all
        };
        let (ours, theirs) = (names(true), names(false));
        let options = ReadOptions::default();
        let mut external = External::new(&options);
        let mut constants = HashMap::new();
        for tensor in graph
            .initializer
            .iter()
            .filter(|t| ours.contains(&t.name[..]))
        {
            let read = read_tensor(&tensor.name, tensor, &mut external);
            let (shape, data) = read.map_err(|e| EngineError::Load(e.to_string()))?;
            constants.insert(tensor.name.clone(), Tensor { shape, data });
        }
        let kept = |t: &proto::Tensor| !ours.contains(&t.name[..]) || theirs.contains(&t.name[..]);
        graph.initializer.retain(kept);
        graph.node.retain(|node| own::find(node).is_none());
        // For the library they are given.
        let made = steps.iter().filter(|step| step.own.is_some());
        let made = made
            .flat_map(|step| &step.outputs)
            .filter(|name| !name.is_empty());
        let made: HashSet<&String> = made.collect();
        graph.output.retain(|info| !made.contains(&info.name));
        let mut made: Vec<&String> = made.into_iter().collect();
        made.sort();
        graph
            .input
            .extend(made.into_iter().map(|name| proto::ValueInfo {
                name: name.clone(),
                r#type: None,
            }));
        let rest = model.encode_to_vec();
        Ok(Some((Self { steps, constants }, rest)))
    }

    fn run(
        &self,
        library: &Library,
        inputs: &[Lent<'_>],
        outputs: &[&str],
    ) -> Result<Vec<Tensor>, EngineError> {
        let given: HashSet<&str> = inputs.iter().map(|lent| lent.name).collect();
        let needed = self.needed(&given, outputs);
        // By value, the last level of a reader. What is computed here reads behind all of the library.
        let mut latest: HashMap<&str, usize> = HashMap::new();
        for step in &needed {
            let level = step.own.as_ref().map_or(step.level, |_| usize::MAX);
            for name in &step.inputs {
                let known = latest.entry(name).or_default();
                *known = level.max(*known);
            }
        }
        let mut known: HashMap<&str, Tensor> = HashMap::new();
        let last = needed.iter().map(|step| step.level).max().unwrap_or(0);
        for level in 0..=last {
            let is_read = |name: &&str| {
                let later = latest.get(name).is_some_and(|latest| *latest > level);
                later || outputs.contains(name)
            };
            let here = needed.iter().filter(|step| step.level == level);
            let made = here.clone().filter(|step| step.own.is_none());
            let made = made.flat_map(|step| step.outputs.iter().map(String::as_str));
            let made: Vec<&str> = made.filter(is_read).collect();
            if !made.is_empty() {
                let known_here = known.iter().map(|(name, tensor)| Lent::of(name, tensor));
                let lent: Vec<Lent<'_>> = inputs.iter().copied().chain(known_here).collect();
                let tensors = library.run(&lent, &made)?;
                known.extend(made.into_iter().zip(tensors));
            }
            for (step, own) in here.filter_map(|step| Some((step, step.own.as_ref()?))) {
                let tensors = own.run(|name| self.find(name, inputs, &known))?;
                let made = step.outputs.iter().map(String::as_str).zip(tensors);
                known.extend(made.filter(|(name, _)| !name.is_empty() && !given.contains(name)));
            }
        }
        let output = |name: &&str| match self.find(name, inputs, &known) {
            Some(lent) => Ok(lent.copied()),
            // A constant that the library has, or nothing.
            None => library.run(inputs, &[name]).map(|mut all| all.remove(0)),
        };
        outputs.iter().map(output).collect()
    }

    /// The nodes that outputs need, of which some values are given.
    fn needed(&self, given: &HashSet<&str>, outputs: &[&str]) -> Vec<&Step> {
        let mut wanted: HashSet<&str> = outputs.iter().copied().collect();
        let mut needed = Vec::new();
        for step in self.steps.iter().rev() {
            let mut made = step.outputs.iter().map(String::as_str);
            if made.any(|name| wanted.contains(name) && !given.contains(name)) {
                wanted.extend(step.inputs.iter().map(String::as_str));
                needed.push(step);
            }
        }
        needed.reverse();
        needed
    }

    /// A value that is given, known or a constant.
    fn find<'t>(
        &'t self,
        name: &str,
        inputs: &[Lent<'t>],
        known: &'t HashMap<&str, Tensor>,
    ) -> Option<Lent<'t>> {
        let given = inputs.iter().find(|lent| lent.name == name).copied();
        let known = || {
            known
                .get_key_value(name)
                .map(|(name, tensor)| Lent::of(name, tensor))
        };
        let constant = || self.constants.get_key_value(name);
        let constant = || constant().map(|(name, tensor)| Lent::of(name, tensor));
        given.or_else(known).or_else(constant)
    }
}

impl Own {
    /// The outputs, of values by their names.
    fn run<'t>(&self, find: impl Fn(&str) -> Option<Lent<'t>>) -> Result<Vec<Tensor>, EngineError> {
        let node = &self.node;
        let fail =
            |text: String| EngineError::Run(format!("{} {}: {text}", node.op_type, node.name));
        let input = |name: &String| {
            if name.is_empty() {
                return Ok(None);
            }
            let found = find(name).ok_or_else(|| fail(format!("input {name} is missing")))?;
            found.checked().map(Some)
        };
        let inputs: Result<Vec<Option<Lent<'_>>>, EngineError> =
            node.input.iter().map(input).collect();
        let asked = own::Asked {
            node,
            inputs: inputs?,
        };
        let tensors = (self.compute)(&asked).map_err(fail)?;
        match node.output.get(tensors.len()) {
            Some(name) if !name.is_empty() => Err(fail(format!("it has no output {name}"))),
            _ => Ok(tensors),
        }
    }
}

#[cfg(test)]
mod tests;
