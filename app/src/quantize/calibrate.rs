//! Scales of an int8 network from images.

use std::borrow::Cow;
use std::ops::Range;

use vta_compiler::graph::Graph;
use vta_compiler::quantize;

use crate::error::{Error, Result, message};
use crate::options::names::Front;
use crate::watch::Watch;

/// Images to calibrate with.
pub trait Calibration: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Some of them, the values of all inputs one behind the other.
    fn read(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>>;
}

/// Quantises a float graph; `watch` is told of each image that was run, as often as it is. A graph that is given
/// away isn't held beside what is made of it.
///
/// # Errors
/// Images that can't be read or don't fit, operators that can't be quantised, a watch that cancels.
pub fn quantize(
    graph: Cow<'_, Graph>,
    images: &impl Calibration,
    options: &quantize::Options,
    watch: &dyn Watch,
) -> Result<quantize::Quantized> {
    let quantized = quantize::quantize_network(graph, &Watched { images, watch }, options);
    if watch.cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(quantized?)
}

/// Images for the compiler.
struct Watched<'a, C> {
    images: &'a C,
    watch: &'a dyn Watch,
}

impl<C: Calibration> quantize::Calibration for Watched<'_, C> {
    fn count(&self) -> usize {
        self.images.count()
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        let images = if self.watch.cancelled() {
            Err(Error::Cancelled)
        } else {
            self.images.read(range)
        };
        images.map_err(|error| message(&error, Front::Library))
    }

    fn progress(&self, done: usize, all: usize) {
        self.watch.progress(done, all);
    }
}
