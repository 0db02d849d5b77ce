//! Images for the compiler, and which of them it is compared on.

use std::ops::Range;

use vta_compiler::quantize;

use crate::error::{Error, Result, ensure, message};
use crate::options::names::{Front, HELD_OUT};
use crate::watch::Watch;

/// Fewer images are all calibrated with, if nothing is said.
const FEW: usize = 5;
/// Images among which quantised networks are chosen at most.
pub const CHOOSING: usize = 16;
/// Calibration images that are compared at most, where no others are.
const COMPARED: usize = 16;
/// Where fewer are kept out, so many are compared, the others of the calibration: one image says too little.
const LEAST: usize = 4;

/// Images to calibrate with.
pub trait Calibration: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Some of them in order, the values of all inputs one behind the other.
    fn read(&self, images: &[usize]) -> Result<Vec<Vec<f32>>>;
}

/// What images are for, each by its number.
#[derive(Debug, PartialEq, Eq)]
pub struct Split {
    pub calibrate: Vec<usize>,
    /// Kept out, to choose among quantised networks.
    pub choose: Vec<usize>,
    /// Kept out, to be compared with float. The same ones if they are few.
    pub compare: Vec<usize>,
    /// How many of those of the calibration are chosen on and compared, too.
    pub again: usize,
}

impl Split {
    /// Of `count` images, of which `held` are kept out, or a fifth where nothing is said. They are spread over all:
    /// one of each run of as many, whose place differs, so that it follows no period of the list.
    ///
    /// # Errors
    /// [`Error::Usage`] where none would be left.
    pub fn new(count: usize, held: Option<usize>) -> Result<Self> {
        let held = held.unwrap_or(if count < FEW { 0 } else { count / FEW });
        ensure!(
            held < count || count == 0,
            "{} {} leaves none of {} images to calibrate with"; HELD_OUT, held, count
        );
        let place = |run: usize| {
            let [first, end] = [run, run + 1].map(|run| run * count / held);
            first + scattered(run) % (end - first)
        };
        let out: Vec<usize> = (0..held).map(place).collect();
        let calibrate = (0..count).filter(|image| out.binary_search(image).is_err());
        let mut split = Self::held(&out);
        split.calibrate = calibrate.collect();
        if out.is_empty() {
            split.compare = (0..count.min(COMPARED)).collect();
            split.again = split.compare.len();
        } else if out.len() < LEAST {
            split.again = (LEAST - out.len()).min(split.calibrate.len());
            split.compare.extend(&split.calibrate[..split.again]);
            split.compare.sort_unstable();
            split.choose.clone_from(&split.compare);
        }
        Ok(split)
    }

    /// What images that are kept out are for: few ones for both.
    pub fn held(out: &[usize]) -> Self {
        let every = (out.len() / 2).div_ceil(CHOOSING).max(1) * 2;
        let chosen = |at: usize| at % every == 1;
        let some = |choose: bool| {
            let all = out.iter().enumerate();
            let some = all.filter(|(at, _)| out.len() <= CHOOSING || chosen(*at) == choose);
            some.map(|(_, image)| *image).collect()
        };
        Self {
            calibrate: Vec::new(),
            choose: some(true),
            compare: some(false),
            again: 0,
        }
    }
}

/// A number that looks like chance, the same for the same one (the finaliser of SplitMix64).
fn scattered(number: usize) -> usize {
    let mut z = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 32) as usize
}

/// Some images for the compiler; `watch` is told of each that was run, as often as it is.
pub struct Watched<'a> {
    pub images: &'a dyn Calibration,
    pub some: &'a [usize],
    /// Images that are run afterwards.
    pub more: usize,
    pub watch: &'a dyn Watch,
}

impl quantize::Calibration for Watched<'_> {
    fn count(&self) -> usize {
        self.some.len()
    }

    fn images(&self, range: Range<usize>) -> Result<Vec<Vec<f32>>, String> {
        let images = if self.watch.cancelled() {
            Err(Error::Cancelled)
        } else {
            self.images.read(&self.some[range])
        };
        images.map_err(|error| message(&error, Front::Library))
    }

    fn progress(&self, done: usize, all: usize) {
        self.watch.progress(done, all + self.more);
    }
}

#[cfg(test)]
mod tests;
