//! From the files that a user names as inputs to what a network reads, image by image.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use vta_compiler::graph::{Data, Element};
use vta_compiler::host::Ends;

use crate::error::{Context, Error, Result, bail, ensure};
use crate::images::{Item, Reader, Source, default_images};
use crate::open::{Preprocess, Tensor, to_steps};
use crate::options::names::INPUT;
use crate::quantize::calibrate::Calibration;
use crate::room;
use crate::run::supply::{Images, Inputs};
use crate::run::values::Values;
use crate::watch::Watch;

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
        let mut found = || all.find_map(|(at, input)| Some((at, named(input)?)));
        let found = if path.exists() { None } else { found() };
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

/// The values of an input for the images of a file or folder, or for those that the model of a name brings along,
/// made by the recipe that the model states.
///
/// # Errors
/// Files that can't be read, images that don't fit, a model that brings none, [`Error::Memory`].
pub fn image_values(
    input: &Tensor,
    model: &str,
    path: Option<&Path>,
    stated: Option<&String>,
    watch: &dyn Watch,
) -> Result<Values<'static>> {
    let mut source = match path {
        Some(path) => Source::open(&[path.to_owned()], None)?,
        None => Source::of_pictures(default_images(model, input.chw)?),
    };
    source.shape(&input.shape)?;
    // As reals, and once more for the run.
    let bytes = (source.len() as u64).saturating_mul(8 * input.len() as u64);
    let images = || format!("{} images of input '{}'", source.len(), input.port.name);
    room::ask(bytes, images)?;
    let recipe = Preprocess::choose(&Preprocess::default(), stated, watch)?;
    let (mut real, mut whole) = (Vec::new(), Vec::new());
    let mut reader = source.reader();
    while let Some(item) = reader.next_item()? {
        let data = if input.scale.is_some() {
            Data::F32(recipe.apply(item.decode()?, input.chw)?)
        } else {
            hosted(item, input, &recipe)?
        };
        match (&data, data.integers()) {
            (Data::F32(values), _) => real.extend_from_slice(values),
            (_, values) => whole.extend(values.unwrap_or_default()),
        }
    }
    Ok(if whole.is_empty() {
        Values::Real(real.into())
    } else {
        Values::Whole(whole.into())
    })
}

/// Values of an image as the host takes them.
fn hosted(item: Item, input: &Tensor, recipe: &Preprocess) -> Result<Data> {
    match input.element {
        Element::F32 => Ok(Data::F32(recipe.shaped(item.decode()?, input)?)),
        element => item.integers(element, input.len()),
    }
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
#[derive(Default)]
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

impl<'a> Reading<'a> {
    fn items(&mut self, sources: &'a [Source], index: usize) -> Result<Vec<Item>> {
        let position = self.readers.first().map_or(usize::MAX, Reader::position);
        if index < position && !self.ahead.contains_key(&index) {
            // The first time, or again: for a second pass of a calibration, or what the host computes behind
            // the network.
            self.readers = sources.iter().map(Source::reader).collect();
            self.ahead.clear();
        }
        let items = loop {
            if let Some(items) = self.ahead.remove(&index) {
                break items;
            }
            let next = self.readers.iter_mut().map(Reader::next_item);
            let items: Option<Vec<Item>> = next.collect::<Result<_>>()?;
            let items = items.context("there is no such image")?;
            let number = items.first().map_or(index, |item| item.index);
            self.ahead.insert(number, items);
        };
        if let Some(item) = items.first() {
            self.facts.insert(index, (item.name.clone(), item.label));
        }
        Ok(items)
    }
}

fn lock<'g, 'a>(reading: &'g Mutex<Reading<'a>>) -> MutexGuard<'g, Reading<'a>> {
    // Whoever panicked left whole items.
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Feeds<'a> {
    /// Images of each input, one source for each, for a network with such ends.
    pub fn new(
        sources: &'a [Source],
        inputs: &'a [Tensor],
        preprocess: &'a Preprocess,
        ends: Option<Arc<Ends>>,
    ) -> Self {
        Self {
            sources,
            inputs,
            preprocess,
            ends,
            reading: Mutex::default(),
        }
    }

    /// What is known of the images that were asked for.
    ///
    /// # Errors
    /// The first image's error, whichever thread had one first.
    pub fn facts(&self) -> Result<Facts> {
        let mut reading = lock(&self.reading);
        match reading.fault.take() {
            Some((_, error)) => Err(error),
            None => Ok(std::mem::take(&mut reading.facts)),
        }
    }

    /// Keeps the error of the first image, and says that there is one.
    fn fail(&self, index: usize, error: Error) -> Error {
        let mut reading = lock(&self.reading);
        let fault = reading.fault.as_ref();
        if fault.is_none_or(|(first, _)| index < *first) {
            reading.fault = Some((index, error));
        }
        Error::Cancelled
    }

    /// The program's inputs of an image.
    fn enter(&self, items: Vec<Item>) -> Result<Vec<i16>> {
        if let Some(ends) = &self.ends
            && ends.inputs().is_some()
        {
            return Ok(ends.enter(self.hosted(items)?)?);
        }
        let mut all = Vec::new();
        for (item, input) in items.into_iter().zip(self.inputs) {
            let values = self.preprocess.apply(item.decode()?, input.chw)?;
            let scale = input.scale.unwrap_or(1.0);
            all.extend(to_steps(&values, scale, input.zero, input.numbers));
        }
        Ok(all)
    }

    /// Values as the host takes them.
    fn hosted(&self, items: Vec<Item>) -> Result<Vec<Data>> {
        let pairs = items.into_iter().zip(self.inputs);
        let data = pairs.map(|(item, input)| hosted(item, input, self.preprocess));
        data.collect()
    }
}

impl Inputs for Feeds<'_> {
    fn data(&self, index: usize) -> Result<Vec<Data>> {
        let items = lock(&self.reading).items(self.sources, index)?;
        self.hosted(items)
    }
}

impl Calibration for Feeds<'_> {
    fn count(&self) -> usize {
        Images::count(self)
    }

    fn read(&self, images: &[usize]) -> Result<Vec<Vec<f32>>> {
        let items: Vec<Vec<Item>> = {
            let mut reading = lock(&self.reading);
            let item = |index: &usize| {
                let items = reading.items(self.sources, *index);
                // Those that were passed over are read in another pass.
                reading.ahead.clear();
                items
            };
            images.iter().map(item).collect::<Result<_>>()?
        };
        let values = |items: Vec<Item>| -> Result<Vec<f32>> {
            let data = self.hosted(items)?;
            let reals: Vec<Vec<f32>> = data.iter().map(real).collect::<Result<_>>()?;
            Ok(reals.concat())
        };
        // The first of several errors, whichever thread finds its own first.
        let values: Vec<Result<Vec<f32>>> = items.into_par_iter().map(values).collect();
        values.into_iter().collect()
    }
}

impl Images for Feeds<'_> {
    fn count(&self) -> usize {
        self.sources.first().map_or(0, Source::len)
    }

    fn image(&self, index: usize) -> Result<Cow<'_, [i16]>> {
        let items = {
            let mut reading = lock(&self.reading);
            // Images before the first one with an error are read nevertheless, so that it doesn't
            // depend on threads which one is told.
            let fault = reading.fault.as_ref();
            if fault.is_some_and(|(first, _)| *first < index) {
                Err(Error::Cancelled)
            } else {
                reading.items(self.sources, index)
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
    match data {
        Data::F32(values) => Ok(values.clone()),
        other => reals(&other.integers().unwrap_or_default()),
    }
}

/// Whole numbers as floats.
///
/// # Errors
/// Integers that float32 doesn't hold.
pub fn reals(integers: &[i64]) -> Result<Vec<f32>> {
    let real = |&value: &i64| {
        ensure!(
            value.unsigned_abs() <= 1 << f32::MANTISSA_DIGITS,
            "an output of {value}: whole numbers up to 2^24 are given"
        );
        Ok(value as f32)
    };
    integers.iter().map(real).collect()
}
