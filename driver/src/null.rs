//! A device that computes nothing: for tests and for measuring the driver alone.

use std::time::Duration;

use vta_isa::Config;

use crate::{
    Device, DeviceInfo, DriverError, MarkReport, PhysAddr, RunReport, Ticket, Traffic, Work,
    WorkerDevice,
};

/// Accepts every batch, counts its traffic, and leaves memory as it is.
pub struct NullDevice(WorkerDevice);

impl NullDevice {
    /// A null device of a configuration.
    pub fn new(config: Config) -> Self {
        let info = DeviceInfo {
            name: "null".to_owned(),
            config: config.clone(),
        };
        Self(WorkerDevice::new(
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
        ))
    }
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn alloc(&self, size_bytes: u64) -> Result<PhysAddr, DriverError> {
        self.0.alloc(size_bytes)
    }

    fn alloc_at(&self, addr: PhysAddr, size_bytes: u64) -> Result<(), DriverError> {
        self.0.alloc_at(addr, size_bytes)
    }

    fn free(&self, addr: PhysAddr) -> Result<(), DriverError> {
        self.0.free(addr)
    }

    fn submit(&self, work: Work) -> Result<Box<dyn Ticket>, DriverError> {
        self.0.submit(work)
    }
}
