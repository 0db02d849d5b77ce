//! The devices of a run as its options ask for them.

use std::sync::Arc;
use std::time::Duration;

use vta_driver::{Device, Program};
use vta_files::output;
use vta_isa::{Config, MemType};
use vta_sim::Execution;

use crate::device::ahead::Ahead;
use crate::device::totals::Log;
use crate::device::views::Cycle;
use crate::device::{self, Machine, Totals, is_opencl, is_rtl, opencl, rtl};
use crate::error::{Result, ensure};
use crate::options::Target;
use crate::options::names::{
    AGAINST, BATCH, BITSTREAM, COSTS, DEVICE, HOST_SPEED, REPORT, SCOPE, THREADS, TIMING,
    TIMING_ONLY, TRACE, WAVE,
};
use crate::report::{HostShare, Report, leave_out_additions, merge};
use crate::room;

/// The devices of a run, and what is asked of them.
pub struct Setup {
    /// What was asked for.
    pub target: Target,
    /// The machine that it names.
    pub machine: Machine,
    ahead: Ahead,
    cycle: Option<Cycle>,
    design: Option<Log>,
}

/// Options that the device named hasn't.
fn refuse_others(target: &Target) -> Result<()> {
    let name = &*target.device;
    let (alone, cycle) = (is_alone(name), name == "cycle");
    let timing = target.timing.is_some() && target.against.is_none();
    for (option, given, has, device) in [
        (AGAINST, target.against.is_some(), alone, "rtl:LIB.so"),
        (WAVE, target.wave.is_some(), alone, "rtl:LIB.so"),
        (TIMING, timing, cycle, "cycle"),
        (TIMING_ONLY, target.timing_only, cycle, "cycle"),
        (TRACE, target.trace.is_some(), cycle, "cycle"),
        (REPORT, target.report.is_some(), cycle, "cycle"),
        (COSTS, target.costs.is_some(), cycle, "cycle"),
        (HOST_SPEED, target.host_speed.is_some(), cycle, "cycle"),
    ] {
        ensure!(has || !given, "{} needs {} {}, not {}"; option, DEVICE, device, name);
    }
    let opencl = target.devices().into_iter().any(is_opencl);
    for (option, given) in [
        (BITSTREAM, target.bitstream.is_some()),
        (SCOPE, target.scope.is_some()),
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
    /// Reads the files that a target names; `title` names the trace.
    ///
    /// # Errors
    /// Options of `--device cycle` with another device, files that can't be read or made.
    pub fn new(target: &Target, title: &str) -> Result<Self> {
        device::check_names(target)?;
        ensure!(target.threads != Some(0), "{} must be at least 1"; THREADS);
        ensure!(target.batch != Some(0), "{} must be at least 1"; BATCH);
        opencl::scopes(target.scope.as_deref())?;
        refuse_others(target)?;
        let design = is_alone(&target.device).then(|| rtl::begin(target));
        let design = design.transpose()?;
        let machine = Machine::read(target)?;
        let cycle = match &*target.device {
            "cycle" => Some(Cycle::read(
                target,
                &format!("{title} on {}", machine.name),
            )?),
            _ => None,
        };
        Ok(Self {
            target: target.clone(),
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
        self.device_named(&self.target.device, config, threads)
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
            let device = rtl::device(&self.target, &self.machine, config, design)?;
            return Ok(Arc::new(device));
        }
        if let Some(cycle) = &self.cycle {
            let execution = if self.target.timing_only {
                Execution::TimingOnly
            } else {
                Execution::Full
            };
            let (config, log) = (config.clone(), cycle.log.clone());
            let device = self.machine.cycle(config, execution, log)?;
            return Ok(Arc::new(device));
        }
        self.ahead.device(name, config, &self.target, threads)
    }

    /// Begins to open the OpenCL devices, on a thread of their own: most of that is waiting for
    /// drivers. Whether it fails is told by who asks for the device.
    pub fn open_ahead(&self) {
        let names = self.target.devices().into_iter();
        let names: Vec<String> = names
            .filter(|name| is_opencl(name))
            .map(str::to_owned)
            .collect();
        let config = &self.machine.config;
        if !names.is_empty() && self.machine.admit(config).is_ok() {
            self.ahead.begin(names, config, self.target.clone());
        }
    }

    /// How long it took to open the devices.
    pub fn opening(&self) -> Duration {
        self.ahead.took()
    }

    /// What was found of a design so far, if the device is one.
    pub fn design(&self) -> Option<Totals> {
        self.design.as_ref().map(|log| log.lock().clone())
    }

    /// Whether the outputs of a run mean nothing.
    pub fn timing_only(&self) -> bool {
        self.target.timing_only
    }

    /// After the run of a program and what the host takes of it: ends the trace, writes the report,
    /// gives the measurements.
    ///
    /// # Errors
    /// When trace or report can't be written.
    pub(crate) fn finish(
        &self,
        program: &Arc<Program>,
        host: HostShare,
        title: &str,
    ) -> Result<Option<Report>> {
        let (Some(cycle), Some(timed)) = (&self.cycle, self.timed(program, host, title)) else {
            return Ok(None);
        };
        if let Some(trace) = &cycle.trace {
            trace.finish(|| cycle.log.close_trace())?;
        }
        if let Some(path) = &self.target.report {
            output::write(path, timed.html())?;
        }
        Ok(Some(timed))
    }

    /// What was measured so far of a program, and what the host takes of it.
    pub(crate) fn timed(
        &self,
        program: &Arc<Program>,
        host: HostShare,
        title: &str,
    ) -> Option<Report> {
        let cycle = self.cycle.as_ref()?;
        let runs = cycle.log.runs();
        let mut layers = merge(runs.iter().flat_map(|run| &run.layers));
        leave_out_additions(&mut layers, &program.layers);
        let steps = program.layers.iter().map(|l| (l.name.clone(), l.steps));
        Some(Report {
            title: title.to_owned(),
            program: Arc::clone(program),
            steps: steps.collect(),
            timing: self.machine.timing.clone(),
            board: self.machine.name.clone(),
            costs: cycle.costs,
            host,
            speed: cycle.speed,
            layers,
            runs,
        })
    }
}
