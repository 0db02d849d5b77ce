//! A network loaded on its devices, for arrays and images.

use std::sync::Arc;

use vta_driver::Program;

use crate::compile::{Compiled, Plans, dump};
use crate::device::{Setup, Totals};
use crate::error::{Error, Result, ensure};
use crate::open::model::{Model, Tensor};
use crate::options::Target;
use crate::report::{HostShare, Report};
use crate::run::outcome::ends_in_softmax;
use crate::run::pool::Pool;
use crate::run::values::{Arrays, Feed, Outputs};
use crate::watch::Watch;

/// A network loaded on its devices. Constants are written once; every run takes any number of
/// images, BATCH of them at a time, on as many devices as the target's threads allow.
pub struct Session {
    title: String,
    inputs: Vec<Tensor>,
    pub(crate) outputs: Vec<Tensor>,
    /// What the host takes of a pass.
    pub(crate) host: HostShare,
    pub(crate) pool: Pool,
}

/// Compiles a model, alone or with what its layers are compared with.
type Compile = fn(Model, &Target, &dyn Watch) -> Result<Compiled>;

impl Session {
    /// Compiles a model for a target. Devices are opened by the first run. `watch` hears why the
    /// program isn't one for the board whose timing is borrowed, and may cancel between two steps.
    ///
    /// # Errors
    /// [`Error::Usage`] for options that don't fit each other or the model, [`Error::Io`] and
    /// [`Error::Input`] for their files, [`Error::Float`] for a float model, [`Error::Model`] for
    /// what can't be compiled, [`Error::Cancelled`] when `watch` says so.
    pub fn open(model: Model, target: &Target, watch: &dyn Watch) -> Result<Self> {
        let setup = Setup::new(target, model.name())?;
        Self::on(setup, model, watch, Model::compile)
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
            !target.timing_only,
            "a device that only counts cycles computes nothing to compare"
        );
        let setup = Setup::new(target, model.name())?;
        Self::on(setup, model, watch, Model::compile_to_compare)
    }

    /// A session on devices that are set up already.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub(crate) fn on(
        setup: Setup,
        model: Model,
        watch: &dyn Watch,
        compile: Compile,
    ) -> Result<Self> {
        if watch.cancelled() {
            return Err(Error::Cancelled);
        }
        let title = model.name().to_owned();
        let network = compile(model, &setup.target, watch)?;
        if let Some(text) = setup.machine.misfit(&network.program) {
            watch.note(&text);
        }
        let [inputs, outputs] = network.tensors()?;
        Ok(Self {
            title,
            inputs,
            outputs,
            host: network.host_share()?,
            pool: Pool {
                network,
                setup,
                seats: Vec::new(),
            },
        })
    }

    /// What the network takes, in the model's order.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// What the network gives, in the model's order.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// The compiled network; only its tensors and layers when it runs over several places.
    pub fn program(&self) -> &Arc<Program> {
        &self.pool.network.program
    }

    /// What the fast executor makes of one pass over the network, for the kernel that `VTA_KERNEL` names or the best
    /// of this CPU. Constants are written, and a pass over inputs of zeros is recorded; no instruction runs.
    ///
    /// # Errors
    /// [`Error::Usage`] for a device that has another executor, [`Error::Device`] for a kernel that this CPU hasn't,
    /// [`Error::Model`] for a program that can't be loaded.
    pub fn plans(&self) -> Result<Plans> {
        dump::plans(&self.pool.network, &self.pool.setup.target.devices())
    }

    /// Runs the network on arrays: one [`Feed`] for each input; a target that only counts cycles needs none.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that isn't given or that the network hasn't, or values that
    /// aren't a whole number of images; [`Error::Device`] for a device that can't be opened,
    /// [`Error::Run`] for one that fails, [`Error::Cancelled`] when `watch` says so. After an
    /// error the session can be used again.
    pub fn run(&mut self, feeds: &[Feed<'_>], watch: &dyn Watch) -> Result<Outputs> {
        let blank: Vec<Feed<'_>>;
        let feeds = match feeds {
            [] if self.timing_only() => {
                // Cycles don't depend on values.
                blank = self.inputs.iter().map(Feed::blank).collect();
                &blank
            }
            feeds => feeds,
        };
        let arrays = Arrays::new(&self.inputs, feeds, self.pool.network.ends.clone())?;
        self.pool.run_inputs(&arrays, &self.outputs, watch)
    }

    /// Whether the network's output is confidences already, as its last operator says.
    pub fn gives_confidences(&self) -> bool {
        ends_in_softmax(self.program(), self.pool.network.ends.as_deref())
    }

    /// Whether outputs mean nothing, because the device only counts cycles.
    pub fn timing_only(&self) -> bool {
        self.pool.setup.timing_only()
    }

    /// The cycles of one pass over the program, if the device counts them and a run was made.
    pub fn report(&self) -> Option<Report> {
        let setup = &self.pool.setup;
        let report = setup.timed(self.program(), self.host.clone(), &self.title)?;
        (!report.runs.is_empty()).then_some(report)
    }

    /// What was found of a design so far, if the device is one.
    pub(crate) fn design(&self) -> Option<Totals> {
        self.pool.setup.design()
    }

    /// After the last run: ends the trace and writes the report that the target names.
    ///
    /// # Errors
    /// [`Error::Io`] when they can't be written.
    pub fn finish(&self) -> Result<Option<Report>> {
        let setup = &self.pool.setup;
        setup.finish(self.program(), self.host.clone(), &self.title)
    }
}
