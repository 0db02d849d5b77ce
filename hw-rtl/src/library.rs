//! The C boundary: a library with the original's DPI interface, and what it calls back.
//!
//! All unsafe code of the crate is here and in `abort`. The library runs in this process: what a bad pointer of
//! its own code does can't be caught.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use vta_files::printable;

use crate::RtlError;
use crate::bus::{Burst, MAX_BEAT_BYTES};
use crate::host::Access;
use crate::plant::{BusClock, Plant};

/// `svOpenArrayHandle`.
type Array = *mut c_void;
type SimCall = unsafe extern "C" fn(*mut c_void, *mut u8, *mut u8);
type HostCall = unsafe extern "C" fn(*mut c_void, *mut u8, *mut u8, *mut u8, *mut u32, u8, u8, u32);
type MemCall = unsafe extern "C" fn(
    *mut c_void,
    u8,
    u8,
    u8,
    u64,
    u8,
    u8,
    u64,
    u8,
    Array,
    u64,
    *mut u8,
    *mut u8,
    Array,
    u8,
);
type Init = unsafe extern "C" fn(*mut c_void, SimCall, HostCall, MemCall);
type Sim = unsafe extern "C" fn() -> c_int;
type Trace = unsafe extern "C" fn(*const c_char) -> c_int;
type Ended = unsafe extern "C" fn() -> *const c_char;

/// What the simulator's runtime, which is linked into the library, says of open arrays.
#[derive(Clone, Copy)]
struct Arrays {
    elem: unsafe extern "C" fn(Array, c_int) -> *mut c_void,
    size: unsafe extern "C" fn(Array, c_int) -> c_int,
    low: unsafe extern "C" fn(Array, c_int) -> c_int,
}

/// A loaded library. Its functions stay where they are as long as this value lives.
pub struct Library {
    init: Init,
    sim: Sim,
    trace: Option<Trace>,
    ended: Option<Ended>,
    arrays: Arrays,
    _loaded: libloading::Library,
}

/// What callbacks get: one for each library.
pub struct Context {
    pub plant: Plant,
    arrays: Arrays,
}

impl Library {
    /// Loads a library and finds its functions.
    ///
    /// # Errors
    /// A file that the loader refuses, a function that is missing.
    pub fn load(path: &Path) -> Result<Self, RtlError> {
        // SAFETY: loading runs the library's initialisers, which is what opening a design means: whoever
        // names a library trusts its code as that of a program.
        let loaded = unsafe { load(path) };
        let loaded = loaded.map_err(|error| {
            RtlError::library(path, format_args!("it can't be loaded: {error}"))
        })?;
        let runtime = "the runtime of the simulator must be linked into the library";
        let dpi = "a design has the interface of the original's simulation";
        // SAFETY: each name stands for a function of this type, by the original's interface and `svdpi.h`.
        unsafe {
            Ok(Self {
                init: find(&loaded, path, "VTADPIInit", dpi)?,
                sim: find(&loaded, path, "VTADPISim", dpi)?,
                trace: find(&loaded, path, "VTADPITrace", dpi).ok(),
                ended: find(&loaded, path, "VTADPIEnded", dpi).ok(),
                arrays: Arrays {
                    elem: find(&loaded, path, "svGetArrElemPtr1", runtime)?,
                    size: find(&loaded, path, "svSize", runtime)?,
                    low: find(&loaded, path, "svLow", runtime)?,
                },
                _loaded: loaded,
            })
        }
    }

    /// Gives the design its host and memory.
    pub fn init(&self) -> Arc<Context> {
        let context = Arc::new(Context {
            plant: Plant::default(),
            arrays: self.arrays,
        });
        let raw = Arc::as_ptr(&context).cast_mut().cast();
        // SAFETY: the callbacks have the types that the interface asks for. The context is shared, never
        // written through `raw`, and lives until the thread of `sim` has ended, since that holds it.
        unsafe { (self.init)(raw, sim, host, mem) };
        context
    }

    /// What runs the design until it is told to leave, for a thread of its own: it gives what `VTADPISim`
    /// returned, and why the design ended itself if the library says so.
    pub fn sim(&self) -> impl FnOnce() -> (i32, Option<String>) + Send + use<> {
        let (sim, ended) = (self.sim, self.ended);
        move || {
            // SAFETY: `VTADPIInit` was called before, and the library stays loaded until this has returned
            // (`Rtl` unloads it only then).
            let code = unsafe { sim() };
            // SAFETY: by the convention of docs/rtl.md it takes nothing.
            let text = ended.map(|ended| unsafe { ended() });
            let text = text.filter(|text| !text.is_null()).map(|text| {
                // SAFETY: by the same convention it is a string that nobody changes any more.
                let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
                let lines = text.lines().map(|line| printable(line.trim()).to_string());
                lines.filter(|line| !line.is_empty()).collect::<Vec<_>>()
            });
            let text = text.filter(|lines| !lines.is_empty());
            (code, text.map(|lines| lines.join("; ")))
        }
    }

    /// Asks for a waveform; what the library says, or `None` if it writes none.
    pub fn trace(&self, wave: &CString) -> Option<i32> {
        // SAFETY: by the convention of docs/rtl.md it takes a string and keeps a copy.
        self.trace.map(|trace| unsafe { trace(wave.as_ptr()) })
    }
}

/// Loads a library with all that it names: a function that is nowhere would end the process at its first call.
///
/// # Safety
/// As [`libloading::Library::new`].
unsafe fn load(path: &Path) -> Result<libloading::Library, libloading::Error> {
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: the caller's promise.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
    }
    #[cfg(not(unix))]
    {
        // SAFETY: the caller's promise.
        unsafe { libloading::Library::new(path) }
    }
}

/// A function by name.
///
/// # Safety
/// The name stands for a function of type `T`, which is called only while the library is loaded.
unsafe fn find<T: Copy>(
    loaded: &libloading::Library,
    path: &Path,
    symbol: &str,
    needed: &str,
) -> Result<T, RtlError> {
    // SAFETY: the type is the caller's promise.
    let found = unsafe { loaded.get::<T>(symbol.as_bytes()) };
    let missing = |_| RtlError::library(path, format_args!("it has no {symbol}: {needed}"));
    found.map(|f| *f).map_err(missing)
}

impl Arrays {
    /// How many elements of how many bytes an array has, and the index of its first.
    fn shape(&self, array: Array) -> Result<(usize, usize, c_int), String> {
        // SAFETY: the handle comes from the design's call that is under way. Dimension 0 is the packed
        // one, whose size is in bits.
        let (bits, count, low) = unsafe {
            (
                (self.size)(array, 0),
                (self.size)(array, 1),
                (self.low)(array, 1),
            )
        };
        let (bits, count) = (
            usize::try_from(bits).unwrap_or(0),
            usize::try_from(count).unwrap_or(0),
        );
        let bytes = bits / 8;
        let beat = bytes.saturating_mul(count);
        if !matches!(bits, 8 | 16 | 32 | 64) || beat == 0 || beat > MAX_BEAT_BYTES {
            return Err(format!(
                "the design's bus has {count} elements of {bits} bits: there may be 1 to \
                 {MAX_BEAT_BYTES} bytes, in elements of 8, 16, 32 or 64 bits"
            ));
        }
        Ok((count, bytes, low))
    }

    /// The bytes of a beat, and how many there are.
    fn get(&self, array: Array, beat: &mut [u8; MAX_BEAT_BYTES]) -> Result<usize, String> {
        let (count, bytes, low) = self.shape(array)?;
        for (elem, to) in (low..).zip(beat[..count * bytes].chunks_exact_mut(bytes)) {
            let from = self.elem(array, elem, "wr_value")?;
            // SAFETY: an element has so many bytes, and nobody writes it during the call. Words are
            // little-endian on every machine that the stack runs on.
            unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), bytes) };
        }
        Ok(count * bytes)
    }

    /// Puts the bytes of a beat.
    fn put(&self, array: Array, beat: &[u8; MAX_BEAT_BYTES]) -> Result<(), String> {
        let (count, bytes, low) = self.shape(array)?;
        for (elem, from) in (low..).zip(beat[..count * bytes].chunks_exact(bytes)) {
            let to = self.elem(array, elem, "rd_value")?;
            // SAFETY: an element has so many bytes, which are the callback's to write during the call.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), bytes) };
        }
        Ok(())
    }

    /// Where an element of an array is, which has it.
    fn elem(&self, array: Array, index: c_int, name: &str) -> Result<*mut u8, String> {
        // SAFETY: the handle comes from the design's call that is under way, and the index is one of its.
        let at = unsafe { (self.elem)(array, index) };
        if at.is_null() {
            return Err(format!(
                "element {index} of the design's {name} has no address"
            ));
        }
        Ok(at.cast())
    }
}

/// Runs a callback: a panic must not cross into the library, and ends the run.
fn guarded<T>(context: &Context, otherwise: T, work: impl FnOnce() -> Result<T, String>) -> T {
    let fault = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => return done,
        Ok(Err(fault)) => fault,
        Err(_) => "the memory or the registers of the design panicked".to_owned(),
    };
    context.plant.misbehaved(fault);
    otherwise
}

/// # Safety
/// `context` comes from [`Library::init`]; the others are the design's.
unsafe extern "C" fn sim(context: *mut c_void, wait: *mut u8, exit: *mut u8) {
    // SAFETY: see `Library::init`.
    let context = unsafe { &*context.cast::<Context>() };
    let leave = guarded(context, true, || Ok(context.plant.clock()));
    // SAFETY: the design's own bytes, for this call.
    unsafe {
        *wait = 0;
        *exit = leave.into();
    }
}

/// # Safety
/// As [`sim`].
unsafe extern "C" fn host(
    context: *mut c_void,
    req_valid: *mut u8,
    req_opcode: *mut u8,
    req_addr: *mut u8,
    req_value: *mut u32,
    req_deq: u8,
    resp_valid: u8,
    resp_value: u32,
) {
    // SAFETY: see `Library::init`.
    let context = unsafe { &*context.cast::<Context>() };
    let answer = (resp_valid != 0).then_some(resp_value);
    let offered = guarded(context, None, || {
        Ok(context.plant.host(req_deq != 0, answer))
    });
    let (valid, opcode, addr, value) = match offered {
        None => (0, 0, 0, 0),
        Some(Access::Read(addr)) => (1, 0, addr, 0),
        Some(Access::Write(addr, value)) => (1, 1, addr, value),
    };
    // SAFETY: the design's own values, for this call.
    unsafe {
        *req_valid = valid;
        *req_opcode = opcode;
        *req_addr = addr;
        *req_value = value;
    }
}

/// # Safety
/// As [`sim`].
unsafe extern "C" fn mem(
    context: *mut c_void,
    rd_req_valid: u8,
    rd_req_len: u8,
    rd_req_id: u8,
    rd_req_addr: u64,
    wr_req_valid: u8,
    wr_req_len: u8,
    wr_req_addr: u64,
    wr_valid: u8,
    wr_value: Array,
    wr_strb: u64,
    rd_valid: *mut u8,
    rd_id: *mut u8,
    rd_value: Array,
    rd_ready: u8,
) {
    // SAFETY: see `Library::init`.
    let context = unsafe { &*context.cast::<Context>() };
    let request = |valid: u8, id, addr, len: u8| {
        let beats = u32::from(len) + 1;
        (valid != 0).then_some(Burst { id, addr, beats })
    };
    let found = guarded(context, None, || {
        let mut written = [0; MAX_BEAT_BYTES];
        let data = match wr_valid {
            0 => None,
            _ => Some(context.arrays.get(wr_value, &mut written)?),
        };
        let clock = BusClock {
            read: request(rd_req_valid, rd_req_id, rd_req_addr, rd_req_len),
            write: request(wr_req_valid, 0, wr_req_addr, wr_req_len),
            data: data.map(|bytes| (wr_strb, &written[..bytes])),
            ready: rd_ready != 0,
        };
        if context.plant.is_quiet(&clock) {
            return Ok(None);
        }
        let (count, bytes, _) = context.arrays.shape(rd_value)?;
        let mut beat = [0; MAX_BEAT_BYTES];
        let id = context.plant.bus(clock, &mut beat[..count * bytes]);
        if id.is_some() {
            context.arrays.put(rd_value, &beat)?;
        }
        Ok(id)
    });
    // SAFETY: the design's own bytes, for this call.
    unsafe {
        *rd_valid = found.is_some().into();
        *rd_id = found.unwrap_or(0);
    }
}
