//! The functions of `vta/runtime.h`. A thread has a queue of instructions, which its command handle names.
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    non_snake_case,
    reason = "the contract and the names are those of the original header"
)]

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use vta_isa::{AluOp, AluOperand, Deps, Insn, Load, MemType, Module, Store};

use super::kernel::{Kernel, Kind, Loop, Recording};
use super::known::{self, Key};
use super::thread::{Thread, end, of_handle, with_own};
use crate::driver_api::{told, told_each, with_machine};
use crate::error::Failure;
use crate::raw;

type Init = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;

thread_local! {
    /// The kernel that a callback of this thread records.
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// A LOAD that moves nothing. As a constant it is written at once, and no copy waits for its fields.
const LOAD: Insn = Insn::Load(Load {
    deps: Deps::NONE,
    mem: MemType::Inp,
    preload: false,
    pad_value: 0,
    sram_base: 0,
    dram_base: 0,
    y_size: 0,
    x_size: 0,
    x_stride: 0,
    y_pad_0: 0,
    y_pad_1: 0,
    x_pad_0: 0,
    x_pad_1: 0,
});

#[inline]
fn memory_type(code: u32) -> Result<MemType, Failure> {
    let known = u8::try_from(code).ok().and_then(MemType::from_code);
    known.ok_or_else(|| Failure::usage(format!("there is no memory type {code}")))
}

/// A number of a field's type; [`Queue::push`] looks whether the field holds it.
#[inline]
fn narrow<T: TryFrom<u32>>(name: &str, value: u32) -> Result<T, Failure> {
    T::try_from(value).map_err(|_| too_large(name, value))
}

#[cold]
fn too_large(name: &str, value: u32) -> Failure {
    Failure::usage(format!("{name} {value} is too large"))
}

#[inline]
fn stage(id: c_int) -> Result<Module, Failure> {
    match id {
        1 => Ok(Module::Load),
        2 => Ok(Module::Compute),
        3 => Ok(Module::Store),
        _ => Err(Failure::usage(format!(
            "{id} is no stage: 1 loads, 2 computes, 3 stores"
        ))),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn VTABufferAlloc(size: usize) -> *mut c_void {
    told("VTABufferAlloc", ptr::null_mut(), || {
        with_machine(|machine| machine.alloc(size))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTABufferFree(buffer: *mut c_void) {
    if !buffer.is_null() {
        told("VTABufferFree", (), || {
            with_machine(|machine| machine.memory.free(buffer.addr()))
        });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTABufferCopy(
    from: *const c_void,
    from_offset: usize,
    to: *mut c_void,
    to_offset: usize,
    size: usize,
    kind_mask: c_int,
) {
    told("VTABufferCopy", (), || {
        let (source, target) = (
            from.wrapping_byte_add(from_offset),
            to.wrapping_byte_add(to_offset),
        );
        match (kind_mask, size) {
            (1..=3, 0) => Ok(()),
            (1, _) => {
                // SAFETY: the header says that so many bytes are there.
                let bytes = unsafe { raw::values("from", source, size, 1) }?;
                with_machine(|machine| machine.memory.write(target.addr(), bytes))
            }
            (2, _) => {
                // SAFETY: the header says that there is room for so many bytes.
                let room = unsafe { raw::room("to", target, size, 1) }?;
                with_machine(|machine| machine.memory.read(source.addr(), room))
            }
            (3, _) => with_machine(|machine| {
                let bytes = machine.memory.bytes(source.addr(), size)?.to_vec();
                machine.memory.write(target.addr(), &bytes)
            }),
            (mask, _) => Err(Failure::usage(format!(
                "kind_mask {mask}: 1 copies to a buffer, 2 from one, 3 between two"
            ))),
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn VTATLSCommandHandle() -> *mut c_void {
    told("VTATLSCommandHandle", ptr::null_mut(), || {
        // A number: nothing lies there.
        let handle = with_own(|thread| Ok(thread.handle()))?;
        Ok(ptr::without_provenance_mut(handle))
    })
}

/// A buffer is its own pointer: the host reads and writes it in place.
#[unsafe(no_mangle)]
pub extern "C" fn VTABufferCPUPtr(_cmd: *mut c_void, buffer: *mut c_void) -> *mut c_void {
    told("VTABufferCPUPtr", ptr::null_mut(), || {
        with_machine(|machine| machine.memory.phys(buffer.addr()))?;
        Ok(buffer)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTASetDebugMode(cmd: *mut c_void, debug_flag: c_int) {
    told("VTASetDebugMode", (), || {
        of_handle(cmd, |thread| {
            thread.debug = debug_flag;
            Ok(())
        })
    });
}

/// Does nothing: runs see what the host wrote.
#[unsafe(no_mangle)]
pub extern "C" fn VTAWriteBarrier(_: *mut c_void, _: *mut c_void, _: u32, _: u32, _: u32) {}

/// Does nothing: the host sees what runs wrote.
#[unsafe(no_mangle)]
pub extern "C" fn VTAReadBarrier(_: *mut c_void, _: *mut c_void, _: u32, _: u32, _: u32) {}

/// Changes the queue of a handle: 0, or 1 for what can't be queued.
#[inline]
fn queued(
    function: &str,
    cmd: *mut c_void,
    work: impl Fn(&mut Thread) -> Result<(), Failure>,
) -> c_int {
    told_each(function, 1, &|| {
        of_handle(cmd, |thread| thread.change(&work))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTALoadBuffer2D(
    cmd: *mut c_void,
    src_dram_addr: *mut c_void,
    src_elem_offset: u32,
    x_size: u32,
    y_size: u32,
    x_stride: u32,
    x_pad_before: u32,
    y_pad_before: u32,
    x_pad_after: u32,
    y_pad_after: u32,
    dst_sram_index: u32,
    dst_memory_type: u32,
) {
    queued("VTALoadBuffer2D", cmd, |thread| {
        let mem = memory_type(dst_memory_type)?;
        let sram_base = narrow("dst_sram_index", dst_sram_index)?;
        let dram_base = thread.dram_base(src_dram_addr, src_elem_offset, mem)?;
        let [y_size, x_size, x_stride] = [
            narrow("y_size", y_size)?,
            narrow("x_size", x_size)?,
            narrow("x_stride", x_stride)?,
        ];
        let [y_pad_0, y_pad_1, x_pad_0, x_pad_1] = [
            narrow("y_pad_before", y_pad_before)?,
            narrow("y_pad_after", y_pad_after)?,
            narrow("x_pad_before", x_pad_before)?,
            narrow("x_pad_after", x_pad_after)?,
        ];
        thread.queue.push(LOAD, |insn| {
            if let Insn::Load(load) = insn {
                (load.mem, load.sram_base, load.dram_base) = (mem, sram_base, dram_base);
                (load.y_size, load.x_size, load.x_stride) = (y_size, x_size, x_stride);
                (load.y_pad_0, load.y_pad_1) = (y_pad_0, y_pad_1);
                (load.x_pad_0, load.x_pad_1) = (x_pad_0, x_pad_1);
            }
        })
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAStoreBuffer2D(
    cmd: *mut c_void,
    src_sram_index: u32,
    src_memory_type: u32,
    dst_dram_addr: *mut c_void,
    dst_elem_offset: u32,
    x_size: u32,
    y_size: u32,
    x_stride: u32,
) {
    queued("VTAStoreBuffer2D", cmd, |thread| {
        let mem = memory_type(src_memory_type)?;
        if mem != MemType::Out {
            let text = format!("a STORE moves outputs, memory type 4, not {src_memory_type}");
            return Err(Failure::usage(text));
        }
        let store = Store {
            sram_base: narrow("src_sram_index", src_sram_index)?,
            dram_base: thread.dram_base(dst_dram_addr, dst_elem_offset, mem)?,
            y_size: narrow("y_size", y_size)?,
            x_size: narrow("x_size", x_size)?,
            x_stride: narrow("x_stride", x_stride)?,
            ..Store::default()
        };
        thread.queue.push(store.into(), |_| ())
    });
}

/// Does something to the kernel that this thread's callback records.
fn record(function: &str, work: impl FnOnce(&mut Recording)) {
    told(function, (), || {
        RECORDING.with_borrow_mut(|recording| {
            let none =
                "no kernel is recorded: call it from a callback of VTAPushGEMMOp or VTAPushALUOp";
            let recording = recording.as_mut().ok_or_else(|| Failure::usage(none))?;
            work(recording);
            Ok(())
        })
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAUopPush(
    mode: u32,
    reset_out: u32,
    dst_index: u32,
    src_index: u32,
    wgt_index: u32,
    opcode: u32,
    use_imm: u32,
    imm_val: i32,
) {
    record("VTAUopPush", |recording| {
        let reset = reset_out != 0;
        let kind = match mode {
            0 => Kind::Gemm { reset },
            1 => {
                let Some(op) = u8::try_from(opcode).ok().and_then(AluOp::from_code) else {
                    return recording.fail(format!("there is no ALU opcode {opcode}"));
                };
                let operand = match (use_imm, i16::try_from(imm_val)) {
                    (0, _) => AluOperand::Acc,
                    (_, Ok(imm)) => AluOperand::Imm(imm),
                    (_, Err(_)) => {
                        return recording.fail(format!("the immediate {imm_val} has over 16 bits"));
                    }
                };
                Kind::Alu { op, operand }
            }
            _ => return recording.fail(format!("mode {mode}: 0 is GEMM, 1 the ALU")),
        };
        recording.push(kind, [dst_index, src_index, wgt_index]);
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAUopLoopBegin(extent: u32, dst_factor: u32, src_factor: u32, wgt_factor: u32) {
    record("VTAUopLoopBegin", |recording| {
        recording.begin(Loop {
            extent,
            dst: dst_factor,
            src: src_factor,
            wgt: wgt_factor,
        });
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn VTAUopLoopEnd() {
    record("VTAUopLoopEnd", Recording::end);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTAPushGEMMOp(
    uop_handle: *mut *mut c_void,
    finit: Init,
    signature: *mut c_void,
    nbytes: c_int,
) -> c_int {
    // SAFETY: the header's contract is this function's.
    told_each("VTAPushGEMMOp", 1, &|| unsafe {
        push(uop_handle, finit, signature, nbytes, true)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VTAPushALUOp(
    uop_handle: *mut *mut c_void,
    finit: Init,
    signature: *mut c_void,
    nbytes: c_int,
) -> c_int {
    // SAFETY: the header's contract is this function's.
    told_each("VTAPushALUOp", 1, &|| unsafe {
        push(uop_handle, finit, signature, nbytes, false)
    })
}

/// Queues a kernel, which is recorded if its handle and signature are new.
///
/// # Errors
/// What is wrong with it; it is missing in the queue then.
///
/// # Safety
/// `uop_handle` is a place for a pointer, `signature` has so many bytes, and `finit` takes it.
#[inline]
unsafe fn push(
    uop_handle: *mut *mut c_void,
    finit: Init,
    signature: *mut c_void,
    nbytes: c_int,
    is_gemm: bool,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    let key = unsafe { key(uop_handle, signature, nbytes) };
    if let Ok(key) = &key
        && with_own(|thread| thread.push_known(key))?
    {
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    unsafe { push_new(key, finit, signature, is_gemm) }
}

/// Queues a kernel that this thread hasn't queued before.
///
/// # Errors
/// As [`push`].
///
/// # Safety
/// As for [`push`].
#[cold]
unsafe fn push_new(
    key: Result<Key, Failure>,
    finit: Init,
    signature: *mut c_void,
    is_gemm: bool,
) -> Result<c_int, Failure> {
    let most = with_own(|thread| Ok(thread.most_uops()))?;
    let kernel = key.and_then(|key| {
        let kernel = match known::find(&key) {
            Some(kernel) => kernel,
            // SAFETY: the caller's promise.
            None => known::keep(&key, unsafe {
                record_kernel(finit, signature, is_gemm, most)
            }?),
        };
        Ok((key, kernel))
    });
    with_own(|thread| thread.push_new(kernel))?;
    Ok(0)
}

/// What a kernel is known by. Its handle gets a number if it has none.
///
/// # Safety
/// As for [`push`].
#[inline]
unsafe fn key(
    uop_handle: *mut *mut c_void,
    signature: *mut c_void,
    nbytes: c_int,
) -> Result<Key, Failure> {
    static HANDLES: AtomicUsize = AtomicUsize::new(0);
    let len = usize::try_from(nbytes);
    let len = len.map_err(|_| Failure::usage(format!("a signature of {nbytes} bytes")))?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { raw::values("signature", signature, len, 1) }?;
    if uop_handle.is_null() || !uop_handle.is_aligned() {
        return Err(Failure::usage("`uop_handle` is no place for a pointer"));
    }
    // SAFETY: it is aligned and a place for a pointer; whoever else calls with it does the same.
    let handle = unsafe { AtomicPtr::from_ptr(uop_handle) };
    let found = handle.load(Ordering::Acquire);
    if !found.is_null() {
        return Ok(Key::new(found.addr(), bytes));
    }
    let new = ptr::without_provenance_mut(1 + HANDLES.fetch_add(1, Ordering::Relaxed));
    let now = handle.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
    let handle = now.map_or_else(|other| other.addr(), |_| new.addr());
    Ok(Key::new(handle, bytes))
}

/// Has a callback record a kernel of at most so many micro-ops.
///
/// # Safety
/// As for [`push`].
unsafe fn record_kernel(
    finit: Init,
    signature: *mut c_void,
    is_gemm: bool,
    most: usize,
) -> Result<Arc<Kernel>, Failure> {
    let Some(finit) = finit else {
        return Err(Failure::usage("`finit` is NULL, and the kernel is new"));
    };
    if RECORDING.with_borrow(Option::is_some) {
        return Err(Failure::usage("a kernel's callback queues another kernel"));
    }
    RECORDING.set(Some(Recording::new(most)));
    // No lock is held: the callback calls the functions above.
    // SAFETY: the caller's promise.
    let code = unsafe { finit(signature) };
    let recorded = RECORDING.take().unwrap_or_default();
    if code != 0 {
        return Err(Failure::input(format!(
            "the kernel's callback returned {code}"
        )));
    }
    Ok(Arc::new(recorded.finish(is_gemm)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn VTADepPush(cmd: *mut c_void, from_qid: c_int, to_qid: c_int) -> c_int {
    queued("VTADepPush", cmd, |thread| {
        thread.queue.push_token(stage(from_qid)?, stage(to_qid)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTADepPop(cmd: *mut c_void, from_qid: c_int, to_qid: c_int) -> c_int {
    queued("VTADepPop", cmd, |thread| {
        thread.queue.pop(stage(from_qid)?, stage(to_qid)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn VTASynchronize(cmd: *mut c_void, _wait_cycles: u32) {
    told("VTASynchronize", (), || of_handle(cmd, Thread::synchronize));
}

/// Forgets this thread's queue and the kernels of all threads.
#[unsafe(no_mangle)]
pub extern "C" fn VTARuntimeShutdown() {
    told("VTARuntimeShutdown", (), || {
        end();
        known::forget();
        Ok(())
    });
}
