//! Tiles: their configuration and the instructions on them, in assembly, since the compiler's own aren't stable.
//!
//! Compilers know nothing of the tiles but that they may be overwritten, so whatever is in them stays within one piece
//! of assembly; only the configuration, which no code of a compiler touches, is there from one to the next.

use std::arch::asm;

use crate::kernels::Line;

/// Rows of two tiles.
pub(super) const ROWS: usize = 32;

/// Sizes of the eight tiles: sums in 0 to 3 (two rows of tiles by two columns), inputs in 4 and 5, weights in 6 and 7.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// For so many rows of inputs, at most [`ROWS`], of so many bytes, a multiple of 4 and at most 64. More than 16 rows
    /// are two tiles that are about even.
    pub fn new(rows: usize, bytes: usize) -> Self {
        let first = if rows > 16 { rows.div_ceil(2) } else { rows };
        let [first, second] = [first, rows - first].map(|n| n as u8);
        let mut config = Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        let mut tile = |tile: usize, rows: u8, bytes: u16| {
            // A tile has rows and bytes, or neither.
            if rows > 0 && bytes > 0 {
                (config.rows[tile], config.row_bytes[tile]) = (rows, bytes);
            }
        };
        for (row, rows) in [first, second].into_iter().enumerate() {
            tile(2 * row, rows, 64);
            tile(2 * row + 1, rows, 64);
            tile(4 + row, rows, bytes as u16);
        }
        tile(6, bytes as u8 / 4, 64);
        tile(7, bytes as u8 / 4, 64);
        config
    }

    /// Rows of the first of two tiles, or of the only one.
    pub fn first_rows(&self) -> usize {
        self.rows[0].into()
    }

    /// Configures this thread's tiles; all are zero.
    ///
    /// # Safety
    /// The CPU has AMX, and the process may use it. No tile has more than 16 rows or 64 bytes in one.
    pub unsafe fn load(&self) {
        // SAFETY: 64 bytes are read; a legal configuration doesn't fault.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) self,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(readonly, nostack, preserves_flags),
            );
        }
    }
}

/// Gives this thread's tiles back, so that the system needn't keep them when it switches threads.
pub(super) fn release() {
    // SAFETY: kernels are only chosen where the CPU has the instruction.
    unsafe {
        asm!(
            "tilerelease",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// What a multiplication is of.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Rows of 64 bytes, [`ROWS`] for each bundle.
    pub inputs: *const u8,
    /// For each bundle, for every four bytes of a row, a line of each column.
    pub weights: *const u8,
    /// int32, `columns` lines a row.
    pub sums: *mut u8,
    /// At least one.
    pub bundles: usize,
    pub columns: usize,
    /// 1 if the sums are stored, 0 if they are added to.
    pub is_first: u64,
}

/// Which instructions are there for how many tiles of rows and columns.
macro_rules! when {
    ((second row) $($text:expr)*) => { concat!($(".if {tile_rows} == 2\n", $text, "\n.endif\n"),*) };
    ((second column) $($text:expr)*) => { concat!($(".if {tile_columns} == 2\n", $text, "\n.endif\n"),*) };
    ((both) $($text:expr)*) => {
        concat!($(".if {tile_rows} * {tile_columns} == 4\n", $text, "\n.endif\n"),*)
    };
}

/// Brings lines of the weights closer that are wanted two bundles later: tiles wait for each line that isn't in the
/// first cache. A bundle has that many lines at most; what lies behind the end does no harm.
macro_rules! prefetch {
    ($($at:literal)*) => {
        concat!($("prefetcht0 [{weights} + {bundle_bytes} * 2 + ", $at, "]\n"),*)
    };
}

/// Multiplies rows by up to two columns of weights: the sums of one or two tiles of rows.
///
/// # Safety
/// The CPU has AMX, and its tiles are configured by `config`. The inputs have as many rows as that says for each bundle,
/// weights and sums are there for as many columns.
pub(super) unsafe fn multiply<const ROW_TILES: usize, const COLUMN_TILES: usize>(
    block: Block,
    config: &Config,
) {
    let Block {
        inputs,
        weights,
        sums,
        bundles,
        columns,
        is_first,
    } = block;
    let (first_rows, line_bytes) = (config.first_rows(), 64 * columns);
    let weight_bytes = 64 * COLUMN_TILES;
    let bundle_bytes = usize::from(config.rows[6]) * weight_bytes;
    // SAFETY: the caller's promise. Tiles are read and written row by row, as far as the configuration says.
    unsafe {
        asm!(
            "test {first:r}, {first:r}",
            "jz 3f",
            "tilezero tmm0",
            when!((second column) "tilezero tmm1"),
            when!((second row) "tilezero tmm2"),
            when!((both) "tilezero tmm3"),
            "jmp 2f",
            "3:",
            "tileloadd tmm0, [{sums} + {line} * 1]",
            when!((second column) "tileloadd tmm1, [{sums} + {line} * 1 + 64]"),
            when!((second row) "tileloadd tmm2, [{below} + {line} * 1]"),
            when!((both) "tileloadd tmm3, [{below} + {line} * 1 + 64]"),
            "2:",
            "tileloadd tmm4, [{inputs} + {row} * 1]",
            "tileloadd tmm6, [{weights} + {fours} * 1]",
            "tdpbssd tmm0, tmm4, tmm6",
            prefetch!(0 64 128 192 256 320 384 448),
            when!((second column)
                "tileloadd tmm7, [{weights} + {fours} * 1 + 64]"
                "tdpbssd tmm1, tmm4, tmm7"),
            prefetch!(512 576 640 704 768 832 896 960),
            when!((second row)
                "tileloadd tmm5, [{second} + {row} * 1]"
                "tdpbssd tmm2, tmm5, tmm6"),
            when!((second column) prefetch!(1024 1088 1152 1216 1280 1344 1408 1472)),
            when!((both) "tdpbssd tmm3, tmm5, tmm7"),
            when!((second column) prefetch!(1536 1600 1664 1728 1792 1856 1920 1984)),
            "add {inputs}, {bundle_rows}",
            "add {second}, {bundle_rows}",
            "add {weights}, {bundle_bytes}",
            "dec {bundles}",
            "jnz 2b",
            "tilestored [{sums} + {line} * 1], tmm0",
            when!((second column) "tilestored [{sums} + {line} * 1 + 64], tmm1"),
            when!((second row) "tilestored [{below} + {line} * 1], tmm2"),
            when!((both) "tilestored [{below} + {line} * 1 + 64], tmm3"),
            tile_rows = const ROW_TILES,
            tile_columns = const COLUMN_TILES,
            bundle_rows = const ROWS * 64,
            row = in(reg) 64usize,
            line = in(reg) line_bytes,
            fours = in(reg) weight_bytes,
            first = in(reg) is_first,
            bundle_bytes = in(reg) bundle_bytes,
            sums = in(reg) sums,
            below = in(reg) sums.wrapping_add(first_rows * line_bytes),
            inputs = inout(reg) inputs => _,
            second = inout(reg) inputs.wrapping_add(first_rows * 64) => _,
            weights = inout(reg) weights => _,
            bundles = inout(reg) bundles => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Runs `rounds` of independent `tdpbssd` on full tiles, without loads; how many multiply-adds that were.
pub(in crate::kernels) fn peak(rounds: u64) -> u64 {
    let config = Config::new(ROWS, 64);
    // SAFETY: the kernel that this measures was chosen where `GemmKernel::supported` is true; the tiles are configured.
    unsafe {
        config.load();
        asm!(
            "2:",
            "tdpbssd tmm0, tmm4, tmm6",
            "tdpbssd tmm1, tmm4, tmm7",
            "tdpbssd tmm2, tmm5, tmm6",
            "tdpbssd tmm3, tmm5, tmm7",
            "dec {}",
            "jnz 2b",
            inout(reg) rounds.max(1) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nomem, nostack),
        );
    }
    release();
    rounds.max(1) * 4 * MACS
}

/// Multiply-adds of full tiles.
const MACS: u64 = 16 * 16 * 64;

/// The same as the kernel multiplies: two tiles of rows by two columns, with the loads of both from the first cache.
pub(in crate::kernels) fn peak_with_loads(rounds: u64) -> u64 {
    /// Bundles whose inputs and weights are 16 KiB each.
    const BUNDLES: usize = 8;
    let mut inputs = Box::new([[Line([1; 64]); ROWS]; BUNDLES]);
    let mut weights = Box::new([[Line([1; 64]); 2 * 16]; BUNDLES]);
    let mut sums = Box::new([[Line([0; 64]); 2]; ROWS]);
    let config = Config::new(ROWS, 64);
    let block = Block {
        inputs: inputs.as_mut_ptr().cast(),
        weights: weights.as_mut_ptr().cast(),
        sums: sums.as_mut_ptr().cast(),
        bundles: BUNDLES,
        columns: 2,
        is_first: 1,
    };
    let rounds = rounds.div_ceil(BUNDLES as u64);
    // SAFETY: as for `peak`; inputs, weights and sums are there for two tiles of rows and two columns.
    unsafe {
        config.load();
        for _ in 0..rounds {
            multiply::<2, 2>(block, &config);
        }
    }
    release();
    rounds * BUNDLES as u64 * 4 * MACS
}

const _: () = assert!(size_of::<Config>() == 64);
