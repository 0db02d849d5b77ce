//! Long work: without Python's lock, with its signals, its progress and its remarks.

use std::ffi::CString;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use vta_app::options::names::{Front, Said};
use vta_app::{Error, Result, Watch};

use crate::error::{VtaWarning, raise};
use crate::fork;

/// How long passes between two looks at signals.
const WAIT: Duration = Duration::from_millis(50);
/// What the first thread of a program has: work that goes deep is done there otherwise.
const STACK_BYTES: usize = 8 << 20;

/// What Python hears of long work. Threads that work only leave notes; the one that called, which alone
/// hears of signals, does what needs Python.
pub struct Watched {
    caller: ThreadId,
    stop: AtomicBool,
    done: AtomicUsize,
    all: AtomicUsize,
    notes: Mutex<Vec<String>>,
    python: Mutex<Side>,
    progress: Option<Py<PyAny>>,
}

/// What Python said.
#[derive(Default)]
struct Side {
    /// What it was told last: how much is done, of how much.
    told: (usize, usize),
    /// What a signal or the callback raised.
    raised: Option<PyErr>,
}

impl Watched {
    fn new(progress: Option<&Bound<'_, PyAny>>) -> Self {
        Self {
            caller: thread::current().id(),
            stop: AtomicBool::new(false),
            done: AtomicUsize::new(0),
            all: AtomicUsize::new(0),
            notes: Mutex::default(),
            python: Mutex::default(),
            progress: progress.map(|callback| callback.clone().unbind()),
        }
    }

    /// Lets Python look at signals, and at the progress if there is some.
    fn look(&self, py: Python<'_>) {
        let mut side = self.python.lock().unwrap_or_else(PoisonError::into_inner);
        if side.raised.is_some() {
            return;
        }
        let (done, all) = (&self.done, &self.all);
        let now = (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
        let is_news = mem::replace(&mut side.told, now) != now;
        let found = py.check_signals().and_then(|()| match &self.progress {
            Some(callback) if is_news => callback.call1(py, now).map(drop),
            _ => Ok(()),
        });
        if let Err(error) = found {
            side.raised = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// After the work: what Python raised, or what the work gave; remarks are warnings.
    fn end<T>(self, py: Python<'_>, found: Result<T>) -> PyResult<T> {
        if found.is_ok() {
            self.look(py);
        }
        let side = self
            .python
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = side.raised {
            return Err(error);
        }
        let found = found.map_err(raise)?;
        let category = py.get_type::<VtaWarning>();
        for note in self
            .notes
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
        {
            let text = CString::new(note.replace('\0', " "))?;
            PyErr::warn(py, &category, &text, 1)?;
        }
        Ok(found)
    }
}

impl Watch for Watched {
    fn progress(&self, done: usize, all: usize) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn waiting(&self) {
        if thread::current().id() == self.caller {
            Python::attach(|py| self.look(py));
        }
    }

    fn note(&self, text: &Said) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(text.to(Front::Python));
    }
}

/// Does work that calls [`Watch::waiting`] while it lasts, or is short, on this thread, without Python's
/// lock. `progress` is called with how much is done, of how much, a few times a second.
///
/// # Errors
/// The work's own as exceptions; what a signal's handler or `progress` raises.
pub fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watched) -> Result<T> + Send,
) -> PyResult<T> {
    fork::here()?;
    let watch = Watched::new(progress);
    let found = py.detach(|| work(&watch));
    watch.end(py, found)
}

/// As [`watched`], for work that knows nothing of waiting: it has a thread of its own.
///
/// # Errors
/// As for [`watched`]; no thread.
pub fn aside<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watched) -> Result<T> + Send,
) -> PyResult<T> {
    fork::here()?;
    let watch = Watched::new(progress);
    let found = py.detach(|| {
        thread::scope(|scope| {
            // The worker holds an end, which goes when the work is over, however it ends.
            let (works, working) = mpsc::channel::<()>();
            let watch = &watch;
            let worker = thread::Builder::new().stack_size(STACK_BYTES);
            let worker = worker.spawn_scoped(scope, move || {
                let _works = works;
                work(watch)
            })?;
            while working.recv_timeout(WAIT) == Err(RecvTimeoutError::Timeout) {
                watch.waiting();
            }
            Ok::<_, Error>(worker.join())
        })
    });
    match found.map_err(raise)? {
        Ok(found) => watch.end(py, found),
        Err(_) => Err(PyRuntimeError::new_err(
            "a thread of pyvta panicked: this is a bug",
        )),
    }
}
