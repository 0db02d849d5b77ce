//! Timelines, promises and queued work: `vta-driver`'s, whose rules hold.

use std::mem;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use vta_driver::{
    Batch, DriverError, Point, Promise as Driven, Ticket, Timeline as Line, TimelineError, WorkDone,
};

use crate::device::buffer::ArrayForm;
use crate::device::opened::{Opened, failed, is_outstanding};
use crate::device::run_report::run_report;
use crate::error::{unsatisfied, usage};
use crate::fork;
use crate::given::{text, whole};

/// How long passes between two looks at signals.
const WAIT: Duration = Duration::from_millis(50);

/// A number that increases from 0, for which the host and queued work of any device wait.
///
/// Every signal is a promise first: `promise(1)` announces that the timeline will get to 1, and `keep` says
/// that it does. Whoever holds a promise may hand it to queued work instead, which keeps it when it has ended:
/// `device.run_async(program, signals=[promise])`. A value is reached when all promises up to it are kept,
/// and never when one of them fails or is dropped. So a wait for what can't come is an error at once:
/// `WaitError`.
///
/// `name` is for errors.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Timeline(Line);

#[pymethods]
impl Timeline {
    #[new]
    #[pyo3(signature = (name = None), text_signature = "(name='timeline')")]
    fn new(name: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let name = name.map_or(Ok("timeline".to_owned()), |name| text("name", name))?;
        Ok(Self(Line::new(name)))
    }

    /// What errors call it.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The value that is reached.
    #[getter]
    fn value(&self) -> u64 {
        self.0.value()
    }

    /// The largest value that was promised.
    #[getter]
    fn promised(&self) -> u64 {
        self.0.promised()
    }

    /// Promises a value, which must be above all that were promised before; the next one by default.
    #[pyo3(signature = (value = None))]
    fn promise(&self, value: Option<&Bound<'_, PyAny>>) -> PyResult<Promise> {
        let promise = match value {
            Some(value) => self.0.promise(whole("value", value, usage)?),
            None => self.0.promise_next(),
        };
        let promise = promise.map_err(|error| unsatisfied(&error))?;
        Ok(Promise {
            point: promise.point(),
            held: Mutex::new(Some(promise)),
        })
    }

    /// Signals a value from the host: a promise that is kept at once; the next value by default.
    #[pyo3(signature = (value = None))]
    fn signal(&self, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.promise(value)?.keep()
    }

    /// Waits until a value is reached, at most `timeout` seconds if that is given.
    ///
    /// Raises `WaitError` as soon as it can't be reached, `WaitTimeoutError` when the time is over.
    #[pyo3(signature = (value, timeout = None))]
    fn wait(&self, py: Python<'_>, value: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let value = whole("value", value, usage)?;
        let waited = wait(py, &self.0.at(value), timeout)?;
        waited.map_err(|error| unsatisfied(&error))
    }

    fn __repr__(&self) -> String {
        let (name, value, promised) = (self.0.name(), self.0.value(), self.0.promised());
        format!("<Timeline {name}: at {value}, promised {promised}>")
    }
}

/// The right and the duty to signal a value of a timeline, as `Timeline.promise` gives it. One that is dropped
/// fails its value.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Promise {
    point: Point,
    held: Mutex<Option<Driven>>,
}

#[pymethods]
impl Promise {
    /// What it promises.
    #[getter]
    fn value(&self) -> u64 {
        self.point.value
    }

    /// Of which timeline.
    #[getter]
    fn timeline(&self) -> Timeline {
        Timeline(self.point.timeline.clone())
    }

    /// Signals the value.
    ///
    /// Raises `UsageError` when it was kept, failed or handed to work before.
    fn keep(&self) -> PyResult<()> {
        self.take()?.keep();
        Ok(())
    }

    /// Says that the value will never be signalled, and why: everyone who waits for it hears that.
    ///
    /// Raises `UsageError` when it was kept, failed or handed to work before.
    #[pyo3(signature = (reason = "the host gave it up".to_owned()), text_signature = "($self, reason='the host gave it up')")]
    fn fail(&self, reason: String) -> PyResult<()> {
        let layer = self.point.timeline.name().to_owned();
        self.take()?.fail(DriverError::Host { layer, reason });
        Ok(())
    }

    fn __repr__(&self) -> String {
        let Point { timeline, value } = &self.point;
        format!("<Promise of {value} on timeline {}>", timeline.name())
    }
}

impl Promise {
    fn take(&self) -> PyResult<Driven> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.take().ok_or_else(|| {
            let Point { timeline, value } = &self.point;
            let name = timeline.name();
            usage(format!(
                "the promise of {value} on timeline {name} was kept, failed or handed to work before"
            ))
        })
    }
}

/// Waits for a point, looking at signals: `Ok` of what the timeline said.
fn wait(
    py: Python<'_>,
    point: &Point,
    timeout: Option<f64>,
) -> PyResult<Result<(), TimelineError>> {
    fork::here()?;
    let wrong = |_| usage("`timeout` is seconds, at least 0");
    let limit = timeout.map(Duration::try_from_secs_f64).transpose();
    let (limit, started) = (limit.map_err(wrong)?, Instant::now());
    loop {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        let slice = left.map_or(WAIT, |left| left.min(WAIT));
        match py.detach(|| point.timeline.wait_timeout(point.value, slice)) {
            Err(TimelineError::Timeout { .. }) if left.is_none_or(|left| left > slice) => {
                py.check_signals()?;
            }
            found => return Ok(found),
        }
    }
}

/// The points of `waits=`: pairs of a timeline and a value, or promises.
///
/// # Errors
/// `TypeError` for anything else.
pub fn waits(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Point>> {
    let of_promise = |promise: &Promise| Ok(promise.point.clone());
    each("waits", given, of_promise, |line, value| Ok(line.at(value)))
}

/// The promises of `signals=`, which are handed over: promises, or pairs of a timeline and a value, which is
/// promised here.
///
/// # Errors
/// `TypeError` for anything else, `UsageError` and `WaitError` for what can't be promised.
pub fn signals(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Driven>> {
    each("signals", given, Promise::take, |line, value| {
        let promise = line.promise(value);
        promise.map_err(|error| unsatisfied(&error))
    })
}

/// What is made of each promise, or pair of a timeline and a value.
fn each<T>(
    name: &str,
    given: Option<&Bound<'_, PyAny>>,
    of_promise: impl Fn(&Promise) -> PyResult<T>,
    of_pair: impl Fn(&Line, u64) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let wrong = || {
        PyTypeError::new_err(format!(
            "`{name}` is a list of promises, or of pairs of a Timeline and a value"
        ))
    };
    let Some(given) = given else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for one in given.try_iter().map_err(|_| wrong())? {
        let one = one?;
        all.push(if let Ok(promise) = one.cast::<Promise>() {
            of_promise(promise.get())?
        } else {
            let pair: PyResult<(Bound<'_, Timeline>, Bound<'_, PyAny>)> = one.extract();
            let (line, value) = pair.map_err(|_| wrong())?;
            of_pair(&line.get().0, whole(name, &value, usage)?)?
        });
    }
    Ok(all)
}

/// What came of work, or what went wrong.
pub type Outcome = Result<WorkDone, DriverError>;

/// What work gives, once it has ended.
pub struct Slot {
    /// At 1 when it has ended.
    pub done: Line,
    /// Whoever asks first waits for the work.
    pub outcome: LazyLock<Outcome, Box<dyn FnOnce() -> Outcome + Send>>,
}

impl Slot {
    pub fn new(done: Line, ticket: Box<dyn Ticket>) -> Self {
        let outcome = LazyLock::new(Box::new(|| ticket.wait()) as Box<_>);
        Self { done, outcome }
    }
}

/// What queued work gives.
pub enum Gives {
    Nothing,
    Array(ArrayForm),
    Report(Arc<Batch>),
}

/// Work that a device has queued: what `Device.run_async`, `write_async` and `read_async` give. The work goes on
/// when nobody keeps this.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Pending {
    pub device: Arc<Opened>,
    pub slot: Arc<Slot>,
    pub gives: Gives,
}

#[pymethods]
impl Pending {
    /// Whether the work has ended, or can't any more.
    #[getter]
    fn done(&self) -> bool {
        !is_outstanding(&self.slot.done)
    }

    /// Waits for the work, at most `timeout` seconds if that is given: a `RunReport` of a run, the array of a
    /// read, None of a write.
    ///
    /// Raises what `Device.run`, `write` and `read` do, `WaitError` for work whose waits failed, and
    /// `WaitTimeoutError` when the time is over: the work goes on.
    #[pyo3(signature = (timeout = None))]
    fn result<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.wait(py, timeout)?;
        let found = py.detach(|| self.slot.outcome.clone());
        self.gives.python(py, &self.device, found.map_err(failed)?)
    }
}

impl Pending {
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let waited = wait(py, &self.slot.done.at(1), timeout);
        // Whoever was sent away waits no more, not even for the device to close.
        match waited.inspect_err(|_| self.device.leave())? {
            Err(error @ TimelineError::Timeout { .. }) => Err(unsatisfied(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// As `result`, of work that nobody else knows: without a copy of what it gives.
    ///
    /// # Errors
    /// As `result`.
    pub fn ended(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        self.wait(py, None)?;
        let slot = Arc::into_inner(self.slot).ok_or_else(|| self.device.lost())?;
        let mut outcome = slot.outcome;
        let found =
            py.detach(|| mem::replace(LazyLock::force_mut(&mut outcome), Ok(WorkDone::Written)));
        self.gives.python(py, &self.device, found.map_err(failed)?)
    }
}

impl Gives {
    fn python<'py>(
        &self,
        py: Python<'py>,
        device: &Arc<Opened>,
        done: WorkDone,
    ) -> PyResult<Bound<'py, PyAny>> {
        match (self, done) {
            (Self::Nothing, WorkDone::Written) => Ok(py.None().into_bound(py)),
            (Self::Array(form), WorkDone::Data(bytes)) => form.array(py, bytes),
            (Self::Report(batch), WorkDone::Ran(counted)) => {
                run_report(py, device, batch, &counted)
            }
            (Self::Nothing | Self::Array(_) | Self::Report(_), _) => Err(device.lost()),
        }
    }
}
