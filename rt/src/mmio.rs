//! A board over addresses, as C describes it.

use core::ffi::c_void;
use core::sync::atomic::{Ordering, fence};

use crate::board::{Board, RegisterLayout};

/// A clock, and how caches are kept: functions of C.
pub type Clock = unsafe extern "C" fn(context: *mut c_void) -> u64;
/// A function of C that is told of bytes of the window.
pub type RangeHook = unsafe extern "C" fn(context: *mut c_void, at: *mut u8, bytes: u32);

/// A register block and a window at addresses.
///
/// Without a clock, each poll is a tick.
pub struct Mmio {
    registers: *mut u32,
    layout: RegisterLayout,
    window: *mut u8,
    window_bytes: u32,
    window_bus: u64,
    deadline: u64,
    counts: bool,
    polls: u64,
    hooks: Hooks,
}

/// Functions of a board.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// The time.
    pub clock: Option<Clock>,
    /// Writes back the caches of bytes that the accelerator reads next.
    pub clean: Option<RangeHook>,
    /// Drops the caches of bytes that the accelerator wrote.
    pub discard: Option<RangeHook>,
    /// What the functions are given.
    pub context: *mut c_void,
}

impl Mmio {
    /// A board.
    ///
    /// # Safety
    /// As long as it is used, `registers` must be a block of 9 registers of 32 bits that may be
    /// read and written (15 of the wide layout), `window` must be `window_bytes` bytes that nobody else of this program
    /// uses, and the functions of `hooks` must be callable with its context.
    pub unsafe fn new(
        registers: *mut u32,
        layout: RegisterLayout,
        (window, window_bytes, window_bus): (*mut u8, u32, u64),
        (deadline, counts): (u64, bool),
        hooks: Hooks,
    ) -> Self {
        Self {
            registers,
            layout,
            window,
            window_bytes,
            window_bus,
            deadline,
            counts,
            polls: 0,
            hooks,
        }
    }

    /// Whether the block has a register there.
    fn has(&self, offset: u32) -> bool {
        let bytes = match self.layout {
            RegisterLayout::Narrow => 0x24,
            RegisterLayout::Wide => 0x3c,
        };
        offset < bytes && offset & 3 == 0
    }

    fn tell(&self, hook: Option<RangeHook>, offset: u32, bytes: u32) {
        let inside = u64::from(offset) + u64::from(bytes) <= self.window_bytes.into();
        if let Some(hook) = hook.filter(|_| inside) {
            // SAFETY: the range is in the window, and `new`'s caller says that this may be called.
            unsafe { hook(self.hooks.context, self.window.add(offset as usize), bytes) }
        }
    }
}

impl Board for Mmio {
    fn layout(&self) -> RegisterLayout {
        self.layout
    }

    fn read_register(&mut self, offset: u32) -> u32 {
        if !self.has(offset) {
            return u32::MAX;
        }
        // SAFETY: the block has the register, as `new`'s caller says.
        let value = unsafe { self.registers.byte_add(offset as usize).read_volatile() };
        // What is read of memory next was written before.
        fence(Ordering::SeqCst);
        value
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        // What was written to memory is there before.
        fence(Ordering::SeqCst);
        if !self.has(offset) {
            return;
        }
        // SAFETY: as for reading.
        unsafe {
            self.registers
                .byte_add(offset as usize)
                .write_volatile(value);
        }
    }

    fn ticks(&mut self) -> u64 {
        self.polls = self.polls.wrapping_add(1);
        match self.hooks.clock {
            // SAFETY: `new`'s caller says that it may be called.
            Some(clock) => unsafe { clock(self.hooks.context) },
            None => self.polls,
        }
    }

    fn deadline(&self) -> u64 {
        self.deadline
    }

    fn counts(&self) -> bool {
        self.counts
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes.into()
    }

    fn window_bus(&self) -> u64 {
        self.window_bus
    }

    fn put(&mut self, offset: u32, bytes: &[u8]) {
        if u64::from(offset) + bytes.len() as u64 > self.window_bytes.into() {
            return;
        }
        // SAFETY: the bytes are in the window, which nobody else of this program uses.
        unsafe {
            let to = self.window.add(offset as usize);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn get(&mut self, offset: u32) -> u8 {
        if offset >= self.window_bytes {
            return 0;
        }
        // SAFETY: the byte is in the window; the accelerator wrote it, unseen by the compiler.
        unsafe { self.window.add(offset as usize).read_volatile() }
    }

    fn clean(&mut self, offset: u32, bytes: u32) {
        self.tell(self.hooks.clean, offset, bytes);
        fence(Ordering::SeqCst);
    }

    fn discard(&mut self, offset: u32, bytes: u32) {
        fence(Ordering::SeqCst);
        self.tell(self.hooks.discard, offset, bytes);
    }
}
