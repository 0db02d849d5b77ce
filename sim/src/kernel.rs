//! GEMM kernels: exact int8 products in wrapping int32, scalar and AVX2.
//!
//! A kernel gets one GEMM instruction whose indices are checked, the scratchpads as flat
//! slices, and works one accumulator row (one batch row of one tile) at a time.

use vta_isa::{Gemm, Uop};

/// Which kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GemmKernel {
    /// Plain loops, for every configuration and CPU.
    Scalar,
    /// 256-bit `madd` on int16, for blocks of 16, 32 and 64 on x86-64 CPUs that have it.
    Avx2,
}

/// The scratchpads that a GEMM touches. Inputs are widened to int16; `wgt_layout` holds the
/// tiles in [`lay_out`]'s order.
pub(crate) struct Scratchpads<'a> {
    pub inp: &'a [i16],
    pub wgt: &'a [i8],
    pub wgt_layout: &'a [i16],
    pub acc: &'a mut [i32],
}

impl GemmKernel {
    /// Every kernel, slowest first.
    pub const ALL: [Self; 2] = [Self::Scalar, Self::Avx2];

    /// The best kernel that this CPU can run.
    pub fn detect() -> Self {
        if Self::Avx2.supported() {
            Self::Avx2
        } else {
            Self::Scalar
        }
    }

    /// Whether this CPU can run the kernel.
    pub fn supported(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => false,
        }
    }

    /// The name in `VTA_KERNEL`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
        }
    }

    /// This kernel if it can run here on tiles of that block, else the scalar one.
    pub(crate) fn usable(self, block: usize) -> Self {
        if self.supported() && block >= 16 {
            self
        } else {
            Self::Scalar
        }
    }

    pub(crate) fn run(
        self,
        gemm: &Gemm,
        uops: &[Uop],
        batch: usize,
        block: usize,
        pads: Scratchpads<'_>,
    ) {
        match self {
            Self::Scalar => scalar(gemm, uops, batch, block, pads),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => crate::avx2::gemm(gemm, uops, batch, block, pads),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => scalar(gemm, uops, batch, block, pads),
        }
    }
}

/// Reorders a weight tile `[out][in]` to int16 `[out / 8][in / 2][8][2]`: eight outputs' pairs
/// of neighbouring inputs side by side, the operand of one `madd`.
pub(crate) fn lay_out(tile: &[i8], layout: &mut [i16], block: usize) {
    for (o, row) in tile.chunks_exact(block).enumerate() {
        let group = &mut layout[o / 8 * block * 8..];
        for (pair, to) in row.chunks_exact(2).zip(group[o % 8 * 2..].chunks_mut(16)) {
            to[0] = i16::from(pair[0]);
            to[1] = i16::from(pair[1]);
        }
    }
}

fn scalar(gemm: &Gemm, uops: &[Uop], batch: usize, block: usize, pads: Scratchpads<'_>) {
    let lanes = batch * block;
    let area = block * block;
    for i in 0..usize::from(gemm.iter_out) {
        for j in 0..usize::from(gemm.iter_in) {
            let at = |base: u16, out: u16, inner: u16| {
                usize::from(base) + i * usize::from(out) + j * usize::from(inner)
            };
            for uop in uops {
                let dst = at(uop.dst, gemm.dst_factor_out, gemm.dst_factor_in) * lanes;
                let src = at(uop.src, gemm.src_factor_out, gemm.src_factor_in) * lanes;
                let wgt = at(uop.wgt, gemm.wgt_factor_out, gemm.wgt_factor_in) * area;
                let tile = &pads.wgt[wgt..wgt + area];
                for b in 0..batch {
                    let x = &pads.inp[src + b * block..src + (b + 1) * block];
                    let y = &mut pads.acc[dst + b * block..dst + (b + 1) * block];
                    for (sum, row) in y.iter_mut().zip(tile.chunks_exact(block)) {
                        let dot = x.iter().zip(row);
                        let dot: i32 = dot.map(|(&x, &w)| i32::from(x) * i32::from(w)).sum();
                        *sum = sum.wrapping_add(dot);
                    }
                }
            }
        }
    }
}
