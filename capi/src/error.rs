//! The boundary to C: failures are kept for their thread, and no panic goes beyond.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::last;

pub use crate::failure::{Failure, Status};

/// Does the work of a function of C. A failure, and a panic as one, is kept for the thread's
/// [`vta_last_error`](crate::vta_last_error), and gives `otherwise`.
pub fn caught<T>(otherwise: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    kept(work).unwrap_or(otherwise)
}

/// [`caught`] for functions that are called for each instruction: nothing that the work names is moved, and `tell` sees
/// the failure first.
#[inline]
pub fn caught_each<T>(
    otherwise: T,
    work: &impl Fn() -> Result<T, Failure>,
    tell: impl FnOnce(Failure) -> Failure,
) -> T {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => done,
        Ok(Err(failure)) => {
            kept_failure(tell(failure));
            otherwise
        }
        Err(panic) => {
            kept_failure(tell(of_panic(panic)));
            otherwise
        }
    }
}

/// [`caught`] for functions that give a status.
pub fn status(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    kept(work).err().unwrap_or(Status::Ok)
}

fn kept<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Status> {
    // What a panic leaves half done lies behind locks and handles that the work itself looks after.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(panic)));
    done.map_err(kept_failure)
}

#[cold]
fn kept_failure(failure: Failure) -> Status {
    let status = failure.status;
    last::keep(failure);
    status
}

/// A panic in words. Letting go of what it carried may panic once more, which ends here.
#[cold]
fn of_panic(panic: Box<dyn Any + Send>) -> Failure {
    let told = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let told = told.or_else(|| panic.downcast_ref::<String>().cloned());
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    let told = told.unwrap_or_else(|| "no text".to_owned());
    Failure::internal(format!("internal error: {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last::{told as last, vta_last_status};

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
        assert_eq!(vta_last_status(), Status::Input);
    }

    #[test]
    fn a_panic_is_a_failure_with_its_text() {
        let found = status(|| panic!("{} of {}", 3, 4));
        assert_eq!(found, Status::Internal);
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
            (Status::Internal, "internal error: no text")
        );
    }
}
