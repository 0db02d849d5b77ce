//! Kernels: exact products of int8 in wrapping int32, and lane-wise operations.
//!
//! A [`Product`] is a blocked matrix product over rows of the accumulators: every row sums the
//! products of its input rows (one for each *tap*, found through a table of offsets) with up to [`MAX_COLUMNS`] columns of 16
//! outputs, starts from zero or from what the accumulators hold, goes through lane-wise steps,
//! and is written to the accumulators, to DRAM as bytes, or both. Offsets are checked once for
//! the whole product; unsafe code is in the files of the instruction sets, and in [`shared`],
//! through which threads work on one memory.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod direct;
mod kernel;
pub(crate) mod lanes;
mod panel;
mod part;
pub(crate) mod peak;
#[cfg(target_arch = "x86_64")]
mod pointers;
mod product;
mod scalar;
pub(crate) mod shared;
mod steps;

pub use kernel::GemmKernel;
pub(crate) use kernel::{COLUMN, Format, MAX_COLUMNS};
pub(crate) use panel::{Column, Line, Panel};
use product::Stretch;
pub(crate) use product::{Bases, Inputs, Memory, PADDING, Product, Row, Rows, Start};
pub(crate) use steps::{Operand, Step, Steps};

impl GemmKernel {
    /// Runs a product whose offsets this function checks.
    ///
    /// # Panics
    /// When an offset of the product lies outside its memory: a fault of the caller.
    pub(crate) fn run(self, product: &Product<'_>, memory: &mut Memory<'_>) {
        product.check(self, memory);
        match self {
            Self::Scalar => scalar::run(product, memory),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::run_madd(product, memory),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => avx2::run_vnni(product, memory),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => avx512::run(product, memory),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::AvxVnni | Self::Avx512Vnni => scalar::run(product, memory),
        }
    }
}
