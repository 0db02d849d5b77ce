//! What is packed, and into what.

use vta_isa::Config;

/// A tile's sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// BATCH.
    pub rows: usize,
    /// Values of a row.
    pub block: usize,
}

impl Tile {
    pub fn of(config: &Config) -> Self {
        let (rows, block) = (config.batch(), config.block());
        Self { rows, block }
    }

    /// Bytes.
    pub fn lanes(self) -> usize {
        self.rows * self.block
    }
}

/// An image that is packed.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    /// Its batch row.
    pub row: usize,
    /// NCHW.
    pub values: &'a [i8],
}
