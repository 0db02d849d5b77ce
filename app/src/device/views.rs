//! What `--device cycle` shows of its cycles.

use std::path::Path;

use vta_sim::CycleLog;
use vta_sim::views::Costs;

use crate::device::trace::TraceFile;
use crate::error::{Context, Error, Result};
use crate::files;
use crate::options::Target;
use crate::report::HostSpeed;

/// What `--device cycle` measures, and by which tables.
pub struct Cycle {
    pub log: CycleLog,
    pub costs: Costs,
    pub speed: HostSpeed,
    pub trace: Option<TraceFile>,
}

impl Cycle {
    /// Reads the files that a target names; `title` names the trace.
    ///
    /// # Errors
    /// Files that can't be read or made.
    pub fn read(target: &Target, title: &str) -> Result<Self> {
        let costs = costs(target.costs.as_deref())?;
        let speed = table(target.host_speed.as_deref(), HostSpeed::from_toml)?;
        let trace = target.trace.as_deref().map(TraceFile::create).transpose()?;
        let log = match &trace {
            Some(trace) => CycleLog::with_trace(trace.writer(title)),
            None => CycleLog::default(),
        };
        Ok(Self {
            log,
            costs,
            speed,
            trace,
        })
    }
}

/// The prices of a file, or the built-in ones.
///
/// # Errors
/// A file that can't be read, or that has no prices.
pub fn costs(path: Option<&Path>) -> Result<Costs> {
    table(path, Costs::from_toml)
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
