//! Arrays to calibrate with.

use vta_compiler::graph::Element;

use super::calibrate::Calibration;
use crate::error::{Error, Result, ensure, ensure_input};
use crate::open::model::Tensor;
use crate::options::names::{Front, Name};
use crate::run::values::{Arrays, Feed, Values, ensure_finite};

/// Batches of images, each with an array for every input.
pub struct Batches<'a> {
    batches: Vec<Arrays<'a>>,
    /// Of each image: its batch, and its place there.
    images: Vec<(usize, usize)>,
}

impl<'a> Batches<'a> {
    /// Arrays for a network's inputs.
    ///
    /// # Errors
    /// As for [`Arrays::new`], and values of another type; [`Error::Usage`] for no images at all, under the option's
    /// name.
    pub fn new(inputs: &'a [Tensor], given: &'a [Vec<Feed<'a>>], option: Name) -> Result<Self> {
        let mut all = Self {
            batches: Vec::with_capacity(given.len()),
            images: Vec::new(),
        };
        for (number, feeds) in given.iter().enumerate() {
            let at =
                |error: Error| error.at(format!("{} batch {number}", option.bare(Front::Library)));
            let batch = batch(inputs, feeds).map_err(at)?;
            all.images.extend((0..batch.count).map(|at| (number, at)));
            all.batches.push(batch);
        }
        ensure!(!all.images.is_empty(), "{} has no images"; option);
        Ok(all)
    }

    fn image(&self, image: usize) -> Vec<f32> {
        let (batch, at) = self.images[image];
        let mut all = Vec::new();
        for (input, values) in &self.batches[batch].values {
            let len = input.len();
            all.extend_from_slice(&values.real(at * len..(at + 1) * len));
        }
        all
    }
}

/// What a batch has for each input, of the input's type.
fn batch<'a>(inputs: &'a [Tensor], feeds: &'a [Feed<'a>]) -> Result<Arrays<'a>> {
    let batch = Arrays::new(inputs, feeds, None)?;
    for (input, values) in &batch.values {
        if let Values::Real(values) = values {
            ensure_finite(input, values, 0..values.len())?;
        }
        let fits = match values {
            Values::Real(_) => input.element == Element::F32,
            Values::Steps(_) => input.element == Element::I8,
            Values::Whole(_) => input.element != Element::F32,
        };
        ensure_input!(
            fits,
            "input '{}' takes {}",
            input.name,
            input.element.name()
        );
    }
    Ok(batch)
}

impl Calibration for Batches<'_> {
    fn count(&self) -> usize {
        self.images.len()
    }

    fn read(&self, images: &[usize]) -> Result<Vec<Vec<f32>>> {
        Ok(images.iter().map(|image| self.image(*image)).collect())
    }
}
