//! A network loaded on its devices, for arrays and images.

use std::sync::Arc;

use vta_driver::Program;

use crate::compile::{Compiled, Plans, dump};
use crate::device::{Setup, Totals, check_names};
use crate::error::{Error, Result, ensure};
use crate::open::model::{Model, Ports, Tensor};
use crate::options::Target;
use crate::report::{HostShare, Report, Timed};
use crate::run::outcome::Start;
use crate::run::pool::{Pool, Share};
use crate::run::supply::{Images, Inputs};
use crate::run::values::{self, Arrays, Feed, Output, Outputs, Values};
use crate::watch::Watch;

/// A network loaded on its devices. Constants are written once; every run takes any number of
/// images, BATCH of them at a time, on as many devices as the target's threads allow.
pub struct Session {
    title: String,
    program: Arc<Program>,
    /// What the host takes of a pass.
    pub(crate) host: HostShare,
    pool: Pool,
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
        Self::compiling(model, target, watch, Model::compile)
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
        Self::compiling(model, target, watch, Model::compile_to_compare)
    }

    fn compiling(
        model: Model,
        target: &Target,
        watch: &dyn Watch,
        compile: fn(Model, &Target, &dyn Watch) -> Result<Compiled>,
    ) -> Result<Self> {
        check_names(&target.device.device)?;
        ensure!(target.threads != Some(0), "there must be a thread at least");
        ensure!(
            target.batch != Some(0),
            "there must be a run in flight at least"
        );
        let title = model.name().to_owned();
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let setup = Setup::new(&target.device, &target.views, &title)?;
        let compiled = compile(model, target, watch)?;
        if let Some(text) = setup.machine().misfit(&compiled.program) {
            watch.note(&text);
        }
        Self::load(compiled, setup, target, &title)
    }

    /// A session of what is compiled and set up already.
    ///
    /// # Errors
    /// [`Error::Model`] for a network that contradicts itself.
    pub(crate) fn load(
        compiled: Compiled,
        setup: Setup,
        target: &Target,
        title: &str,
    ) -> Result<Self> {
        Ok(Self {
            title: title.to_owned(),
            program: Arc::clone(&compiled.program),
            host: compiled.host_share()?,
            pool: Pool::new(compiled, setup, target),
        })
    }

    /// What the network takes, in the model's order.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn inputs(&self) -> Result<Vec<Tensor>> {
        self.pool.network.inputs()
    }

    /// What the network gives, in the model's order.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn outputs(&self) -> Result<Vec<Tensor>> {
        self.pool.network.outputs()
    }

    /// What the network takes and gives as its model says it, in the order of [`Self::inputs`] and
    /// [`Self::outputs`]: a bundle of an older version has the tensors' own dimensions.
    ///
    /// # Errors
    /// [`Error::Model`] for a program that contradicts itself.
    pub fn ports(&self) -> Result<Ports> {
        let (inputs, outputs) = (self.inputs()?, self.outputs()?);
        Ok(Ports::of_metadata(
            &self.program.metadata,
            &inputs,
            &outputs,
        ))
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
        dump::plans(&self.pool.network, &self.pool.setup.names())
    }

    /// Runs the network on arrays: one [`Feed`] for each input; a target that only counts cycles needs none.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that isn't given or that the network hasn't, or values that
    /// aren't a whole number of images; [`Error::Device`] for a device that can't be opened,
    /// [`Error::Run`] for one that fails, [`Error::Cancelled`] when `watch` says so. After an
    /// error the session can be used again.
    pub fn run(&mut self, feeds: &[Feed<'_>], watch: &dyn Watch) -> Result<Outputs> {
        let inputs = self.inputs()?;
        let blank: Vec<Feed<'_>>;
        let feeds = match feeds {
            [] if self.timing_only() => {
                blank = inputs.iter().map(Feed::blank).collect();
                &blank
            }
            feeds => feeds,
        };
        let arrays = Arrays::new(&inputs, feeds, self.pool.network.ends.clone())?;
        let (outputs, share) = self.run_inputs(&arrays, watch)?;
        Ok(share.with(outputs))
    }

    /// Runs the network on inputs, with what the host computes around it.
    ///
    /// # Errors
    /// As for [`Self::run_images`], and what the host can't compute.
    pub(crate) fn run_inputs(
        &mut self,
        inputs: &dyn Inputs,
        watch: &dyn Watch,
    ) -> Result<(Vec<Output>, Share)> {
        let (int8, share) = self.run_int8(inputs, watch)?;
        let tensors = self.outputs()?;
        let outputs = match &self.pool.network.ends {
            Some(ends) => values::leave(ends, inputs, tensors, &int8)?,
            None => given(tensors, int8, inputs.count()),
        };
        Ok((outputs, share))
    }

    /// Runs the network's program on images, each of which is asked for when it is needed: what the
    /// host computes around it, as [`vta_compiler::host::Ends`], is the caller's. Outputs are the
    /// program's.
    ///
    /// # Errors
    /// As for [`Self::run`], and what the images say.
    pub fn run_images(&mut self, images: &dyn Images, watch: &dyn Watch) -> Result<Outputs> {
        let (int8, share) = self.run_int8(images, watch)?;
        let tensors = self.pool.network.int8_outputs()?;
        Ok(share.with(given(tensors, int8, images.count())))
    }

    /// What the program gives, by output, for all images; and what a run tells beside it.
    pub(crate) fn run_int8(
        &mut self,
        images: &dyn Images,
        watch: &dyn Watch,
    ) -> Result<(Vec<Vec<i8>>, Share)> {
        let mut share = self.pool.run(images, watch)?;
        let tensors = self.pool.network.int8_outputs()?;
        let lens: Vec<usize> = tensors.iter().map(Tensor::len).collect();
        let room = lens.iter().map(|len| vec![0; len * images.count()]);
        let mut outputs: Vec<Vec<i8>> = room.collect();
        for (first, found) in share.outputs.drain(..) {
            for ((output, images), len) in outputs.iter_mut().zip(&found).zip(&lens) {
                for (image, values) in (first..).zip(images) {
                    output[image * len..][..*len].copy_from_slice(values);
                }
            }
        }
        Ok((outputs, share))
    }

    /// Where the time before the last run's first results went.
    pub(crate) fn start(&self) -> Start {
        self.pool.start
    }

    /// Whether outputs mean nothing, because the device only counts cycles.
    pub fn timing_only(&self) -> bool {
        self.pool.setup.timing_only()
    }

    /// The cycles of one pass over the program, if the device counts them and a run was made.
    pub fn report(&self) -> Option<Report> {
        let timed = self.pool.setup.timed(&self.program, self.host.clone())?;
        (!timed.runs.is_empty()).then(|| Report {
            title: self.title.clone(),
            program: Arc::clone(&self.program),
            timed,
        })
    }

    /// What was found of a design so far, if the device is one.
    pub(crate) fn design(&self) -> Option<Totals> {
        self.pool.setup.design()
    }

    /// After the last run: ends the trace and writes the report that the target names.
    ///
    /// # Errors
    /// [`Error::Io`] when they can't be written.
    pub fn finish(&self) -> Result<Option<Timed>> {
        let setup = &self.pool.setup;
        setup.finish(&self.program, self.host.clone(), &self.title)
    }
}

/// What a program gave for so many images, as outputs.
fn given(tensors: Vec<Tensor>, int8: Vec<Vec<i8>>, images: usize) -> Vec<Output> {
    let output = |(tensor, values): (Tensor, Vec<i8>)| Output {
        tensor,
        images,
        values: Values::Int8(values.into()),
    };
    tensors.into_iter().zip(int8).map(output).collect()
}
