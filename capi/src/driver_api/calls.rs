//! The functions of `vta/driver.h`. There is one device for the process, opened by the first call that needs it.
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    non_snake_case,
    reason = "the contract and the names are those of the original header"
)]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::machine::{Machine, Stats, WarmUp};
use crate::error::{Failure, caught, caught_each};
use crate::last;
use crate::raw;

/// Failures that standard error is told of; `vta_last_error` is told of all.
const MOST_TOLD: u32 = 16;

static STATE: Mutex<State> = Mutex::new(State {
    machine: None,
    bitstream: None,
    handles: 0,
});

struct State {
    machine: Option<Machine>,
    /// What the next device to be opened is programmed with.
    bitstream: Option<PathBuf>,
    /// Handles given so far.
    handles: usize,
}

impl State {
    fn machine(&mut self) -> Result<&mut Machine, Failure> {
        if self.machine.is_none() {
            self.machine = Some(warmed(Machine::from_env(self.bitstream.clone())?)?);
        }
        let none = || Failure::usage("no device is open");
        self.machine.as_mut().ok_or_else(none)
    }

    /// The device if it is open: where there is none, there is no buffer either.
    fn opened(&mut self, what: &str) -> Result<&mut Machine, Failure> {
        let none = || Failure::usage(format!("{what}: nothing was allocated yet"));
        self.machine.as_mut().ok_or_else(none)
    }
}

/// Works with the device, which is opened if it isn't open.
///
/// # Errors
/// What the work says, a device that can't be opened.
pub(crate) fn with_machine<T>(
    work: impl FnOnce(&mut Machine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    work(state().machine()?)
}

fn state() -> MutexGuard<'static, State> {
    held(&STATE)
}

fn held(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic in a run leaves buffers and counts whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine that ran some programs in the same way as a caller's.
pub(super) fn warmed(mut machine: Machine) -> Result<Machine, Failure> {
    let warm_up = WarmUp::new(&mut machine)?;
    let state = Mutex::new(State {
        machine: Some(machine),
        bitstream: None,
        handles: 1,
    });
    let handle = ptr::without_provenance_mut(1);
    let ran = warm_up
        .runs()
        .all(|(at, count)| run(&state, handle, at, count) == 0);
    let machine = held(&state).machine.take().filter(|_| ran);
    let mut machine = machine.ok_or_else(|| Failure::internal("a first program failed"))?;
    warm_up.end(&mut machine)?;
    Ok(machine)
}

/// Functions that give nothing can't say that they failed, so that standard error is told.
pub(crate) fn told<T>(
    function: &str,
    otherwise: T,
    work: impl FnOnce() -> Result<T, Failure>,
) -> T {
    caught(otherwise, || {
        work().map_err(|failure| tell(function, failure))
    })
}

/// [`told`] for functions that are called for each instruction.
#[inline]
pub(crate) fn told_each<T>(
    function: &str,
    otherwise: T,
    work: &impl Fn() -> Result<T, Failure>,
) -> T {
    caught_each(otherwise, work, |failure| tell(function, failure))
}

type Told = unsafe extern "C" fn(text: *const c_char, data: *mut c_void);

/// Who is told of failures instead of standard error, and an address for it.
static TOLD: Mutex<Option<(Told, usize)>> = Mutex::new(None);

/// Lets failures be told to a function instead of standard error, or to standard error again.
#[unsafe(no_mangle)]
pub extern "C" fn vta_on_failure(callback: Option<Told>, data: *mut c_void) {
    let told = callback.map(|callback| (callback, data.expose_provenance()));
    *TOLD.lock().unwrap_or_else(PoisonError::into_inner) = told;
}

/// Tells who wants to know; the failure with the function's name.
#[cold]
fn tell(function: &str, failure: Failure) -> Failure {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let text = format!("{function}: {}", failure.text);
    let told = *TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((callback, data)) = told {
        let told = last::text(text.clone());
        // SAFETY: a function that its owner gave for this, with what it gave beside it.
        unsafe { callback(told.as_ptr(), ptr::with_exposed_provenance_mut(data)) };
        return Failure { text, ..failure };
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    if number < MOST_TOLD {
        // Nobody may read it, or its disk be full.
        let _ = writeln!(stderr(), "libvta: {text}");
    } else if number == MOST_TOLD {
        let more = "libvta: further failures are told by vta_last_error alone";
        let _ = writeln!(stderr(), "{more}");
    }
    Failure { text, ..failure }
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAMemAlloc(size: usize, _cached: c_int) -> *mut c_void {
    told("VTAMemAlloc", ptr::null_mut(), || {
        state().machine()?.alloc(size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAMemFree(buf: *mut c_void) {
    told("VTAMemFree", (), || {
        if buf.is_null() {
            return Ok(());
        }
        state().opened("the buffer")?.memory.free(buf.addr())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAMemGetPhyAddr(buf: *mut c_void) -> u32 {
    told("VTAMemGetPhyAddr", 0, || {
        state().opened("the buffer")?.memory.phys(buf.addr())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTAMemCopyFromHost(dst: *mut c_void, src: *const c_void, size: usize) {
    told("VTAMemCopyFromHost", (), || {
        if size == 0 {
            return Ok(());
        }
        // SAFETY: the header says that so many bytes are there.
        let from = unsafe { raw::values("src", src, size, 1) }?;
        state().opened("`dst`")?.memory.write(dst.addr(), from)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTAMemCopyToHost(dst: *mut c_void, src: *const c_void, size: usize) {
    told("VTAMemCopyToHost", (), || {
        if size == 0 {
            return Ok(());
        }
        // SAFETY: the header says that there is room for so many bytes.
        let to = unsafe { raw::room("dst", dst, size, 1) }?;
        state().opened("`src`")?.memory.read(src.addr(), to)
    });
}

/// Does nothing: runs see what the host wrote.
#[unsafe(no_mangle)]
pub extern "C" fn VTAFlushCache(_vir_addr: *mut c_void, _phy_addr: u32, _size: c_int) {}

/// Does nothing: the host sees what runs wrote.
#[unsafe(no_mangle)]
pub extern "C" fn VTAInvalidateCache(_vir_addr: *mut c_void, _phy_addr: u32, _size: c_int) {}

#[unsafe(no_mangle)]
pub extern "C" fn VTADeviceAlloc() -> *mut c_void {
    told("VTADeviceAlloc", ptr::null_mut(), || {
        let mut state = state();
        state.machine()?.reads_instructions()?;
        state.handles += 1;
        // A number: nothing lies there.
        Ok(ptr::without_provenance_mut(state.handles))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTADeviceFree(_handle: *mut c_void) {}

#[unsafe(no_mangle)]
pub extern "C" fn VTADeviceRun(
    device: *mut c_void,
    insn_phy_addr: u32,
    insn_count: u32,
    _wait_cycles: u32,
) -> c_int {
    run(&STATE, device, insn_phy_addr, insn_count)
}

#[inline(never)]
fn run(state: &Mutex<State>, device: *mut c_void, addr: u32, count: u32) -> c_int {
    told("VTADeviceRun", 1, || {
        let mut state = held(state);
        // What refused the handle is the cause.
        if let Some(machine) = &state.machine {
            machine.reads_instructions()?;
        }
        if device.is_null() || device.addr() > state.handles {
            return Err(Failure::usage(format!(
                "{device:p} is no handle of VTADeviceAlloc"
            )));
        }
        state.machine()?.run(addr, count)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTAProgram(bitstream: *const c_char) {
    told("VTAProgram", (), || {
        // SAFETY: the header says that it is a text.
        let path = PathBuf::from(unsafe { raw::text("bitstream", bitstream) }?);
        let mut state = state();
        if state.machine.is_some() {
            return Err(Failure::usage(
                "the device is open: program it before its first use",
            ));
        }
        let device = std::env::var("VTA_DEVICE").unwrap_or_default();
        // Only these take a bitstream.
        if vta_app::device::is_opencl(&device) {
            state.bitstream = Some(path);
        }
        Ok(())
    });
}

/// The counts of all runs since they were last cleared.
#[unsafe(no_mangle)]
pub extern "C" fn vta_stats_json(clear: c_int) -> *const c_char {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    told("vta_stats_json", c"".as_ptr(), || {
        let mut state = state();
        let none = &mut Stats::default();
        let stats = state.machine.as_mut().map_or(none, |m| &mut m.stats);
        let text = CString::new(stats.json()).unwrap_or_default();
        if clear != 0 {
            *stats = Stats::default();
        }
        TEXT.with(|kept| {
            *kept.borrow_mut() = text;
            Ok(kept.borrow().as_ptr())
        })
    })
}
