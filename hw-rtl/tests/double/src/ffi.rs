//! The interface: what a Verilated design exports, and its simulator's runtime. All unsafe code is here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

use crate::design::{Access, BEAT_BYTES, BusOut, Design, Pins, Switch};
use crate::options::{Options, VARIABLE};

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
    *mut c_void,
    u64,
    *mut u8,
    *mut u8,
    *mut c_void,
    u8,
);

/// Who is around the design.
#[derive(Clone, Copy)]
struct Around {
    context: *mut c_void,
    sim: SimCall,
    host: HostCall,
    mem: MemCall,
}

// SAFETY: the interface says that the context goes to the thread that calls `VTADPISim`.
unsafe impl Send for Around {}

static AROUND: Mutex<Option<Around>> = Mutex::new(None);

/// Notes who is around the design.
///
/// # Safety
/// The callbacks have these types and take the context, as long as `VTADPISim` runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTADPIInit(
    context: *mut c_void,
    sim: SimCall,
    host: HostCall,
    mem: MemCall,
) {
    let around = Around {
        context,
        sim,
        host,
        mem,
    };
    if let Ok(mut place) = AROUND.lock() {
        *place = Some(around);
    }
}

/// Runs the design until it is told to leave: 0. 1 without `VTADPIInit`, 2 for a word of the environment
/// variable that isn't known.
#[unsafe(no_mangle)]
pub extern "C" fn VTADPISim() -> c_int {
    let around = AROUND.lock().ok().and_then(|place| *place);
    let Some(mut around) = around else { return 1 };
    let text = std::env::var(VARIABLE).unwrap_or_default();
    match Options::parse(&text) {
        Ok(options) => {
            Design::new(options).clock(&mut around);
            0
        }
        Err(_) => 2,
    }
}

/// Begins a waveform: 0 when the file could be made. A double has no signals, so that it names its module
/// only.
///
/// # Safety
/// `file` is a string that ends in zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTADPITrace(file: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(file) = unsafe { CStr::from_ptr(file) }.to_str() else {
        return 1;
    };
    let text =
        "$timescale 1ns $end\n$scope module double $end\n$upscope $end\n$enddefinitions $end\n";
    let written = vta_files::output::write(std::path::Path::new(file), text);
    written.is_err().into()
}

/// An open array of bytes, which stays where it is during a call.
#[repr(C)]
struct Bytes {
    first: *mut u8,
}

/// An element.
///
/// # Safety
/// `array` is a handle that the design gave to a callback which is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn svGetArrElemPtr1(array: *mut c_void, index: c_int) -> *mut c_void {
    let Some(index) = usize::try_from(index)
        .ok()
        .filter(|index| *index < BEAT_BYTES)
    else {
        return std::ptr::null_mut();
    };
    // SAFETY: handles point to `Bytes` with so many elements.
    unsafe { (*array.cast::<Bytes>()).first.add(index).cast() }
}

/// Elements of dimension 1, bits of dimension 0.
#[unsafe(no_mangle)]
pub extern "C" fn svSize(_array: *mut c_void, dimension: c_int) -> c_int {
    match dimension {
        0 => 8,
        1 => BEAT_BYTES as c_int,
        _ => 0,
    }
}

/// The first index.
#[unsafe(no_mangle)]
pub extern "C" fn svLow(_array: *mut c_void, _dimension: c_int) -> c_int {
    0
}

impl Pins for Around {
    fn switch(&mut self) -> Switch {
        let (mut wait, mut exit) = (0, 0);
        // SAFETY: `VTADPIInit`'s promise; the bytes are ours.
        unsafe { (self.sim)(self.context, &mut wait, &mut exit) };
        match (exit, wait) {
            (0, 0) => Switch::Run,
            (0, _) => Switch::Wait,
            _ => Switch::Exit,
        }
    }

    fn host(&mut self, taken: bool, answer: Option<u32>) -> Option<Access> {
        let (mut valid, mut opcode, mut addr, mut value) = (0, 0, 0, 0);
        // SAFETY: `VTADPIInit`'s promise; the values are ours.
        unsafe {
            (self.host)(
                self.context,
                &mut valid,
                &mut opcode,
                &mut addr,
                &mut value,
                taken.into(),
                answer.is_some().into(),
                answer.unwrap_or(0),
            );
        }
        (valid != 0).then_some(Access {
            addr,
            value: (opcode != 0).then_some(value),
        })
    }

    fn bus(&mut self, out: BusOut) -> Option<[u8; BEAT_BYTES]> {
        let (mut written, mut read) = (out.data.unwrap_or_default(), [0; BEAT_BYTES]);
        let mut wr_value = Bytes {
            first: written.as_mut_ptr(),
        };
        let mut rd_value = Bytes {
            first: read.as_mut_ptr(),
        };
        let (mut valid, mut id) = (0, 0);
        let (rd_addr, rd_beats) = out.read.unwrap_or((0, 1));
        let (wr_addr, wr_beats) = out.write.unwrap_or((0, 1));
        // SAFETY: `VTADPIInit`'s promise; values and handles are ours and live during the call. Bursts
        // have 1 to 256 beats.
        unsafe {
            (self.mem)(
                self.context,
                out.read.is_some().into(),
                (rd_beats - 1) as u8,
                0,
                rd_addr,
                out.write.is_some().into(),
                (wr_beats - 1) as u8,
                wr_addr,
                out.data.is_some().into(),
                (&raw mut wr_value).cast(),
                if out.dropped { 0 } else { 0xff },
                &mut valid,
                &mut id,
                (&raw mut rd_value).cast(),
                1,
            );
        }
        (valid != 0).then_some(read)
    }
}
