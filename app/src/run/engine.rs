//! A network loaded on its device, or on several.

use std::sync::Arc;

use vta_driver::{
    Counters, Device, DramPlan, MultiSession, Part, Place, QueueLimits, RunOutput, Session, Step,
};

use crate::compile::Compiled;
use crate::device::setup::Setup;
use crate::error::{Context, Result};
use crate::room;

/// A network loaded on devices of its own.
pub struct Engine {
    pub loaded: Loaded,
    /// All that were opened, in the order of their names.
    pub devices: Vec<Arc<dyn Device>>,
}

/// How a network is loaded.
pub enum Loaded {
    /// On one device.
    One(Session),
    /// One session over several devices for each run in flight.
    Several(Vec<MultiSession>),
}

/// Name, number in the network, and contents of a layer's output.
pub type LayerOutput = (String, usize, Vec<Vec<i16>>);

impl Engine {
    /// Opens devices, each of which may use so many threads for one batch, and loads the network for so many
    /// runs in flight at most.
    ///
    /// # Errors
    /// A name that is no device; what a device can't load.
    pub fn open(
        network: &Compiled,
        setup: &Setup,
        threads: usize,
        in_flight: usize,
    ) -> Result<Self> {
        let config = &network.program.config;
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
            let in_flight = (scratch + plan.io_bytes).saturating_mul(in_flight as u64);
            in_flight.saturating_add(2 * plan.constant_bytes)
        });
        let bytes = each.fold(0, u64::saturating_add);
        room::ask(bytes, || "the network's device memory".to_owned())?;
        // All are made, also those without a layer: a wrong name is an error.
        let names = setup.target.devices().into_iter();
        let devices = names.map(|name| setup.device_named(name, config, threads));
        Self::on(network, devices.collect::<Result<_>>()?, in_flight)
    }

    /// Loads the network on devices that are open.
    ///
    /// # Errors
    /// What a device can't load.
    pub fn on(network: &Compiled, devices: Vec<Arc<dyn Device>>, in_flight: usize) -> Result<Self> {
        let limits = QueueLimits::default();
        let loaded = match &network.split {
            None => {
                let device = devices.first().context("no device is named")?;
                let (program, on) = (Arc::clone(&network.program), Arc::clone(device));
                // Every layer's output can be read after a run then; otherwise those inside the network share
                // memory.
                Loaded::One(if network.compared().is_some() {
                    Session::keeping_tensors(program, on, limits)?
                } else {
                    Session::new(program, on, limits)?
                })
            }
            Some(split) => {
                let device = |part: &Part| devices.get(part.target).cloned();
                let targets = split.parts.iter().map(device).collect::<Option<Vec<_>>>();
                let targets = targets.context("a part has no device")?;
                let sessions =
                    (0..in_flight).map(|_| MultiSession::new(Arc::clone(split), &targets, limits));
                Loaded::Several(sessions.collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { loaded, devices })
    }

    /// Runs up to BATCH images of values in CHW order.
    ///
    /// # Errors
    /// Images of another size; what a device reports.
    pub fn run(&mut self, images: &[&[i16]]) -> Result<RunOutput> {
        Ok(match &mut self.loaded {
            Loaded::One(session) => session.run(images)?,
            Loaded::Several(sessions) => {
                let session = sessions.first_mut();
                session.context("no run is in flight")?.run(images)?
            }
        })
    }

    /// Totals since it was loaded.
    pub fn counters(&self) -> Counters {
        match &self.loaded {
            Loaded::One(session) => session.counters(),
            Loaded::Several(sessions) => {
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
        match &mut self.loaded {
            Loaded::One(session) => {
                for layer in &Arc::clone(session.program()).layers {
                    let found = session.read_tensor(layer.output)?;
                    all.push((layer.name.clone(), layer.output as usize, found));
                }
            }
            Loaded::Several(sessions) => {
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
