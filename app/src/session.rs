//! A network loaded on its devices, for arrays and images.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use vta_driver::{Counters, DeviceCounters, Program};

use crate::compile::Compiled;
use crate::cycle::Setup;
use crate::dump::{self, Plans};
use crate::error::{Context, Error, Result, ensure};
use crate::model::{Model, Tensor};
use crate::options::Target;
use crate::pool::{Abreast, Checks, Images, Pool, Share};
use crate::preprocess::to_int8;
use crate::report::Report;
use crate::timed::Timed;
use crate::watch::Watch;

/// A network loaded on its devices. Constants are written once; every run takes any number of
/// images, BATCH of them at a time, on as many devices as the target's threads allow.
pub struct Session {
    title: String,
    program: Arc<Program>,
    pool: Pool,
}

/// Values of one input for some images, one image behind the other, each in CHW order.
#[derive(Clone, Debug)]
pub struct Feed<'a> {
    /// The input's name.
    pub name: &'a str,
    /// A whole number of images.
    pub values: Values<'a>,
}

/// Real values, or steps of the input's scale.
#[derive(Clone, Debug)]
pub enum Values<'a> {
    /// Rounded to the nearest step, ties to even, and clamped to int8.
    Real(Cow<'a, [f32]>),
    /// As the device reads them.
    Int8(Cow<'a, [i8]>),
}

/// Values of one output for all images of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name, shape and scale.
    pub tensor: Tensor,
    /// How many images there are.
    pub images: usize,
    /// `images` times [`Tensor::len`] values, each image in CHW order.
    pub int8: Vec<i8>,
}

impl Output {
    /// The values in the output's own unit.
    pub fn real(&self) -> Vec<f32> {
        let scale = self.tensor.scale.unwrap_or(1.0);
        let zero = f32::from(self.tensor.zero);
        let real = |&v: &i8| (f32::from(v) - zero) * scale;
        self.int8.iter().map(real).collect()
    }
}

/// What a run has computed.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// In the model's order.
    pub outputs: Vec<Output>,
    /// Layers whose output isn't the reference interpreter's, a line each; empty for a session that
    /// compares nothing.
    pub mismatches: Vec<String>,
    /// Totals of all devices since the session was opened.
    pub counters: Counters,
    /// Likewise by the names of the devices that launch kernels.
    pub devices: BTreeMap<String, DeviceCounters>,
}

impl Outputs {
    /// An output by name.
    pub fn get(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|o| o.tensor.name == name)
    }
}

impl Session {
    /// Compiles a model for a target. Devices are opened by the first run. `watch` hears why the
    /// program isn't one for the board whose timing is borrowed, and may cancel between two steps.
    ///
    /// # Errors
    /// [`Error::Usage`] for options that don't fit each other or the model, [`Error::Io`] and
    /// [`Error::Input`] for their files, [`Error::Float`] for a float model, [`Error::Model`] for
    /// what can't be compiled, [`Error::Cancelled`] when `watch` says so.
    pub fn open(model: Model, target: &Target, watch: &dyn Watch) -> Result<Self> {
        Self::checking(model, target, Checks::None, watch)
    }

    /// As [`Self::open`]; every run compares each layer with the reference interpreter.
    ///
    /// # Errors
    /// As for [`Self::open`]; [`Error::Usage`] for a bundle and for a target that only counts
    /// cycles.
    pub fn verifying(model: Model, target: &Target, watch: &dyn Watch) -> Result<Self> {
        ensure!(
            !model.is_compiled(),
            "layers can't be compared without the model of {}",
            model.name()
        );
        ensure!(
            !target.views.timing_only,
            "a device that only counts cycles computes nothing to compare"
        );
        Self::checking(model, target, Checks::Layers, watch)
    }

    fn checking(model: Model, target: &Target, checks: Checks, watch: &dyn Watch) -> Result<Self> {
        ensure!(target.threads != Some(0), "there must be a thread at least");
        ensure!(target.batch > 0, "there must be a run in flight at least");
        let title = model.name().to_owned();
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let compiled = model.compile(target, watch)?;
        let setup = Setup::new(&target.device, &target.views, &title)?;
        if let Some(text) = setup.machine().misfit(&compiled.program) {
            watch.note(&text);
        }
        Ok(Self::load(compiled, setup, target, checks, &title))
    }

    /// A session of what is compiled and set up already.
    pub(crate) fn load(
        compiled: Compiled,
        setup: Setup,
        target: &Target,
        checks: Checks,
        title: &str,
    ) -> Self {
        let abreast = Abreast {
            threads: target.threads,
            in_flight: target.batch,
        };
        Self {
            title: title.to_owned(),
            program: Arc::clone(&compiled.program),
            pool: Pool::new(compiled, setup, checks, abreast),
        }
    }

    /// What the network takes, in the model's order.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn inputs(&self) -> Result<Vec<Tensor>> {
        let inputs = self.program.inputs.iter();
        inputs
            .map(|i| Tensor::of_program(&self.program, *i))
            .collect()
    }

    /// What the network gives, in the model's order.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn outputs(&self) -> Result<Vec<Tensor>> {
        let outputs = self.program.outputs.iter();
        outputs
            .map(|i| Tensor::of_program(&self.program, *i))
            .collect()
    }

    /// The compiled network; only its tensors and layers when it runs over several places.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What the fast executor makes of one pass over the network: see [`dump::plans`]. Nothing
    /// runs.
    ///
    /// # Errors
    /// As for [`dump::plans`].
    pub fn plans(&self) -> Result<Plans> {
        dump::plans(self.pool.network(), &self.pool.setup().names())
    }

    /// Runs the network on arrays: one [`Feed`] for each input.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that isn't given or that the network hasn't, or values that
    /// aren't a whole number of images; [`Error::Device`] for a device that can't be opened,
    /// [`Error::Run`] for one that fails, [`Error::Cancelled`] when `watch` says so. After an
    /// error the session can be used again.
    pub fn run(&mut self, feeds: &[Feed<'_>], watch: &dyn Watch) -> Result<Outputs> {
        let inputs = self.inputs()?;
        for feed in feeds {
            let known = inputs.iter().any(|input| input.name == feed.name);
            let names: Vec<&str> = inputs.iter().map(|i| &*i.name).collect();
            let wrong = || format!("no input '{}' (there is {})", feed.name, names.join(", "));
            known.then_some(()).with_context(wrong)?;
        }
        // The driver takes one input a program.
        let [input] = &inputs[..] else {
            let text = format!("networks of one input run, this one has {}", inputs.len());
            return Err(Error::input(text));
        };
        let missing = || format!("input '{}' isn't given", input.name);
        let feed = feeds.first().with_context(missing)?;
        self.run_images(&Int8::new(input, feed)?, watch)
    }

    /// Runs the network on images, each of which is asked for when it is needed.
    ///
    /// # Errors
    /// As for [`Self::run`], and what the images say.
    pub fn run_images(&mut self, images: &dyn Images, watch: &dyn Watch) -> Result<Outputs> {
        let shares = self.shares(images, watch)?;
        let mut outputs: Vec<Output> = self
            .outputs()?
            .into_iter()
            .map(|t| t.of(images.count()))
            .collect();
        let mut all = Outputs {
            outputs: Vec::new(),
            mismatches: Vec::new(),
            counters: Counters::default(),
            devices: BTreeMap::new(),
        };
        for share in shares {
            for (first, found) in &share.outputs {
                for (output, images) in outputs.iter_mut().zip(found) {
                    let len = output.tensor.len();
                    for (image, values) in (*first..).zip(images) {
                        output.int8[image * len..][..len].copy_from_slice(values);
                    }
                }
            }
            all.mismatches.extend(share.mismatches);
            all.counters.add(&share.counters);
            for (name, counted) in share.devices {
                all.devices.entry(name).or_default().add(&counted);
            }
        }
        all.outputs = outputs;
        Ok(all)
    }

    /// Runs images; what each device found.
    pub(crate) fn shares(&mut self, images: &dyn Images, watch: &dyn Watch) -> Result<Vec<Share>> {
        self.pool.run(images, watch)
    }

    /// Whether outputs mean nothing, because the device only counts cycles.
    pub fn timing_only(&self) -> bool {
        self.pool.setup().timing_only()
    }

    /// The cycles of one pass over the program, if the device counts them and a run was made.
    pub fn report(&self) -> Option<Report> {
        Some(Report {
            title: self.title.clone(),
            program: Arc::clone(&self.program),
            timed: self.pool.setup().timed(&self.program)?,
        })
    }

    /// After the last run: ends the trace and writes the report that the target names.
    ///
    /// # Errors
    /// [`Error::Io`] when they can't be written.
    pub fn finish(&self) -> Result<Option<Timed>> {
        self.pool.setup().finish(&self.program, &self.title)
    }
}

impl Tensor {
    /// Room for its values of so many images.
    fn of(self, images: usize) -> Output {
        Output {
            int8: vec![0; images * self.len()],
            images,
            tensor: self,
        }
    }
}

/// An input's images as int8, one behind the other.
struct Int8<'a> {
    values: Cow<'a, [i8]>,
    /// Of each image; at least 1.
    len: usize,
}

impl<'a> Int8<'a> {
    fn new(input: &Tensor, feed: &'a Feed<'_>) -> Result<Self> {
        let values: Cow<'a, [i8]> = match &feed.values {
            Values::Int8(values) => Cow::Borrowed(values),
            Values::Real(values) => {
                if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                    let text = format!("input '{}', value {at}: {}", feed.name, values[at]);
                    return Err(Error::input(text));
                }
                to_int8(values, input.scale.unwrap_or(1.0), input.zero).into()
            }
        };
        let len = input.len();
        if len == 0 || !values.len().is_multiple_of(len) {
            return Err(Error::input(format!(
                "input '{}': {} values; an image has {len}",
                feed.name,
                values.len()
            )));
        }
        Ok(Self { values, len })
    }
}

impl Images for Int8<'_> {
    fn count(&self) -> usize {
        self.values.len() / self.len
    }

    fn image(&self, _: &str, index: usize) -> Result<Cow<'_, [i8]>> {
        let mut all = self.values.chunks_exact(self.len);
        let image = all.nth(index).context("there is no such image")?;
        Ok(Cow::Borrowed(image))
    }
}
