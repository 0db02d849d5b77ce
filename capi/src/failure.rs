//! Why calls fail: a status by class, and a text.

use vta_app::options::names::Front;
use vta_app::{Error, message};
use vta_driver::DriverError;
use vta_isa::FieldError;

/// Whether a call did what it says, and of what class the failure is if it didn't. Later versions may
/// have more classes: treat what you don't know as `VTA_STATUS_INTERNAL`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It did.
    #[default]
    Ok = 0,
    /// What was asked for makes no sense: NULL where there must be something, a name that nothing has,
    /// options that contradict each other, calls in the wrong order.
    Usage = 1,
    /// A float network, which must be quantised first.
    Float = 2,
    /// Data that isn't what it should be: a size, a type, a value, a configuration.
    Input = 3,
    /// A network that can't be read, placed, compiled or loaded.
    Model = 4,
    /// A device that isn't there or can't be opened.
    Device = 5,
    /// A run that began and failed.
    Run = 6,
    /// A file that can't be read or written.
    File = 7,
    /// Work for which the system has no memory.
    Memory = 8,
    /// The work was told to stop.
    Cancelled = 9,
    /// A fault of this library: please report its text.
    Internal = 10,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its class.
    pub status: Status,
    /// What went wrong and where.
    pub text: String,
}

impl Failure {
    /// What makes no sense to ask for.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::of(Status::Usage, text)
    }

    /// Memory that the system hasn't.
    pub fn memory(bytes: usize) -> Self {
        let mib = bytes.div_ceil(1 << 20);
        let text = format!("values take {mib} MiB of memory, which the system hasn't");
        Self::of(Status::Memory, text)
    }

    /// Data that isn't what it should be.
    pub fn input(text: impl Into<String>) -> Self {
        Self::of(Status::Input, text)
    }

    /// A fault of this library.
    pub fn internal(text: impl Into<String>) -> Self {
        Self::of(Status::Internal, text)
    }

    /// Of a class.
    pub fn of(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Usage(_) => Status::Usage,
            Error::Float(_) => Status::Float,
            Error::Input { .. } => Status::Input,
            Error::Model { .. } => Status::Model,
            Error::Device { .. } => Status::Device,
            Error::Run { .. } => Status::Run,
            Error::Io { .. } | Error::Output(_) => Status::File,
            Error::Memory { .. } => Status::Memory,
            Error::Cancelled => Status::Cancelled,
            // Causes that are new have no class yet.
            _ => Status::Internal,
        };
        Self::of(status, message(&error, Front::Library))
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Error::from(error).into()
    }
}

/// Of a number that is wider than its field.
impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Self {
        Self::input(error.to_string())
    }
}
