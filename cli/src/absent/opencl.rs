//! What `vta devices` does for devices of OpenCL, in a build without the feature `opencl`.

use anyhow::{Result, bail};
use vta_app::open::DeviceEntry;

use crate::args::DevicesArgs;

/// Fails: bitstreams are those of OpenCL.
pub fn help(_: &DevicesArgs) -> Result<bool> {
    bail!("there are no bitstreams in this build, which lacks the feature `opencl`")
}

/// A device of OpenCL in the table.
pub fn cells(entry: &DeviceEntry) -> [String; 6] {
    match *entry {}
}
