//! A device that computes nothing: for tests and for measuring the driver alone.

use std::time::Duration;

use vta_isa::Config;

use crate::{DeviceInfo, MarkReport, RunReport, Traffic, WorkerDevice};

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
            Box::new(move |batch, _| {
                let ends = batch.marks.iter().skip(1).map(|m| m.first_insn);
                let ends = ends.chain([batch.insns.len()]);
                let mark = |(m, end): (&crate::LayerMark, usize)| MarkReport {
                    name: m.name.clone(),
                    traffic: Traffic::of(
                        batch.insns.get(m.first_insn..end).unwrap_or(&[]),
                        &config,
                    ),
                    wall: Duration::ZERO,
                };
                Ok(RunReport {
                    traffic: Traffic::of(&batch.insns, &config),
                    marks: batch.marks.iter().zip(ends).map(mark).collect(),
                    ..RunReport::default()
                })
            }),
        )
    }
}
