//! What is known of a kind of device.

use std::path::PathBuf;
use std::sync::Arc;

use vta_driver::{Budget, Device};
use vta_isa::Config;

use crate::error::Result;

/// A kind of device.
pub(crate) struct Kind {
    /// How its names begin.
    pub name: &'static str,
    /// What may stand behind that, with more.
    pub then: &'static [char],
    /// All names, as an error lists them.
    pub form: &'static str,
    /// Names that may be meant by a misspelt one.
    pub meant: &'static [&'static str],
    /// Whether there is one of each name, which takes one run after the other, however many threads there are.
    pub single: bool,
    /// Whether there can be one of a name.
    pub check: fn(&str) -> Result<()>,
    pub open: fn(&str, &Config, &Opening) -> Result<Arc<dyn Device>>,
}

impl Kind {
    /// Whether a name is one of its.
    pub fn has(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(self.then))
    }
}

/// What a device is opened with, beside its name and configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// For OpenCL devices only.
    pub bitstream: Option<PathBuf>,
    /// For OpenCL devices only.
    pub scope: Option<String>,
    /// Threads that the fast simulator may use for one batch.
    pub threads: usize,
    /// What a batch may ask for.
    pub budget: Budget,
}

/// The devices of a list, in order.
pub fn device_names(list: &str) -> Vec<&str> {
    list.split(',').collect()
}
