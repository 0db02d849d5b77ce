//! OpenCL devices in a build without the feature `opencl`.

use std::convert::Infallible;

use serde_json::Value;

use super::kind::Opened;
use super::missing;
use crate::error::Result;

pub(super) const OPENED: Option<Opened> = None;

/// No device.
pub enum DeviceEntry {}

/// What weights and inputs are read as: options of another device, which are refused elsewhere.
pub(super) fn scopes(_: Option<&str>) -> Result<Option<Infallible>> {
    Ok(None)
}

/// Why there are no devices.
pub(crate) fn found() -> Result<(Vec<DeviceEntry>, Option<String>)> {
    Ok((Vec::new(), Some(missing("opencl").to_string())))
}

/// A device of `vta devices --json`.
pub(crate) fn object(entry: &DeviceEntry) -> Value {
    match *entry {}
}
