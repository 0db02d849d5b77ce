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
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod peak;
#[cfg(target_arch = "x86_64")]
mod pointers;
pub(crate) mod product;
pub(crate) mod requantize;
mod scalar;
pub(crate) mod shared;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use direct::{Dots, Tiles};
pub use kernel::GemmKernel;
pub(crate) use kernel::{COLUMN, Format, MAX_COLUMNS, Way};
pub use lanes::Rounding;
pub(crate) use product::bundles::{Bundles, PADDING};
use product::panel;
pub(crate) use product::panel::{Column, Panel};
pub(crate) use product::patches::{Grid, Window};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use product::sheets::Line;
pub(crate) use product::sheets::Sheets;
use product::staging::Staging;
pub(crate) use product::steps::{Operand, Step, Steps};
use product::stretches::Stretch;
pub(crate) use product::{Bases, Inputs, Memory, Product, Row, Rows, Start};
use source::Source;

impl Way {
    /// Makes the copies or the sums of a product's inputs, of `block` bytes a tap, that the kernel reads, if it reads any.
    ///
    /// # Panics
    /// When an input lies outside the bytes, or they were lent for others: a fault of the caller.
    pub(crate) fn stage(
        self,
        inputs: &Inputs,
        block: usize,
        from: Source<'_>,
        staging: &mut Staging,
    ) {
        assert!(from.serves(inputs.runs()));
        #[cfg(target_arch = "x86_64")]
        if self.format == Format::BiasedWeights {
            avx512::sum_inputs(inputs, block, from, staging);
        } else if let Some(to) = inputs.room_for_rows(from, staging) {
            avx512::pack(inputs, from, to);
        } else {
            avx512::copy_biased(inputs, from, staging);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (self, inputs, block, from, staging);
    }

    /// Runs a product whose offsets this function checks.
    ///
    /// # Panics
    /// When an offset of the product lies outside its memory: a fault of the caller.
    pub(crate) fn run(self, product: &Product<'_>, memory: &mut Memory<'_>) {
        product.check(self, memory);
        match (self.kernel, self.format) {
            #[cfg(target_arch = "x86_64")]
            (GemmKernel::Avx512Vnni | GemmKernel::Amx, Format::Diagonal) => {
                avx512::run_diagonal(product, memory);
            }
            // The scalar one, and those of other machines, which are never chosen.
            (GemmKernel::Scalar, _)
            | (GemmKernel::Neon | GemmKernel::Simd128, Format::DiagonalPairs) => {
                scalar::run(product, memory);
            }
            #[cfg(target_arch = "x86_64")]
            (_, Format::DiagonalPairs) => avx2::run_diagonal(product, memory),
            #[cfg(target_arch = "x86_64")]
            (GemmKernel::Avx2, _) => avx2::run_madd(product, memory),
            #[cfg(target_arch = "x86_64")]
            (GemmKernel::AvxVnni, _) => avx2::run_vnni(product, memory),
            #[cfg(target_arch = "x86_64")]
            (GemmKernel::Avx512Vnni, _) => avx512::run(product, memory),
            #[cfg(target_arch = "x86_64")]
            (GemmKernel::Avx512Bw, _) => avx512::run_madd(product, memory),
            #[cfg(target_arch = "x86_64")]
            (GemmKernel::Amx, _) => avx512::run_amx(product, memory),
            #[cfg(target_arch = "aarch64")]
            (GemmKernel::Neon, _) => neon::run(product, memory),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            (GemmKernel::Simd128, _) => simd128::run(product, memory),
            _ => scalar::run(product, memory),
        }
    }
}

impl GemmKernel {
    /// Adds the products of scratchpads.
    ///
    /// # Panics
    /// When something lies outside the scratchpads, or a tile isn't laid out: a fault of the caller.
    pub(crate) fn add(self, dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
        if dots.rows.list().is_empty() || dots.taps.is_empty() {
            return;
        }
        dots.check(inp, acc);
        dots.check_tiles(self);
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512Bw => avx2::add_madd(dots, inp, acc),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => avx2::add_vnni(dots, inp, acc),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni | Self::Amx => avx512::add(dots, inp, acc),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon::add(dots, inp, acc),
            _ => direct::scalar(dots, inp, acc),
        }
    }

    /// [`Self::add`] for few rows, of tiles as they lie in the scratchpad: nothing is laid out. There are no second
    /// tiles.
    ///
    /// # Panics
    /// When something lies outside the scratchpads: a fault of the caller.
    pub(crate) fn add_plain(self, dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
        if dots.rows.list().is_empty() || dots.taps.is_empty() {
            return;
        }
        dots.check(inp, acc);
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni | Self::Amx if dots.block == COLUMN => {
                avx512::add_plain(dots, inp, acc);
            }
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni if dots.block == COLUMN => avx2::add_plain_vnni(dots, inp, acc),
            // Every vector kernel of x86-64 has AVX2.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Avx512Bw | Self::AvxVnni | Self::Avx512Vnni | Self::Amx
                if dots.block.is_multiple_of(COLUMN) =>
            {
                avx2::add_plain(dots, inp, acc);
            }
            _ => direct::scalar(dots, inp, acc),
        }
    }

    /// Lays a tile of a scratchpad, for which there is room, out for this kernel if it isn't.
    pub(crate) fn lay_out(self, tiles: &mut Tiles, tile: usize, bytes: &[u8]) {
        tiles.lay_out(tile, bytes, |bytes, first, lines| {
            match (self, <&[u8; 256]>::try_from(bytes)) {
                #[cfg(target_arch = "x86_64")]
                (Self::Avx512Vnni | Self::Amx, Ok(tile)) => avx512::lay_out(tile, lines),
                _ => panel::lay_out(bytes, first, self.tile_format(), lines),
            }
        });
    }
}
