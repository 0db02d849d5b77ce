//! The multiply-add peak of this CPU, measured.

use web_time::Instant;

use super::GemmKernel;

/// Rounds of one sample: some tens of microseconds.
const ROUNDS: u64 = 4000;

impl GemmKernel {
    /// int8 multiply-adds a second that one thread does with this kernel's instruction when
    /// nothing else is in the way: independent sums in registers, no loads. The best of `samples`.
    pub fn peak_macs_per_second(self, samples: usize) -> f64 {
        best_of(samples, || self.saturate(ROUNDS))
    }

    /// The same with what the kernel's instruction loads, from the first cache; `None` for kernels that load less than
    /// they multiply.
    pub fn peak_with_loads(self, samples: usize) -> Option<f64> {
        #[cfg(target_arch = "x86_64")]
        let multiply = (self == Self::Amx).then_some(super::avx512::peak_amx_with_loads);
        #[cfg(not(target_arch = "x86_64"))]
        let multiply: Option<fn(u64) -> u64> = None;
        multiply.map(|multiply| best_of(samples, || multiply(ROUNDS)))
    }

    /// Multiplies for a while; how many multiply-adds that were.
    fn saturate(self, rounds: u64) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => super::avx512::peak(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::Amx => super::avx512::peak_amx(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => super::avx2::peak_vnni(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => super::avx2::peak_madd(rounds),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bw => super::avx512::peak_madd(rounds),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => super::neon::peak(rounds),
            // The scalar one, and those of other machines, which are never chosen.
            _ => plain(rounds),
        }
    }
}

/// Multiply-adds a second, the best of `samples`.
fn best_of(samples: usize, multiply: impl Fn() -> u64) -> f64 {
    let sample = || {
        let started = Instant::now();
        let macs = multiply();
        macs as f64 / started.elapsed().as_secs_f64().max(1e-9)
    };
    (0..samples.max(1)).map(|_| sample()).fold(0f64, f64::max)
}

/// Dot products of short slices, as the scalar kernel does them.
fn plain(rounds: u64) -> u64 {
    let (x, w) = ([3i8; 64], [5i8; 64]);
    let mut sum = 0i32;
    for _ in 0..rounds {
        let (x, w) = (std::hint::black_box(&x), std::hint::black_box(&w));
        let dot = x.iter().zip(w).map(|(&x, &w)| i32::from(x) * i32::from(w));
        sum = sum.wrapping_add(dot.sum::<i32>());
    }
    std::hint::black_box(sum);
    rounds * 64
}
