//! Designs in a build without the feature `rtl`.

use std::convert::Infallible;

use vta_driver::WorkerDevice;
use vta_isa::Config;

use super::kind::Kind;
use super::machine::Machine;
use super::missing;
use super::totals::Totals;
use crate::error::Result;
use crate::options::DeviceOptions;

pub(super) const KIND: Kind = Kind {
    name: "rtl",
    then: &[':'],
    form: "rtl:LIB.so",
    meant: &[],
    single: true,
    check: |_| Err(missing("rtl")),
    open: |_, _, _| Err(missing("rtl")),
};

/// No design.
pub struct Loop(Infallible);

impl Loop {
    pub fn new(_: &DeviceOptions) -> Result<Self> {
        Err(missing("rtl"))
    }

    pub fn device(&self, _: &Machine, _: &Config) -> Result<WorkerDevice> {
        match self.0 {}
    }

    pub fn totals(&self) -> Totals {
        match self.0 {}
    }
}

/// Nothing aborts where no design runs.
pub fn end_on_abort(_: i32) {}
