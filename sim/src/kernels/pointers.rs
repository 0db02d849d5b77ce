//! Where a product's memory is, as the kernels with vectors reach it.

use super::Memory;

/// Pointers of a product's memory, which stays borrowed while they are used.
pub(super) struct Pointers {
    pub inp: *const u8,
    pub zeros: *const u8,
    pub input_sums: *const i32,
    pub acc: *mut i32,
    pub out: *mut u8,
    pub residual: *const u8,
}

impl Pointers {
    pub(super) fn new(memory: &mut Memory<'_>) -> Self {
        Self {
            inp: memory.inp.as_ptr(),
            zeros: memory.zeros.as_ptr(),
            input_sums: memory.input_sums.as_ptr(),
            acc: memory.acc.as_mut_ptr(),
            out: memory.out.as_mut_ptr(),
            residual: memory.residual.as_ptr(),
        }
    }
}
