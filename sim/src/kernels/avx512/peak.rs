//! What the instructions of AVX-512 can multiply at best.

use std::arch::x86_64::*;

macro_rules! peak {
    ($peak:ident, $saturate:ident, $features:literal, $macs:literal, $multiply:expr) => {
        /// Runs `rounds` of 24 independent multiplications; how many multiply-adds that were.
        pub(in crate::kernels) fn $peak(rounds: u64) -> u64 {
            // SAFETY: the kernel that this measures was chosen where `GemmKernel::supported` is true.
            std::hint::black_box(unsafe { $saturate(rounds) });
            rounds * 24 * $macs
        }

        /// # Safety
        /// The CPU has the features.
        #[target_feature(enable = $features)]
        unsafe fn $saturate(rounds: u64) -> i32 {
            let mut sums = [_mm512_setzero_si512(); 24];
            let x = _mm512_set1_epi32(0x0102_0304);
            let mut w = _mm512_set1_epi32(0x0403_0201);
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = $multiply(*sum, x, w);
                    // SAFETY: no instruction at all: it only keeps products from being shared.
                    unsafe {
                        std::arch::asm!("/* {0} */", inout(zmm_reg) w, options(pure, nomem, nostack));
                    }
                }
            }
            let sum = sums.into_iter().reduce(|a, b| _mm512_add_epi32(a, b));
            _mm512_reduce_add_epi32(sum.unwrap_or(w))
        }
    };
}

peak!(
    peak_madd,
    saturate_madd,
    "avx512f,avx512bw,avx512dq,avx512vl",
    32,
    |sum, x, w| { _mm512_add_epi32(sum, _mm512_madd_epi16(x, w)) }
);
peak!(
    peak,
    saturate,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    64,
    |sum, x, w| { _mm512_dpbusd_epi32(sum, x, w) }
);
