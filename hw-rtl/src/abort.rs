//! A library that calls `abort`, as Verilator's own `$stop` and `$fatal` do, and C's `assert`: its thread stays in
//! the signal's handler for good, and the host goes on.
//!
//! `abort` ends the process once the handler returns, so that it doesn't on a design's thread. On others the process
//! ends, by the signal or with a status of the program's choice.

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use signal_hook::consts::SIGABRT;
use signal_hook::low_level::register;

thread_local! {
    /// What is set when this thread aborts; null on threads that are no design's. Without a destructor, so that a
    /// handler may read it.
    static ABORTED: Cell<*const AtomicBool> = const { Cell::new(ptr::null()) };
}

/// The status with which an abort of another thread ends the process; 0 leaves it to the signal.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// Has an `abort` end the process with a status, where it isn't a design's.
pub fn end_on_abort(status: i32) {
    STATUS.store(status, Ordering::Release);
    register_once();
}

/// Sets `aborted` when the design that this thread runs calls `abort`.
pub fn caught(aborted: &AtomicBool) {
    ABORTED.set(aborted);
    register_once();
}

fn register_once() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler reads a thread-local value, sets an atomic one and sleeps, all of which a handler
        // may do. Without it an abort ends the process, as before.
        let registered = unsafe { register(SIGABRT, on_abort) };
        if let Err(error) = registered {
            tracing::warn!("an abort of the design will end the process: {error}");
        }
    });
}

fn on_abort() {
    let aborted = ABORTED.get();
    if aborted.is_null() {
        match STATUS.load(Ordering::Acquire) {
            0 => return,
            status => signal_hook::low_level::exit(status),
        }
    }
    // SAFETY: `caught` was given a value that this thread keeps as long as it runs the design, which it does now
    // and for ever.
    unsafe { &*aborted }.store(true, Ordering::Release);
    loop {
        std::thread::sleep(Duration::MAX);
    }
}
