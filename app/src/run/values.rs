//! Arrays that a run takes and gives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use vta_compiler::graph::Data;
use vta_compiler::host::{EndOutput, Ends};
use vta_driver::{Counters, DeviceCounters};

use crate::error::{Context, Error, Result, bail_input as bail, ensure_input as ensure};
use crate::open::Tensor;
use crate::open::preprocess::{not_finite, rounding};
use crate::run::marks::{Marks, Start};
use crate::run::supply::{Images, Inputs};

/// Values of one input for some images, one image behind the other, each in CHW order.
#[derive(Clone, Debug)]
pub struct Feed<'a> {
    /// The input's name.
    pub name: &'a str,
    /// A whole number of images.
    pub values: Values<'a>,
}

impl<'a> Feed<'a> {
    /// An image of zeros, where no value matters.
    pub(super) fn blank(input: &'a Tensor) -> Self {
        Self {
            name: &input.name,
            values: Values::Whole(vec![0; input.len()].into()),
        }
    }
}

/// Real values, or steps of the input's scale.
#[derive(Clone, Debug, PartialEq)]
pub enum Values<'a> {
    /// Rounded to the nearest step, ties to even, and clamped to what the device holds.
    Real(Cow<'a, [f32]>),
    /// As the device reads them.
    Steps(Cow<'a, [i16]>),
    /// Whole numbers, as the host takes them; of an input of floats they are its real values.
    Whole(Cow<'a, [i64]>),
}

impl Values<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Real(values) => values.len(),
            Self::Steps(values) => values.len(),
            Self::Whole(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of them as real numbers, whatever a step stands for.
    pub(crate) fn real(&self, range: Range<usize>) -> Cow<'_, [f32]> {
        match self {
            Self::Real(values) => Cow::Borrowed(&values[range]),
            Self::Steps(values) => values[range].iter().map(|&v| f32::from(v)).collect(),
            Self::Whole(values) => values[range].iter().map(|&v| v as f32).collect(),
        }
    }

    /// One image's data behind the other's.
    fn joined<'d>(images: impl Iterator<Item = &'d Data>) -> Values<'static> {
        let (mut real, mut whole) = (Vec::new(), Vec::new());
        for data in images {
            match (data, data.integers()) {
                (Data::F32(values), _) => real.extend_from_slice(values),
                (_, values) => whole.extend(values.unwrap_or_default()),
            }
        }
        if whole.is_empty() {
            Values::Real(real.into())
        } else {
            Values::Whole(whole.into())
        }
    }
}

/// Values of one output for all images of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name, shape and scale.
    pub tensor: Tensor,
    /// How many images there are.
    pub images: usize,
    /// `images` times [`Tensor::len`] values, each image in CHW order: steps, or what the host gave.
    pub values: Values<'static>,
}

impl Output {
    /// The values in the output's own unit.
    pub fn real(&self) -> Vec<f32> {
        let scale = self.tensor.scale.unwrap_or(1.0);
        let zero = f32::from(self.tensor.zero);
        let all = self.values.real(0..self.values.len());
        match self.values {
            Values::Steps(_) => all.iter().map(|v| (v - zero) * scale).collect(),
            Values::Real(_) | Values::Whole(_) => all.into_owned(),
        }
    }

    /// The values as the device gave them; `None` for what the host computed.
    pub fn steps(&self) -> Option<&[i16]> {
        match &self.values {
            Values::Steps(values) => Some(values),
            Values::Real(_) | Values::Whole(_) => None,
        }
    }
}

/// What a run has computed.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// In the model's order.
    pub outputs: Vec<Output>,
    /// Layers whose output isn't the reference interpreter's, a line each; empty for a session that
    /// compares nothing.
    pub mismatches: Vec<String>,
    /// Totals of all devices since the session was opened.
    pub counters: Counters,
    /// Likewise by the names of the devices that launch kernels.
    pub devices: BTreeMap<String, DeviceCounters>,
    /// What layers took in the run.
    pub(crate) marks: Marks,
    /// Where the time before the first results went.
    pub(crate) start: Start,
}

impl Outputs {
    /// An output by name.
    pub fn get(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|o| o.tensor.name == name)
    }
}

/// Arrays of each input, for the images that they hold.
pub(crate) struct Arrays<'a> {
    /// In the inputs' order.
    pub values: Vec<(&'a Tensor, &'a Values<'a>)>,
    pub count: usize,
    ends: Option<Arc<Ends>>,
}

impl<'a> Arrays<'a> {
    /// What is given for a network's inputs, around which the host computes `ends`.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that isn't given or not there, and values that are no whole number of images, or of
    /// other inputs as many. Values that aren't finite are found when they are read.
    pub fn new(
        inputs: &'a [Tensor],
        feeds: &'a [Feed<'a>],
        ends: Option<Arc<Ends>>,
    ) -> Result<Self> {
        for feed in feeds {
            let known = inputs.iter().any(|input| input.name == feed.name);
            let names: Vec<&str> = inputs.iter().map(|i| &*i.name).collect();
            ensure!(
                known,
                "no input '{}' (there is {})",
                feed.name,
                names.join(", ")
            );
        }
        let mut values = Vec::with_capacity(inputs.len());
        let mut count = None;
        for input in inputs {
            let (name, len) = (&input.name, input.len());
            let feed = feeds.iter().find(|feed| feed.name == *name);
            let feed = feed.with_context(|| format!("input '{name}' isn't given"))?;
            let found = feed.values.len();
            ensure!(
                len > 0 && found.is_multiple_of(len),
                "input '{name}': {found} values; an image has {len}"
            );
            let images = found / len;
            let first = *count.get_or_insert(images);
            ensure!(
                first == images,
                "{images} images of input '{name}', but {first} of the first"
            );
            values.push((input, &feed.values));
        }
        Ok(Self {
            values,
            count: count.unwrap_or(0),
            ends,
        })
    }
}

/// # Errors
/// [`Error::Input`] for the first of some values that isn't finite.
pub(crate) fn ensure_finite(input: &Tensor, values: &[f32], range: Range<usize>) -> Result<()> {
    let Some(at) = not_finite(&values[range.clone()]) else {
        return Ok(());
    };
    let (name, at) = (&input.name, range.start + at);
    bail!("input '{name}', value {at}: {}", values[at]);
}

impl Inputs for Arrays<'_> {
    fn data(&self, image: usize) -> Result<Vec<Data>> {
        let data = |(input, values): &(&Tensor, &Values<'_>)| {
            let range = image * input.len()..(image + 1) * input.len();
            let (name, takes) = (&input.name, input.element);
            let data = match values {
                Values::Real(v) => {
                    ensure_finite(input, v, range.clone())?;
                    Data::F32(v[range].to_vec())
                }
                Values::Steps(v) => Data::I8(v[range].iter().map(|&v| v as i8).collect()),
                Values::Whole(v) => {
                    let wrong = |value: i64| {
                        Error::input(format!("input '{name}': {value} is no {}", takes.name()))
                    };
                    return Data::of_integers(takes, &v[range]).map_err(wrong);
                }
            };
            ensure!(
                data.element() == takes,
                "input '{name}' takes {}",
                takes.name()
            );
            Ok(data)
        };
        self.values.iter().map(data).collect()
    }
}

impl<'a> Images for Arrays<'a> {
    fn count(&self) -> usize {
        self.count
    }

    fn image(&self, index: usize) -> Result<Cow<'_, [i16]>> {
        if let Some(ends) = &self.ends
            && ends.inputs().is_some()
        {
            return Ok(ends.enter(self.data(index)?)?.into());
        }
        let one = |(input, values): &(&'a Tensor, &'a Values<'a>)| -> Result<Cow<'a, [i16]>> {
            let range = index * input.len()..(index + 1) * input.len();
            if let Values::Steps(v) = values {
                return Ok(Cow::Borrowed(&v[range]));
            }
            let rounding = rounding(input.scale.unwrap_or(1.0), input.zero, input.numbers);
            let (steps, are_finite) = rounding.steps(&values.real(range.clone()));
            if let (Values::Real(v), false) = (values, are_finite) {
                ensure_finite(input, v, range)?;
            }
            Ok(steps.into())
        };
        match &self.values[..] {
            [only] => one(only),
            several => {
                let all: Vec<_> = several.iter().map(one).collect::<Result<_>>()?;
                Ok(all.concat().into())
            }
        }
    }
}

/// Images whose inputs are in memory at once while the host computes what is behind the network.
const CHUNK: usize = 32;

/// The model's outputs of what its program gave, by output, for all images.
///
/// # Errors
/// What the host can't compute; where it reads inputs, images that can't be had any more.
pub(super) fn leave(
    ends: &Ends,
    images: &dyn Inputs,
    tensors: Vec<Tensor>,
    steps: &[Vec<i16>],
) -> Result<Vec<Output>> {
    let count = images.count();
    let one = |image: usize| -> Result<Vec<Data>> {
        let of_image = |values: &'_ Vec<i16>| {
            let len = values.len() / count;
            image * len..(image + 1) * len
        };
        let given: Vec<&[i16]> = steps.iter().map(|v| &v[of_image(v)]).collect();
        let inputs = if ends.reads_inputs() {
            images.data(image)?
        } else {
            Vec::new()
        };
        Ok(ends.leave(&given, &inputs)?)
    };
    let mut left: Vec<Vec<Data>> = Vec::with_capacity(count);
    for first in (0..count).step_by(CHUNK) {
        let chunk = first..count.min(first + CHUNK);
        // An image alone needn't wake threads.
        let made: Result<Vec<_>> = match chunk.len() {
            1 => chunk.map(one).collect(),
            _ => chunk.into_par_iter().map(one).collect(),
        };
        left.extend(made?);
    }
    let output = |(tensor, output): (Tensor, &EndOutput)| {
        let values = match *output {
            EndOutput::Tensor(at) => Values::Steps(steps[at].clone().into()),
            EndOutput::Value { index, .. } => Values::joined(left.iter().map(|data| &data[index])),
        };
        Output {
            tensor,
            images: count,
            values,
        }
    };
    Ok(tensors
        .into_iter()
        .zip(ends.outputs())
        .map(output)
        .collect())
}
