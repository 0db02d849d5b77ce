//! `--device cycle`: its options, and what its cycles add to the output of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use vta_driver::{Device, Program};
use vta_isa::Config;
use vta_sim::cycle::TimingConfig;
use vta_sim::views::EnergyTable;
use vta_sim::{CycleLog, Execution, SimDevice};

use crate::options::{DeviceOptions, ViewOptions};
use crate::timed::{Timed, leave_out_additions, merge};
use crate::{files, model, report_html, trace};

/// The device of a run, and what is asked of it.
pub struct Setup {
    name: String,
    bitstream: Option<PathBuf>,
    cycle: Option<Cycle>,
}

/// Options of `--device cycle`, read and checked.
struct Cycle {
    timing: TimingConfig,
    board: String,
    execution: Execution,
    log: CycleLog,
    energy: EnergyTable,
    trace: Option<PathBuf>,
    report: Option<PathBuf>,
}

/// The board that `--timing` names.
///
/// # Errors
/// An unknown preset that is no file either, a file with a wrong key or value.
pub fn timing(board: Option<&str>) -> Result<(String, TimingConfig)> {
    let name = board.unwrap_or("pynq");
    let known = TimingConfig::PRESETS.contains(&name);
    let timing = if known || !Path::new(name).exists() {
        let presets = || format!("--timing {name}: no such preset, and no such file");
        TimingConfig::preset(name).with_context(presets)?
    } else {
        TimingConfig::from_toml(&files::read_text(Path::new(name))?)
            .with_context(|| name.to_owned())?
    };
    Ok((name.to_owned(), timing))
}

impl Setup {
    /// Reads the options; `title` names the trace.
    ///
    /// # Errors
    /// Options of `--device cycle` with another device, files that can't be read or made.
    pub fn new(args: &DeviceOptions, views: &ViewOptions, title: &str) -> Result<Self> {
        let name = args.device.clone();
        if name != "cycle" {
            for (option, given) in [
                ("--timing", args.timing.is_some()),
                ("--timing-only", views.timing_only),
                ("--trace", views.trace.is_some()),
                ("--report", views.report.is_some()),
                ("--energy", views.energy.is_some()),
            ] {
                ensure!(!given, "{option} needs --device cycle, not {name}");
            }
            return Ok(Self {
                name,
                bitstream: args.bitstream.clone(),
                cycle: None,
            });
        }
        ensure!(
            args.bitstream.is_none(),
            "--bitstream is for OpenCL devices, not for cycle"
        );
        let (board, timing) = timing(args.timing.as_deref())?;
        let energy = match &views.energy {
            Some(path) => EnergyTable::from_toml(&files::read_text(path)?)
                .with_context(|| path.display().to_string())?,
            None => EnergyTable::default(),
        };
        let log = match &views.trace {
            Some(path) => {
                CycleLog::with_trace(trace::create(path, &format!("{title} on {board}"))?)
            }
            None => CycleLog::default(),
        };
        let cycle = Cycle {
            timing,
            board,
            execution: match views.timing_only {
                true => Execution::TimingOnly,
                false => Execution::Full,
            },
            log,
            energy,
            trace: views.trace.clone(),
            report: views.report.clone(),
        };
        Ok(Self {
            name,
            bitstream: None,
            cycle: Some(cycle),
        })
    }

    /// Makes the device, which may use so many threads for one batch; devices of one setup share
    /// their measurements.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn device(&self, config: &Config, threads: usize) -> Result<Arc<dyn Device>> {
        let Some(cycle) = &self.cycle else {
            return model::device(&self.name, self.bitstream.as_ref(), config, threads);
        };
        let (timing, log) = (cycle.timing.clone(), cycle.log.clone());
        let device = SimDevice::cycle(config.clone(), timing, cycle.execution, log);
        Ok(Arc::new(device))
    }

    /// One of several devices, which may use so many threads for one batch.
    ///
    /// # Errors
    /// As [`model::device`]; `cycle` keeps the cycles of one device only.
    pub fn device_named(
        &self,
        name: &str,
        config: &Config,
        threads: usize,
    ) -> Result<Arc<dyn Device>> {
        ensure!(
            name != "cycle",
            "--device cycle counts the cycles of one device, not of one of several"
        );
        let bitstream = self.bitstream.as_ref();
        let bitstream = bitstream.filter(|_| model::is_opencl(name));
        model::device(name, bitstream, config, threads)
    }

    /// Whether the outputs of a run mean nothing.
    pub fn timing_only(&self) -> bool {
        let only = |c: &Cycle| c.execution == Execution::TimingOnly;
        self.cycle.as_ref().is_some_and(only)
    }

    /// After the run: ends the trace, writes the report, gives the measurements.
    ///
    /// # Errors
    /// When trace or report can't be written.
    pub fn finish(&self, program: &Program, title: &str) -> Result<Option<Timed>> {
        let Some(cycle) = &self.cycle else {
            return Ok(None);
        };
        if let Some(path) = &cycle.trace {
            let closed = cycle.log.close_trace();
            closed.with_context(|| path.display().to_string())?;
        }
        let runs = cycle.log.runs();
        let mut layers = merge(runs.iter().flat_map(|run| &run.layers));
        leave_out_additions(&mut layers, program);
        let steps = program.layers.iter().map(|l| (l.name.clone(), l.steps));
        let timed = Timed {
            steps: steps.collect(),
            timing: cycle.timing.clone(),
            board: cycle.board.clone(),
            energy: cycle.energy,
            layers,
            runs,
        };
        if let Some(path) = &cycle.report {
            let page = report_html::page(&report_html::Input {
                title,
                program,
                timed: &timed,
            });
            std::fs::write(path, page).with_context(|| path.display().to_string())?;
        }
        Ok(Some(timed))
    }
}
