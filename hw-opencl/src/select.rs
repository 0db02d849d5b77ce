//! Which device, and which of the two structures it gets.

use std::fmt;

use crate::cl::{self, DeviceFacts};
use crate::error::OpenClError;

/// How a device runs batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// One kernel of one work-item that interprets the instruction stream: what an FPGA compiler
    /// turns into hardware.
    Core,
    /// The core as three kernels, load, compute and store, joined by Intel channels.
    Channels,
    /// The host decodes the batch; launches share the independent work of its instructions.
    Throughput,
}

impl Structure {
    /// Every structure.
    pub const ALL: [Self; 3] = [Self::Core, Self::Channels, Self::Throughput];

    /// The name in selectors and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Channels => "channels",
            Self::Throughput => "throughput",
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a device is, as OpenCL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The host's processor.
    Cpu,
    /// A graphics processor.
    Gpu,
    /// Anything else: FPGAs and their emulators.
    Accelerator,
}

impl DeviceKind {
    const fn of(type_bits: u64) -> Self {
        // The bits of cl_device_type: CPU 2, GPU 4.
        if type_bits & 4 != 0 {
            Self::Gpu
        } else if type_bits & 2 != 0 {
            Self::Cpu
        } else {
            Self::Accelerator
        }
    }

    /// The name in selectors and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Accelerator => "accelerator",
        }
    }
}

/// One device of this machine with what it can do.
#[derive(Clone, Debug)]
pub struct DeviceEntry {
    /// What it is.
    pub kind: DeviceKind,
    /// Whether it is an FPGA or an FPGA's emulator.
    pub fpga: bool,
    /// A selector that names it as long as the machine's drivers stay the same.
    pub selector: String,
    /// The structure that it gets unless a selector asks for another.
    pub structure: Structure,
    /// What its platform says of it.
    pub facts: DeviceFacts,
}

impl DeviceEntry {
    /// The structures that it can run.
    pub fn structures(&self) -> Vec<Structure> {
        let can = |s: &Structure| match s {
            Structure::Core => true,
            Structure::Channels => self.has_channels(),
            // Emulators of FPGAs compile for hardware, and one dies on these kernels.
            Structure::Throughput => self.facts.takes_source && !self.fpga,
        };
        Structure::ALL.into_iter().filter(can).collect()
    }

    /// Whether kernels can be joined by channels.
    pub fn has_channels(&self) -> bool {
        self.facts.extensions.contains("cl_intel_channels")
            // The emulator takes them without listing them.
            || (self.fpga && self.facts.platform.contains("Intel"))
    }
}

/// Every OpenCL device of this machine, in the loader's order.
///
/// # Errors
/// [`OpenClError::NoLoader`] and [`OpenClError::NoPlatform`] where OpenCL isn't installed.
pub fn devices() -> Result<Vec<DeviceEntry>, OpenClError> {
    let mut entries: Vec<DeviceEntry> = Vec::new();
    for facts in cl::devices()?.into_iter().filter(|d| d.available) {
        let kind = DeviceKind::of(facts.type_bits);
        let text = format!(
            "{} {} {}",
            facts.platform, facts.platform_version, facts.name
        );
        let fpga = kind == DeviceKind::Accelerator
            && ["fpga", "xilinx"].iter().any(|word| contains(&text, word));
        let structure = match kind {
            DeviceKind::Cpu | DeviceKind::Gpu => Structure::Throughput,
            DeviceKind::Accelerator => Structure::Core,
        };
        let word = platform_word(&facts.platform, fpga);
        let index = entries.iter().filter(|e| e.matches(&word)).count();
        entries.push(DeviceEntry {
            kind,
            fpga,
            selector: format!("opencl:{word}:{index}"),
            structure,
            facts,
        });
    }
    Ok(entries)
}

/// A short name for a platform that no other platform's devices match.
fn platform_word(platform: &str, fpga: bool) -> String {
    let known = [
        ("Portable Computing Language", "pocl"),
        ("NVIDIA", "nvidia"),
        ("Xilinx", "xilinx"),
        ("AMD", "amd"),
    ];
    if let Some((_, word)) = known.iter().find(|(name, _)| platform.contains(name)) {
        return (*word).to_owned();
    }
    if !platform.contains("Intel") {
        return platform.replace([':', '+'], " ");
    }
    // The emulator's platform and that of processors are both Intel's.
    if fpga { "intel-fpga" } else { "intel" }.to_owned()
}

fn contains(text: &str, word: &str) -> bool {
    text.to_ascii_lowercase()
        .contains(&word.to_ascii_lowercase())
}

impl DeviceEntry {
    /// Whether a word of a selector means this device: its kind, or a [name](Self::matches).
    fn is_meant(&self, word: &str) -> bool {
        match word {
            "cpu" | "gpu" | "accelerator" => self.kind.name() == word,
            "fpga" => self.fpga,
            name => self.matches(name),
        }
    }

    /// Whether a name is this device's short one, or a part of the names of the device, its
    /// platform or its vendor.
    fn matches(&self, word: &str) -> bool {
        let short = platform_word(&self.facts.platform, self.fpga);
        if ["pocl", "nvidia", "xilinx", "amd", "intel", "intel-fpga"].contains(&word) {
            return short == word;
        }
        let names = [&self.facts.name, &self.facts.platform, &self.facts.vendor];
        short == word || names.iter().any(|name| contains(name, word))
    }
}

/// Which device a user means: `opencl`, `opencl:cpu`, `opencl:gpu`, `opencl:fpga`,
/// `opencl:accelerator`, `opencl:NAME` or `opencl:NAME:INDEX`, where NAME is a short platform
/// name (`pocl`, `intel`, `intel-fpga`, `nvidia`, ..) or a part of a device's, platform's or
/// vendor's name, and INDEX counts what matches. A structure may follow: `+core`, `+channels`,
/// `+throughput`.
///
/// ```
/// use vta_hw_opencl::{Selector, Structure};
///
/// let selector: Selector = "opencl:pocl:0+core".parse()?;
/// assert_eq!(selector.structure(), Some(Structure::Core));
/// assert_eq!(selector.to_string(), "opencl:pocl:0+core");
/// # Ok::<(), vta_hw_opencl::OpenClError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// What it names, if anything.
    word: Option<String>,
    index: usize,
    structure: Option<Structure>,
    text: String,
}

impl std::str::FromStr for Selector {
    type Err = OpenClError;

    fn from_str(text: &str) -> Result<Self, OpenClError> {
        let refuse = |reason| {
            OpenClError::Text(format!(
                "'{text}' selects no OpenCL device: {reason} (opencl, opencl:cpu, opencl:gpu, opencl:fpga, \
                 opencl:accelerator, opencl:NAME or opencl:NAME:INDEX, then +core, +channels or +throughput)"
            ))
        };
        let (device, structure) = match text.split_once('+') {
            None => (text, None),
            Some((device, name)) => {
                let found = Structure::ALL.into_iter().find(|s| s.name() == name);
                let found = found.ok_or_else(|| refuse("there is no such structure"))?;
                (device, Some(found))
            }
        };
        let mut parts = device.split(':');
        if parts.next() != Some("opencl") {
            return Err(refuse("it doesn't start with opencl"));
        }
        let word = parts.next();
        if word == Some("") {
            return Err(refuse("the name is empty"));
        }
        let index = match parts.next() {
            None => 0,
            Some(index) => index
                .parse()
                .map_err(|_| refuse("the index is not a number"))?,
        };
        if parts.next().is_some() {
            return Err(refuse("there is something behind the index"));
        }
        Ok(Self {
            word: word.map(str::to_owned),
            index,
            structure,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Selector {
    /// The structure that the selector asks for.
    pub fn structure(&self) -> Option<Structure> {
        self.structure
    }

    /// Among the devices of this machine, the one that is meant. `opencl` alone means the
    /// fastest kind there is: a GPU, else a CPU, else anything.
    ///
    /// # Errors
    /// [`OpenClError::Text`], naming what there is; what [`devices`] reports.
    pub fn find(&self) -> Result<DeviceEntry, OpenClError> {
        self.choose(&devices()?)
    }

    fn choose(&self, entries: &[DeviceEntry]) -> Result<DeviceEntry, OpenClError> {
        let rank = |e: &&DeviceEntry| match e.kind {
            DeviceKind::Gpu => 0,
            DeviceKind::Cpu => 1,
            DeviceKind::Accelerator => 2,
        };
        let mut fitting: Vec<&DeviceEntry> = entries
            .iter()
            .filter(|e| self.word.as_ref().is_none_or(|word| e.is_meant(word)))
            .collect();
        if self.word.is_none() {
            fitting.sort_by_key(rank);
        }
        let found = fitting.get(self.index).map(|e| (*e).clone());
        found.ok_or_else(|| {
            let each = |e: &DeviceEntry| format!("{} ({})", e.selector, e.facts.name);
            let available = entries.iter().map(each).collect::<Vec<_>>().join(", ");
            OpenClError::Text(format!(
                "no OpenCL device matches '{}' (there are: {available})",
                self.text
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_and_printed() {
        for text in [
            "opencl",
            "opencl:cpu",
            "opencl:fpga+channels",
            "opencl:Some Device:3",
            "opencl:pocl:0+throughput",
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
        }
        let selector: Selector = "opencl:pocl:2+core".parse().unwrap();
        assert_eq!(selector.word.as_deref(), Some("pocl"));
        assert_eq!(
            (selector.index, selector.structure),
            (2, Some(Structure::Core))
        );
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, reason) in [
            ("sim", "doesn't start with opencl"),
            ("openclx", "doesn't start with opencl"),
            ("opencl:", "the name is empty"),
            ("opencl:pocl:x", "the index is not a number"),
            ("opencl:pocl:-1", "the index is not a number"),
            ("opencl:pocl:0:1", "something behind the index"),
            ("opencl+fast", "no such structure"),
            ("opencl:pocl:0+core+core", "no such structure"),
        ] {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn platforms_get_short_names_that_differ() {
        let fpga = "Intel(R) FPGA Emulation Platform for OpenCL(TM)";
        assert_eq!(platform_word("Portable Computing Language", false), "pocl");
        assert_eq!(platform_word("Intel(R) OpenCL", false), "intel");
        assert_eq!(platform_word(fpga, true), "intel-fpga");
        assert_eq!(platform_word("NVIDIA CUDA", false), "nvidia");
        assert_eq!(platform_word("Some: one+two", false), "Some  one two");
    }
}
