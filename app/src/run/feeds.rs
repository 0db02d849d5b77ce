//! From the files that a user names as inputs to what a network reads, image by image.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use vta_compiler::graph::{Data, Element};
use vta_compiler::host::Ends;

use crate::error::{Context, Error, Result, bail, ensure};
use crate::images::{Item, Reader, Source};
use crate::open::model::Tensor;
use crate::open::preprocess::{Preprocess, to_int8};
use crate::options::names::INPUT;
use crate::run::supply::Images;

/// How many images are in memory at once while the host computes what is behind the network.
const CHUNK: usize = 32;

/// The images of each input, in the inputs' order: as many of each.
///
/// # Errors
/// [`Error::Usage`] for an input that isn't named or not there; what [`Source::open`] says; inputs of
/// different numbers of images.
pub fn open(paths: &[PathBuf], limit: Option<usize>, inputs: &[Tensor]) -> Result<Vec<Source>> {
    let names = || {
        let names: Vec<&str> = inputs.iter().map(|input| &*input.name).collect();
        names.join(", ")
    };
    let mut files: Vec<Vec<PathBuf>> = vec![Vec::new(); inputs.len()];
    for path in paths {
        let text = path.to_string_lossy();
        let named = |input: &Tensor| text.strip_prefix(&*input.name)?.strip_prefix('=');
        let mut all = inputs.iter().enumerate();
        let found = match path.exists() {
            true => None,
            false => all.find_map(|(at, input)| Some((at, named(input)?))),
        };
        match (found, inputs.len()) {
            (Some((at, file)), _) => files[at].push(file.into()),
            (None, 1) => files[0].push(path.clone()),
            (None, n) => {
                bail!("the network has {} inputs ({}): write {} NAME={}"; n, names(), INPUT, text)
            }
        }
    }
    let mut sources = Vec::with_capacity(inputs.len());
    for (input, files) in inputs.iter().zip(files) {
        ensure!(
            !files.is_empty(),
            "input '{}' isn't given (there is {}): write {} {}=FILE";
            input.name, names(), INPUT, input.name
        );
        let mut source = Source::open(&files, limit)?;
        source.shape(&input.shape)?;
        sources.push(source);
    }
    if let Some((first, others)) = sources.split_first() {
        for (other, input) in others.iter().zip(&inputs[1..]) {
            let (n, m) = (first.len(), other.len());
            let (a, b) = (&inputs[0].name, &input.name);
            ensure!(n == m, "{n} images of input '{a}', but {m} of '{b}'");
        }
    }
    Ok(sources)
}

/// The images of a run, decoded by the threads that run them.
pub struct Feeds<'a> {
    sources: &'a [Source],
    inputs: &'a [Tensor],
    preprocess: &'a Preprocess,
    ends: Option<Arc<Ends>>,
    reading: Mutex<Reading<'a>>,
}

/// Names and true classes of images.
pub type Facts = BTreeMap<usize, (String, Option<usize>)>;

/// How far images are read.
struct Reading<'a> {
    readers: Vec<Reader<'a>>,
    /// Those that were passed over, because a thread asked for a later one first: at most one run
    /// for each thread.
    ahead: BTreeMap<usize, Vec<Item>>,
    /// Of the images that were asked for.
    facts: Facts,
    /// The first image that can't be read, and why.
    fault: Option<(usize, Error)>,
}

impl Reading<'_> {
    fn items(&mut self, index: usize) -> Result<Vec<Item>> {
        let items = loop {
            if let Some(items) = self.ahead.remove(&index) {
                break items;
            }
            let next = next(&mut self.readers)?;
            let items = next.context("there is no such image")?;
            let number = items.first().map_or(index, |item| item.index);
            self.ahead.insert(number, items);
        };
        if let Some(item) = items.first() {
            self.facts.insert(index, (item.name.clone(), item.label));
        }
        Ok(items)
    }
}

/// The next image of each input.
fn next(readers: &mut [Reader<'_>]) -> Result<Option<Vec<Item>>> {
    readers.iter_mut().map(Reader::next_item).collect()
}

impl<'a> Feeds<'a> {
    /// Images of each input, one source for each, for a network with such ends.
    pub fn new(
        sources: &'a [Source],
        inputs: &'a [Tensor],
        preprocess: &'a Preprocess,
        ends: Option<Arc<Ends>>,
    ) -> Self {
        let reading = Reading {
            readers: sources.iter().map(Source::reader).collect(),
            ahead: BTreeMap::new(),
            facts: BTreeMap::new(),
            fault: None,
        };
        Self {
            sources,
            inputs,
            preprocess,
            ends,
            reading: Mutex::new(reading),
        }
    }

    /// What is known of the images that were asked for.
    ///
    /// # Errors
    /// The first image's error, whichever thread had one first.
    pub fn facts(&self) -> Result<Facts> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match reading.fault.take() {
            Some((_, error)) => Err(error),
            None => Ok(std::mem::take(&mut reading.facts)),
        }
    }

    /// Keeps the error of the first image, and says that there is one.
    fn fail(&self, index: usize, error: Error) -> Error {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let first = reading
            .fault
            .as_ref()
            .is_none_or(|(first, _)| index < *first);
        if first {
            reading.fault = Some((index, error));
        }
        Error::Cancelled
    }

    /// The program's inputs of an image.
    fn enter(&self, items: Vec<Item>) -> Result<Vec<i8>> {
        let with = items.into_iter().zip(self.inputs);
        if let Some(ends) = &self.ends
            && ends.inputs().is_some()
        {
            return Ok(ends.enter(self.data(with)?)?);
        }
        let mut all = Vec::new();
        for (item, input) in with {
            let values = self.preprocess.apply(&item.decode()?, input.chw)?;
            all.extend(to_int8(&values, input.scale.unwrap_or(1.0), input.zero));
        }
        Ok(all)
    }

    /// Values as the host takes them.
    fn data<'t>(&self, items: impl Iterator<Item = (Item, &'t Tensor)>) -> Result<Vec<Data>> {
        let data = |(item, input): (Item, &Tensor)| match input.element {
            Element::F32 => Ok(Data::F32(self.preprocess.shaped(&item.decode()?, input)?)),
            element => item.integers(element, input.len()),
        };
        items.map(data).collect()
    }

    /// What the host makes of what the program gave for each image, in order: by image, the outputs of
    /// the network's exit.
    ///
    /// # Errors
    /// What the host can't compute; where the exit reads inputs, images that can't be read any more.
    pub fn leave(&self, ends: &Ends, found: &[Vec<&[i8]>]) -> Result<Vec<Vec<Data>>> {
        let mut readers: Vec<Reader<'_>> = match ends.reads_inputs() {
            true => self.sources.iter().map(Source::reader).collect(),
            false => Vec::new(),
        };
        let mut all = Vec::with_capacity(found.len());
        for chunk in found.chunks(CHUNK) {
            let mut items = Vec::with_capacity(chunk.len());
            for _ in chunk {
                items.push(next(&mut readers)?.context("there is no such image")?);
            }
            let one = |(tensors, items): (&Vec<&[i8]>, Vec<Item>)| {
                let inputs = self.data(items.into_iter().zip(self.inputs))?;
                Ok(ends.leave(tensors, &inputs)?)
            };
            let made: Result<Vec<_>> = chunk.par_iter().zip(items).map(one).collect();
            all.extend(made?);
        }
        Ok(all)
    }
}

impl Images for Feeds<'_> {
    fn count(&self) -> usize {
        self.sources.first().map_or(0, Source::len)
    }

    fn image(&self, index: usize) -> Result<Cow<'_, [i8]>> {
        let items = {
            let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            // Images before the first one with an error are read nevertheless, so that it doesn't
            // depend on threads which one is told.
            let fault = reading.fault.as_ref();
            match fault.is_some_and(|(first, _)| *first < index) {
                true => Err(Error::Cancelled),
                false => reading.items(index),
            }
        };
        let entered = items.and_then(|items| self.enter(items));
        Ok(entered.map_err(|error| self.fail(index, error))?.into())
    }
}

/// Values of an output as floats.
///
/// # Errors
/// Integers that float32 doesn't hold.
pub fn real(data: &Data) -> Result<Vec<f32>> {
    let integers = match data {
        Data::F32(values) => return Ok(values.clone()),
        other => other.integers().unwrap_or_default(),
    };
    let real = |value: i64| {
        ensure!(
            value.unsigned_abs() <= 1 << f32::MANTISSA_DIGITS,
            "an output of {value}: whole numbers up to 2^24 are given"
        );
        Ok(value as f32)
    };
    integers.into_iter().map(real).collect()
}
