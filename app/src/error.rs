//! What can go wrong, by cause.

use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use vta_compiler::lower::LowerError;
use vta_compiler::placement::PlacementError;
use vta_driver::{AllocError, DriverError};
use vta_files::output::FileError;

use crate::options::hints;
use crate::options::names::{
    ALLOW_HOST, CALIBRATION, CHECK, Front, LIMIT_BYTES, LIMIT_CYCLES, LIMIT_STEPS, Name, QUANTIZE,
    Said, said,
};

/// What an error of another crate was.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// What can go wrong, by cause. Every message says where and what; [`message`] adds what the
/// sources know beyond that.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for makes no sense: a name that nothing has, options that contradict each
    /// other or the model. The message says which, and what there is.
    #[error("{0}")]
    Usage(Said),
    /// A float network where only an int8 one will do: it must be quantised first.
    #[error("{}", float(.0, Front::Library))]
    Float(String),
    /// Data that isn't what it should be: an image, an array, a configuration, a table, a program.
    #[error("{}", told(at, source))]
    Input {
        /// The file, and where in it; empty for what the caller knows.
        at: String,
        /// What is wrong.
        source: Cause,
    },
    /// A network that can't be read, quantised, placed, compiled or loaded.
    #[error("{}", told(at, source))]
    Model {
        /// The network, and where in it.
        at: String,
        /// What is wrong.
        source: Cause,
    },
    /// A device that isn't there or can't be opened.
    #[error("{}", told(at, source))]
    Device {
        /// The device.
        at: String,
        /// What is wrong.
        source: Cause,
    },
    /// A run that began and failed: the device, or a layer of the host.
    #[error("{}", told(at, source))]
    Run {
        /// What ran.
        at: String,
        /// What failed.
        source: DriverError,
    },
    /// A file that can't be read or written.
    #[error("{}", told(&path.display().to_string(), source))]
    Io {
        /// The file; empty where none is known.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An output that can't be made, or not be written to its end.
    #[error("{0}")]
    Output(#[from] FileError),
    /// Work for which the system has no memory, found before it takes it.
    #[error(
        "{what} takes about {} MiB of memory, which the system hasn't",
        bytes.div_ceil(1 << 20)
    )]
    Memory {
        /// The network, layer, image or machine.
        what: String,
        /// How much it takes.
        bytes: u64,
    },
    /// The work was told to stop.
    #[error("cancelled")]
    Cancelled,
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Says where it happened: a file, a line, a model.
    pub fn at(mut self, place: impl Display) -> Self {
        let place = place.to_string();
        match &mut self {
            Self::Usage(said) => said.begin(format!("{place}: ")),
            Self::Input { at, .. }
            | Self::Model { at, .. }
            | Self::Device { at, .. }
            | Self::Run { at, .. } => *at = within(&place, at),
            Self::Io { path, .. } => *path = within(&place, &path.display().to_string()).into(),
            // They name the file, which says where.
            Self::Float(_) | Self::Output(_) | Self::Memory { .. } | Self::Cancelled => {}
        }
        self
    }

    /// In the words of a front, without what its sources know.
    fn to(&self, front: Front) -> String {
        match self {
            Self::Usage(said) => said.to(front),
            Self::Float(name) => float(name, front).to(front),
            other => other.to_string(),
        }
    }

    /// A thread that panicked.
    pub(crate) fn thread() -> Self {
        Self::Device {
            at: String::new(),
            source: "a worker thread failed".into(),
        }
    }

    /// Data that isn't what it should be, in words.
    pub(crate) fn input(text: impl Into<Cause>) -> Self {
        Self::Input {
            at: String::new(),
            source: text.into(),
        }
    }
}

/// An error with what its sources know beyond its own words, in one line, and what to do about it
/// where an option does it.
pub fn message(error: &(dyn StdError + 'static), front: Front) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        text = match cause.downcast_ref::<Error>() {
            Some(error) => told(&text, error.to(front)),
            None => told(&text, cause),
        };
        if let Some(hint) = hint(cause, front) {
            text = format!("{text}; {}", hint.to(front));
        }
        next = cause.source();
    }
    text
}

/// What a float network needs. Runs of the command line alone take calibration images.
fn float(name: &str, front: Front) -> Said {
    match front {
        Front::CommandLine => {
            said!("{} is a float model: run {} first, or a run with {}"; name, QUANTIZE, CALIBRATION)
        }
        Front::Python | Front::Library => {
            said!("{} is a float model: run {} first"; name, QUANTIZE)
        }
    }
}

/// What lets the compiler or a run go on, or was probably meant.
fn hint(cause: &(dyn StdError + 'static), front: Front) -> Option<Said> {
    if let Some(option) = limit(cause).filter(|_| front == Front::CommandLine) {
        return Some(said!("{} raises it"; option));
    }
    if let Some(Error::Io { path, source }) = cause.downcast_ref()
        && source.kind() == io::ErrorKind::NotFound
    {
        let meant = hints::nearest_file(path)?;
        return Some(said!("did you mean {}?", meant.display()));
    }
    let lower = cause.downcast_ref();
    let place = cause.downcast_ref();
    let host = matches!(lower, Some(LowerError::Host { .. }))
        || matches!(place, Some(PlacementError::Host { .. }));
    host.then(|| said!("{} lets the host compute them, {} lists them"; ALLOW_HOST, CHECK))
}

/// The option that raises a limit of a batch. Devices tell of it in words, at the end of their error.
fn limit(cause: &(dyn StdError + 'static)) -> Option<Name> {
    let text = cause.source().is_none().then(|| cause.to_string())?;
    let (_, over) = text.rsplit_once("the run takes more than its budget of ")?;
    match over.split_once(' ')?.1 {
        "GEMM and ALU steps" => Some(LIMIT_STEPS),
        "cycles" => Some(LIMIT_CYCLES),
        "bytes between DRAM and scratchpads" => Some(LIMIT_BYTES),
        _ => None,
    }
}

/// `text: cause`, or one of them where it is all.
fn told(text: &str, cause: impl Display) -> String {
    let cause = cause.to_string();
    if text.is_empty() {
        cause
    } else if tells(text, &cause) {
        text.to_owned()
    } else {
        format!("{text}: {cause}")
    }
}

/// A place in another one.
fn within(outer: &str, inner: &str) -> String {
    if inner.is_empty() {
        return outer.to_owned();
    }
    told(outer, inner)
}

/// Whether the text has the cause as words of its own: a file `d` isn't told by "demo".
fn tells(text: &str, cause: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    text.match_indices(cause).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + cause.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        let path = PathBuf::new();
        Self::Io { path, source }
    }
}

impl From<DriverError> for Error {
    fn from(source: DriverError) -> Self {
        let at = String::new();
        match source {
            DriverError::Device { .. }
            | DriverError::Host { .. }
            | DriverError::Lost { .. }
            | DriverError::Memory { .. } => Self::Run { at, source },
            DriverError::Alloc {
                device,
                source: AllocError::Host { requested_bytes },
            } => Self::Memory {
                what: format!("an allocation on device {device}"),
                bytes: requested_bytes,
            },
            DriverError::Alloc { .. } => Self::Device {
                at,
                source: source.into(),
            },
            DriverError::Input(_) => Self::input(source),
            _ => Self::Model {
                at,
                source: source.into(),
            },
        }
    }
}

/// Errors of other crates, by what they are about.
macro_rules! from {
    ($kind:ident: $($error:ty),+ $(,)?) => {
        $(impl From<$error> for $crate::error::Error {
            fn from(source: $error) -> Self {
                Self::$kind { at: String::new(), source: source.into() }
            }
        })+
    };
}

from!(Input:
    csv::Error,
    serde_json::Error,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::string::FromUtf8Error,
    vta_replay::ReplayError,
    vta_isa::asm::AsmError,
    vta_isa::ConfigError,
    vta_isa::DecodeError,
    vta_isa::FieldError,
    vta_sim::BoardError,
    vta_sim::cycle::CycleError,
    vta_sim::cycle::TimingError,
    vta_sim::hazards::HazardError,
    vta_sim::views::CostsError,
);
from!(Model:
    vta_compiler::host::HostError,
    vta_compiler::layer::LayerError,
    LowerError,
    vta_compiler::onnx::OnnxError,
    vta_compiler::passes::PassError,
    PlacementError,
    vta_compiler::quantize::QuantizeError,
    vta_compiler::reference::ReferenceError,
    vta_compiler::tune::TuneError,
    vta_compiler::zoo::ZooError,
    vta_driver::BundleError,
    vta_driver::FlatError,
    vta_driver::ProgramError,
);
from!(Device: rayon::ThreadPoolBuildError, vta_sim::KernelError);

/// Says where something failed, or what is missing.
pub(crate) trait Context<T> {
    /// With a place that is known.
    fn context(self, place: impl Display) -> Result<T>;

    /// With a place that is made when it is needed.
    fn with_context<D: Display>(self, place: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, place: impl Display) -> Result<T> {
        self.map_err(|error| error.into().at(place))
    }

    fn with_context<D: Display>(self, place: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().at(place()))
    }
}

/// What isn't there is a fault of the input.
impl<T> Context<T> for Option<T> {
    fn context(self, what: impl Display) -> Result<T> {
        self.ok_or_else(|| Error::input(what.to_string()))
    }

    fn with_context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.ok_or_else(|| Error::input(what().to_string()))
    }
}

/// Ends a function with [`Error::Usage`].
macro_rules! bail {
    ($($text:tt)+) => {
        return Err($crate::error::Error::Usage($crate::options::names::said!($($text)+)))
    };
}

/// Ends a function with [`Error::Usage`] unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            $crate::error::bail!($($text)+);
        }
    }};
}

/// Ends a function with [`Error::Input`].
macro_rules! bail_input {
    ($($text:tt)+) => {
        return Err($crate::error::Error::input(format!($($text)+)))
    };
}

/// Ends a function with [`Error::Input`] unless a condition holds.
macro_rules! ensure_input {
    ($holds:expr, $($text:tt)+) => {{
        let holds: bool = $holds;
        if !holds {
            $crate::error::bail_input!($($text)+);
        }
    }};
}

#[cfg(any(
    feature = "board",
    feature = "images",
    feature = "opencl",
    feature = "rtl"
))]
pub(crate) use from;
pub(crate) use {bail, bail_input, ensure, ensure_input};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_memory_for_a_device_is_no_fault_of_the_device() {
        let alloc = |source| {
            let device = "sim".to_owned();
            Error::from(DriverError::Alloc { device, source })
        };
        let error = alloc(AllocError::Host {
            requested_bytes: 3 << 20,
        });
        assert_eq!(
            error.to_string(),
            "an allocation on device sim takes about 3 MiB of memory, which the system hasn't"
        );
        assert!(matches!(alloc(AllocError::Empty), Error::Device { .. }));
    }

    #[test]
    fn every_cause_is_told_once() {
        let error = |texts: [&'static str; 3]| {
            let [outer, middle, inner] = texts;
            message(&Error::input(inner).at(middle).at(outer), Front::Library)
        };
        assert_eq!(
            error(["demo", "d", "a folder"]),
            "demo: d: a folder",
            "a name within another one"
        );
        assert_eq!(
            error(["x.vta: bundle: too short", "bundle: too short", "too short"]),
            "x.vta: bundle: too short"
        );
        assert_eq!(error(["a", "b (c)", "c"]), "a: b (c)");
    }

    #[test]
    fn only_what_began_to_run_is_a_failed_run() {
        let lost = || DriverError::Lost {
            device: "d".to_owned(),
        };
        let error = Error::from(lost()).at("net");
        assert!(matches!(&error, Error::Run { at, .. } if at == "net"));
        assert_eq!(error.to_string(), "net: device d has stopped");
        let size = DriverError::Input("no image".to_owned());
        assert!(matches!(Error::from(size), Error::Input { .. }));
    }

    #[test]
    fn a_file_with_nearly_the_name_of_one_that_is_missing_is_offered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("resnet20.onnx"), "").unwrap();
        let told = |name: &str| {
            let path = folder.path().join(name);
            let error = crate::Model::open(path.to_str().unwrap()).err().unwrap();
            message(&error, Front::Library)
        };
        let text = told("resnet20.onx");
        assert!(text.ends_with("/resnet20.onnx?"), "{text}");
        for other in ["mobilenet.onnx", "resnet20.onnx/x.onnx", "no/resnet20.onnx"] {
            let text = told(other);
            assert!(!text.contains("did you mean"), "{text}");
        }
    }

    #[test]
    fn files_are_named_once() {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "gone");
        let error = Error::from(gone()).at("a.onnx").at("a.onnx");
        assert!(matches!(&error, Error::Io { path, .. } if path == "a.onnx"));
        assert_eq!(error.to_string(), "a.onnx: gone");
    }
}
