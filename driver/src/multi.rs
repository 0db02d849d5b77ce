//! A network over several devices and the host: what runs where, and which tensors travel.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::{Attribute, Packing, Program, ProgramError, TensorSpec};

/// A tensor of one of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Index into [`MultiProgram::parts`].
    pub part: usize,
    /// Index into the tensors of the part's program.
    pub tensor: u32,
}

/// What one device runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Which of the devices that the network was compiled for.
    pub target: usize,
    /// All layers that the device runs. Its inputs and outputs are those of the network that lie
    /// there, and the tensors that arrive from other parts and leave for them.
    pub program: Arc<Program>,
    /// The whole network's number of each of the program's tensors.
    pub network_tensors: Vec<u32>,
}

/// What the host computes between layers.
pub trait HostKernel: Debug + Send + Sync {
    /// The output of one image from its inputs, int8 in NCHW order. It must depend on nothing
    /// else.
    ///
    /// # Errors
    /// Why it can't be computed, in words.
    fn run(&self, inputs: &[&[i8]]) -> Result<Vec<i8>, String>;

    /// A text from which the same kernel can be made, for bundles; `None` if there is none.
    fn to_text(&self) -> Option<String> {
        None
    }

    /// What it is told, for listings; nothing where that isn't known.
    fn attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }

    /// The values of an image in each input and in the output, where the kernel takes no others.
    fn sizes(&self) -> Option<(Vec<usize>, usize)> {
        None
    }
}

/// A layer of the host: tensors of devices are read, one is computed and written.
#[derive(Clone, Debug)]
pub struct HostStep {
    /// The layer's name.
    pub name: String,
    /// The operator, for tables.
    pub op: String,
    /// What it computes.
    pub kernel: Arc<dyn HostKernel>,
    /// Where its inputs lie.
    pub inputs: Vec<Place>,
    /// Every place that the output is written to, at least one.
    pub outputs: Vec<Place>,
    /// The whole network's number of the output.
    pub network_tensor: u32,
}

impl PartialEq for HostStep {
    fn eq(&self, other: &Self) -> bool {
        // A kernel's text says all that it depends on.
        let kernel = |step: &Self| format!("{:?}", step.kernel);
        (&self.name, &self.op, &self.inputs, &self.outputs)
            == (&other.name, &other.op, &other.inputs, &other.outputs)
            && self.network_tensor == other.network_tensor
            && kernel(self) == kernel(other)
    }
}

/// One step of the network.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Layers of a part, up to where the next layer is elsewhere.
    Run {
        /// The part.
        part: usize,
        /// The layers, in the order of the part's program.
        layers: Range<usize>,
    },
    /// A tensor goes to another part, whose layers read it later.
    Copy {
        /// Where it was computed.
        from: Place,
        /// Where it is read.
        to: Place,
    },
    /// The host computes a tensor.
    Host(HostStep),
}

/// A network compiled for several devices, each with its own program.
///
/// Steps stand in an order in which everything is computed before it is used. They only depend
/// on each other through the tensors that are copied: devices work at the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MultiProgram {
    /// One for each device that has layers.
    pub parts: Vec<Part>,
    /// In order.
    pub steps: Vec<Step>,
    /// For the network's input: every place that it is written to.
    pub input: Vec<Place>,
    /// The network's outputs.
    pub outputs: Vec<Place>,
}

impl MultiProgram {
    /// Checks every part, index, and shape of a copy, and that every layer runs once and in the
    /// order of its program.
    ///
    /// # Errors
    /// The first contradiction; [`ProgramError::Step`] for those of the steps.
    pub fn validate(&self) -> Result<(), ProgramError> {
        for part in &self.parts {
            part.program.validate()?;
        }
        let mut next = vec![0; self.parts.len()];
        for (index, step) in self.steps.iter().enumerate() {
            let refuse = |reason| Err(ProgramError::Step { index, reason });
            match step {
                Step::Run { part, layers } => match next.get_mut(*part) {
                    None => return refuse("it runs on a part that isn't there"),
                    Some(next) if layers.start != *next || layers.end < *next => {
                        return refuse("its layers don't follow the part's earlier ones");
                    }
                    Some(next) => *next = layers.end,
                },
                Step::Copy { from, to } => self.check_copy(index, *from, *to)?,
                Step::Host(step) => self.check_host(index, step)?,
            }
        }
        for (part, &ran) in self.parts.iter().zip(&next) {
            if part.program.layers.len() != ran {
                return Err(ProgramError::Layer { index: ran });
            }
        }
        self.check_ends()
    }

    fn check_copy(&self, index: usize, from: Place, to: Place) -> Result<(), ProgramError> {
        let refuse = |reason| Err(ProgramError::Step { index, reason });
        let (source, target) = (self.tensor(from)?, self.tensor(to)?);
        let batches = [from, to].map(|p| self.parts[p.part].program.config.batch());
        if from.part == to.part {
            return refuse("it copies from a device to the same");
        }
        if source.chw != target.chw || batches[0] != batches[1] {
            return refuse("it copies between tensors of different shapes");
        }
        if source.packing != Packing::Tiles {
            return refuse("it copies from a tensor that isn't packed as tiles");
        }
        Ok(())
    }

    fn check_host(&self, index: usize, step: &HostStep) -> Result<(), ProgramError> {
        let refuse = |reason| Err(ProgramError::Step { index, reason });
        let Some(first) = step.outputs.first() else {
            return refuse("the host's result goes nowhere");
        };
        let chw = self.tensor(*first)?.chw;
        let batch = |place: &Place| self.parts.get(place.part).map(|p| p.program.config.batch());
        for place in &step.inputs {
            if self.tensor(*place)?.packing != Packing::Tiles {
                return refuse("the host reads a tensor that isn't packed as tiles");
            }
        }
        for place in &step.outputs {
            if self.tensor(*place)?.chw != chw {
                return refuse("the host's result has different shapes");
            }
        }
        if let Some((inputs, output)) = step.kernel.sizes() {
            let values = |chw: [u32; 3]| chw.iter().map(|&d| d as usize).product::<usize>();
            let found = step.inputs.iter().map(|p| Ok(values(self.tensor(*p)?.chw)));
            let found: Vec<usize> = found.collect::<Result<_, ProgramError>>()?;
            if found != inputs || values(chw) != output {
                return refuse("the host's tensors aren't of its operator's sizes");
            }
        }
        match step
            .inputs
            .iter()
            .chain(&step.outputs)
            .all(|p| batch(p) == batch(first))
        {
            true => Ok(()),
            false => refuse("the host's tensors are of devices that differ in BATCH"),
        }
    }

    fn check_ends(&self) -> Result<(), ProgramError> {
        let index = self.steps.len();
        let mut shape = None;
        for place in &self.input {
            let here = (
                self.tensor(*place)?.chw,
                self.parts[place.part].program.config.batch(),
            );
            if *shape.get_or_insert(here) != here {
                let reason = "the network's input has different shapes";
                return Err(ProgramError::Step { index, reason });
            }
        }
        for place in &self.outputs {
            let tensor = self.tensor(*place)?;
            if tensor.packing != Packing::Tiles {
                let name = tensor.name.clone();
                return Err(ProgramError::OutputPacking { name });
            }
        }
        Ok(())
    }

    /// The tensor at a place.
    ///
    /// # Errors
    /// [`ProgramError::Part`] and [`ProgramError::Tensor`].
    pub fn tensor(&self, place: Place) -> Result<&TensorSpec, ProgramError> {
        let index = place.part;
        let part = self.parts.get(index).ok_or(ProgramError::Part { index })?;
        part.program.tensor(place.tensor)
    }

    /// How many layers the host computes.
    pub fn host_ops(&self) -> usize {
        let steps = self.steps.iter();
        steps.filter(|s| matches!(s, Step::Host(_))).count()
    }

    /// How many tensors travel between devices.
    pub fn copies(&self) -> usize {
        let copies = self.steps.iter();
        copies.filter(|s| matches!(s, Step::Copy { .. })).count()
    }
}
