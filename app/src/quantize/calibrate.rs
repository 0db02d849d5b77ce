//! Scales of an int8 network from images.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use vta_compiler::graph::{Element, Graph};
use vta_compiler::quantize;

use crate::error::{Error, Result, ensure, message};
use crate::images::{Item, Reader, Source};
use crate::open::model::{Tensor, inputs_of};
use crate::open::preprocess::Preprocess;
use crate::options::names::Front;
use crate::run::feeds;
use crate::watch::Watch;

/// Quantises a float graph with images that are decoded as they are needed; `watch` is told of each
/// image that was run, as often as it is. A graph that is given away isn't held beside what is made of it.
///
/// # Errors
/// An input that is no image, images that can't be read or don't fit, operators that can't be
/// quantised, a watch that cancels.
pub fn quantize(
    graph: Cow<'_, Graph>,
    images: &[Source],
    preprocess: &Preprocess,
    options: &quantize::Options,
    watch: &dyn Watch,
) -> Result<quantize::Quantized> {
    let calibration = calibration(inputs_of(&graph), images, preprocess, watch)?;
    let quantized = quantize::quantize_network(graph, &calibration, options);
    match watch.cancelled() {
        true => Err(Error::Cancelled),
        false => Ok(quantized?),
    }
}

/// The first images as a graph's inputs, so many at most.
///
/// # Errors
/// An input that is no image, images that can't be read or don't fit.
pub fn first(
    inputs: Vec<Tensor>,
    images: &[Source],
    preprocess: &Preprocess,
    count: usize,
) -> Result<Vec<Vec<f32>>> {
    let all = images.first().map_or(0, Source::len);
    calibration(inputs, images, preprocess, &())?.read(0..count.min(all))
}

fn calibration<'a>(
    inputs: Vec<Tensor>,
    images: &'a [Source],
    preprocess: &'a Preprocess,
    watch: &'a dyn Watch,
) -> Result<Calibration<'a>> {
    ensure!(
        inputs.len() == images.len() && !images.is_empty(),
        "the network has {} inputs, and images are given for {}",
        inputs.len(),
        images.len()
    );
    Ok(Calibration {
        sources: images,
        inputs,
        readers: Mutex::new(images.iter().map(Source::reader).collect()),
        preprocess,
        watch,
    })
}

/// Images to calibrate with, of a source for each input.
struct Calibration<'a> {
    sources: &'a [Source],
    inputs: Vec<Tensor>,
    readers: Mutex<Vec<Reader<'a>>>,
    preprocess: &'a Preprocess,
    watch: &'a dyn Watch,
}

impl Calibration<'_> {
    fn read(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>> {
        if self.watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let mut images = Vec::new();
        {
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            let position = |readers: &[Reader<'_>]| readers.first().map_or(0, Reader::position);
            if position(&readers) > range.start {
                *readers = self.sources.iter().map(Source::reader).collect();
            }
            while position(&readers) < range.end {
                let at = position(&readers);
                let items = readers.iter_mut().map(Reader::next_item);
                let items: Option<Vec<Item>> = items.collect::<Result<_>>()?;
                let Some(items) = items else {
                    break;
                };
                if at >= range.start {
                    images.push(items);
                }
            }
        }
        // The first of several errors, whichever thread finds its own first.
        let images = images.into_par_iter().map(|items| self.values(items));
        let values: Vec<Result<Vec<f32>>> = images.collect();
        values.into_iter().collect()
    }

    /// An image's values of all inputs, one behind the other.
    fn values(&self, items: Vec<Item>) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        for (item, input) in items.into_iter().zip(&self.inputs) {
            match input.element {
                Element::F32 => all.extend(self.preprocess.shaped(&item.decode()?, input)?),
                element => all.extend(feeds::real(&item.integers(element, input.len())?)?),
            }
        }
        Ok(all)
    }
}

impl quantize::Calibration for Calibration<'_> {
    fn count(&self) -> usize {
        self.sources.first().map_or(0, Source::len)
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        self.read(range)
            .map_err(|error| message(&error, Front::Library))
    }

    fn progress(&self, done: usize, all: usize) {
        self.watch.progress(done, all);
    }
}
