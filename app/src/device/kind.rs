//! What is known of a kind of device.

use std::sync::Arc;

use vta_driver::Device;
use vta_isa::Config;

use crate::error::Result;
use crate::options::Target;

/// A kind of device.
pub(crate) struct Kind {
    /// How its names begin; the feature that it needs, where it needs one.
    pub name: &'static str,
    /// What may stand behind that, with more.
    pub then: &'static [char],
    /// All names, as an error lists them.
    pub form: &'static str,
    /// Names that may be meant by a misspelt one.
    pub meant: &'static [&'static str],
    /// Whether there is one of each name, which takes one run after the other, however many threads there are.
    pub single: bool,
    /// How it is opened; `None` in a build without it.
    pub opened: Option<Opened>,
}

/// How devices of a kind are opened.
pub(crate) struct Opened {
    /// Whether there can be one of a name.
    pub check: fn(&str) -> Result<()>,
    pub open: Open,
}

/// Opens a device by its name for a configuration, as a target asks. It may use so many threads for one batch.
pub(crate) type Open = fn(&str, &Config, &Target, usize) -> Result<Arc<dyn Device>>;

impl Kind {
    /// Whether a name is one of its.
    pub fn has(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(self.then))
    }
}
