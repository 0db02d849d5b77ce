//! Designs in a build without the feature `rtl`.

use vta_driver::WorkerDevice;
use vta_isa::Config;

use super::kind::Opened;
use super::machine::Machine;
use super::missing;
use super::totals::Log;
use crate::error::Result;
use crate::options::Target;

pub(super) const OPENED: Option<Opened> = None;

/// # Errors
/// Always.
pub(super) fn begin(_: &Target) -> Result<Log> {
    Err(missing("rtl"))
}

/// # Errors
/// Always.
pub(super) fn device(_: &Target, _: &Machine, _: &Config, _: &Log) -> Result<WorkerDevice> {
    Err(missing("rtl"))
}

/// Nothing aborts where no design runs.
pub fn end_on_abort(_: i32) {}
