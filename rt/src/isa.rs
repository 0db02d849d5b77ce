//! What the runtime knows of the instruction set. The tests of `vta-isa` write it from the declared
//! fields and codes; do not edit.

/// A field's first bit and its width. None crosses the two halves of a word.
pub(crate) type Field = (u32, u32);

pub(crate) const INSN_BYTES: u32 = 16;
pub(crate) const LOAD: u32 = 0;
pub(crate) const STORE: u32 = 1;
pub(crate) const GEMM: u32 = 2;
pub(crate) const FINISH: u32 = 3;
pub(crate) const ALU: u32 = 4;
pub(crate) const DEPTHWISE: u32 = 7;
pub(crate) const OVERWRITING: u32 = 6;
pub(crate) const REQUANTIZING: u32 = 5;
pub(crate) const UOP: u32 = 0;
pub(crate) const WGT: u32 = 1;
pub(crate) const INP: u32 = 2;
pub(crate) const ACC: u32 = 3;
pub(crate) const OUT: u32 = 4;
pub(crate) const ACC8: u32 = 5;
pub(crate) const WGT4: u32 = 12;
pub(crate) const SATURATED: u32 = 6;
pub(crate) const PRELOAD_ACC: u32 = 6;
pub(crate) const PRELOAD_ACC8: u32 = 7;
pub(crate) const OPCODE: Field = (0, 3);
pub(crate) const MEMORY_TYPE: Field = (7, 3);
pub(crate) const DRAM_BASE: Field = (26, 32);
pub(crate) const Y_SIZE: Field = (64, 16);
pub(crate) const X_SIZE: Field = (80, 16);
pub(crate) const X_STRIDE: Field = (96, 16);
pub(crate) const PADDED_Y_SIZE: Field = (64, 8);
pub(crate) const WGT4_FLAG: Field = (58, 1);
