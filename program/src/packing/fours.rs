//! Im2col of four patches at a time, on CPUs that permute bytes (AVX-512 VBMI).

use std::arch::x86_64::*;
use std::array::from_fn;

/// Columns of a block.
const COLUMNS: usize = 16;
/// Bytes that are read of a run: what it has of four patches.
const READ: usize = 16;
/// Runs of a block at most.
const RUNS: usize = 8;

/// How runs of bytes become blocks of columns.
pub(super) struct Fours {
    blocks: Vec<Block>,
    /// Bytes from a patch to the next.
    stride: usize,
}

/// Some columns of four patches.
struct Block {
    /// Where the first patch's part of each run lies, from the block's first run on.
    runs: [usize; RUNS],
    has_many_runs: bool,
    /// Where each byte of the columns is among those that are read of the runs.
    order: [u8; 4 * COLUMNS],
    /// Columns that there are, of all patches.
    columns: u64,
}

impl Fours {
    /// For patches that are a few bytes of each run, `stride` bytes apart; `None` where they don't fit or the CPU can't.
    pub fn of(runs: &[usize], width: usize, stride: usize) -> Option<Self> {
        let fits = width > 1 && stride.checked_mul(3)?.checked_add(width)? <= READ;
        let can = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi");
        if !fits || !can {
            return None;
        }
        let columns = runs.len() * width;
        let block = |first: usize| {
            let run = |column: usize| (first + column) / width;
            let there = COLUMNS.min(columns - first);
            let place = |at: usize| {
                let (patch, column) = (at / COLUMNS, at % COLUMNS);
                let run = (run(column) - run(0)) % RUNS;
                (run * READ + patch * stride + (first + column) % width) as u8
            };
            let of_patch = (1u64 << there) - 1;
            Block {
                runs: from_fn(|n| runs[runs.len().min(run(0) + n + 1) - 1]),
                has_many_runs: run(there - 1) - run(0) >= RUNS / 2,
                order: from_fn(place),
                columns: (0..4).fold(0, |all, patch| all | of_patch << (patch * COLUMNS)),
            }
        };
        let blocks = (0..columns).step_by(COLUMNS).map(block).collect();
        Some(Self { blocks, stride })
    }

    /// Writes a block of as many patches as there is room for, from the first's bytes on. Reads up to 16 bytes behind
    /// the last patch's.
    ///
    /// # Panics
    /// When the image has fewer bytes than are read.
    pub fn write(&self, block: usize, image: &[u8], out: &mut [u8]) {
        let (block, patches) = (&self.blocks[block], out.len() / COLUMNS);
        let last = patches.saturating_sub(1) / 4 * 4 * self.stride;
        let most = block.runs.into_iter().max().unwrap_or(0);
        assert!(most + last + READ <= image.len(), "bytes of the image");
        // SAFETY: the CPU has the instructions, or there would be no such value. Of each run, as many bytes lie in the
        // image from each fourth patch on.
        unsafe { block.write(self.stride, image.as_ptr(), out) }
    }
}

impl Block {
    /// # Safety
    /// The CPU has the features. [`READ`] bytes are readable from each run on, for each fourth of as many patches as `out`
    /// has room for, which are `stride` bytes apart.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn write(&self, stride: usize, image: *const u8, out: &mut [u8]) {
        // SAFETY: the caller's promise; the order has 64 bytes.
        unsafe {
            let order = _mm512_loadu_si512(self.order.as_ptr().cast());
            for (index, out) in out.chunks_mut(4 * COLUMNS).enumerate() {
                let run = |n: usize| {
                    let from = image.add(self.runs[n] + 4 * index * stride);
                    _mm_loadu_si128(from.cast())
                };
                let four = |n: usize| {
                    let runs = _mm512_castsi128_si512(run(n));
                    let runs = _mm512_inserti32x4::<1>(runs, run(n + 1));
                    let runs = _mm512_inserti32x4::<2>(runs, run(n + 2));
                    _mm512_inserti32x4::<3>(runs, run(n + 3))
                };
                let lower = four(0);
                let upper = if self.has_many_runs { four(4) } else { lower };
                let there = u64::MAX >> (64 - out.len());
                let columns = _mm512_maskz_permutex2var_epi8(self.columns, lower, order, upper);
                _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), there, columns);
            }
        }
    }
}
