//! The OpenCL devices of this machine as backends of the suites.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use vta_hw_opencl::{Cache, DeviceEntry, OpenClDevice, Options, Structure, devices};
use vta_isa::Config;

/// A device with one of the structures that it can run.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The device.
    pub entry: DeviceEntry,
    /// The structure.
    pub structure: Structure,
}

impl Backend {
    /// For messages.
    pub fn name(&self) -> String {
        format!("{}+{}", self.entry.selector, self.structure)
    }

    /// Opens the device.
    ///
    /// # Panics
    /// When it can't be opened: a test can't go on.
    pub fn open(&self, config: &Config) -> OpenClDevice {
        self.open_with(config, Options::from_env()).unwrap()
    }

    /// Opens the device with options of choice, but this structure.
    ///
    /// # Errors
    /// As [`OpenClDevice::open_entry`].
    pub fn open_with(
        &self,
        config: &Config,
        options: Options,
    ) -> Result<OpenClDevice, vta_hw_opencl::OpenClError> {
        let options = Options {
            structure: Some(self.structure),
            ..options
        };
        OpenClDevice::open_entry(&self.entry, config.clone(), options)
    }
}

/// Every device of this machine, or with `VTA_OPENCL_ONLY` those with that in their selectors.
/// Platforms that `scripts/opencl-setup` installs and that aren't
/// there are named loudly.
///
/// # Panics
/// When `CI` is set and one of them is missing: there a skipped suite must not pass.
pub fn entries(what: &str) -> Vec<DeviceEntry> {
    let found = devices();
    let entries = match &found {
        Ok(entries) => entries.clone(),
        Err(error) => {
            eprintln!("{what}: {error}");
            Vec::new()
        }
    };
    let ci = std::env::var_os("CI").is_some();
    let there: BTreeSet<_> = entries.iter().map(|e| e.selector.clone()).collect();
    for name in ["opencl:pocl:0", "opencl:intel:0", "opencl:intel-fpga:0"] {
        if there.contains(name) {
            continue;
        }
        let text = format!(
            "{what}: {name} is not on this machine (eval \"$(scripts/opencl-setup)\" installs it)"
        );
        // Intel's CPU runtime is one more of a kind that PoCL covers.
        assert!(!ci || name == "opencl:intel:0", "{text}");
        let _ = writeln!(std::io::stderr(), "SKIPPED {text}");
    }
    let only = std::env::var("VTA_OPENCL_ONLY").unwrap_or_default();
    let entries = entries.into_iter();
    entries.filter(|e| e.selector.contains(&only)).collect()
}

/// Every device with the core and, where it can, the throughput structure.
pub fn backends(what: &str) -> Vec<Backend> {
    let mut backends = Vec::new();
    for entry in entries(what) {
        for structure in entry.structures() {
            if structure != Structure::Channels {
                let entry = entry.clone();
                backends.push(Backend { entry, structure });
            }
        }
    }
    backends
}

/// Options that keep binaries in a folder.
pub fn cached_in(folder: PathBuf) -> Options {
    Options {
        cache: Cache::Folder(folder),
        ..Options::from_env()
    }
}
