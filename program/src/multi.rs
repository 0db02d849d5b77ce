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
    /// The outputs of one image from its inputs, in NCHW order. They must depend on nothing
    /// else.
    ///
    /// # Errors
    /// Why it can't be computed, in words.
    fn run(&self, inputs: &[&[i16]]) -> Result<Vec<Vec<i16>>, String>;

    /// Bytes from which the same kernel can be made, for bundles; `None` if there are none.
    fn to_bytes(&self) -> Option<Vec<u8>> {
        None
    }

    /// How many operators of the model it computes.
    fn ops(&self) -> usize {
        1
    }

    /// The model's operators that it computes, for tables; none where they aren't known.
    fn operators(&self) -> Vec<&str> {
        Vec::new()
    }

    /// What it computes of an image, as far as time depends on it; zeros where that isn't known.
    fn work(&self) -> HostWork {
        HostWork::default()
    }

    /// What it is told, for listings; nothing where that isn't known.
    fn attributes(&self) -> Vec<Attribute> {
        Vec::new()
    }

    /// The values of an image in each input and in each output, where the kernel takes no others.
    fn sizes(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        None
    }
}

/// What the host computes of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostWork {
    /// Multiply-adds of convolutions and products of matrices.
    pub macs: u64,
    /// Values that all its operators give, those inside it among them.
    pub values: u64,
}

impl HostWork {
    /// Adds other work.
    pub fn add(&mut self, other: Self) {
        self.macs = self.macs.saturating_add(other.macs);
        self.values = self.values.saturating_add(other.values);
    }
}

/// Bytes that a layer of the host moves, for all BATCH images of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTraffic {
    /// Out of the memory of devices.
    pub read: u64,
    /// Into it.
    pub written: u64,
}

/// A tensor that the host computes.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOutput {
    /// Every place that it is written to, at least one.
    pub places: Vec<Place>,
    /// The whole network's number of it.
    pub network_tensor: u32,
}

/// A layer of the host: tensors of devices are read, others are computed and written.
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
    /// What it computes, in the kernel's order, at least one.
    pub outputs: Vec<HostOutput>,
}

impl PartialEq for HostStep {
    fn eq(&self, other: &Self) -> bool {
        // A kernel's listing says all that it depends on.
        let kernel = |step: &Self| format!("{:?}", step.kernel);
        (&self.name, &self.op, &self.inputs, &self.outputs)
            == (&other.name, &other.op, &other.inputs, &other.outputs)
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
    /// The host computes tensors.
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
    /// For each of the network's inputs: every place that it is written to, at least one.
    pub inputs: Vec<Vec<Place>>,
    /// The network's outputs.
    pub outputs: Vec<Place>,
    /// What a caller's values become before they are int8 tensors, and int8 tensors behind the last
    /// step, as the bytes of whoever computes it; empty where callers give and take int8. The
    /// driver only keeps it.
    pub ends: Vec<u8>,
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
        let batch = |place: &Place| self.parts.get(place.part).map(|p| p.program.config.batch());
        for place in &step.inputs {
            if self.tensor(*place)?.packing != Packing::Tiles {
                return refuse("the host reads a tensor that isn't packed as tiles");
            }
        }
        let mut shapes = Vec::with_capacity(step.outputs.len());
        for output in &step.outputs {
            let Some(first) = output.places.first() else {
                return refuse("the host's result goes nowhere");
            };
            let chw = self.tensor(*first)?.chw;
            for place in &output.places {
                if self.tensor(*place)?.chw != chw {
                    return refuse("the host's result has different shapes");
                }
            }
            shapes.push(chw);
        }
        if shapes.is_empty() {
            return refuse("the host's result goes nowhere");
        }
        if let Some((inputs, outputs)) = step.kernel.sizes() {
            let values = |chw: [u32; 3]| chw.iter().map(|&d| d as usize).product::<usize>();
            let found = step.inputs.iter().map(|p| Ok(values(self.tensor(*p)?.chw)));
            let found: Vec<usize> = found.collect::<Result<_, ProgramError>>()?;
            let made: Vec<usize> = shapes.into_iter().map(values).collect();
            if found != inputs || made != outputs {
                return refuse("the host's tensors aren't of its operator's sizes");
            }
        }
        let written = step.outputs.iter().flat_map(|output| &output.places);
        let mut batches = step.inputs.iter().chain(written).map(batch);
        let first = batches.next();
        if batches.all(|found| Some(found) == first) {
            Ok(())
        } else {
            refuse("the host's tensors are of devices that differ in BATCH")
        }
    }

    fn check_ends(&self) -> Result<(), ProgramError> {
        let index = self.steps.len();
        let refuse = |reason| Err(ProgramError::Step { index, reason });
        for places in &self.inputs {
            let mut shape = None;
            for place in places {
                let here = (
                    self.tensor(*place)?.chw,
                    self.parts[place.part].program.config.batch(),
                );
                if *shape.get_or_insert(here) != here {
                    return refuse("the network's input has different shapes");
                }
            }
            if shape.is_none() {
                return refuse("an input of the network goes nowhere");
            }
        }
        for place in &self.outputs {
            self.tensor(*place)?.check_output()?;
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

    /// How many operators of the model the host computes.
    pub fn host_ops(&self) -> usize {
        self.host_steps().map(|step| step.kernel.ops()).sum()
    }

    /// The layers of the host.
    pub fn host_steps(&self) -> impl Iterator<Item = &HostStep> {
        self.steps.iter().filter_map(|step| match step {
            Step::Host(step) => Some(step),
            Step::Run { .. } | Step::Copy { .. } => None,
        })
    }

    /// What a layer of the host moves. Where an output has several places, it is read from the first
    /// for each of the others.
    ///
    /// # Errors
    /// [`ProgramError::Part`] and [`ProgramError::Tensor`].
    pub fn host_traffic(&self, step: &HostStep) -> Result<HostTraffic, ProgramError> {
        let bytes = |place: &Place| {
            let tensor = self.tensor(*place)?;
            let config = &self.parts[place.part].program.config;
            Ok::<u64, ProgramError>(tensor.packed_bytes(config).unwrap_or(0))
        };
        let mut moved = HostTraffic::default();
        for place in &step.inputs {
            moved.read += bytes(place)?;
        }
        for output in &step.outputs {
            for (index, place) in output.places.iter().enumerate() {
                let size = bytes(place)?;
                moved.written += size;
                moved.read += if index > 0 { size } else { 0 };
            }
        }
        Ok(moved)
    }

    /// How many tensors travel between devices.
    pub fn copies(&self) -> usize {
        let copies = self.steps.iter();
        copies.filter(|s| matches!(s, Step::Copy { .. })).count()
    }
}
