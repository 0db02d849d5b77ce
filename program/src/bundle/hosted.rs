//! Bundles of networks of which the host computes some layers: the program of the one device, and
//! a section that says what the host computes between which layers.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::container::{BundleImage, all_sections};
use super::error::{BundleError, invalid};
use super::{read_file, read_program};
use crate::program::is_default;
use crate::{HostKernel, HostOutput, HostStep, MultiProgram, Part, Place, Program, Step};
use vta_files::output;

/// The largest number of a network's tensor.
const MAX_TENSOR: u32 = 1 << 20;

/// Makes a kernel of the host from the bytes that [`HostKernel::to_bytes`] gave, or says why not.
pub type ReadKernel<'a> = dyn Fn(&[u8]) -> Result<Arc<dyn HostKernel>, String> + 'a;

/// What a bundle holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Bundle {
    /// A program that a device runs alone.
    Program(Box<Program>),
    /// A device's program, and layers of the host between its own.
    Network(Box<MultiProgram>),
}

impl Bundle {
    /// Reads a bundle file, as [`Program::load`] does, whatever it holds; `read` makes the host's
    /// kernels.
    ///
    /// # Errors
    /// [`BundleError`] naming the section and what is wrong with it.
    pub fn load(path: &Path, read: &ReadKernel<'_>) -> Result<Self, BundleError> {
        Self::from_whole(&read_file(path)?, read)
    }

    /// Reads a bundle from memory.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_bytes(bytes: &[u8], read: &ReadKernel<'_>) -> Result<Self, BundleError> {
        Self::from_whole(&Arc::new(bytes.to_vec()), read)
    }

    fn from_whole(bytes: &Arc<Vec<u8>>, read: &ReadKernel<'_>) -> Result<Self, BundleError> {
        let (sections, steps) = all_sections(bytes)?;
        let program = read_program(bytes, sections)?;
        let Some(steps) = steps else {
            return Ok(Self::Program(Box::new(program)));
        };
        let (meta, kernels) = split_steps(&bytes[steps])?;
        let network = read_network(program, meta, kernels, read)?;
        Ok(Self::Network(Box::new(network)))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaNetwork {
    /// The network's number of each of the program's tensors.
    network_tensors: Vec<u32>,
    steps: Vec<MetaStep>,
    /// By input, every tensor that it is written to.
    inputs: Vec<Vec<u32>>,
    outputs: Vec<u32>,
    /// Bytes of what stands around the network, behind those of the kernels.
    #[serde(default, skip_serializing_if = "is_default")]
    ends: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MetaStep {
    /// Layers of the device, first and one past the last.
    Run(usize, usize),
    Host(MetaHost),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaHost {
    name: String,
    op: String,
    /// Bytes of its kernel, which come after those of the steps before.
    kernel: usize,
    inputs: Vec<u32>,
    outputs: Vec<MetaOutput>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaOutput {
    tensors: Vec<u32>,
    network_tensor: u32,
}

/// The steps of a section, and the kernels' bytes behind them.
fn split_steps(section: &[u8]) -> Result<(MetaNetwork, &[u8]), BundleError> {
    let short = || invalid("steps", format!("{} bytes are too few", section.len()));
    let (len, rest) = section.split_first_chunk().ok_or_else(short)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| short())?;
    let (json, kernels) = rest.split_at_checked(len).ok_or_else(short)?;
    let meta = serde_json::from_slice(json).map_err(|e| invalid("steps", e))?;
    Ok((meta, kernels))
}

/// The section of steps and kernels.
fn join_steps(meta: &MetaNetwork, kernels: &[u8]) -> Result<Vec<u8>, BundleError> {
    let json = serde_json::to_vec(meta).map_err(|e| invalid("steps", e))?;
    Ok([&(json.len() as u64).to_le_bytes()[..], &json, kernels].concat())
}

impl MultiProgram {
    /// The bytes of a bundle of one device and the host.
    ///
    /// # Errors
    /// When the network doesn't pass [`MultiProgram::validate`], has several devices, or a kernel
    /// that can't be written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BundleError> {
        Ok(self.image()?.to_vec())
    }

    /// The bundle, ready to be written.
    ///
    /// # Errors
    /// As for [`Self::to_bytes`].
    pub fn image(&self) -> Result<BundleImage<'_>, BundleError> {
        self.validate().map_err(|e| invalid("program", e))?;
        let [part] = &self.parts[..] else {
            let text = format!(
                "a bundle holds one device's program, not {}",
                self.parts.len()
            );
            return Err(invalid("steps", text));
        };
        let tensors = |places: &[Place]| places.iter().map(|p| p.tensor).collect();
        let output = |output: &HostOutput| MetaOutput {
            tensors: tensors(&output.places),
            network_tensor: output.network_tensor,
        };
        let mut kernels = Vec::new();
        let mut step = |step: &Step| match step {
            Step::Run { layers, .. } => Ok(MetaStep::Run(layers.start, layers.end)),
            Step::Host(host) => {
                let unwritable = || invalid("steps", format!("{} can't be written", host.name));
                let kernel = host.kernel.to_bytes().ok_or_else(unwritable)?;
                kernels.extend_from_slice(&kernel);
                Ok(MetaStep::Host(MetaHost {
                    name: host.name.clone(),
                    op: host.op.clone(),
                    kernel: kernel.len(),
                    inputs: tensors(&host.inputs),
                    outputs: host.outputs.iter().map(output).collect(),
                }))
            }
            Step::Copy { .. } => Err(invalid("steps", "a copy between devices")),
        };
        let meta = MetaNetwork {
            network_tensors: part.network_tensors.clone(),
            steps: self.steps.iter().map(&mut step).collect::<Result<_, _>>()?,
            inputs: self.inputs.iter().map(|places| tensors(places)).collect(),
            outputs: tensors(&self.outputs),
            ends: self.ends.len(),
        };
        kernels.extend_from_slice(&self.ends);
        let steps = join_steps(&meta, &kernels)?;
        let sections = part.program.sections()?;
        Ok(BundleImage::assemble(
            sections,
            Some(vec![Cow::Owned(steps)]),
        ))
    }

    /// Writes the bundle as [`Program::save`] does.
    ///
    /// # Errors
    /// As [`Self::to_bytes`], and what the system says.
    pub fn save(&self, path: &Path) -> Result<(), BundleError> {
        let image = self.image()?;
        Ok(output::write_with(path, |out| image.write_to(out))?)
    }
}

fn read_network(
    program: Program,
    meta: MetaNetwork,
    mut kernels: &[u8],
    read: &ReadKernel<'_>,
) -> Result<MultiProgram, BundleError> {
    let numbers = &meta.network_tensors;
    let ascending = numbers.windows(2).all(|w| w[0] < w[1]);
    let bounded = numbers.last().is_none_or(|&n| n < MAX_TENSOR);
    if numbers.len() != program.tensors.len() || !ascending || !bounded {
        let count = program.tensors.len();
        let text = format!("the numbers of {count} tensors don't ascend below {MAX_TENSOR}");
        return Err(invalid("steps", text));
    }
    let places = |tensors: Vec<u32>| -> Vec<Place> {
        let place = |tensor| Place { part: 0, tensor };
        tensors.into_iter().map(place).collect()
    };
    let mut step = |step: MetaStep| {
        Ok(match step {
            MetaStep::Run(start, end) => Step::Run {
                part: 0,
                layers: start..end,
            },
            MetaStep::Host(host) => {
                let fail = |what: String| invalid("steps", format!("{}: {what}", host.name));
                let bytes = kernels.split_off(..host.kernel);
                let bytes = bytes.ok_or_else(|| fail("its kernel is cut off".to_owned()))?;
                let output = |output: MetaOutput| HostOutput {
                    places: places(output.tensors),
                    network_tensor: output.network_tensor,
                };
                Step::Host(HostStep {
                    kernel: read(bytes).map_err(fail)?,
                    name: host.name,
                    op: host.op,
                    inputs: places(host.inputs),
                    outputs: host.outputs.into_iter().map(output).collect(),
                })
            }
        })
    };
    let mut network = MultiProgram {
        steps: meta
            .steps
            .into_iter()
            .map(&mut step)
            .collect::<Result<_, BundleError>>()?,
        inputs: meta.inputs.into_iter().map(places).collect(),
        outputs: places(meta.outputs),
        ends: Vec::new(),
        parts: vec![Part {
            target: 0,
            program: Arc::new(program),
            network_tensors: meta.network_tensors,
        }],
    };
    // Steps have taken theirs from the front, in their order.
    if kernels.len() != meta.ends {
        let text = format!("{} bytes belong to no kernel", kernels.len());
        return Err(invalid("steps", text));
    }
    network.ends = kernels.to_vec();
    network.validate().map_err(|e| invalid("steps", e))?;
    check_order(&network)?;
    Ok(network)
}

/// What the host reads and the network gives is computed before, and numbers agree.
fn check_order(network: &MultiProgram) -> Result<(), BundleError> {
    let part = &network.parts[0];
    let mut known = vec![false; part.network_tensors.len()];
    let refuse = |name: &str, what: &str| Err(invalid("steps", format!("{name} {what}")));
    for place in network.inputs.iter().flatten() {
        known[place.tensor as usize] = true;
    }
    for step in &network.steps {
        match step {
            Step::Run { layers, .. } => {
                for layer in &part.program.layers[layers.clone()] {
                    known[layer.output as usize] = true;
                }
            }
            Step::Host(host) => {
                if !host.inputs.iter().all(|p| known[p.tensor as usize]) {
                    return refuse(&host.name, "reads what nothing before it computes");
                }
                for output in &host.outputs {
                    for place in &output.places {
                        known[place.tensor as usize] = true;
                        if part.network_tensors[place.tensor as usize] != output.network_tensor {
                            return refuse(&host.name, "writes a tensor of another number");
                        }
                    }
                }
            }
            Step::Copy { .. } => {}
        }
    }
    if network.inputs.is_empty() || network.outputs.is_empty() {
        return refuse("the network", "has no input or no output");
    }
    if network.outputs.iter().all(|p| known[p.tensor as usize]) {
        Ok(())
    } else {
        refuse("an output", "is computed by nothing")
    }
}

#[cfg(test)]
mod tests;
