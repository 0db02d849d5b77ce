//! Numbers as scratchpads and DRAM hold them.

use crate::Config;
use crate::insn::MemType;

/// The signed number at a place among numbers of so many bits: 8, 16 or 32, little-endian.
///
/// # Panics
/// Beyond the last one.
#[inline]
pub fn number(bytes: &[u8], width: usize, at: usize) -> i32 {
    match width {
        8 => i32::from(bytes[at] as i8),
        16 => i32::from(i16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]])),
        _ => i32::from_le_bytes(std::array::from_fn(|i| bytes[4 * at + i])),
    }
}

impl Config {
    /// The whole numbers in bytes of a memory type, but for WGT4, which has two in a byte.
    pub fn numbers<'b>(&self, mem: MemType, bytes: &'b [u8]) -> impl Iterator<Item = i32> + 'b {
        let width = self.width(mem);
        (0..bytes.len() / (width / 8)).map(move |at| number(bytes, width, at))
    }

    /// Smallest and largest number of the memory type.
    pub const fn bounds(&self, mem: MemType) -> (i32, i32) {
        let high = i32::MAX >> (32 - self.width(mem));
        (-high - 1, high)
    }
}
