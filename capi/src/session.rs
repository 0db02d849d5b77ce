//! `vta_session`: a network on its devices, with what it was given and what it gave.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vta_app::options::names::Said;
use vta_app::run::image_values;
use vta_app::{Feed, Model, Output, Session as Network, Target, Values, Watch};
use vta_compiler::graph::Element;

use crate::counters::Counted;
use crate::error::Failure;
use crate::tensor::Tensors;
use crate::values::{copied, fill, lend};

/// A network loaded on its devices.
pub struct Session {
    /// What it takes.
    pub(crate) inputs: Tensors,
    /// What it gives.
    pub(crate) outputs: Tensors,
    /// Names of classes.
    pub(crate) labels: Vec<CString>,
    /// What was opened.
    model: String,
    /// The model's recipe for images.
    recipe: Option<String>,
    state: Mutex<State>,
    /// Told to stop; it is no part of the state, which a run holds.
    cancelled: AtomicBool,
}

/// What calls change.
pub(crate) struct State {
    pub(crate) network: Network,
    given: Vec<Option<Values<'static>>>,
    found: Option<Vec<Output>>,
    pub(crate) counted: Counted,
    pub(crate) notes: Vec<String>,
    /// Text that C was given a pointer to.
    pub(crate) text: CString,
}

impl Session {
    /// Compiles a network for a target.
    ///
    /// # Errors
    /// As for [`Network::open`].
    pub fn open(model: Model, target: &Target) -> Result<Self, Failure> {
        let (name, recipe) = (
            model.name().to_owned(),
            model.metadata().get("preprocess").cloned(),
        );
        let labels = model.labels()?.into_iter();
        let labels = labels.map(|label| CString::new(label).unwrap_or_default());
        let labels = labels.collect();
        let cancelled = AtomicBool::new(false);
        let watcher = Watcher::new(&cancelled);
        let network = Network::open(model, target, &watcher)?;
        let inputs = Tensors::new("input", network.inputs());
        let outputs = Tensors::new("output", network.outputs());
        let state = State {
            given: inputs.all.iter().map(|_| None).collect(),
            network,
            found: None,
            counted: Counted::default(),
            notes: watcher.notes(),
            text: CString::default(),
        };
        Ok(Self {
            inputs,
            outputs,
            labels,
            model: name,
            recipe,
            state: Mutex::new(state),
            cancelled,
        })
    }

    /// The state, which one thread has at a time.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a copy of values for an input.
    ///
    /// # Errors
    /// No such input, values of another type, no whole number of images.
    pub fn set(&self, index: usize, kind: Element, bytes: &[u8]) -> Result<(), Failure> {
        let values = copied(kind, bytes, self.inputs.at(index)?)?;
        self.state().given[index] = Some(values);
        Ok(())
    }

    /// Keeps the images of a file or folder for an input, or those that the model brings along.
    ///
    /// # Errors
    /// No such input, files that can't be read, images that don't fit, a model that brings none.
    pub fn set_images(&self, index: usize, path: Option<&str>) -> Result<(), Failure> {
        let input = &self.inputs.at(index)?.of_device;
        let watcher = Watcher::new(&self.cancelled);
        let (path, recipe) = (path.map(Path::new), self.recipe.as_ref());
        let values = image_values(input, &self.model, path, recipe, &watcher);
        let mut state = self.state();
        state.note(watcher.notes());
        state.given[index] = Some(values?);
        Ok(())
    }

    /// Runs the network on its inputs, which it keeps.
    ///
    /// # Errors
    /// An input that isn't set, inputs of different numbers of images, a failure of a device.
    pub fn run(&self) -> Result<(), Failure> {
        let mut state = self.state();
        let State {
            network,
            given,
            found,
            counted,
            ..
        } = &mut *state;
        *found = None;
        self.cancelled.store(false, Ordering::Relaxed);
        let mut feeds = Vec::with_capacity(given.len());
        // No timing depends on values.
        let blank = network.timing_only() && given.iter().all(Option::is_none);
        for (tensor, values) in self.inputs.all.iter().zip(given).filter(|_| !blank) {
            let name = &*tensor.of_device.name;
            let missing = || Failure::usage(format!("input '{}' isn't set", tensor.port().name));
            let values = lend(values.as_ref().ok_or_else(missing)?);
            feeds.push(Feed { name, values });
        }
        let watcher = Watcher::new(&self.cancelled);
        let all = network.run(&feeds, &watcher)?;
        let images = all.outputs.first().map_or(0, |output| output.images);
        counted.add(network, images, all.counters, all.devices);
        *found = Some(all.outputs);
        state.note(watcher.notes());
        Ok(())
    }

    /// Ends the run that another thread is waiting for, if there is one.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// How many images the last run was of.
    pub fn images(&self) -> usize {
        let state = self.state();
        let first = state.found.as_ref().and_then(|found| found.first());
        first.map_or(0, |output| output.images)
    }

    /// Reads an output of the last run.
    ///
    /// # Errors
    /// No run, no such output, room of another type or size, a device that only counts cycles.
    pub fn read(&self, index: usize, kind: Element, room: &mut [u8]) -> Result<(), Failure> {
        let tensor = self.outputs.at(index)?;
        let state = self.state();
        let Some(found) = &state.found else {
            let text = "there are no outputs before a run that ends well";
            return Err(Failure::usage(text));
        };
        if state.network.timing_only() {
            let text = "there are no outputs of a device that only counts cycles";
            return Err(Failure::usage(text));
        }
        fill(room, kind, &found[index], tensor)
    }
}

impl State {
    /// Keeps remarks, each once.
    fn note(&mut self, notes: Vec<String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// Keeps remarks, and knows whether to stop.
struct Watcher<'a> {
    cancelled: &'a AtomicBool,
    notes: Mutex<Vec<String>>,
}

impl<'a> Watcher<'a> {
    fn new(cancelled: &'a AtomicBool) -> Self {
        let notes = Mutex::default();
        Self { cancelled, notes }
    }

    fn notes(self) -> Vec<String> {
        let notes = self.notes.into_inner();
        notes.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for Watcher<'_> {
    fn progress(&self, _: usize, _: usize) {}

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn note(&self, text: &Said) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(text.to_string());
    }
}
