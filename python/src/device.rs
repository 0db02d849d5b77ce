//! `Device`: a device's memory and programs by hand, arrays in and out.

pub mod buffer;
pub mod opened;
pub mod run_report;
pub mod streams;
mod work;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use vta_app::device::Setup;
use vta_app::options::names::{BITSTREAM, BOARD, CONFIG, Name, SCOPE, THREADS, TIMING};
use vta_driver::{Allocations, DriverError, Lane, Timeline, Work, WorkDone};
use vta_isa::MemType;

use crate::device::buffer::{ArrayForm, Buffer, flat};
use crate::device::opened::{Opened, failed};
use crate::device::streams::{Gives, Pending, Slot};
use crate::device::work::{Asked, Order, place};
use crate::error::{input, usage};
use crate::given::whole;
use crate::results::loads;
use crate::watch::aside;
use crate::{isa, options};

/// The options of a device.
const NAMES: [Name; 6] = [CONFIG, BOARD, TIMING, THREADS, SCOPE, BITSTREAM];

/// A device, its memory and what runs on it, without a network.
///
/// `device` is `"sim"` (fast, the default), `"cycle"` (counts cycles), `"oracle"` (slow, obvious) or
/// `"opencl[:SEL]"`.
///
/// | option | is |
/// |---|---|
/// | `config` | a `pyvta.isa.Config`, a `vta_config.json`, or a dict of its keys; the board's, or else 1x16x16 |
/// | `board` | a board, whose limits and timing hold: a preset's name or a TOML file |
/// | `timing` | timing alone of a board, for `device="cycle"` |
/// | `threads` | threads that the fast simulator may use for a run, at least 1; 1 |
/// | `scope`, `bitstream` | memory scopes and bitstream of OpenCL devices |
///
/// A device has 4 GiB of memory, in buffers that `alloc` gives. They are freed by `free`, when nothing refers
/// to them any more, or with the device: `with pyvta.Device("sim") as device:` closes it at the end. Work is
/// done in the order of the calls, for threads that share the device, too; Python's lock isn't held meanwhile.
/// Ctrl-C gives Python back: the device ends what it has begun, and does the next work behind it.
/// `run_async` and the like queue work in an order of its own.
///
/// Raises `DeviceError` for a device that isn't there, `UsageError` for what makes no sense.
#[pyclass(frozen, module = "pyvta._pyvta")]
pub struct Device {
    inner: Arc<Opened>,
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(
        signature = (device = None, **given),
        text_signature = "(device='sim', *, config=None, board=None, timing=None, threads=None, scope=None, bitstream=None)"
    )]
    fn new(
        py: Python<'_>,
        device: Option<&Bound<'_, PyAny>>,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut target = options::some(given, &NAMES)?;
        target.device = options::device(device)?;
        let threads = target.threads.unwrap_or(1);
        if threads == 0 {
            return Err(usage("`threads`: there must be a thread at least"));
        }
        let (name, config, timing, device) = aside(py, None, move |_| {
            let setup = Setup::new(&target, "pyvta")?;
            let machine = &setup.machine;
            let device = setup.device(&machine.config, threads)?;
            let counts = target.device == "cycle";
            let timing = counts.then(|| (machine.timing.clone(), machine.budget));
            Ok((target.device, machine.config.clone(), timing, device))
        })?;
        let inner = Opened::new(name, config, timing, device);
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// As it was asked for.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its configuration, a `pyvta.isa.Config`.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let keys = loads(py, &self.inner.config.to_json())?;
        py.import("pyvta.isa")?.getattr("Config")?.call1((keys,))
    }

    /// A buffer of `size_bytes`, all zero.
    ///
    /// Raises `DeviceError` when the device's memory is full, `MemoryLimitError` when the host's is.
    fn alloc(&self, py: Python<'_>, size_bytes: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let nbytes = whole("size_bytes", size_bytes, input)?;
        let inner = &self.inner;
        let (id, address) = py.detach(|| {
            inner.with(|open| {
                let mut memory = Allocations::new(Arc::clone(&open.device));
                let elements = MemType::ALL.map(|mem| inner.config.elem_bytes(mem));
                let align = elements.into_iter().max().unwrap_or(1);
                let address = memory.alloc(nbytes, align as u64).map_err(failed)?;
                let id = inner.number();
                open.buffers.insert(id, Arc::new(memory));
                Ok((id, address.0))
            })
        })?;
        Ok(Buffer {
            owner: Arc::clone(inner),
            id,
            address,
            nbytes,
        })
    }

    /// Frees a buffer, as its end does: once queued work that was there before has ended. Programs that name its
    /// address fail from then on.
    ///
    /// Raises `UsageError` for one that is freed already, or another device's.
    fn free(&self, py: Python<'_>, buffer: &Bound<'_, Buffer>) -> PyResult<()> {
        let buffer = buffer.get();
        py.detach(|| {
            self.inner.with(|open| {
                buffer.check(&self.inner, open)?;
                open.buffers.remove(&buffer.id);
                Ok(())
            })
        })
    }

    /// Writes an array's bytes, in C order, from byte `offset` of the buffer on: whole numbers of 8 or 32 bits, or
    /// Python's bytes. What programs read are elements: `[BATCH, BLOCK]` int8 of `inp`, `[BLOCK, BLOCK]` int8 of
    /// `wgt` (outputs first), `[BATCH, BLOCK]` int32 of `acc`, uint32 of `uop`. Machines of other widths have
    /// int16 or int32 of `inp`, `wgt` and `out`.
    ///
    /// Raises `InputError` for more bytes than the buffer has and for other types of elements, `TypeError` for
    /// what has none, as a list.
    #[pyo3(signature = (buffer, array, offset = None), text_signature = "($self, buffer, array, offset=0)")]
    fn write(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, Buffer>,
        array: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let queued = self.queue_write(buffer, array, offset, None)?;
        queued.ended(py).map(drop)
    }

    /// The array of a shape and dtype that lies at byte `offset` of the buffer.
    ///
    /// Raises `InputError` for more bytes than the buffer has, and for Python's objects.
    #[pyo3(signature = (buffer, shape, dtype, offset = None), text_signature = "($self, buffer, shape, dtype, offset=0)")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, Buffer>,
        shape: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
        offset: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let form = ArrayForm::of(shape, dtype)?;
        self.queue_read(buffer, form, offset, None)?.ended(py)
    }

    /// Runs instructions, FINISH the last, and waits for them: a list of `pyvta.isa`'s, assembly text, or
    /// words of uint8 of shape `(n, 16)`. `dram_base` counts elements of the memory type from address 0:
    /// see `Buffer.element`.
    ///
    /// `uops`, a list of `pyvta.isa.Uop` (or tuples of `dst`, `src` and `wgt`) or uint32, lie in a buffer of their
    /// own while the program runs, and `dram_base` of each LOAD UOP counts from the first of them. Without
    /// `uops` it counts from address 0, like any other.
    ///
    /// Raises `InputError` for what is no program, `RunError` for one that the device refuses or can't end:
    /// memory that isn't allocated, scratchpads that are too small, tokens that never come.
    #[pyo3(signature = (insns, uops = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        insns: &Bound<'py, PyAny>,
        uops: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.queue_run(insns, uops, None)?.ended(py)
    }

    /// Queues a run and returns at once. It starts when all `waits` are reached, pairs of a `Timeline` and a value
    /// (or promises), and keeps the promises of `signals`, which are handed over, when it has ended; a pair is
    /// promised here. `Pending.result` waits for it.
    ///
    /// Queued runs of a device are in the order of the calls, and so are its queued reads and writes. Runs, copies
    /// and what isn't queued are in no order with each other: timelines make one. Buffers that exist now are kept
    /// until the run has ended.
    ///
    /// Raises `InputError` for what is no program, `WaitError` for a wait that can't be satisfied.
    #[pyo3(signature = (insns, uops = None, *, waits = None, signals = None), text_signature = "($self, insns, uops=None, *, waits=(), signals=())")]
    fn run_async(
        &self,
        insns: &Bound<'_, PyAny>,
        uops: Option<&Bound<'_, PyAny>>,
        waits: Option<&Bound<'_, PyAny>>,
        signals: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        self.queue_run(insns, uops, Some([waits, signals]))
    }

    /// Queues a write, as `run_async` queues a run. What is written is an array, which is copied now, or the
    /// `Pending` of a read, of this device or another one: its bytes, once they are there.
    #[pyo3(signature = (buffer, array, offset = None, *, waits = None, signals = None), text_signature = "($self, buffer, array, offset=0, *, waits=(), signals=())")]
    fn write_async(
        &self,
        buffer: &Bound<'_, Buffer>,
        array: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        waits: Option<&Bound<'_, PyAny>>,
        signals: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        self.queue_write(buffer, array, offset, Some([waits, signals]))
    }

    /// Queues a read, as `run_async` queues a run.
    #[pyo3(signature = (buffer, shape, dtype, offset = None, *, waits = None, signals = None), text_signature = "($self, buffer, shape, dtype, offset=0, *, waits=(), signals=())")]
    fn read_async(
        &self,
        buffer: &Bound<'_, Buffer>,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        waits: Option<&Bound<'_, PyAny>>,
        signals: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Pending> {
        let form = ArrayForm::of(shape, dtype)?;
        self.queue_read(buffer, form, offset, Some([waits, signals]))
    }

    /// Frees all buffers and lets the device go. Again it does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let config = &self.inner.config;
        let (batch, block) = (config.batch(), config.block());
        format!("Device('{}', {batch}x{block}x{block})", self.inner.name)
    }
}

impl Device {
    fn queue_run(
        &self,
        insns: &Bound<'_, PyAny>,
        uops: Option<&Bound<'_, PyAny>>,
        asked: Asked<'_, '_>,
    ) -> PyResult<Pending> {
        let (py, (insns, _)) = (insns.py(), isa::program(insns)?);
        let uops = uops.map(isa::uops).transpose()?;
        let order = Order::of(asked)?;
        py.detach(|| {
            let (batch, memory) = self.inner.with(|open| place(open, insns, uops))?;
            let (work, gives) = (Work::Run(Arc::clone(&batch)), Gives::Report(batch));
            self.queue(Lane::Compute, move || Ok(work), order, memory, gives)
        })
    }

    fn queue_write(
        &self,
        buffer: &Bound<'_, Buffer>,
        array: &Bound<'_, PyAny>,
        offset: Option<&Bound<'_, PyAny>>,
        asked: Asked<'_, '_>,
    ) -> PyResult<Pending> {
        let (py, buffer) = (buffer.py(), buffer.get());
        let mut source = None;
        let mut data = Vec::new();
        let size = match array.cast::<Pending>() {
            Ok(pending) => {
                let Gives::Array(form) = &pending.get().gives else {
                    return Err(usage("only what a read gives can be written"));
                };
                source = Some(Arc::clone(&pending.get().slot));
                form.size_bytes()
            }
            Err(_) => {
                data = flat(array, &self.inner.config)?;
                data.len() as u64
            }
        };
        let (addr, _) = buffer.range(offset, size)?;
        let mut order = Order::of(asked)?;
        order
            .waits
            .extend(source.as_ref().map(|slot| slot.done.at(1)));
        let make = move || {
            let bytes = match source.map(|slot| slot.outcome.clone()).transpose()? {
                Some(WorkDone::Data(bytes)) => bytes,
                Some(WorkDone::Written | WorkDone::Ran(_)) | None => data,
            };
            let data = bytes.into();
            Ok(Work::Write { addr, data })
        };
        py.detach(|| self.queue_copy(buffer, make, order, Gives::Nothing))
    }

    fn queue_read(
        &self,
        buffer: &Bound<'_, Buffer>,
        form: ArrayForm,
        offset: Option<&Bound<'_, PyAny>>,
        asked: Asked<'_, '_>,
    ) -> PyResult<Pending> {
        let (py, buffer, size_bytes) = (buffer.py(), buffer.get(), form.size_bytes());
        let (addr, _) = buffer.range(offset, size_bytes)?;
        let order = Order::of(asked)?;
        let make = move || Ok(Work::Read { addr, size_bytes });
        py.detach(|| self.queue_copy(buffer, make, order, Gives::Array(form)))
    }

    /// Queues a copy from or to a buffer.
    fn queue_copy(
        &self,
        buffer: &Buffer,
        make: impl FnOnce() -> Result<Work, DriverError> + Send + 'static,
        order: Order,
        gives: Gives,
    ) -> PyResult<Pending> {
        let memory = self.inner.with(|open| {
            buffer.check(&self.inner, open)?;
            Ok(Allocations::new(Arc::clone(&open.device)))
        })?;
        self.queue(Lane::Copy, make, order, memory, gives)
    }

    /// Queues work that waits and signals, and the memory that goes when it has ended.
    fn queue(
        &self,
        lane: Lane,
        make: impl FnOnce() -> Result<Work, DriverError> + Send + 'static,
        order: Order,
        memory: Allocations,
        gives: Gives,
    ) -> PyResult<Pending> {
        let Order {
            calls,
            waits,
            mut signals,
        } = order;
        let done = Timeline::new(format!("work of {}", self.inner.name));
        signals.push(done.promise(1).map_err(|error| failed(error.into()))?);
        // A full queue blocks, so that nobody must wait for the device's lock meanwhile.
        let stream = self.inner.with(|open| {
            open.keep(done.clone(), memory);
            Ok(open.stream(lane, calls))
        })?;
        let ticket = stream.submit_with(make, &waits, signals).map_err(failed)?;
        Ok(Pending {
            device: Arc::clone(&self.inner),
            slot: Arc::new(Slot::new(done, ticket)),
            gives,
        })
    }
}
