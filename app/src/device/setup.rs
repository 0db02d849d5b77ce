//! `--device cycle`: its options, and what its cycles add to the output of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vta_driver::{Budget, Device, Program};
use vta_files::output;
use vta_hw_opencl::Scopes;
use vta_isa::{Config, MemType};
use vta_sim::views::EnergyTable;
use vta_sim::{CycleLog, Execution};

use crate::device;
use crate::device::ahead::{Ahead, Way};
use crate::device::is_rtl;
use crate::device::machine::Machine;
use crate::device::rtl::{Loop, Totals};
use crate::device::trace::TraceFile;
use crate::error::{Context, Result, ensure};
use crate::files;
use crate::options::names::{
    AGAINST, BITSTREAM, DEVICE, ENERGY, HOST_SPEED, REPORT, SCOPE, TIMING, TIMING_ONLY, TRACE, WAVE,
};
use crate::options::{DeviceOptions, ViewOptions};
use crate::report::host_share::{HostShare, HostSpeed};
use crate::report::html;
use crate::report::timed::{Timed, leave_out_additions, merge};
use crate::room;

/// The device of a run, and what is asked of it.
pub struct Setup {
    name: String,
    bitstream: Option<PathBuf>,
    scopes: Option<Scopes>,
    machine: Machine,
    budget: Budget,
    ahead: Ahead,
    cycle: Option<Cycle>,
    design: Option<Loop>,
}

/// Options of `--device cycle`, read and checked.
struct Cycle {
    execution: Execution,
    log: CycleLog,
    energy: EnergyTable,
    speed: HostSpeed,
    trace: Option<TraceFile>,
    report: Option<PathBuf>,
}

impl Cycle {
    fn read(views: &ViewOptions, title: &str) -> Result<Self> {
        let energy = match &views.energy {
            Some(path) => EnergyTable::from_toml(&files::read_text(path)?)
                .with_context(|| path.display().to_string())?,
            None => EnergyTable::default(),
        };
        let speed = match &views.host_speed {
            Some(path) => HostSpeed::from_toml(&files::read_text(path)?)
                .with_context(|| path.display().to_string())?,
            None => HostSpeed::default(),
        };
        let trace = views.trace.as_deref().map(TraceFile::create).transpose()?;
        let log = match &trace {
            Some(trace) => CycleLog::with_trace(trace.writer(title)),
            None => CycleLog::default(),
        };
        Ok(Self {
            execution: match views.timing_only {
                true => Execution::TimingOnly,
                false => Execution::Full,
            },
            log,
            energy,
            speed,
            trace,
            report: views.report.clone(),
        })
    }
}

/// Options that the device named hasn't.
fn refuse_others(args: &DeviceOptions, views: &ViewOptions) -> Result<()> {
    let name = &*args.device;
    let alone = is_rtl(name) && !name.contains(',');
    let (of_design, of_cycle, of_opencl) = (
        [
            (AGAINST, args.against.is_some()),
            (WAVE, args.wave.is_some()),
        ],
        [
            (TIMING, args.timing.is_some() && args.against.is_none()),
            (TIMING_ONLY, views.timing_only),
            (TRACE, views.trace.is_some()),
            (REPORT, views.report.is_some()),
            (ENERGY, views.energy.is_some()),
            (HOST_SPEED, views.host_speed.is_some()),
        ],
        [
            (BITSTREAM, args.bitstream.is_some()),
            (SCOPE, args.scope.is_some()),
        ],
    );
    for (option, given) in of_design {
        ensure!(alone || !given, "{} needs {} rtl:LIB.so, not {}"; option, DEVICE, name);
    }
    for (option, given) in of_cycle {
        let has = name == "cycle";
        ensure!(has || !given, "{} needs {} cycle, not {}"; option, DEVICE, name);
    }
    for (option, given) in of_opencl {
        let has = !alone && name != "cycle";
        ensure!(has || !given, "{} is for OpenCL devices, not for {}"; option, name);
    }
    Ok(())
}

impl Setup {
    /// Reads the options; `title` names the trace.
    ///
    /// # Errors
    /// Options of `--device cycle` with another device, files that can't be read or made.
    pub fn new(args: &DeviceOptions, views: &ViewOptions, title: &str) -> Result<Self> {
        let name = args.device.clone();
        device::check_names(&name)?;
        let scopes = args.scope.as_deref().map(str::parse).transpose()?;
        refuse_others(args, views)?;
        let alone = is_rtl(&name) && !name.contains(',');
        let design = alone.then(|| Loop::new(args)).transpose()?;
        let machine = Machine::read(args.machine())?;
        let cycle = match &*name {
            "cycle" => Some(Cycle::read(views, &format!("{title} on {}", machine.name))?),
            _ => None,
        };
        Ok(Self {
            name,
            bitstream: args.bitstream.clone(),
            scopes,
            machine,
            budget: args.budget,
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
        self.machine.admit(config)?;
        // Two sets of scratchpads: a kernel has its own form of them.
        let tiles = |mem: &MemType| (config.depth(*mem) * config.elem_bytes(*mem)) as u64;
        let scratchpads: u64 = MemType::ALL.iter().map(tiles).sum();
        room::ask(2 * scratchpads, || format!("device {}", self.name))?;
        if let Some(design) = &self.design {
            return Ok(Arc::new(design.device(&self.machine, config)?));
        }
        let Some(cycle) = &self.cycle else {
            let way = self.way(&self.name, threads);
            return self.ahead.device(&self.name, config, &way);
        };
        let log = cycle.log.clone();
        let device =
            self.machine
                .cycle_within(self.budget, config.clone(), cycle.execution, log)?;
        Ok(Arc::new(device))
    }

    /// One of several devices, which may use so many threads for one batch.
    ///
    /// # Errors
    /// As [`device::device`]; `cycle` keeps the cycles of one device only.
    pub fn device_named(
        &self,
        name: &str,
        config: &Config,
        threads: usize,
    ) -> Result<Arc<dyn Device>> {
        self.machine.admit(config)?;
        self.ahead.device(name, config, &self.way(name, threads))
    }

    /// Begins to open the OpenCL devices, on a thread of their own: most of that is waiting for
    /// drivers. Whether it fails is told by who asks for the device.
    pub fn open_ahead(&self) {
        let names = self.names().into_iter();
        let names: Vec<String> = names
            .filter(|name| device::is_opencl(name))
            .map(str::to_owned)
            .collect();
        let config = &self.machine.config;
        if let Some(name) = names.first()
            && self.machine.admit(config).is_ok()
        {
            let way = self.way(name, 1);
            self.ahead.begin(names, config, way);
        }
    }

    /// How long it took to open the devices.
    pub fn opening(&self) -> Duration {
        self.ahead.took()
    }

    /// Alone, any device gets the bitstream and the scopes, which are errors of those that take
    /// none; of several they are for OpenCL.
    fn way(&self, name: &str, threads: usize) -> Way {
        let takes = name == self.name || device::is_opencl(name);
        Way {
            bitstream: self.bitstream.clone().filter(|_| takes),
            scopes: self.scopes.filter(|_| takes),
            threads,
            budget: self.budget,
        }
    }

    /// What a batch may ask for.
    pub fn budget(&self) -> &Budget {
        &self.budget
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
        if let Some(trace) = &cycle.trace {
            trace.finish(|| cycle.log.close_trace())?;
        }
        if let Some(path) = &cycle.report {
            let page = html::page(&html::Input {
                title,
                program,
                timed: &timed,
            });
            output::write(path, page)?;
        }
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
