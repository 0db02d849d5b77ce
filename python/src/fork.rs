//! Processes that are forked: they have this one's memory, but none of its threads, so that whoever
//! waits for one waits for ever.

use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::error::usage;

/// The process that pyvta's threads are in; 0 before there are any.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Notes that this process uses threads.
///
/// # Errors
/// `UsageError` in one that was forked from one that did.
pub fn here() -> PyResult<()> {
    let me = process::id();
    match OWNER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != me => Err(usage(
            "this process was forked from one that had used pyvta, whose threads it lacks: \
             start workers by multiprocessing's \"spawn\" or \"forkserver\"",
        )),
        _ => Ok(()),
    }
}

/// Whether the threads are another process's.
pub fn is_forked() -> bool {
    ![0, process::id()].contains(&OWNER.load(Ordering::Relaxed))
}

/// Lets what has threads be, where they are another process's: to drop it would be to wait for them.
pub fn spare<T: ?Sized>(shared: &Arc<T>) {
    if is_forked() {
        mem::forget(Arc::clone(shared));
    }
}
