//! Arrays to calibrate with.

use std::ops::Range;

use vta_compiler::graph::Element;
use vta_compiler::quantize::Calibration;

use crate::error::{Error, Result, ensure, message};
use crate::open::model::Tensor;
use crate::options::names::{CALIBRATION, Front};
use crate::run::session::{Feed, Values};
use crate::watch::Watch;

/// Batches of images, each with an array for every input.
pub struct Batches<'a> {
    /// Index of the first image, and of each input in order how many values an image has, and all values.
    batches: Vec<(usize, Vec<(usize, &'a Values<'a>)>)>,
    images: usize,
    watch: &'a dyn Watch,
}

impl<'a> Batches<'a> {
    /// Arrays for a network's inputs.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that isn't given or not there, values of another type or that aren't
    /// finite, or that are no whole number of images, or of other inputs as many; [`Error::Usage`] for no
    /// images at all.
    pub fn new(
        inputs: &[Tensor],
        given: &'a [Vec<Feed<'a>>],
        watch: &'a dyn Watch,
    ) -> Result<Self> {
        let mut all = Self {
            batches: Vec::with_capacity(given.len()),
            images: 0,
            watch,
        };
        for (number, feeds) in given.iter().enumerate() {
            let at = |error: Error| error.at(format!("calibration batch {number}"));
            let (images, batch) = batch(inputs, feeds).map_err(at)?;
            all.batches.push((all.images, batch));
            all.images += images;
        }
        ensure!(all.images > 0, "{} has no images"; CALIBRATION);
        Ok(all)
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.images
    }

    /// Some of them, the values of all inputs one behind the other.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when the watch says so.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>> {
        if self.watch.cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(range.map(|image| self.image(image)).collect())
    }

    fn image(&self, image: usize) -> Vec<f32> {
        let after = self.batches.partition_point(|(first, _)| *first <= image);
        let mut all = Vec::new();
        // A batch without images begins where the next one does, which comes after it.
        let Some((first, batch)) = after.checked_sub(1).map(|at| &self.batches[at]) else {
            return all;
        };
        for (len, values) in batch {
            let range = (image - first) * len..(image - first + 1) * len;
            match values {
                Values::Real(values) => all.extend_from_slice(&values[range]),
                Values::Int8(values) => all.extend(values[range].iter().map(|v| f32::from(*v))),
                Values::Whole(values) => all.extend(values[range].iter().map(|v| *v as f32)),
            }
        }
        all
    }
}

/// What a batch has for each input: values of an image, and all values; and how many images.
fn batch<'a>(
    inputs: &[Tensor],
    feeds: &'a [Feed<'a>],
) -> Result<(usize, Vec<(usize, &'a Values<'a>)>)> {
    for feed in feeds {
        if !inputs.iter().any(|input| input.name == feed.name) {
            let names: Vec<&str> = inputs.iter().map(|input| &*input.name).collect();
            let (name, there) = (feed.name, names.join(", "));
            return Err(Error::input(format!(
                "no input '{name}' (there is {there})"
            )));
        }
    }
    let (mut images, mut batch) = (None, Vec::with_capacity(inputs.len()));
    for input in inputs {
        let (name, len) = (&input.name, input.len());
        let Some(feed) = feeds.iter().find(|feed| feed.name == *name) else {
            return Err(Error::input(format!("input '{name}' isn't given")));
        };
        let fits = match &feed.values {
            Values::Real(values) => {
                if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                    let text = format!("input '{name}', value {at}: {}", values[at]);
                    return Err(Error::input(text));
                }
                input.element == Element::F32
            }
            Values::Int8(_) => input.element == Element::I8,
            Values::Whole(_) => input.element != Element::F32,
        };
        if !fits {
            let takes = input.element.name();
            return Err(Error::input(format!("input '{name}' takes {takes}")));
        }
        let found = feed.values.len();
        if len == 0 || !found.is_multiple_of(len) {
            let text = format!("input '{name}': {found} values; an image has {len}");
            return Err(Error::input(text));
        }
        let first = *images.get_or_insert(found / len);
        if first != found / len {
            let text = format!(
                "{} images of input '{name}', but {first} of the first",
                found / len
            );
            return Err(Error::input(text));
        }
        batch.push((len, &feed.values));
    }
    Ok((images.unwrap_or(0), batch))
}

impl Calibration for Batches<'_> {
    fn count(&self) -> usize {
        self.images
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        self.read(range)
            .map_err(|error| message(&error, Front::Library))
    }

    fn progress(&self, done: usize, all: usize) {
        self.watch.progress(done, all);
    }
}
