//! The interface for C: `include/vta_rt.h`.

use core::ffi::{c_char, c_void};
use core::mem::{align_of, size_of};
use core::ptr::{addr_of, addr_of_mut, copy_nonoverlapping, null};
use core::slice::{from_raw_parts, from_raw_parts_mut};

use crate::board::{RegisterLayout, Visibility};
use crate::image::Tensor;
use crate::mmio::{Clock, Hooks, Mmio, RangeHook};
use crate::{BatchStats, Fault, Image, Runtime, Stats, Status};

const OPEN: u32 = 0x5654_4152;
/// The bus doesn't show the accelerator the image: constants are copied.
const NOT_VISIBLE: u64 = u64::MAX;
/// The board's cycle counter doesn't count.
const NO_COUNTER: u32 = 1;

/// `vta_rt`: memory for a handle.
#[repr(C)]
pub struct VtaRt {
    words: [u64; 48],
}

/// What [`VtaRt`] holds.
#[repr(C)]
struct Handle {
    open: u32,
    working: u32,
    fault: Fault,
    batches: *mut BatchStats,
    capacity: u32,
    runtime: Runtime<'static, Mmio>,
}

const _: () = assert!(size_of::<Handle>() <= size_of::<VtaRt>());
const _: () = assert!(align_of::<Handle>() <= align_of::<VtaRt>());

/// `vta_rt_board`.
#[repr(C)]
pub struct VtaRtBoard {
    registers: *mut u32,
    register_layout: u32,
    flags: u32,
    window: *mut u8,
    window_bus: u64,
    image_bus: u64,
    deadline: u64,
    window_bytes: u32,
    clock: Option<Clock>,
    clean: Option<RangeHook>,
    discard: Option<RangeHook>,
    context: *mut c_void,
}

/// `vta_rt_needs`.
#[repr(C)]
pub struct VtaRtNeeds {
    /// Bytes of a window that constants are copied to.
    window_bytes: u64,
    /// Bytes of a window without.
    window_bytes_in_place: u64,
    align: u32,
    batches: u32,
    inputs: u32,
    outputs: u32,
    rows: u32,
    block: u32,
}

/// `vta_rt_tensor`.
#[repr(C)]
pub struct VtaRtTensor {
    name: *const c_char,
    values: u32,
    chw: [u32; 3],
    scale: f32,
    zero: i32,
}

/// Calls a function on an open handle that no other call works on, and keeps its fault.
///
/// # Safety
/// `rt` is null or a handle's memory.
unsafe fn with(rt: *mut VtaRt, call: impl FnOnce(&mut Handle) -> Result<(), Fault>) -> Status {
    let handle = rt.cast::<Handle>();
    if handle.is_null() {
        return Status::Null;
    }
    // SAFETY: the memory is a handle's, so that its words can be read, whatever they are.
    let (open, working) = unsafe {
        (
            addr_of!((*handle).open).read_volatile(),
            addr_of!((*handle).working).read_volatile(),
        )
    };
    if open != OPEN {
        return Status::Closed;
    }
    if working != 0 {
        return Status::Busy;
    }
    // SAFETY: the handle is open, and `working` keeps calls out that hooks or interrupts make.
    unsafe {
        addr_of_mut!((*handle).working).write_volatile(1);
        let fault = call(&mut *handle).err().unwrap_or(Fault::NONE);
        addr_of_mut!((*handle).fault).write(fault);
        addr_of_mut!((*handle).working).write_volatile(0);
        fault.status
    }
}

/// The bytes at a pointer; `None` for none.
///
/// # Safety
/// `at` is null or has so many bytes that stay as they are.
unsafe fn bytes<'a>(at: *const c_void, count: u32) -> Option<&'a [u8]> {
    // SAFETY: as the caller says.
    (!at.is_null()).then(|| unsafe { from_raw_parts(at.cast(), count as usize) })
}

/// What an image needs; see the header.
///
/// # Safety
/// `image` has `image_bytes` bytes and `out` may be written, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_needs_of(
    image: *const c_void,
    image_bytes: u32,
    out: *mut VtaRtNeeds,
) -> Status {
    // SAFETY: as the caller says.
    let Some(image) = (unsafe { bytes(image, image_bytes) }).filter(|_| !out.is_null()) else {
        return Status::Null;
    };
    let image = match Image::read(image) {
        Ok(image) => image,
        Err(fault) => return fault.status,
    };
    let copied = image.needs(Visibility::Copied);
    let needs = VtaRtNeeds {
        window_bytes: copied.window_bytes,
        window_bytes_in_place: image.needs(Visibility::InPlace(0)).window_bytes,
        align: copied.align,
        batches: image.batches,
        inputs: image.inputs,
        outputs: image.outputs,
        rows: 1 << image.log_batch,
        block: 1 << image.log_block,
    };
    // SAFETY: it isn't null, so the caller lets it be written.
    unsafe { out.write(needs) };
    Status::Ok
}

/// Opens an image on a board; see the header.
///
/// # Safety
/// `rt` and `board` are what they are called or null; `image` has `image_bytes` bytes that stay
/// as they are while the handle is used, `batches` is null or `capacity` records that only this
/// handle writes; the board is as [`Mmio::new`] asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_open(
    rt: *mut VtaRt,
    board: *const VtaRtBoard,
    image: *const c_void,
    image_bytes: u32,
    batches: *mut BatchStats,
    capacity: u32,
) -> Status {
    let handle = rt.cast::<Handle>();
    if handle.is_null() {
        return Status::Null;
    }
    // SAFETY: the memory is a handle's.
    unsafe {
        addr_of_mut!((*handle).open).write_volatile(0);
        addr_of_mut!((*handle).working).write_volatile(0);
    }
    // SAFETY: as the caller says.
    let given = unsafe { (board.as_ref(), bytes(image, image_bytes)) };
    let fault = match given {
        (Some(board), Some(image)) if !board.registers.is_null() && !board.window.is_null() => {
            // SAFETY: the board is as the caller says.
            let mmio = unsafe { board.mmio() };
            match Runtime::open(image, mmio, board.constants()) {
                Ok(runtime) => {
                    let capacity = if batches.is_null() { 0 } else { capacity };
                    for index in 0..capacity as usize {
                        // SAFETY: there are so many records.
                        unsafe { batches.add(index).write(BatchStats::default()) };
                    }
                    let opened = Handle {
                        open: OPEN,
                        working: 0,
                        fault: Fault::NONE,
                        batches,
                        capacity,
                        runtime,
                    };
                    // SAFETY: the memory is a handle's, and large enough.
                    unsafe { handle.write(opened) };
                    return Status::Ok;
                }
                Err(fault) => fault,
            }
        }
        _ => Fault::NULL,
    };
    // SAFETY: as above.
    unsafe { addr_of_mut!((*handle).fault).write(fault) };
    fault.status
}

impl VtaRtBoard {
    fn constants(&self) -> Visibility {
        match self.image_bus {
            NOT_VISIBLE => Visibility::Copied,
            bus => Visibility::InPlace(bus),
        }
    }

    /// # Safety
    /// As for [`Mmio::new`].
    unsafe fn mmio(&self) -> Mmio {
        let layout = match self.register_layout {
            0 => RegisterLayout::Narrow,
            _ => RegisterLayout::Wide,
        };
        let hooks = Hooks {
            clock: self.clock,
            clean: self.clean,
            discard: self.discard,
            context: self.context,
        };
        let window = (self.window, self.window_bytes, self.window_bus);
        let patience = (self.deadline, self.flags & NO_COUNTER == 0);
        // SAFETY: the caller knows.
        unsafe { Mmio::new(self.registers, layout, window, patience, hooks) }
    }
}

/// Describes an input, or an output; see the header.
///
/// # Safety
/// `rt` is a handle's memory and `out` may be written, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_tensor_of(
    rt: *mut VtaRt,
    output: u32,
    index: u32,
    out: *mut VtaRtTensor,
) -> Status {
    let call = |handle: &mut Handle| {
        let tensor = match output {
            0 => handle.runtime.input(index),
            _ => handle.runtime.output(index),
        }?;
        Fault::NULL.unless(!out.is_null())?;
        // SAFETY: it isn't null, so the caller lets it be written.
        unsafe { out.write(described(&tensor)) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) }
}

fn described(tensor: &Tensor<'_>) -> VtaRtTensor {
    VtaRtTensor {
        name: tensor.name.as_ptr(),
        values: tensor.len(),
        chw: tensor.chw,
        scale: f32::from_bits(tensor.scale_bits),
        zero: tensor.zero.into(),
    }
}

/// Gives an input its values; see the header.
///
/// # Safety
/// `rt` is a handle's memory and `values` has `count` values, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_input(
    rt: *mut VtaRt,
    index: u32,
    row: u32,
    values: *const i8,
    count: u32,
) -> Status {
    let call = |handle: &mut Handle| {
        Fault::NULL.unless(!values.is_null())?;
        // SAFETY: as the caller says.
        let values = unsafe { from_raw_parts(values, count as usize) };
        handle.runtime.write_input(index, row, values)
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) }
}

/// Takes an output's values; see the header.
///
/// # Safety
/// `rt` is a handle's memory and `values` has room for `count` values, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_output(
    rt: *mut VtaRt,
    index: u32,
    row: u32,
    values: *mut i8,
    count: u32,
) -> Status {
    let call = |handle: &mut Handle| {
        Fault::NULL.unless(!values.is_null())?;
        // SAFETY: as the caller says.
        let values = unsafe { from_raw_parts_mut(values, count as usize) };
        handle.runtime.read_output(index, row, values)
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) }
}

impl Handle {
    /// The caller's records of batches.
    fn batches<'a>(&self) -> &'a mut [BatchStats] {
        match self.capacity {
            0 => &mut [],
            // SAFETY: who opened the handle says that they are its own.
            count => unsafe { from_raw_parts_mut(self.batches, count as usize) },
        }
    }
}

/// Runs the rest of a pass; see the header.
///
/// # Safety
/// `rt` is a handle's memory or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_run(rt: *mut VtaRt) -> Status {
    let call = |handle: &mut Handle| {
        let batches = handle.batches();
        handle.runtime.run(batches)
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) }
}

/// Runs one batch; see the header.
///
/// # Safety
/// `rt` is a handle's memory and `left` may be written, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_step(rt: *mut VtaRt, left: *mut u32) -> Status {
    let call = |handle: &mut Handle| {
        let batches = handle.batches();
        let found = handle.runtime.step(batches)?;
        // SAFETY: it is null, or the caller lets it be written.
        if let Some(left) = unsafe { left.as_mut() } {
            *left = found;
        }
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) }
}

/// After a reset of the accelerator; see the header.
///
/// # Safety
/// `rt` is a handle's memory or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_recover(rt: *mut VtaRt) -> Status {
    // SAFETY: as the caller says.
    unsafe { with(rt, |handle| handle.runtime.recover()) }
}

/// The counts; see the header.
///
/// # Safety
/// `rt` is a handle's memory and `out` may be written, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_stats_of(rt: *mut VtaRt, out: *mut Stats, clear: u32) -> Status {
    let call = |handle: &mut Handle| {
        // SAFETY: it is null, or the caller lets it be written.
        if let Some(out) = unsafe { out.as_mut() } {
            *out = handle.runtime.stats();
        }
        if clear != 0 {
            handle.runtime.clear_stats();
            handle.batches().fill(BatchStats::default());
        }
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) }
}

/// A batch's name; see the header.
///
/// # Safety
/// `rt` is a handle's memory or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_batch_name(rt: *mut VtaRt, index: u32) -> *const c_char {
    let mut name = null();
    let call = |handle: &mut Handle| {
        name = handle.runtime.image().batch(index)?.name.as_ptr();
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { with(rt, call) };
    name
}

/// What the last call on a handle came to; see the header.
///
/// # Safety
/// `rt` is memory that [`vta_rt_open`] was called with, and `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vta_rt_fault_of(rt: *const VtaRt, out: *mut Fault) {
    if rt.is_null() || out.is_null() {
        return;
    }
    // SAFETY: opening wrote it, whatever else it came to, and neither is null.
    unsafe { copy_nonoverlapping(addr_of!((*rt.cast::<Handle>()).fault), out, 1) };
}

/// A status in words; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn vta_rt_text(status: u32) -> *const c_char {
    Status::text(status).as_ptr()
}
