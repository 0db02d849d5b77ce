//! Programs with an address space for each memory type: the spaces are laid side by side in a
//! device's DRAM, and instructions moved along.

use vta_isa::{Config, Insn, MemType};

use vta_driver::PhysAddr;

/// The spaces lie this far apart, a multiple of every element size; none can be larger.
pub const SPACE_BYTES: u64 = 1 << 24;

/// Where the instructions lie: behind the spaces of all memory types.
pub const INSN_ADDR: PhysAddr = PhysAddr(((MemType::ALL.len() as u64 + 1) * SPACE_BYTES) as u32);

/// The address of a byte of a space, which must be below [`SPACE_BYTES`].
pub fn address(mem: MemType, byte: u64) -> PhysAddr {
    PhysAddr(((mem.index() as u64 + 1) * SPACE_BYTES + byte) as u32)
}

/// The space that an instruction's transfer lies in and the byte behind its last, 0 for a
/// synchronisation; `None` where nothing is transferred by this kind.
pub fn reach(mut insn: Insn, config: &Config) -> Option<(MemType, u64)> {
    let rows = insn.dram_rows(config);
    let (mem, _) = insn.dram_base_mut()?;
    Some((mem, rows.map_or(0, |rows| rows.span().end)))
}

/// The instruction with its DRAM base in its memory type's space, inside of which it
/// [reaches](reach). One that moves nothing stays as it is: its base means nothing.
#[must_use]
pub fn moved(mut insn: Insn, config: &Config) -> Insn {
    if insn.dram_rows(config).is_some()
        && let Some((mem, base)) = insn.dram_base_mut()
    {
        *base += address(mem, 0).0 / config.elem_bytes(mem) as u32;
    }
    insn
}
