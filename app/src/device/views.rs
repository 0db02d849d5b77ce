//! What `--device cycle` shows of its cycles.

use std::path::{Path, PathBuf};

use vta_driver::Program;
use vta_files::output;
use vta_sim::views::EnergyTable;
use vta_sim::{CycleLog, Execution};

use crate::device::trace::TraceFile;
use crate::error::{Context, Error, Result};
use crate::files;
use crate::options::ViewOptions;
use crate::report::{HostSpeed, Timed, html};

/// Options of `--device cycle`, read and checked.
pub struct Cycle {
    pub execution: Execution,
    pub log: CycleLog,
    pub energy: EnergyTable,
    pub speed: HostSpeed,
    trace: Option<TraceFile>,
    report: Option<PathBuf>,
}

impl Cycle {
    /// Reads the files that options name; `title` names the trace.
    ///
    /// # Errors
    /// Files that can't be read or made.
    pub fn read(views: &ViewOptions, title: &str) -> Result<Self> {
        let energy = table(views.energy.as_deref(), EnergyTable::from_toml)?;
        let speed = table(views.host_speed.as_deref(), HostSpeed::from_toml)?;
        let trace = views.trace.as_deref().map(TraceFile::create).transpose()?;
        let log = match &trace {
            Some(trace) => CycleLog::with_trace(trace.writer(title)),
            None => CycleLog::default(),
        };
        Ok(Self {
            execution: if views.timing_only {
                Execution::TimingOnly
            } else {
                Execution::Full
            },
            log,
            energy,
            speed,
            trace,
            report: views.report.clone(),
        })
    }

    /// After the last run: ends the trace and writes the report.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn finish(&self, title: &str, program: &Program, timed: &Timed) -> Result<()> {
        if let Some(trace) = &self.trace {
            trace.finish(|| self.log.close_trace())?;
        }
        if let Some(path) = &self.report {
            output::write(path, html::page(title, program, timed))?;
        }
        Ok(())
    }
}

/// A table of a file, or the usual one.
fn table<T: Default, E: Into<Error>>(
    path: Option<&Path>,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T> {
    let Some(path) = path else {
        return Ok(T::default());
    };
    read(&files::read_text(path)?).with_context(|| path.display().to_string())
}
