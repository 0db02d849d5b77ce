//! A device that computes nothing: for tests and for measuring the driver alone.

use vta_isa::Config;

use crate::{DeviceInfo, RunReport, WorkerDevice};

/// Makes devices that accept every batch, count its traffic, and leave memory as it is.
pub struct NullDevice;

impl NullDevice {
    /// A null device of a configuration.
    pub fn with_config(config: Config) -> WorkerDevice {
        let info = DeviceInfo {
            name: "null".to_owned(),
            config: config.clone(),
        };
        WorkerDevice::new(
            info,
            Box::new(move |batch, _| Ok(RunReport::of(&batch.insns, &batch.marks, &config))),
        )
    }
}
