//! Failures at the boundary to C: a status by class, a text for the thread, and no panic beyond.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vta_app::error::{Error, message};
use vta_driver::DriverError;

use crate::last;

/// Whether a call did what it says, and of what class the failure is if it didn't. Later versions may
/// have more classes: treat what you don't know as `VTA_ERROR_INTERNAL`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It did.
    #[default]
    Ok = 0,
    /// What was asked for makes no sense: NULL where there must be something, a name that nothing has,
    /// options that contradict each other, calls in the wrong order.
    ErrorUsage = 1,
    /// A float network, which must be quantised first.
    ErrorFloat = 2,
    /// Data that isn't what it should be: a size, a type, a value, a configuration.
    ErrorInput = 3,
    /// A network that can't be read, placed, compiled or loaded.
    ErrorModel = 4,
    /// A device that isn't there or can't be opened.
    ErrorDevice = 5,
    /// A run that began and failed.
    ErrorRun = 6,
    /// A file that can't be read or written.
    ErrorFile = 7,
    /// Work for which the system has no memory.
    ErrorMemory = 8,
    /// The work was told to stop.
    ErrorCancelled = 9,
    /// A fault of this library: please report its text.
    ErrorInternal = 10,
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
        let (status, text) = (Status::ErrorUsage, text.into());
        Self { status, text }
    }

    /// Data that isn't what it should be.
    pub fn input(text: impl Into<String>) -> Self {
        let (status, text) = (Status::ErrorInput, text.into());
        Self { status, text }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Usage(_) => Status::ErrorUsage,
            Error::Float(_) => Status::ErrorFloat,
            Error::Input { .. } => Status::ErrorInput,
            Error::Model { .. } => Status::ErrorModel,
            Error::Device { .. } => Status::ErrorDevice,
            Error::Run { .. } => Status::ErrorRun,
            Error::Io { .. } | Error::Output(_) => Status::ErrorFile,
            Error::Memory { .. } => Status::ErrorMemory,
            Error::Cancelled => Status::ErrorCancelled,
            // Causes that are new have no class yet.
            _ => Status::ErrorInternal,
        };
        let text = message(&error);
        Self { status, text }
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Error::from(error).into()
    }
}

/// Does the work of a function of C. A failure, and a panic as one, is kept for the thread's
/// [`vta_last_error`](crate::vta_last_error), and gives `otherwise`.
pub fn caught<T>(otherwise: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    // What a panic leaves half done lies behind locks and handles that the work itself looks after.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(panic)));
    done.unwrap_or_else(|failure| {
        last::keep(failure);
        otherwise
    })
}

/// [`caught`] for functions that give a status.
pub fn status(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(panic)));
    match done {
        Ok(()) => Status::Ok,
        Err(failure) => {
            let status = failure.status;
            last::keep(failure);
            status
        }
    }
}

/// A panic in words. Letting go of what it carried may panic once more, which ends here.
fn of_panic(panic: Box<dyn Any + Send>) -> Failure {
    let told = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let told = told.or_else(|| panic.downcast_ref::<String>().cloned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    let told = told.unwrap_or_else(|| "no text".to_owned());
    Failure {
        status: Status::ErrorInternal,
        text: format!("internal error: {told}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last::told as last;
    use crate::vta_last_status;

    #[test]
    fn a_failure_is_kept_for_its_thread_alone() {
        assert_eq!((vta_last_status(), &*last()), (Status::Ok, ""));
        let failed = caught(-1, || Err(Failure::input("a value\0 of 300")));
        assert_eq!(failed, -1);
        assert_eq!(last(), "a value of 300");
        let other = std::thread::spawn(|| (vta_last_status(), last()));
        let other = other.join().ok();
        assert_eq!(other, Some((Status::Ok, String::new())));
        assert_eq!(caught(-1, || Ok(5)), 5);
        assert_eq!(vta_last_status(), Status::ErrorInput);
    }

    #[test]
    fn a_panic_is_a_failure_with_its_text() {
        let found = status(|| panic!("{} of {}", 3, 4));
        assert_eq!(found, Status::ErrorInternal);
        assert_eq!(last(), "internal error: 3 of 4");
    }

    /// A panic that panics again when it is let go.
    struct Twice;

    impl Drop for Twice {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    #[test]
    fn a_panic_that_panics_when_it_goes_ends_here() {
        let found = status(|| std::panic::panic_any(Twice));
        assert_eq!(
            (found, &*last()),
            (Status::ErrorInternal, "internal error: no text")
        );
    }
}
