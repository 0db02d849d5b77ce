//! The AMX kernel.
//!
//! `tdpbssd` multiplies a tile of up to 16 rows of 64 signed bytes by one of 64 bytes for each of 16 outputs and adds
//! the products to 16 by 16 int32, modulo 2^32: exact for every input. The rows of a product lie anywhere, so those
//! of up to 32 are packed first, bundle by bundle of taps, into a buffer that stays in the first cache; tiles are
//! read from there, weights from the panel as it lies. Sums go through a buffer to what the AVX-512 kernel does with them.

use std::mem::MaybeUninit;
use std::ptr::addr_of_mut;

use std::arch::x86_64::*;

use super::ends::end_rows;
use crate::kernels::pointers::Pointers;
use crate::kernels::product::bundles::Joined;
use crate::kernels::product::panel::PAIR;
use crate::kernels::source::Source;
use crate::kernels::{Inputs, Line, MAX_COLUMNS, Memory, PADDING, Product, Stretch};

mod permission;
mod tiles;

pub(in crate::kernels) use permission::permitted;
use tiles::{Block, Config, ROWS, multiply};
pub(in crate::kernels) use tiles::{peak, peak_with_loads};

/// Bundles that are packed before they are multiplied. They stay in the first cache, also where another thread of the
/// core has half of it, and while tiles multiply few of them, the next are packed.
const CHUNK: usize = 4;

/// Rows of bundles, and sums.
#[repr(C, align(64))]
struct Buffers {
    packed: [[Line; ROWS]; CHUNK],
    sums: [[Line; MAX_COLUMNS]; ROWS],
}

/// Where the buffers are.
#[derive(Clone, Copy)]
struct Room {
    packed: *mut u8,
    sums: *mut Line,
}

/// Runs a product whose offsets were checked, on a CPU that has the instructions.
pub(in crate::kernels) fn run(product: &Product<'_>, memory: &mut Memory<'_>) {
    let pointers = Pointers::new(memory);
    let mut buffers = MaybeUninit::<Buffers>::uninit();
    let buffers = buffers.as_mut_ptr();
    // SAFETY: no byte is read, and the buffers live as long as this function runs.
    let room = unsafe {
        Room {
            packed: addr_of_mut!((*buffers).packed).cast(),
            sums: addr_of_mut!((*buffers).sums).cast(),
        }
    };
    let mut before = 0;
    for &stretch in &product.inputs.stretches {
        // Where the rows of each bundle of the stretch are, if they are packed.
        let bytes = before * product.inputs.bundle_count() * ROWS * 64;
        let packed = product.inputs.are_packed();
        let packed = packed.then(|| pointers.inp.wrapping_add(bytes));
        before += stretch.blocks;
        // SAFETY: `GemmKernel::run` has checked every offset of the product against its memory
        // and the panel's length; kernels are only chosen where `GemmKernel::supported` is true.
        unsafe {
            match product.panel.columns() {
                1 => run_stretch::<1>(product, stretch, &pointers, (room, packed)),
                2 => run_stretch::<2>(product, stretch, &pointers, (room, packed)),
                3 => run_stretch::<3>(product, stretch, &pointers, (room, packed)),
                4 => run_stretch::<4>(product, stretch, &pointers, (room, packed)),
                columns => unreachable!("{columns} columns"),
            }
        }
    }
}

/// Blocks of equally many rows of M columns.
///
/// # Safety
/// The CPU has the features. The stretch is of the product's rows, at most [`ROWS`] in each block; the panel has
/// M columns, and the product's offsets lie inside the memory that the pointers name. The room is that of [`Buffers`];
/// packed rows are those of the stretch, if there are any.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run_stretch<const M: usize>(
    product: &Product<'_>,
    stretch: Stretch,
    pointers: &Pointers,
    (room, packed): (Room, Option<*const u8>),
) {
    let (bundles, bytes) = (product.inputs.bundle_count(), product.inputs.bundle_bytes());
    if stretch.blocks == 0 {
        return;
    }
    let config = Config::new(stretch.rows, bytes);
    if bundles > 0 {
        // SAFETY: at most 32 rows of at most 64 bytes, a multiple of 16: two tiles of sums, inputs and weights.
        unsafe { config.load() };
    }
    // What is packed already needn't stay in the first cache.
    let chunks = if packed.is_some() {
        bundles.min(1)
    } else {
        bundles.div_ceil(CHUNK)
    };
    let (panel, fours) = (product.panel.lines().as_ptr(), bytes / 4);
    for index in 0..stretch.blocks {
        let first = stretch.first + index * stretch.rows;
        for chunk in 0..chunks {
            // About even: 18 bundles are nine and nine.
            let [from, to] = [chunk, chunk + 1].map(|c| bundles * c / chunks);
            let pack = Pack {
                first_row: first,
                rows: stretch.rows,
                bundles: [from, to],
            };
            let inputs = if let Some(packed) = packed {
                packed.wrapping_add(index * bundles * ROWS * 64)
            } else {
                let from = [pointers.inp, pointers.zeros];
                // SAFETY: the caller's promise; at most CHUNK bundles of the product's, of at most ROWS rows.
                unsafe { pack.run(product.inputs, from, room.packed) };
                room.packed.cast_const()
            };
            for column in (0..M).step_by(PAIR) {
                let width = PAIR.min(M - column);
                let lines = (bundles * column + from * width) * fours;
                let block = Block {
                    inputs,
                    // SAFETY: a column has a line for every four bytes of each bundle, and a pair of columns all of them
                    // before the next pair.
                    weights: unsafe { panel.add(lines) }.cast(),
                    // SAFETY: there is room for ROWS rows of M lines.
                    sums: unsafe { room.sums.add(column) }.cast(),
                    bundles: to - from,
                    columns: M,
                    is_first: u64::from(chunk == 0),
                };
                // SAFETY: the tiles are those of the configuration: the rows that were packed, the weights of as many
                // bundles, the column's sums and, if the panel has one more column, those of the next.
                unsafe {
                    match (width > 1, stretch.rows > config.first_rows()) {
                        (true, true) => multiply::<2, 2>(block, &config),
                        (true, false) => multiply::<1, 2>(block, &config),
                        (false, true) => multiply::<2, 1>(block, &config),
                        (false, false) => multiply::<1, 1>(block, &config),
                    }
                }
            }
        }
        let rows = &product.rows.rows[first..first + stretch.rows];
        let sums = (bundles > 0).then_some(room.sums.cast_const());
        // SAFETY: the caller's promise; sums of as many rows were stored, if there are any.
        unsafe { end_rows::<M>(product, rows, pointers, sums) };
    }
    if bundles > 0 {
        tiles::release();
    }
}

/// Packs all rows of inputs that lie inside some bytes.
///
/// # Panics
/// When there is no room for them, or a block has more rows than two tiles: a fault of the caller.
pub(in crate::kernels) fn pack(inputs: &Inputs, from: Source<'_>, to: &mut [u8]) {
    let (zeros, bundles) = ([0; 64], inputs.bundle_count());
    let ranges = inputs.stretches.iter().flat_map(|s| s.ranges());
    for (rows, to) in ranges.zip(to.chunks_exact_mut(bundles * ROWS * 64)) {
        assert!(rows.len() <= ROWS);
        let pack = Pack {
            first_row: rows.start,
            rows: rows.len(),
            bundles: [0, bundles],
        };
        // SAFETY: `stage` has seen to it that all inputs lie inside; there is room for all bundles; kernels are only
        // chosen where `GemmKernel::supported` is true.
        unsafe { pack.run(inputs, [from.as_ptr(), zeros.as_ptr()], to.as_mut_ptr()) };
    }
}

/// Some bundles of a block's rows.
#[derive(Clone, Copy)]
struct Pack {
    /// The block's first row, and how many it has.
    first_row: usize,
    rows: usize,
    bundles: [usize; 2],
}

impl Pack {
    /// Packs rows: 64 bytes for each, [`ROWS`] of them for each bundle. They are read from the inputs and from zeros.
    ///
    /// # Safety
    /// As for [`run_stretch`], of whose blocks this is one; there is room for that many bundles.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run(self, inputs: &Inputs, from: [*const u8; 2], to: *mut u8) {
        // SAFETY: the caller's promise. Blocks of 64 are always joined, since a bundle is one tap.
        unsafe {
            match (inputs.joined(), inputs.starts(), inputs.tap_bytes()) {
                (Some(joined), ..) => self.joined(joined, inputs, from[0], to),
                (None, Some(starts), 16) => match inputs.bundle_bytes() {
                    64 => self.side_by_side::<4>(starts, from[0], to),
                    48 => self.side_by_side::<3>(starts, from[0], to),
                    _ => self.side_by_side::<2>(starts, from[0], to),
                },
                (None, _, 32) => self.gathered::<2>(inputs, from, to),
                (None, ..) => self.gathered::<1>(inputs, from, to),
            }
        }
    }

    /// Rows that are one stretch of bytes.
    ///
    /// # Safety
    /// As for [`Self::run`]; `joined` are those of the product.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn joined(self, joined: &[Joined], inputs: &Inputs, inp: *const u8, to: *mut u8) {
        let [from, end] = self.bundles;
        let first = self.first_row * inputs.bundle_count() + from * self.rows;
        let rows = &joined[first..first + (end - from) * self.rows];
        for (bundle, rows) in rows.chunks_exact(self.rows).enumerate() {
            let to = to.wrapping_add(bundle * ROWS * 64);
            for (n, row) in rows.iter().enumerate() {
                // SAFETY: what the mask names is inside the inputs, and nothing else is read.
                unsafe {
                    let from = inp.wrapping_offset(row.start()).cast();
                    let line = _mm512_maskz_loadu_epi32(row.mask(), from);
                    _mm512_store_si512(to.add(64 * n).cast(), line);
                }
            }
        }
    }

    /// Rows of up to four taps of 16 bytes, each of which lies behind the row before's: four rows at a time.
    ///
    /// # Safety
    /// As for [`Self::run`]; `starts` are those of the product, whose bundles have so many taps.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn side_by_side<const TAPS: usize>(self, starts: &[u32], inp: *const u8, to: *mut u8) {
        let [from, end] = self.bundles;
        let (taps, _) = starts.as_chunks::<TAPS>();
        for (bundle, taps) in taps[from..end].iter().enumerate() {
            let to = to.wrapping_add(bundle * ROWS * 64);
            let taps = taps.map(|start| inp.wrapping_add(start as usize + 16 * self.first_row));
            let fours = self.rows / 4;
            for four in 0..fours {
                // SAFETY: four rows' inputs of a tap are 64 bytes; there is room for all rows.
                unsafe {
                    let at = |tap: &*const u8| _mm512_loadu_si512(tap.add(64 * four).cast());
                    let mut parts = [_mm512_setzero_si512(); 4];
                    for (part, tap) in parts.iter_mut().zip(&taps) {
                        *part = at(tap);
                    }
                    let lines = in_rows(parts);
                    for (line, n) in lines.into_iter().zip(4 * four..) {
                        _mm512_store_si512(to.add(64 * n).cast(), line);
                    }
                }
            }
            for n in 4 * fours..self.rows {
                for (tap, place) in taps.iter().zip(0..) {
                    // SAFETY: a row's input of a tap is 16 bytes; there is room for all rows.
                    unsafe {
                        let bytes = _mm_loadu_si128(tap.add(16 * n).cast());
                        _mm_store_si128(to.add(64 * n + 16 * place).cast(), bytes);
                    }
                }
            }
        }
    }

    /// Rows whose taps of `16 * VECTORS` bytes lie anywhere.
    ///
    /// # Safety
    /// As for [`Self::run`]; blocks have `16 * VECTORS` inputs.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    unsafe fn gathered<const VECTORS: usize>(
        self,
        inputs: &Inputs,
        [inp, zeros]: [*const u8; 2],
        to: *mut u8,
    ) {
        let [from, end] = self.bundles;
        let taps = inputs.taps();
        let of_bundle = taps / inputs.bundle_count();
        let offsets = &inputs.offsets[self.first_row * taps..][..self.rows * taps];
        let offsets = &offsets[from * of_bundle * self.rows..end * of_bundle * self.rows];
        for (tap, offsets) in offsets.chunks_exact(self.rows).enumerate() {
            let (bundle, place) = (tap / of_bundle, tap % of_bundle);
            let to = to.wrapping_add(bundle * ROWS * 64 + place * 16 * VECTORS);
            for (n, &offset) in offsets.iter().enumerate() {
                let from = match offset {
                    PADDING => zeros,
                    offset => inp.wrapping_add(offset as usize),
                };
                for vector in 0..VECTORS {
                    // SAFETY: an input, or the zeros, has a block's bytes; a bundle's taps have at most 64.
                    unsafe {
                        let bytes = _mm_loadu_si128(from.add(16 * vector).cast());
                        _mm_store_si128(to.add(64 * n + 16 * vector).cast(), bytes);
                    }
                }
            }
        }
    }
}

/// Of four vectors of four parts each, vectors of the first parts, of the second ones and so on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn in_rows([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let lower = [
        _mm512_shuffle_i32x4::<0x44>(a, b),
        _mm512_shuffle_i32x4::<0x44>(c, d),
    ];
    let upper = [
        _mm512_shuffle_i32x4::<0xee>(a, b),
        _mm512_shuffle_i32x4::<0xee>(c, d),
    ];
    [
        _mm512_shuffle_i32x4::<0x88>(lower[0], lower[1]),
        _mm512_shuffle_i32x4::<0xdd>(lower[0], lower[1]),
        _mm512_shuffle_i32x4::<0x88>(upper[0], upper[1]),
        _mm512_shuffle_i32x4::<0xdd>(upper[0], upper[1]),
    ]
}
