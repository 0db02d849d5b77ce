//! Bands of a tensor's rows, which threads pack side by side.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::threads::Threads;

/// Packed bytes that are worth waking a thread for.
const SHARE_BYTES: usize = 1 << 17;
/// Bands of each thread: one that is held up packs fewer.
const BANDS_PER_THREAD: usize = 2;

/// Some rows of positions of a packed tensor.
pub(super) struct Band<'a> {
    pub rows: Range<usize>,
    /// The tiles of these rows in each block of channels or columns.
    pub blocks: Vec<&'a mut [u8]>,
}

impl<'a> Band<'a> {
    /// Cuts a tensor of `rows` rows of `row_bytes` in each block into so many bands, or as many as
    /// it has rows. There is none if the tensor has no byte.
    fn cut(tiles: &'a mut [u8], rows: usize, row_bytes: usize, count: usize) -> Vec<Self> {
        if tiles.is_empty() || rows == 0 || row_bytes == 0 {
            return Vec::new();
        }
        let each = rows.div_ceil(count.max(1));
        let band = |first: usize| Self {
            rows: first..(first + each).min(rows),
            blocks: Vec::new(),
        };
        let mut bands: Vec<Self> = (0..rows).step_by(each).map(band).collect();
        for block in tiles.chunks_mut(rows * row_bytes) {
            for (band, part) in bands.iter_mut().zip(block.chunks_mut(each * row_bytes)) {
                band.blocks.push(part);
            }
        }
        bands
    }
}

/// Threads that pack beside the one that asks for it, where tensors are large and nobody else runs jobs on them.
#[derive(Debug)]
pub struct Packers {
    threads: Arc<Threads>,
    /// Packed bytes that are worth waking a thread for.
    share_bytes: usize,
}

impl Default for Packers {
    /// None but the one that asks.
    fn default() -> Self {
        Self::new(Arc::new(Threads::new(1)))
    }
}

impl Packers {
    /// Some threads, the one that asks among them.
    pub fn new(threads: Arc<Threads>) -> Self {
        Self {
            threads,
            share_bytes: SHARE_BYTES,
        }
    }

    /// So many threads for tensors of any size.
    #[cfg(test)]
    pub fn for_any_size(threads: usize) -> Self {
        Self {
            share_bytes: 1,
            ..Self::new(Arc::new(Threads::new(threads)))
        }
    }

    /// Has `pack` write each band of a tensor once: of `rows` rows of `row_bytes` in each block.
    pub(super) fn each_band(
        &self,
        tiles: &mut [u8],
        [rows, row_bytes]: [usize; 2],
        pack: impl Fn(Band<'_>) + Sync,
    ) {
        // Threads that aren't worth waking aren't started.
        let others = match (tiles.len() / self.share_bytes).saturating_sub(1) {
            0 => 0,
            worth => worth.min(self.threads.free()),
        };
        let count = (others + 1) * BANDS_PER_THREAD;
        let bands = Mutex::new(Band::cut(tiles, rows, row_bytes, count));
        let next = || bands.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let work = || std::iter::from_fn(next).for_each(&pack);
        self.threads.run(vec![&work; others], work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_every_byte_once() {
        for (blocks, rows, row_bytes, count) in [
            (1, 1, 1, 1),
            (3, 7, 5, 3),
            (2, 4, 16, 9),
            (4, 10, 3, 4),
            (1, 5, 0, 2),
        ] {
            let mut tiles = vec![0u8; blocks * rows * row_bytes];
            let bytes = tiles.len();
            let mut seen = 0;
            for band in Band::cut(&mut tiles, rows, row_bytes, count) {
                assert_eq!(band.blocks.len(), blocks);
                for part in band.blocks {
                    assert_eq!(part.len(), band.rows.len() * row_bytes);
                    part.iter_mut().for_each(|byte| *byte += 1);
                }
                seen += band.rows.len();
            }
            assert!(tiles.iter().all(|&byte| byte == 1));
            assert!(bytes == 0 || seen == rows);
        }
    }
}
