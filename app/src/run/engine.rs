//! A network loaded on its device, or on several.

use std::sync::Arc;

use vta_driver::{
    Counters, Device, DramPlan, MultiSession, Part, Place, QueueLimits, RunOutput, Session, Step,
};

use crate::compile::Compiled;
use crate::device::setup::Setup;
use crate::error::{Context, Result};
use crate::room;

/// How a network is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that each device may use for one batch.
    pub threads: usize,
    /// Runs in flight at most.
    pub in_flight: usize,
}

/// A network loaded on devices of its own.
pub struct Engine {
    /// As what.
    pub form: Form,
    /// All that were opened, in the order of their names.
    pub devices: Vec<Arc<dyn Device>>,
}

/// How it is loaded.
pub enum Form {
    /// On one device.
    One(Session),
    /// One session over several devices for each run in flight.
    Several(Vec<MultiSession>),
}

/// Name, number in the network, and contents of a layer's output.
pub type LayerOutput = (String, usize, Vec<Vec<i8>>);

impl Engine {
    /// Opens devices and loads the network.
    ///
    /// # Errors
    /// A name that is no device; what a device can't load.
    pub fn open(network: &Compiled, setup: &Setup, load: Load) -> Result<Self> {
        let (config, limits) = (&network.program.config, QueueLimits::default());
        // Every layer's output can be read after a run then; otherwise those inside the network share memory.
        let compared = network.compared().is_some();
        let programs = network.programs().into_iter();
        // Device memory, and the constants in plans.
        let each = programs.map(|program| {
            let plan = DramPlan::of(program);
            let scratch = if compared {
                plan.unshared_bytes
            } else {
                plan.scratch_bytes
            };
            let in_flight = (scratch + plan.io_bytes).saturating_mul(load.in_flight as u64);
            in_flight.saturating_add(2 * plan.constant_bytes)
        });
        let bytes = each.fold(0, u64::saturating_add);
        room::ask(bytes, || "the network's device memory".to_owned())?;
        let Some(split) = &network.split else {
            let device = setup.device(config, load.threads)?;
            let (program, on) = (Arc::clone(&network.program), Arc::clone(&device));
            let session = if compared {
                Session::keeping_tensors(program, on, limits)?
            } else {
                Session::new(program, on, limits)?
            };
            return Ok(Self {
                form: Form::One(session),
                devices: vec![device],
            });
        };
        // All are made, also those without a layer: a wrong name is an error.
        let names = setup.names();
        let device = |name: &&str| match names.len() {
            1 => setup.device(config, load.threads),
            _ => setup.device_named(name, config, load.threads),
        };
        let devices: Vec<_> = names.iter().map(device).collect::<Result<_>>()?;
        let device = |part: &Part| Arc::clone(&devices[part.target]);
        let targets: Vec<_> = split.parts.iter().map(device).collect();
        let sessions =
            (0..load.in_flight).map(|_| MultiSession::new(Arc::clone(split), &targets, limits));
        Ok(Self {
            form: Form::Several(sessions.collect::<Result<_, _>>()?),
            devices,
        })
    }

    /// Runs up to BATCH images of int8 values in CHW order.
    ///
    /// # Errors
    /// Images of another size; what a device reports.
    pub fn run(&mut self, images: &[&[i8]]) -> Result<RunOutput> {
        Ok(match &mut self.form {
            Form::One(session) => session.run(images)?,
            Form::Several(sessions) => {
                let session = sessions.first_mut();
                session.context("no run is in flight")?.run(images)?
            }
        })
    }

    /// Totals since it was loaded.
    pub fn counters(&self) -> Counters {
        match &self.form {
            Form::One(session) => session.counters(),
            Form::Several(sessions) => {
                let mut total = Counters::default();
                for session in sessions {
                    total.add(&session.counters());
                }
                total
            }
        }
    }

    /// Every layer's output as the last run left it.
    pub fn outputs(&mut self) -> Result<Vec<LayerOutput>> {
        let mut all = Vec::new();
        match &mut self.form {
            Form::One(session) => {
                for layer in &Arc::clone(session.program()).layers {
                    let found = session.read_tensor(layer.output)?;
                    all.push((layer.name.clone(), layer.output as usize, found));
                }
            }
            Form::Several(sessions) => {
                let session = sessions.first().context("no run is in flight")?;
                let program = Arc::clone(session.program());
                for (index, part) in program.parts.iter().enumerate() {
                    for layer in &part.program.layers {
                        let tensor = layer.output;
                        let found = session.read_tensor(Place {
                            part: index,
                            tensor,
                        })?;
                        let number = part.network_tensors[tensor as usize] as usize;
                        all.push((layer.name.clone(), number, found));
                    }
                }
                for step in &program.steps {
                    let Step::Host(step) = step else { continue };
                    for output in &step.outputs {
                        if let Some(place) = output.places.first() {
                            let found = session.read_tensor(*place)?;
                            all.push((step.name.clone(), output.network_tensor as usize, found));
                        }
                    }
                }
            }
        }
        Ok(all)
    }
}
