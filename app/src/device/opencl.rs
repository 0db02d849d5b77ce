//! `--device opencl[:SEL]`.

use std::sync::Arc;

use serde_json::{Value, json};
use vta_driver::Device;
pub use vta_hw_opencl::DeviceEntry;
use vta_hw_opencl::{OpenClDevice, OpenClError, Options, Scopes, Selector, Structure, devices};
use vta_isa::Config;

use super::kind::Opened;
use crate::error::{Result, from};
use crate::options::Target;

pub(super) const OPENED: Option<Opened> = Some(Opened {
    check: |name| Ok(name.parse::<Selector>().map(drop)?),
    open,
});

from!(Device: OpenClError);

fn open(name: &str, config: &Config, target: &Target, _: usize) -> Result<Arc<dyn Device>> {
    let options = Options {
        bitstream: target.bitstream.clone(),
        scopes: scopes(target.scope.as_deref())?,
        max_steps: target.budget.steps,
        ..Options::from_env()
    };
    let device = OpenClDevice::open(&name.parse()?, config.clone(), options)?;
    Ok(Arc::new(device))
}

/// What weights and inputs are read as.
///
/// # Errors
/// Text that names no scopes.
pub(super) fn scopes(text: Option<&str>) -> Result<Option<Scopes>> {
    Ok(text.map(str::parse).transpose()?)
}

/// The devices of this machine, or why there are none.
///
/// # Errors
/// Drivers that fail.
pub(crate) fn found() -> Result<(Vec<DeviceEntry>, Option<String>)> {
    match devices() {
        Ok(entries) => Ok((entries, None)),
        Err(error @ (OpenClError::NoLoader | OpenClError::NoPlatform)) => {
            Ok((Vec::new(), Some(error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

/// A device of `vta devices --json`.
pub(crate) fn object(e: &DeviceEntry) -> Value {
    let facts = &e.facts;
    let structures: Vec<&str> = e.structures().into_iter().map(Structure::name).collect();
    json!({
        "device": e.selector, "name": facts.name, "platform": facts.platform, "type": e.kind.name(),
        "fpga": e.fpga, "version": facts.version, "driver": facts.driver,
        "structure": e.structure.name(), "structures": structures,
        "takes_source": facts.takes_source, "compute_units": facts.compute_units,
        "memory_bytes": facts.global_bytes, "max_buffer_bytes": facts.max_alloc_bytes,
        "local_bytes": facts.local_bytes,
    })
}
