//! Addresses of device memory.

/// A byte address in a device's 32-bit physical space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysAddr(pub u32);
