//! Which kernels there are, and what each can do.

use std::ops::RangeInclusive;

/// Columns of 16 outputs that one product may have.
pub(crate) const MAX_COLUMNS: usize = 4;
/// Outputs of a column; fewer when the block is smaller.
pub(crate) const COLUMN: usize = 16;

/// Rows, and inputs of each, for which products are worth tiles.
const LEAST_ROWS_OF_TILES: usize = 8;
const LEAST_INPUTS_OF_TILES: usize = 32;

/// Which kernel multiplies. Each also chooses the lane-wise operations of its instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmKernel {
    /// Plain loops, for every configuration and CPU.
    Scalar,
    /// 256-bit `madd` on int16, for blocks of 16 and more on x86-64 CPUs that have it.
    Avx2,
    /// `sdot` of ARMv8.2, for blocks of 16 and more on aarch64 CPUs that have it.
    Neon,
    /// `i32x4.dot_i16x8_s` of WebAssembly, for blocks of 16 and more where vectors of 128 bits are compiled in. Only
    /// products of plans have it.
    Simd128,
    /// 512-bit `madd` on int16 (AVX-512BW), for CPUs without VNNI.
    Avx512Bw,
    /// 256-bit `dpbusd` (AVX-VNNI): inputs are biased by 128 to be unsigned, and the bias is
    /// taken off again through the sums of the weights.
    AvxVnni,
    /// 512-bit `dpbusd` (AVX-512 VNNI), with the same bias; where the inputs of a plan's rows lie side by side, of the
    /// weights, and it is taken off through the sums of the inputs.
    Avx512Vnni,
    /// Tiles of `tdpbssd` (AMX); everything but the products of plans is AVX-512's.
    Amx,
}

/// How weights lie for a kernel. Inputs are int8 as in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// As in DRAM.
    Plain,
    /// Widened to int16, four inputs of each output side by side.
    Wide,
    /// Widened to int16, two inputs of each output side by side.
    Pairs,
    /// Four inputs of each output side by side; the kernel adds 128 to inputs.
    Biased,
    /// Four inputs of each output side by side, 128 added to each weight; the kernel is given the sums of the inputs.
    BiasedWeights,
    /// Four inputs of each output side by side, for inputs as they are.
    Fours,
    /// Of diagonal tiles the diagonals of four taps, whose weights of each output lie side by side; the kernel adds 128
    /// to inputs.
    Diagonal,
    /// Of diagonal tiles the diagonals of two taps, widened to int16, whose weights of each output lie side by side.
    DiagonalPairs,
}

impl Format {
    /// Whether all beside the tiles' diagonals is zero, and left out.
    pub(crate) const fn is_diagonal(self) -> bool {
        matches!(self, Self::Diagonal | Self::DiagonalPairs)
    }
}

/// How a planned product is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    pub kernel: GemmKernel,
    /// How its weights lie.
    pub format: Format,
}

impl GemmKernel {
    /// Every kernel, slowest first.
    pub const ALL: [Self; 8] = [
        Self::Scalar,
        Self::Neon,
        Self::Simd128,
        Self::Avx2,
        Self::Avx512Bw,
        Self::AvxVnni,
        Self::Avx512Vnni,
        Self::Amx,
    ];

    /// The best kernel that this CPU can run.
    pub fn detect() -> Self {
        let mut all = Self::ALL.into_iter().rev();
        all.find(|k| k.supported()).unwrap_or(Self::Scalar)
    }

    /// Whether this CPU can run the kernel.
    pub fn supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let has = match self {
            Self::Scalar => true,
            Self::Neon | Self::Simd128 => false,
            Self::Avx512Bw => avx512(),
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            Self::AvxVnni => Self::Avx2.supported() && is_x86_feature_detected!("avxvnni"),
            Self::Avx512Vnni => avx512() && is_x86_feature_detected!("avx512vnni"),
            Self::Amx => Self::Avx512Vnni.supported() && super::avx512::amx_permitted(),
        };
        #[cfg(target_arch = "aarch64")]
        let has = match self {
            Self::Scalar => true,
            Self::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            _ => false,
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has = match self {
            Self::Scalar => true,
            Self::Simd128 => cfg!(target_feature = "simd128"),
            _ => false,
        };
        has
    }

    /// The name in `VTA_KERNEL`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Simd128 => "simd128",
            Self::Avx2 => "avx2",
            Self::Avx512Bw => "avx512bw",
            Self::AvxVnni => "avxvnni",
            Self::Avx512Vnni => "avx512vnni",
            Self::Amx => "amx",
        }
    }

    /// This kernel if it can run here on tiles of that block, else the scalar one.
    pub(crate) fn usable(self, block: usize) -> Self {
        if self.supported() && block >= COLUMN {
            self
        } else {
            Self::Scalar
        }
    }

    /// The way for a planned product of so many rows, each of so many inputs: of a few, tiles take longer to set up
    /// than to multiply. Rows may lie side by side in every tap.
    pub(crate) const fn of_product(self, rows: usize, inputs: usize, side_by_side: bool) -> Way {
        let few = rows < LEAST_ROWS_OF_TILES || inputs < LEAST_INPUTS_OF_TILES;
        let kernel = if few && matches!(self, Self::Amx) {
            Self::Avx512Vnni
        } else {
            self
        };
        let format = match kernel {
            Self::Avx512Vnni if side_by_side => Format::BiasedWeights,
            _ => kernel.format(),
        };
        Way { kernel, format }
    }

    /// The way for a planned product whose weight tiles, of [`COLUMN`] inputs, are diagonal.
    pub(crate) fn of_diagonal_product(self) -> Way {
        // Plans that are only listed are the same on every CPU that lacks the kernel.
        #[cfg(target_arch = "x86_64")]
        let permutes = is_x86_feature_detected!("avx512vbmi") || !self.supported();
        #[cfg(not(target_arch = "x86_64"))]
        let permutes = true;
        let format = match self {
            Self::Avx512Vnni | Self::Amx if permutes => Format::Diagonal,
            _ => Format::DiagonalPairs,
        };
        Way {
            kernel: self,
            format,
        }
    }

    /// How a panel's weights lie.
    const fn format(self) -> Format {
        match self {
            Self::Scalar => Format::Plain,
            Self::Avx2 => Format::Wide,
            Self::Simd128 | Self::Avx512Bw => Format::Pairs,
            Self::AvxVnni | Self::Avx512Vnni => Format::Biased,
            Self::Neon | Self::Amx => Format::Fours,
        }
    }

    /// How weights of scratchpads lie, whose products are not planned.
    pub(crate) const fn tile_format(self) -> Format {
        match self {
            Self::Amx => Self::Avx512Vnni.format(),
            Self::Avx512Bw => Self::Avx2.format(),
            Self::Simd128 => Format::Plain,
            Self::Scalar | Self::Neon | Self::Avx2 | Self::AvxVnni | Self::Avx512Vnni => {
                self.format()
            }
        }
    }

    /// The kernel for products, as few as nothing else is multiplied for microseconds: a core stops for two when it has
    /// multiplied vectors of 512 bits and does so no more. Tiles are laid out as for this one.
    pub(crate) fn of_few_products(self) -> Self {
        match self {
            Self::Avx512Vnni | Self::Amx if Self::AvxVnni.supported() => Self::AvxVnni,
            _ => self,
        }
    }

    /// Whether few rows are as soon multiplied by tiles as they lie in the scratchpad as by tiles that are laid out.
    pub(crate) const fn takes_plain_tiles(self) -> bool {
        !matches!(self, Self::Neon)
    }

    /// Whether products that are not planned may be of two columns.
    pub(crate) const fn takes_two_columns(self) -> bool {
        matches!(self, Self::Avx512Vnni | Self::Amx)
    }

    /// Columns of one product whose tiles are any.
    pub(crate) const fn columns(self) -> usize {
        match self {
            Self::Scalar | Self::Neon | Self::Simd128 | Self::Avx2 | Self::AvxVnni => 1,
            Self::Avx512Bw | Self::Avx512Vnni | Self::Amx => MAX_COLUMNS,
        }
    }

    /// Rows that are worked on together, for that many columns.
    const fn rows(self, columns: usize) -> usize {
        match (self, columns) {
            (Self::Scalar, _) => 1,
            (Self::Avx2 | Self::Simd128, _) => 3,
            (Self::Neon, _) => 5,
            (Self::AvxVnni, _) => 6,
            // Sums, weights and one input fit the 32 registers.
            (Self::Avx512Bw | Self::Avx512Vnni, 1) => 12,
            (Self::Avx512Bw | Self::Avx512Vnni, 2) => 10,
            (Self::Avx512Bw | Self::Avx512Vnni, 3) => 8,
            (Self::Avx512Bw | Self::Avx512Vnni, _) => 6,
            // Two tiles.
            (Self::Amx, _) => 32,
        }
    }
}

impl Way {
    /// How many taps of so many inputs may make a bundle, which is multiplied at once; `None` where taps are taken one by
    /// one.
    pub(crate) fn bundle_taps(self, block: usize) -> Option<RangeInclusive<usize>> {
        match (self.kernel, self.format) {
            (GemmKernel::Amx, Format::Fours) => Some(1..=64 / block),
            // A line of weights is that of a bundle.
            (_, Format::Diagonal) => Some(4..=4),
            _ => None,
        }
    }

    /// Whether rows may be in the order of patches, which read the inputs of several rows at once.
    pub(crate) const fn takes_patches(self) -> bool {
        matches!(self.format, Format::Diagonal)
    }

    /// Whether products may read copies of their inputs that have what the kernel adds.
    pub(crate) const fn can_stage_inputs(self) -> bool {
        let stages = matches!(
            (self.kernel, self.format),
            (GemmKernel::Avx512Vnni, Format::Biased)
        );
        stages && cfg!(target_arch = "x86_64")
    }

    /// Whether products may read copies of their inputs that are packed as the kernel takes them.
    pub(crate) const fn can_pack_inputs(self) -> bool {
        matches!(self.kernel, GemmKernel::Amx) && matches!(self.format, Format::Fours)
    }

    /// Whether it makes a difference to the kernel that rows lie side by side.
    pub(crate) const fn knows_side_by_side(self) -> bool {
        matches!(self.format, Format::BiasedWeights) || self.can_pack_inputs()
    }

    /// Columns of one product.
    pub(crate) const fn columns(self) -> usize {
        if self.format.is_diagonal() {
            1
        } else {
            self.kernel.columns()
        }
    }

    /// Rows that are worked on together, for that many columns.
    pub(crate) const fn rows(self, columns: usize) -> usize {
        match (self.kernel, self.format) {
            // What isn't written for a kernel is the scalar one's.
            (
                GemmKernel::Scalar | GemmKernel::Neon | GemmKernel::Simd128,
                Format::DiagonalPairs,
            ) => 1,
            (_, Format::Diagonal) => 8,
            // Sums, weights and inputs fit 16 registers.
            (_, Format::DiagonalPairs) => 5,
            _ => self.kernel.rows(columns),
        }
    }
}

/// Whether this CPU has what all kernels of AVX-512 need.
#[cfg(target_arch = "x86_64")]
fn avx512() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}
