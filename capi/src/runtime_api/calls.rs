//! The functions of `vta/runtime.h`. A thread has a queue of instructions, which its command handle names.
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    non_snake_case,
    reason = "the contract and the names are those of the original header"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::io::{Write, stderr};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use vta_isa::{AluOp, AluOperand, Config, INSN_BYTES, Insn, Load, MemType, Module, Store};

use super::kernel::{Kernel, Kind, Loop, Recording};
use super::queue::{Queue, Run};
use crate::driver_api::{Machine, told, with_machine};
use crate::error::Failure;
use crate::raw;

const DUMP_INSN: c_int = 1 << 1;
const DUMP_UOP: c_int = 1 << 2;
const FORCE_SERIAL: c_int = 1 << 5;
/// The most kernels that are kept.
const MOST_KERNELS: usize = 1 << 16;

type Init = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;

/// A thread's queue with what it needs to run.
#[derive(Default)]
struct Thread {
    config: Config,
    queue: Queue,
    debug: c_int,
    /// Why an instruction is missing: what stands in the queue isn't run.
    failed: Option<String>,
    insns: Staging,
    uops: Staging,
}

/// A buffer for what is run, as large as the largest so far.
#[derive(Default)]
struct Staging {
    at: usize,
    bytes: usize,
}

/// All kernels that callbacks have recorded.
#[derive(Default)]
struct Kernels {
    /// Handles given so far.
    handles: usize,
    known: HashMap<(usize, Vec<u8>), Arc<Kernel>>,
}

static THREADS: Mutex<BTreeMap<usize, Arc<Mutex<Thread>>>> = Mutex::new(BTreeMap::new());
static KERNELS: LazyLock<Mutex<Kernels>> = LazyLock::new(Mutex::default);

/// The handle of a thread, which goes when the thread does.
struct Own(usize);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(thread) = lock(&THREADS).remove(&self.0) {
            lock(&thread).free();
        }
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
    /// The kernel that a callback of this thread records.
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Queues, kernels and buffers are whole between calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue of a handle.
fn of_handle(cmd: *mut c_void) -> Result<Arc<Mutex<Thread>>, Failure> {
    let found = lock(&THREADS).get(&cmd.addr()).map(Arc::clone);
    found.ok_or_else(|| {
        Failure::usage(format!(
            "{cmd:p} is no handle of VTATLSCommandHandle, or its thread has ended"
        ))
    })
}

/// The queue of this thread, and its handle.
fn own() -> Result<(usize, Arc<Mutex<Thread>>), Failure> {
    static HANDLES: AtomicUsize = AtomicUsize::new(0);
    OWN.with_borrow_mut(|own| {
        if let Some(Own(handle)) = *own {
            let thread = of_handle(ptr::without_provenance_mut(handle))?;
            return Ok((handle, thread));
        }
        let config = with_machine(|machine| Ok(machine.config().clone()))?;
        let handle = 1 + HANDLES.fetch_add(1, Ordering::Relaxed);
        let thread = Arc::new(Mutex::new(Thread {
            config,
            ..Thread::default()
        }));
        lock(&THREADS).insert(handle, Arc::clone(&thread));
        *own = Some(Own(handle));
        Ok((handle, thread))
    })
}

impl Thread {
    /// Does something to the queue. What fails is missing, so that nothing is run until the next synchronisation
    /// has said so.
    fn change<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.queue.is_full() {
            self.synchronize()?;
        }
        work(self).inspect_err(|failure| {
            self.failed.get_or_insert_with(|| failure.text.clone());
        })
    }

    /// Runs what is queued.
    fn synchronize(&mut self) -> Result<(), Failure> {
        let run = self.queue.finish(self.debug & FORCE_SERIAL != 0);
        if let Some(why) = self.failed.take() {
            return Err(Failure::usage(format!(
                "nothing is run, since an instruction is missing: {why}"
            )));
        }
        match run? {
            Some(run) => with_machine(|machine| self.run(machine, run)),
            None => Ok(()),
        }
    }

    fn run(&mut self, machine: &mut Machine, mut run: Run) -> Result<(), Failure> {
        let mut uops = Vec::new();
        for uop in &run.uops {
            uops.extend(uop.encode()?.to_le_bytes());
        }
        let first =
            self.uops.put(machine, &uops)? / machine.config().elem_bytes(MemType::Uop) as u32;
        for insn in &mut run.insns {
            if let Insn::Load(load) = insn
                && load.mem == MemType::Uop
                && !load.is_sync()
            {
                load.dram_base += first;
            }
        }
        self.dump(&run);
        let mut words = Vec::with_capacity(run.insns.len() * INSN_BYTES);
        for insn in &run.insns {
            words.extend(insn.encode()?.to_le_bytes());
        }
        let addr = self.insns.put(machine, &words)?;
        // Far below 2^32: see `Queue::is_full`.
        machine.run(addr, run.insns.len() as u32)
    }

    /// Writes what the debug mode asks for to standard error.
    fn dump(&self, run: &Run) {
        // Nobody may read it, or its disk be full.
        let mut err = stderr();
        if self.debug & DUMP_UOP != 0 {
            for (index, uop) in run.uops.iter().enumerate() {
                let vta_isa::Uop { dst, src, wgt } = uop;
                let _ = writeln!(err, "uop {index}: dst={dst} src={src} wgt={wgt}");
            }
        }
        if self.debug & DUMP_INSN != 0 {
            for (index, insn) in run.insns.iter().enumerate() {
                let _ = writeln!(err, "insn {index}: {insn}");
            }
        }
    }

    /// Gives its buffers back.
    fn free(&mut self) {
        for staging in [&mut self.insns, &mut self.uops] {
            if staging.bytes > 0 {
                // The device was open when they were made; one that is gone has no buffers.
                let _ = with_machine(|machine| machine.memory.free(staging.at));
                *staging = Staging::default();
            }
        }
    }
}

impl Staging {
    /// Puts bytes into the buffer; its address on the device.
    fn put(&mut self, machine: &mut Machine, bytes: &[u8]) -> Result<u32, Failure> {
        if self.bytes < bytes.len().max(1) {
            let size = bytes.len().max(1).next_power_of_two();
            let at = machine.alloc(size)?.addr();
            let old = std::mem::replace(self, Self { at, bytes: size });
            if old.bytes > 0 {
                machine.memory.free(old.at)?;
            }
        }
        machine.memory.write(self.at, bytes)?;
        machine.memory.phys(self.at)
    }
}

/// The index of an element of a buffer, as instructions have it.
fn dram_base(
    buffer: *const c_void,
    offset: u32,
    mem: MemType,
    config: &Config,
) -> Result<u32, Failure> {
    let elem = config.elem_bytes(mem) as u32;
    let phys = with_machine(|machine| machine.memory.phys(buffer.addr()))?;
    if phys % elem != 0 {
        let text = format!("{buffer:p} is no multiple of the {elem} bytes of an element");
        return Err(Failure::usage(text));
    }
    let base = (phys / elem).checked_add(offset);
    base.ok_or_else(|| Failure::usage(format!("element {offset} lies behind 32 bits")))
}

fn memory_type(code: u32) -> Result<MemType, Failure> {
    let known = u8::try_from(code).ok().and_then(MemType::from_code);
    known.ok_or_else(|| Failure::usage(format!("there is no memory type {code}")))
}

/// A number of a field's type; [`Queue::push`] looks whether the field holds it.
fn narrow<T: TryFrom<u32>>(name: &str, value: u32) -> Result<T, Failure> {
    let wide = |_| Failure::usage(format!("{name} {value} is too large"));
    T::try_from(value).map_err(wide)
}

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
        Ok(ptr::without_provenance_mut(own()?.0))
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
        lock(&*of_handle(cmd)?).debug = debug_flag;
        Ok(())
    });
}

/// Does nothing: runs see what the host wrote.
#[unsafe(no_mangle)]
pub extern "C" fn VTAWriteBarrier(_: *mut c_void, _: *mut c_void, _: u32, _: u32, _: u32) {}

/// Does nothing: the host sees what runs wrote.
#[unsafe(no_mangle)]
pub extern "C" fn VTAReadBarrier(_: *mut c_void, _: *mut c_void, _: u32, _: u32, _: u32) {}

/// Changes the queue of a handle: 0, or 1 for what can't be queued.
fn queued(
    function: &str,
    cmd: *mut c_void,
    work: impl FnOnce(&mut Thread) -> Result<(), Failure>,
) -> c_int {
    told(function, 1, || {
        lock(&*of_handle(cmd)?).change(work)?;
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
        let load = Load {
            mem,
            sram_base: narrow("dst_sram_index", dst_sram_index)?,
            dram_base: dram_base(src_dram_addr, src_elem_offset, mem, &thread.config)?,
            y_size: narrow("y_size", y_size)?,
            x_size: narrow("x_size", x_size)?,
            x_stride: narrow("x_stride", x_stride)?,
            y_pad_0: narrow("y_pad_before", y_pad_before)?,
            y_pad_1: narrow("y_pad_after", y_pad_after)?,
            x_pad_0: narrow("x_pad_before", x_pad_before)?,
            x_pad_1: narrow("x_pad_after", x_pad_after)?,
            ..Load::default()
        };
        thread.queue.push(load.into())
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
            dram_base: dram_base(dst_dram_addr, dst_elem_offset, mem, &thread.config)?,
            y_size: narrow("y_size", y_size)?,
            x_size: narrow("x_size", x_size)?,
            x_stride: narrow("x_stride", x_stride)?,
            ..Store::default()
        };
        thread.queue.push(store.into())
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
    told("VTAPushGEMMOp", 1, || unsafe {
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
    told("VTAPushALUOp", 1, || unsafe {
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
unsafe fn push(
    uop_handle: *mut *mut c_void,
    finit: Init,
    signature: *mut c_void,
    nbytes: c_int,
    is_gemm: bool,
) -> Result<c_int, Failure> {
    let (_, thread) = own()?;
    let most = lock(&thread).config.depth(MemType::Uop);
    // SAFETY: the caller's promise.
    let kernel = unsafe { kernel(uop_handle, finit, signature, nbytes, is_gemm, most) };
    lock(&thread).change(|thread| {
        let kernel = kernel?;
        let config = thread.config.clone();
        thread.queue.push_kernel(&config, &kernel)
    })?;
    Ok(0)
}

/// # Safety
/// As for [`push`].
unsafe fn kernel(
    uop_handle: *mut *mut c_void,
    finit: Init,
    signature: *mut c_void,
    nbytes: c_int,
    is_gemm: bool,
    most: usize,
) -> Result<Arc<Kernel>, Failure> {
    let len = usize::try_from(nbytes);
    let len = len.map_err(|_| Failure::usage(format!("a signature of {nbytes} bytes")))?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { raw::values("signature", signature, len, 1) }?;
    if uop_handle.is_null() || !uop_handle.is_aligned() {
        return Err(Failure::usage("`uop_handle` is no place for a pointer"));
    }
    let key = {
        let mut kernels = lock(&KERNELS);
        // SAFETY: it is aligned and a place for a pointer; whoever else calls with it holds the lock.
        let handle = unsafe { &mut *uop_handle };
        if handle.is_null() {
            kernels.handles += 1;
            *handle = ptr::without_provenance_mut(kernels.handles);
        }
        let key = (handle.addr(), bytes.to_vec());
        if let Some(known) = kernels.known.get(&key) {
            return Ok(Arc::clone(known));
        }
        key
    };
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
    let kernel = Arc::new(recorded.finish(is_gemm)?);
    let mut kernels = lock(&KERNELS);
    if kernels.known.len() == MOST_KERNELS {
        // They are recorded again when they come again.
        kernels.known.clear();
    }
    kernels.known.insert(key, Arc::clone(&kernel));
    Ok(kernel)
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
    told("VTASynchronize", (), || {
        lock(&*of_handle(cmd)?).synchronize()
    });
}

/// Forgets this thread's queue and the kernels of all threads.
#[unsafe(no_mangle)]
pub extern "C" fn VTARuntimeShutdown() {
    told("VTARuntimeShutdown", (), || {
        drop(OWN.take());
        lock(&KERNELS).known.clear();
        Ok(())
    });
}
