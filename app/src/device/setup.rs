//! The devices of a run as its options ask for them.

use std::sync::Arc;
use std::time::Duration;

use vta_driver::{Budget, Device, Program};
use vta_isa::{Config, MemType};
use vta_sim::Execution;

use crate::device::ahead::Ahead;
use crate::device::kind::Opening;
use crate::device::rtl::Loop;
use crate::device::views::Cycle;
use crate::device::{self, Machine, Totals, is_opencl, is_rtl, opencl};
use crate::error::{Result, ensure};
use crate::options::names::{
    AGAINST, BITSTREAM, DEVICE, ENERGY, HOST_SPEED, REPORT, SCOPE, TIMING, TIMING_ONLY, TRACE, WAVE,
};
use crate::options::{DeviceOptions, ViewOptions};
use crate::report::{HostShare, Timed, leave_out_additions, merge};
use crate::room;

/// The device of a run, and what is asked of it.
pub struct Setup {
    name: String,
    opening: Opening,
    machine: Machine,
    ahead: Ahead,
    cycle: Option<Cycle>,
    design: Option<Loop>,
}

/// Options that the device named hasn't.
fn refuse_others(args: &DeviceOptions, views: &ViewOptions) -> Result<()> {
    let name = &*args.device;
    let (alone, cycle) = (is_alone(name), name == "cycle");
    let timing = args.timing.is_some() && args.against.is_none();
    for (option, given, has, device) in [
        (AGAINST, args.against.is_some(), alone, "rtl:LIB.so"),
        (WAVE, args.wave.is_some(), alone, "rtl:LIB.so"),
        (TIMING, timing, cycle, "cycle"),
        (TIMING_ONLY, views.timing_only, cycle, "cycle"),
        (TRACE, views.trace.is_some(), cycle, "cycle"),
        (REPORT, views.report.is_some(), cycle, "cycle"),
        (ENERGY, views.energy.is_some(), cycle, "cycle"),
        (HOST_SPEED, views.host_speed.is_some(), cycle, "cycle"),
    ] {
        ensure!(has || !given, "{} needs {} {}, not {}"; option, DEVICE, device, name);
    }
    let opencl = device::device_names(name).into_iter().any(is_opencl);
    for (option, given) in [
        (BITSTREAM, args.bitstream.is_some()),
        (SCOPE, args.scope.is_some()),
    ] {
        ensure!(opencl || !given, "{} is for OpenCL devices, not for {}"; option, name);
    }
    Ok(())
}

/// Whether a list of devices is a design.
fn is_alone(list: &str) -> bool {
    is_rtl(list) && !list.contains(',')
}

impl Setup {
    /// Reads the options; `title` names the trace.
    ///
    /// # Errors
    /// Options of `--device cycle` with another device, files that can't be read or made.
    pub fn new(args: &DeviceOptions, views: &ViewOptions, title: &str) -> Result<Self> {
        let name = args.device.clone();
        device::check_names(&name)?;
        opencl::scopes(args.scope.as_deref())?;
        refuse_others(args, views)?;
        let design = is_alone(&name).then(|| Loop::new(args)).transpose()?;
        let machine = Machine::read(args.machine())?;
        let cycle = match &*name {
            "cycle" => Some(Cycle::read(views, &format!("{title} on {}", machine.name))?),
            _ => None,
        };
        Ok(Self {
            name,
            opening: Opening {
                bitstream: args.bitstream.clone(),
                scope: args.scope.clone(),
                threads: 1,
                budget: args.budget,
            },
            machine,
            ahead: Ahead::default(),
            cycle,
            design,
        })
    }

    /// Makes the device, which may use so many threads for one batch; devices of one setup share
    /// their measurements.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn device(&self, config: &Config, threads: usize) -> Result<Arc<dyn Device>> {
        self.device_named(&self.name, config, threads)
    }

    /// One of several devices, which may use so many threads for one batch.
    ///
    /// # Errors
    /// As [`Setup::device`]; `cycle` keeps the cycles of one device only.
    pub fn device_named(
        &self,
        name: &str,
        config: &Config,
        threads: usize,
    ) -> Result<Arc<dyn Device>> {
        self.machine.admit(config)?;
        // Two sets of scratchpads: a kernel has its own form of them.
        let tiles = |mem: &MemType| (config.depth(*mem) * config.elem_bytes(*mem)) as u64;
        let scratchpads: u64 = MemType::ALL.iter().map(tiles).sum();
        room::ask(2 * scratchpads, || format!("device {name}"))?;
        if let Some(design) = &self.design {
            return Ok(Arc::new(design.device(&self.machine, config)?));
        }
        if let Some(cycle) = &self.cycle {
            let (budget, log) = (self.opening.budget, cycle.log.clone());
            let config = config.clone();
            let device = self
                .machine
                .cycle_within(budget, config, cycle.execution, log)?;
            return Ok(Arc::new(device));
        }
        let way = Opening {
            threads,
            ..self.opening.clone()
        };
        self.ahead.device(name, config, &way)
    }

    /// Begins to open the OpenCL devices, on a thread of their own: most of that is waiting for
    /// drivers. Whether it fails is told by who asks for the device.
    pub fn open_ahead(&self) {
        let names = self.names().into_iter();
        let names: Vec<String> = names
            .filter(|name| is_opencl(name))
            .map(str::to_owned)
            .collect();
        let config = &self.machine.config;
        if !names.is_empty() && self.machine.admit(config).is_ok() {
            self.ahead.begin(names, config, self.opening.clone());
        }
    }

    /// How long it took to open the devices.
    pub fn opening(&self) -> Duration {
        self.ahead.took()
    }

    /// What a batch may ask for.
    pub fn budget(&self) -> &Budget {
        &self.opening.budget
    }

    /// The names of the devices, in order.
    pub fn names(&self) -> Vec<&str> {
        device::device_names(&self.name)
    }

    /// The machine of the options.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What was found of a design so far, if the device is one.
    pub fn design(&self) -> Option<Totals> {
        self.design.as_ref().map(Loop::totals)
    }

    /// Whether the outputs of a run mean nothing.
    pub fn timing_only(&self) -> bool {
        let only = |c: &Cycle| c.execution == Execution::TimingOnly;
        self.cycle.as_ref().is_some_and(only)
    }

    /// After the run of a program and what the host takes of it: ends the trace, writes the report,
    /// gives the measurements.
    ///
    /// # Errors
    /// When trace or report can't be written.
    pub fn finish(&self, program: &Program, host: HostShare, title: &str) -> Result<Option<Timed>> {
        let (Some(cycle), Some(timed)) = (&self.cycle, self.timed(program, host)) else {
            return Ok(None);
        };
        cycle.finish(title, program, &timed)?;
        Ok(Some(timed))
    }

    /// What was measured so far of a program, and what the host takes of it.
    pub fn timed(&self, program: &Program, host: HostShare) -> Option<Timed> {
        let cycle = self.cycle.as_ref()?;
        let runs = cycle.log.runs();
        let mut layers = merge(runs.iter().flat_map(|run| &run.layers));
        leave_out_additions(&mut layers, &program.layers);
        let steps = program.layers.iter().map(|l| (l.name.clone(), l.steps));
        Some(Timed {
            steps: steps.collect(),
            timing: self.machine.timing.clone(),
            board: self.machine.name.clone(),
            energy: cycle.energy,
            host,
            speed: cycle.speed,
            layers,
            runs,
        })
    }
}
