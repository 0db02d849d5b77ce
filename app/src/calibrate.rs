//! Scales of an int8 network from images.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use vta_compiler::graph::Graph;
use vta_compiler::quantize;

use crate::error::{Error, Result, bail, message};
use crate::images::{Item, Reader, Source};
use crate::preprocess::Preprocess;
use crate::watch::Watch;

/// Quantises a float graph with images that are decoded as they are needed; `watch` is told of each
/// image that was run, as often as it is.
///
/// # Errors
/// An input that is no image, images that can't be read or don't fit, operators that can't be
/// quantised, a watch that cancels.
pub fn quantize(
    graph: &Graph,
    images: &Source,
    preprocess: &Preprocess,
    options: &quantize::Options,
    watch: &dyn Watch,
) -> Result<quantize::Quantized> {
    let calibration = calibration(graph, images, preprocess, watch)?;
    let quantized = quantize::quantize_network(graph, &calibration, options);
    match watch.cancelled() {
        true => Err(Error::Cancelled),
        false => Ok(quantized?),
    }
}

/// The first images of a source as inputs of a graph, so many at most.
///
/// # Errors
/// An input that is no image, images that can't be read or don't fit.
pub fn first(
    graph: &Graph,
    images: &Source,
    preprocess: &Preprocess,
    count: usize,
) -> Result<Vec<Vec<f32>>> {
    calibration(graph, images, preprocess, &())?.read(0..count.min(images.len()))
}

fn calibration<'a>(
    graph: &Graph,
    images: &'a Source,
    preprocess: &'a Preprocess,
    watch: &'a dyn Watch,
) -> Result<Calibration<'a>> {
    let input = graph.inputs.first().and_then(|i| graph.values.get(i.0));
    let shape = input.map_or(&[][..], |value| &value.shape);
    let chw = match *shape {
        [_, c, h, w] => [c, h, w],
        [_, c, w] => [c, 1, w],
        [_, n] => [n, 1, 1],
        _ => {
            bail!("the network's input has shape {shape:?}, not [1, C, H, W], [1, C, W] or [1, N]")
        }
    };
    Ok(Calibration {
        source: images,
        reader: Mutex::new(images.reader()),
        preprocess,
        chw,
        watch,
    })
}

/// Images to calibrate with, of a source.
struct Calibration<'a> {
    source: &'a Source,
    reader: Mutex<Reader<'a>>,
    preprocess: &'a Preprocess,
    chw: [usize; 3],
    watch: &'a dyn Watch,
}

impl Calibration<'_> {
    fn read(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>> {
        if self.watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let mut items = Vec::new();
        {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            if reader.position() > range.start {
                *reader = self.source.reader();
            }
            while reader.position() < range.end
                && let Some(item) = reader.next_item()?
            {
                if item.index >= range.start {
                    items.push(item);
                }
            }
        }
        let value = |item: Item| self.preprocess.apply(&item.decode()?, self.chw);
        // The first of several errors, whichever thread finds its own first.
        let values: Vec<Result<Vec<f32>>> = items.into_par_iter().map(value).collect();
        values.into_iter().collect()
    }
}

impl quantize::Calibration for Calibration<'_> {
    fn count(&self) -> usize {
        self.source.len()
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        self.read(range).map_err(|error| message(&error))
    }

    fn progress(&self, done: usize, all: usize) {
        self.watch.progress(done, all);
    }
}
