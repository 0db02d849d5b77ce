//! `Device`: a device's memory and programs by hand, arrays in and out.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use numpy::{
    IntoPyArray, PyArray1, PyArrayDescr, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use vta_app::cycle::Setup;
use vta_app::options::names::{BITSTREAM, BOARD, CONFIG, Name, SCOPE, THREADS, TIMING};
use vta_driver::{Allocations, Batch, DriverError, Ticket, Work, WorkDone};
use vta_isa::{INSN_BYTES, Insn, MemType, UOP_BYTES};

use crate::buffer::Buffer;
use crate::error::{input, usage};
use crate::isa;
use crate::opened::{Opened, count, failed};
use crate::options;
use crate::run_report::RunReport;
use crate::watch::aside;

/// How long passes between two looks at signals.
const WAIT: Duration = Duration::from_millis(50);
/// The options of a device.
const NAMES: [Name; 6] = [CONFIG, BOARD, TIMING, THREADS, SCOPE, BITSTREAM];

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Device>()
}

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
/// A device has 4 GiB of memory, in buffers that `alloc` gives. They are freed by `free`, or with the
/// device: `with pyvta.Device("sim") as device:` closes it at the end. Work is done in the order of the
/// calls, for threads that share the device, too; Python's lock isn't held meanwhile. Ctrl-C gives
/// Python back: the device ends what it has begun, and does the next work behind it.
///
/// Raises `DeviceError` for a device that isn't there, `UsageError` for what makes no sense.
#[pyclass(frozen, module = "pyvta._pyvta")]
struct Device {
    inner: Arc<Opened>,
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(
        signature = (device = "sim", **given),
        text_signature = "(device='sim', *, config=None, board=None, timing=None, threads=None, scope=None, bitstream=None)"
    )]
    fn new(py: Python<'_>, device: &str, given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut target = options::some(given, &NAMES)?.target;
        device.clone_into(&mut target.device.device);
        let threads = target.threads.unwrap_or(1);
        if threads == 0 {
            return Err(usage("`threads`: there must be a thread at least"));
        }
        let (name, config, timing, device) = aside(py, None, move |_| {
            let setup = Setup::new(&target.device, &target.views, "pyvta")?;
            let machine = setup.machine();
            let device = setup.device(&machine.config, threads)?;
            let counts = target.device.device == "cycle";
            let timing = counts.then(|| (machine.timing.clone(), *setup.budget()));
            let name = target.device.device.clone();
            Ok((name, machine.config.clone(), timing, device))
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
        let json = py.import("json")?;
        let keys = json.call_method1("loads", (self.inner.config.to_json(),))?;
        py.import("pyvta.isa")?.getattr("Config")?.call1((keys,))
    }

    /// A buffer of `size_bytes`, all zero.
    ///
    /// Raises `DeviceError` when the device's memory is full, `MemoryLimitError` when the host's is.
    fn alloc(&self, py: Python<'_>, size_bytes: i64) -> PyResult<Buffer> {
        let nbytes = count(size_bytes, "size_bytes")?;
        let inner = &self.inner;
        let (id, address) = py.detach(|| {
            inner.with(|open| {
                let mut memory = Allocations::new(Arc::clone(&open.device));
                let elements = MemType::ALL.map(|mem| inner.config.elem_bytes(mem));
                let align = elements.into_iter().max().unwrap_or(1);
                let address = memory.alloc(nbytes, align as u64).map_err(failed)?;
                let id = inner.number();
                open.buffers.insert(id, memory);
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

    /// Frees a buffer. Programs that name its address fail from then on.
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

    /// Writes an array's bytes, in C order, from byte `offset` of the buffer on. What programs read are
    /// elements: `[BATCH, BLOCK]` int8 of `inp`, `[BLOCK, BLOCK]` int8 of `wgt` (outputs first),
    /// `[BATCH, BLOCK]` int32 of `acc`, uint32 of `uop`.
    ///
    /// Raises `InputError` for more bytes than the buffer has, and for Python's objects.
    #[pyo3(signature = (buffer, array, offset = 0))]
    fn write(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, Buffer>,
        array: &Bound<'_, PyAny>,
        offset: i64,
    ) -> PyResult<()> {
        let (buffer, bytes) = (buffer.get(), flat(array)?);
        let offset = count(offset, "offset")?;
        let bytes = bytes.try_readonly()?;
        let bytes = bytes
            .as_slice()
            .map_err(|_| input("the array isn't contiguous"))?;
        let addr = buffer.range(offset, bytes.len() as u64)?;
        let ticket = py.detach(|| {
            let data = bytes.into();
            self.submit(buffer, Work::Write { addr, data })
        })?;
        self.wait(py, ticket).map(drop)
    }

    /// The array of a shape and dtype that lies at byte `offset` of the buffer.
    ///
    /// Raises `InputError` for more bytes than the buffer has, and for Python's objects.
    #[pyo3(signature = (buffer, shape, dtype, offset = 0))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, Buffer>,
        shape: &Bound<'py, PyAny>,
        dtype: &Bound<'py, PyAny>,
        offset: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = buffer.get();
        let offset = count(offset, "offset")?;
        let shape: Vec<u64> = match shape.extract::<u64>() {
            Ok(size) => vec![size],
            Err(_) => shape.extract().map_err(|_| {
                input("a shape is a number or a sequence of numbers, each at least 0")
            })?,
        };
        let dtype = plain(&PyArrayDescr::new(py, dtype)?)?;
        let item = dtype.itemsize() as u64;
        if item == 0 {
            return Err(input(format!("{dtype} has no size")));
        }
        let sizes = shape.iter().copied();
        let size = sizes.fold(item, u64::saturating_mul);
        let addr = buffer.range(offset, size)?;
        let work = Work::Read {
            addr,
            size_bytes: size,
        };
        let ticket = py.detach(|| self.submit(buffer, work))?;
        match self.wait(py, ticket)? {
            WorkDone::Data(bytes) => {
                let array = bytes.into_pyarray(py).call_method1("view", (dtype,))?;
                array.call_method1("reshape", (PyTuple::new(py, shape)?,))
            }
            WorkDone::Written | WorkDone::Ran(_) => Err(self.inner.lost()),
        }
    }

    /// Runs instructions, FINISH the last, and waits for them: a list of `pyvta.isa`'s, assembly text, or
    /// words of uint8 of shape `(n, 16)`. `dram_base` counts elements of the memory type from address 0:
    /// see `Buffer.element`.
    ///
    /// `uops`, a list of `pyvta.isa.Uop` or uint32, lie in a buffer of their own while the program runs,
    /// and `dram_base` of each LOAD UOP counts from the first of them. Without `uops` it counts from
    /// address 0, like any other.
    ///
    /// Raises `InputError` for what is no program, `RunError` for one that the device refuses or can't end:
    /// memory that isn't allocated, scratchpads that are too small, tokens that never come.
    #[pyo3(signature = (insns, uops = None))]
    fn run(
        &self,
        py: Python<'_>,
        insns: &Bound<'_, PyAny>,
        uops: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RunReport> {
        let (insns, _) = isa::program(insns)?;
        let uops = uops.map(isa::uops).transpose()?;
        let (ticket, batch) = py.detach(|| self.begin(insns, uops))?;
        let WorkDone::Ran(counted) = self.wait(py, ticket)? else {
            return Err(self.inner.lost());
        };
        Ok(RunReport {
            device: Arc::clone(&self.inner),
            batch,
            counted,
        })
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
    /// Queues work on a buffer.
    fn submit(&self, buffer: &Buffer, work: Work) -> PyResult<Box<dyn Ticket>> {
        self.inner.with(|open| {
            buffer.check(&self.inner, open)?;
            open.device.submit(work).map_err(failed)
        })
    }

    /// Queues a program, with its words and micro-ops in memory that is freed behind it.
    fn begin(
        &self,
        mut insns: Vec<Insn>,
        uops: Option<Vec<u32>>,
    ) -> PyResult<(Box<dyn Ticket>, Arc<Batch>)> {
        self.inner.with(|open| {
            let mut memory = Allocations::new(Arc::clone(&open.device));
            let mut place = |bytes: Vec<u8>, align: usize| {
                let addr = memory.alloc(bytes.len() as u64, align as u64)?;
                let data = bytes.into();
                open.device.submit(Work::Write { addr, data })?;
                Ok::<_, DriverError>(addr)
            };
            if let Some(uops) = uops {
                let bytes = uops.iter().flat_map(|uop| uop.to_le_bytes()).collect();
                let base = place(bytes, UOP_BYTES).map_err(failed)?.0 / UOP_BYTES as u32;
                rebase(&mut insns, base)?;
            }
            let words = isa::encoded(&insns)?;
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let batch = Arc::new(Batch {
                insn_addr: place(bytes, INSN_BYTES).map_err(failed)?,
                words,
                insns,
                marks: Vec::new(),
            });
            let run = Work::Run(Arc::clone(&batch));
            let ticket = open.device.submit(run).map_err(failed)?;
            Ok((ticket, batch))
        })
    }

    /// Waits for work, looking at signals. What they raise ends the wait, not the work.
    fn wait(&self, py: Python<'_>, ticket: Box<dyn Ticket>) -> PyResult<WorkDone> {
        let (done, mut waiting) = mpsc::sync_channel(1);
        let waiter = thread::Builder::new().spawn(move || {
            // Nobody may be left to hear of it.
            let _ = done.send(ticket.wait());
        });
        waiter?;
        loop {
            let found;
            (found, waiting) = py.detach(move || (waiting.recv_timeout(WAIT), waiting));
            match found {
                Ok(done) => return done.map_err(failed),
                Err(RecvTimeoutError::Disconnected) => return Err(self.inner.lost()),
                Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| {
                    self.inner.leave();
                })?,
            }
        }
    }
}

/// LOADs of micro-ops that count from their own first one are told where that is.
fn rebase(insns: &mut [Insn], base: u32) -> PyResult<()> {
    for (index, insn) in insns.iter_mut().enumerate() {
        if let Insn::Load(load) = insn
            && load.mem == MemType::Uop
        {
            let moved = load.dram_base.checked_add(base);
            load.dram_base = moved.ok_or_else(|| {
                let at = load.dram_base;
                input(format!(
                    "instruction {index}: micro-op {at} is beyond the device's memory"
                ))
            })?;
        }
    }
    Ok(())
}

/// An array's bytes, which it has in C order.
fn flat<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let numpy = value.py().import("numpy")?;
    let array = numpy.call_method1("ascontiguousarray", (value,))?;
    plain(&array.cast::<PyUntypedArray>()?.dtype())?;
    let line = array.call_method1("reshape", (-1,))?;
    let bytes = line.call_method1("view", (numpy.getattr("uint8")?,))?;
    Ok(bytes.cast_into::<PyArray1<u8>>()?)
}

/// A dtype whose values are the bytes that they lie in.
fn plain<'py>(dtype: &Bound<'py, PyArrayDescr>) -> PyResult<Bound<'py, PyArrayDescr>> {
    match dtype.has_object() {
        true => Err(input(format!("{dtype}: objects of Python are no bytes"))),
        false => Ok(dtype.clone()),
    }
}
