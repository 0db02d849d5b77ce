//! `vta bench --device opencl:SEL` in a build without the feature `opencl`.

use anyhow::{Result, bail};

use crate::args::BenchArgs;

/// Fails: only these devices are measured by name.
pub fn bench(_: &BenchArgs, _: &str) -> Result<bool> {
    bail!("there are no such devices in this build, which lacks the feature `opencl`")
}
