//! A thread's queue with what it needs to run.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::io::{Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;
use vta_isa::{Config, Insn, MemType};

use super::kernel::Kernel;
use super::known::{self, Key, ShortKey};
use super::queue::{Queue, Run};
use crate::driver_api::{Machine, freed, with_machine};
use crate::error::Failure;

const DUMP_INSN: c_int = 1 << 1;
const DUMP_UOP: c_int = 1 << 2;
const FORCE_SERIAL: c_int = 1 << 5;
/// Kernels that are found without a hash.
const RECENT: usize = 16;

/// The queue, and the buffers and kernels that it was given.
pub struct Thread {
    handle: usize,
    config: Config,
    pub queue: Queue,
    pub debug: c_int,
    /// Why an instruction is missing: what stands in the queue isn't run.
    failed: Option<String>,
    uops: Staging,
    /// The buffers that were found last, by memory type.
    near: [Near; MemType::ALL.len()],
    /// What the queue calls kernels while they are those of `epoch`, and some that were queued last.
    kernels: FxHashMap<Key, usize>,
    recent: [Option<(ShortKey, usize)>; RECENT],
    epoch: usize,
}

/// An address that was found in a buffer, as long as none is freed.
#[derive(Clone, Copy, Default)]
struct Near {
    at: usize,
    freed: usize,
    /// The element on the device that begins there.
    element: u32,
}

/// A buffer for what is run, as large as the largest so far.
#[derive(Default)]
struct Staging {
    at: usize,
    bytes: usize,
}

thread_local! {
    static OWN: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// Works with the queue of a handle, which is this thread's.
#[inline]
pub fn of_handle<T>(
    cmd: *mut c_void,
    work: impl FnOnce(&mut Thread) -> Result<T, Failure>,
) -> Result<T, Failure> {
    OWN.with_borrow_mut(|own| match own {
        Some(thread) if thread.handle == cmd.addr() => work(thread),
        _ => Err(no_handle(cmd)),
    })
}

#[cold]
fn no_handle(cmd: *mut c_void) -> Failure {
    Failure::usage(format!(
        "{cmd:p} is no handle of VTATLSCommandHandle in this thread, or was shut down"
    ))
}

/// Works with this thread's queue, which it gets if it has none.
#[inline]
pub fn with_own<T>(work: impl FnOnce(&mut Thread) -> Result<T, Failure>) -> Result<T, Failure> {
    OWN.with_borrow_mut(|own| match own {
        Some(thread) => work(thread),
        None => work(own.insert(Thread::new()?)),
    })
}

/// Ends this thread's queue.
pub fn end() {
    drop(OWN.take());
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Staging { at, bytes } = std::mem::take(&mut self.uops);
        if bytes > 0 {
            // The device was open when they were made; one that is gone has no buffers.
            let _ = with_machine(|machine| machine.memory.free(at));
        }
    }
}

impl Thread {
    fn new() -> Result<Self, Failure> {
        static HANDLES: AtomicUsize = AtomicUsize::new(0);
        let config = with_machine(|machine| Ok(machine.config().clone()))?;
        Ok(Self {
            handle: 1 + HANDLES.fetch_add(1, Ordering::Relaxed),
            config,
            queue: Queue::default(),
            debug: 0,
            failed: None,
            uops: Staging::default(),
            near: Default::default(),
            kernels: FxHashMap::default(),
            recent: Default::default(),
            epoch: known::epoch(),
        })
    }

    /// What names it.
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// Does something to the queue. What fails is missing, so that nothing is run until the next synchronisation
    /// has said so.
    #[inline]
    pub fn change<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.queue.is_full() {
            self.synchronize()?;
        }
        work(self).map_err(|failure| self.misses(failure))
    }

    /// Notes why an instruction is missing.
    #[cold]
    fn misses(&mut self, failure: Failure) -> Failure {
        self.failed.get_or_insert_with(|| failure.text.clone());
        failure
    }

    /// Runs what is queued.
    pub fn synchronize(&mut self) -> Result<(), Failure> {
        let run = self.queue.finish(self.debug & FORCE_SERIAL != 0);
        if let Some(why) = self.failed.take() {
            return Err(Failure::usage(format!(
                "nothing is run, since an instruction is missing: {why}"
            )));
        }
        let Some(mut run) = run? else {
            return Ok(());
        };
        let insns = run.insns.len();
        let ran = with_machine(|machine| self.run(machine, &mut run));
        self.queue.reuse(run, insns);
        ran
    }

    fn run(&mut self, machine: &mut Machine, run: &mut Run) -> Result<(), Failure> {
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
        self.dump(run);
        machine.run_insns(&mut run.insns)
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

impl Thread {
    /// The index of an element of a buffer, as instructions have it.
    #[inline]
    pub fn dram_base(
        &mut self,
        buffer: *const c_void,
        offset: u32,
        mem: MemType,
    ) -> Result<u32, Failure> {
        let near = self.near[mem.index()];
        let first = if near.at == buffer.addr() && near.freed == freed() && near.at > 0 {
            near.element
        } else {
            self.moved(buffer, mem)?
        };
        let base = first.checked_add(offset);
        base.ok_or_else(|| Failure::usage(format!("element {offset} lies behind 32 bits")))
    }

    /// The element that begins at another address than before.
    #[cold]
    fn moved(&mut self, buffer: *const c_void, mem: MemType) -> Result<u32, Failure> {
        let (at, freed) = (buffer.addr(), freed());
        let phys = with_machine(|machine| machine.memory.phys(at))?;
        let elem = self.config.elem_bytes(mem) as u32;
        if !phys.is_multiple_of(elem) {
            let text = format!("{buffer:p} is no multiple of the {elem} bytes of an element");
            return Err(Failure::usage(text));
        }
        let element = phys / elem;
        self.near[mem.index()] = Near { at, freed, element };
        Ok(element)
    }
}

impl Thread {
    /// Queues a kernel that this thread has queued before; whether it has.
    #[inline]
    pub fn push_known(&mut self, key: &Key) -> Result<bool, Failure> {
        let epoch = known::epoch();
        if self.epoch != epoch {
            self.epoch = epoch;
            self.recent = Default::default();
            self.kernels.clear();
            self.queue.forget_kernels();
        }
        let number = match key {
            Key::Short(key) => match &self.recent[key.handle % RECENT] {
                Some((recent, number)) if recent == key => *number,
                _ => match self.find_short(*key) {
                    Some(number) => number,
                    None => return Ok(false),
                },
            },
            Key::Long(..) => match self.kernels.get(key) {
                Some(number) => *number,
                None => return Ok(false),
            },
        };
        self.change(|thread| thread.queue.push_kernel(&thread.config, number))?;
        Ok(true)
    }

    #[cold]
    fn find_short(&mut self, key: ShortKey) -> Option<usize> {
        let number = *self.kernels.get(&Key::Short(key))?;
        self.recent[key.handle % RECENT] = Some((key, number));
        Some(number)
    }

    /// Queues a kernel that this thread hasn't queued before, if it could be had.
    pub fn push_new(&mut self, kernel: Result<(Key, Arc<Kernel>), Failure>) -> Result<(), Failure> {
        self.change(|thread| {
            let (key, kernel) = kernel?;
            let number = thread.queue.hold(kernel);
            thread.kernels.insert(key, number);
            thread.queue.push_kernel(&thread.config, number)
        })
    }

    /// The most micro-ops of a kernel.
    pub fn most_uops(&self) -> usize {
        self.config.depth(MemType::Uop)
    }
}
