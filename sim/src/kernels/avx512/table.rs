//! Looking bytes up in a table.

use std::arch::x86_64::*;

/// Writes the table's entry for each byte; whether the CPU can, in registers.
pub(in crate::kernels) fn look_up(table: &[u8; 256], from: &[u8], to: &mut [u8]) -> bool {
    let can = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi");
    if can {
        // SAFETY: the CPU has the features.
        unsafe { permute(table, from, to) };
    }
    can
}

/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn permute(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    let load = |bytes: &[u8; 64]| {
        // SAFETY: these are 64 bytes.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    };
    let (quarters, _) = table.as_chunks::<64>();
    let [a, b, c, d] = std::array::from_fn(|at| load(&quarters[at]));
    let (blocks, rest) = from.as_chunks::<64>();
    let (results, last) = to.as_chunks_mut::<64>();
    for (block, result) in blocks.iter().zip(results) {
        let x = load(block);
        // Seven bits of a byte choose among two registers, the eighth among these.
        let [low, high] = [
            _mm512_permutex2var_epi8(a, x, b),
            _mm512_permutex2var_epi8(c, x, d),
        ];
        let y = _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
        // SAFETY: these are 64 bytes.
        unsafe { _mm512_storeu_si512(result.as_mut_ptr().cast(), y) };
    }
    for (x, y) in rest.iter().zip(last) {
        *y = table[usize::from(*x)];
    }
}
