//! Images on their way to devices: decoded ahead by threads of their own, or by who asks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use vta_compiler::graph::Data;

use crate::error::{Context, Error, Result};

/// Images by number. Several threads ask, for each image once.
pub trait Images: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// The tensors that the program reads of one, one behind the other in the order of its
    /// inputs, each in CHW order.
    ///
    /// # Errors
    /// When it can't be read or doesn't fit the network.
    fn image(&self, index: usize) -> Result<Cow<'_, [i16]>>;
}

/// Images whose inputs the host may ask for again, when the program has run.
pub trait Inputs: Images {
    /// The model's inputs of an image, as the host takes them.
    ///
    /// # Errors
    /// As for [`Images::image`].
    fn data(&self, index: usize) -> Result<Vec<Data>>;
}

impl Images for Vec<Vec<i16>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn image(&self, index: usize) -> Result<Cow<'_, [i16]>> {
        let image = self.get(index).context("there is no such image")?;
        Ok(Cow::Borrowed(image))
    }
}

/// Bytes of images that may wait, beyond what keeps runs and threads busy.
const AHEAD_BYTES: usize = 64 << 20;

/// The images of a run, and the number of the first.
pub type Taken<'a> = (usize, Vec<Cow<'a, [i16]>>);

/// Gives images to runs, in order, BATCH of them at a time.
///
/// Threads in [`Self::load`] decode ahead, image by image, so that all of them work on the first
/// run, too. At most two runs and an image for each thread wait, and more where images are small:
/// while a device is opened much can be decoded. Without such threads an image is decoded when its
/// run asks.
pub struct Supply<'a> {
    images: &'a dyn Images,
    batch: usize,
    /// Images that may wait; 0 without threads.
    ahead: usize,
    state: Mutex<State<'a>>,
    changed: Condvar,
}

#[derive(Default)]
struct State<'a> {
    /// The first image that no run has.
    taken: usize,
    /// The first image that no thread decodes.
    next: usize,
    ready: BTreeMap<usize, Result<Cow<'a, [i16]>>>,
    stopped: bool,
}

/// Ends the threads of a supply when it is dropped.
pub struct Stop<'s, 'a>(&'s Supply<'a>);

impl Drop for Stop<'_, '_> {
    fn drop(&mut self) {
        self.0.state().stopped = true;
        self.0.changed.notify_all();
    }
}

impl<'a> Supply<'a> {
    /// For runs of `batch` images of so many bytes, and so many threads that will be in
    /// [`Self::load`].
    pub fn new(images: &'a dyn Images, image_bytes: usize, batch: usize, loaders: usize) -> Self {
        let ahead = match loaders {
            0 => 0,
            _ => {
                let least = batch.saturating_mul(2).saturating_add(loaders);
                least.max(AHEAD_BYTES / image_bytes.max(1))
            }
        };
        Self {
            images,
            batch,
            ahead,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What ends the threads in [`Self::load`].
    pub fn stop(&self) -> Stop<'_, 'a> {
        Stop(self)
    }

    /// Decodes images until there are no more, or until the supply is stopped.
    pub fn load(&self) {
        let mut state = self.state();
        loop {
            if state.stopped || state.next >= self.images.count() {
                return;
            }
            if state.next >= state.taken.saturating_add(self.ahead) {
                state = self.wait(state);
                continue;
            }
            let index = state.next;
            state.next += 1;
            drop(state);
            let image = catch_unwind(AssertUnwindSafe(|| self.images.image(index)));
            state = self.state();
            // Whoever waits for the image is told of a panic instead.
            let image = image.unwrap_or_else(|_| Err(Error::thread()));
            state.ready.insert(index, image);
            self.changed.notify_all();
        }
    }

    /// The next images that make a run; `None` when all are taken.
    ///
    /// # Errors
    /// What the first of them that can't be had says.
    pub fn take(&self) -> Result<Option<Taken<'a>>> {
        let mut state = self.state();
        let first = state.taken;
        let end = first.saturating_add(self.batch).min(self.images.count());
        if first >= end {
            return Ok(None);
        }
        state.taken = end;
        if self.ahead == 0 {
            drop(state);
            let images = (first..end).map(|index| self.images.image(index));
            return Ok(Some((first, images.collect::<Result<_>>()?)));
        }
        self.changed.notify_all();
        let mut images = Vec::with_capacity(end - first);
        for index in first..end {
            let image = loop {
                match state.ready.remove(&index) {
                    Some(image) => break image,
                    None => state = self.wait(state),
                }
            };
            images.push(image?);
        }
        Ok(Some((first, images)))
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        // Whoever panicked left whole images.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State<'a>>) -> MutexGuard<'g, State<'a>> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
