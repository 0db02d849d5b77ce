//! What the runtime needs of a board.

/// How wide the accelerator's address registers are.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterLayout {
    /// One register for each address.
    Narrow = 0,
    /// Two registers for each address, the low word first.
    Wide = 1,
}

/// Where the accelerator finds an image's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// In the window, where they are copied to.
    Copied,
    /// In the image, whose first byte has this address on the accelerator's bus.
    InPlace(u64),
}

/// The register block, a window of memory, and a clock.
///
/// [`Mmio`](crate::Mmio) is one over addresses. Offsets are within the block or the window; the
/// runtime stays within `window_bytes`.
pub trait Board {
    /// How wide the address registers are.
    fn layout(&self) -> RegisterLayout;

    /// Reads the register at a byte offset.
    fn read_register(&mut self, offset: u32) -> u32;

    /// Writes the register at a byte offset.
    fn write_register(&mut self, offset: u32, value: u32);

    /// A time that only grows, in any unit, wrapping at 2^64. Called once for each poll.
    fn ticks(&mut self) -> u64;

    /// Ticks that a batch may take.
    fn deadline(&self) -> u64;

    /// Whether the cycle counter counts; one that doesn't isn't judged.
    fn counts(&self) -> bool {
        true
    }

    /// The window's size.
    fn window_bytes(&self) -> u64;

    /// The window's address on the accelerator's bus.
    fn window_bus(&self) -> u64;

    /// Copies bytes into the window.
    fn put(&mut self, offset: u32, bytes: &[u8]);

    /// A byte of the window.
    fn get(&mut self, offset: u32) -> u8;

    /// Makes bytes of the window that were put there visible to the accelerator.
    fn clean(&mut self, _offset: u32, _bytes: u32) {}

    /// Makes bytes of the window that the accelerator wrote visible to [`Self::get`].
    fn discard(&mut self, _offset: u32, _bytes: u32) {}
}
