//! A VTA behind memory-mapped control registers, as a device: `board:pynq`, `board:de10`, `board:FILE.toml`.
//!
//! The host writes instructions and data to memory that the accelerator reads too, the address and number of
//! instructions to registers, and a 1 to launch; the run is over when bit 1 of the same register is set. What
//! differs from board to board is in a [`BoardFile`]: where the registers and the memory are, how caches are
//! kept, whether there is an interrupt, and how the block is reset.
//!
//! [`BoardDevice::open`] maps [`MappedRegisters`] and [`MappedMemory`] as the file says.
//!
//! Nothing of a program is left to the hardware to find: what would leave its allocations, hang for a token, or
//! use a scratchpad that isn't there is refused before it is launched, since a bus master that goes astray
//! overwrites the host's memory. A run has a deadline; behind it the block is reset, and the device goes on.

mod control;
mod device;
mod error;
mod file;
mod layout;
mod map;
mod memory;
mod node;
mod registers;
mod uio;

pub use device::BoardDevice;
pub use error::BoardError;
pub use file::{BoardFile, InterruptFile, MemoryFile, RegisterFile, ResetFile};
pub use layout::Layout;
pub use memory::MappedMemory;
pub use registers::MappedRegisters;
