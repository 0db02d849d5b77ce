//! Products of scratchpads as they are: accumulator rows take in weight tiles, with nothing before or after and
//! no table made beforehand.

use std::ops::Range;

use super::product::panel;
use super::product::sheets::Line;
use super::{COLUMN, Format, GemmKernel};

/// Weight tiles as a kernel wants them, each laid out when a product first needs it.
#[derive(Debug)]
pub(crate) struct Tiles {
    lines: Vec<Line>,
    /// What sums of each tile's columns start from.
    corrections: Vec<[i32; COLUMN]>,
    /// Whether each tile's lines are those of its bytes.
    laid_out: Vec<bool>,
    format: Format,
    block: usize,
}

impl Tiles {
    /// No tile is laid out yet, and there is no room for one.
    pub fn new(kernel: GemmKernel, block: usize) -> Self {
        Self {
            lines: Vec::new(),
            corrections: Vec::new(),
            laid_out: Vec::new(),
            format: kernel.tile_format(),
            block,
        }
    }

    fn columns(&self) -> usize {
        self.block / COLUMN
    }

    /// The bytes of these tiles have changed.
    pub fn forget(&mut self, tiles: Range<usize>) {
        let end = tiles.end.min(self.laid_out.len());
        if let Some(known) = self.laid_out.get_mut(tiles.start..end) {
            known.fill(false);
        }
    }

    /// Makes room for all tiles of a scratchpad of so many bytes, where the kernel wants tiles laid out.
    pub fn reserve(&mut self, bytes: usize) {
        let lines = panel::tile_lines(self.format, self.block);
        if lines > 0 {
            let tiles = bytes / (self.block * self.block);
            let all = tiles * self.columns();
            self.laid_out = filled(false, tiles);
            self.lines = filled(Line([0; 64]), all * lines);
            self.corrections = filled([0; COLUMN], all);
        }
    }

    /// Lays a tile of `bytes`, a whole scratchpad for which there is room, out if it isn't: `lay_out` writes the lines of
    /// the column of a tile that begins with an output, and says what its sums start from.
    pub(super) fn lay_out(
        &mut self,
        tile: usize,
        bytes: &[u8],
        lay_out: impl Fn(&[u8], usize, &mut [Line]) -> [i32; COLUMN],
    ) {
        // No lines are wanted, or they are there.
        if self.laid_out.get(tile) != Some(&false) {
            return;
        }
        let lines = panel::tile_lines(self.format, self.block);
        let (columns, size) = (self.columns(), self.block * self.block);
        let bytes = &bytes[tile * size..][..size];
        for column in 0..columns {
            let at = tile * columns + column;
            let to = &mut self.lines[at * lines..][..lines];
            self.corrections[at] = lay_out(bytes, column * COLUMN, to);
        }
        self.laid_out[tile] = true;
    }
}

/// A list that is in memory: the system gives a page when it is first written to, which takes longer than many
/// instructions do.
pub(crate) fn filled<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut list = vec![value; len];
    // Zeros aren't written otherwise.
    std::hint::black_box(&mut list[..]).fill(value);
    list
}

/// A row of accumulators, and of the inputs that it takes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DotRow {
    /// First int32.
    pub acc: u32,
    /// First byte.
    pub inp: u32,
    /// Tiles from those of the taps to its own; only where tiles are taken as they are.
    pub wgt: u32,
}

/// Rows with the largest of each offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct DotRows {
    list: Vec<DotRow>,
    most: DotRow,
}

impl DotRows {
    pub fn clear(&mut self) {
        self.list.clear();
        self.most = DotRow::default();
    }

    pub fn push(&mut self, row: DotRow) {
        self.most.acc = self.most.acc.max(row.acc);
        self.most.inp = self.most.inp.max(row.inp);
        self.most.wgt = self.most.wgt.max(row.wgt);
        self.list.push(row);
    }

    pub fn list(&self) -> &[DotRow] {
        &self.list
    }
}

/// A weight tile that all rows take in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tap {
    /// Bytes from a row's input to this tap's.
    pub inp: u32,
    /// The tile.
    pub wgt: u32,
}

/// Other accumulators that take in the same inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Second<'a> {
    /// int32 from a row's accumulators to these; no row has them.
    pub acc: u32,
    /// The tile of each tap.
    pub wgt: &'a [u32],
}

/// For each row and tap, the product of the tap's tile and the input there is added to the accumulators. No two
/// rows have the same, unless tiles are taken as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dots<'a> {
    pub rows: &'a DotRows,
    pub taps: &'a [Tap],
    /// Only for kernels that take two columns.
    pub second: Option<Second<'a>>,
    pub block: usize,
    /// The weight scratchpad.
    pub wgt: &'a [u8],
    /// The same, where the kernel wants it laid out: all tiles of the taps are.
    pub tiles: &'a Tiles,
}

impl Dots<'_> {
    /// Checks every offset, so that kernels needn't.
    pub(super) fn check(&self, inp: &[u8], acc: &[i32]) {
        let (block, most) = (self.block, self.rows.most);
        let taps = self.taps.iter().fold(Tap::default(), |most, tap| Tap {
            inp: most.inp.max(tap.inp),
            wgt: most.wgt.max(tap.wgt),
        });
        let second = self.second.map_or(0, |second| second.acc as usize);
        assert!(most.acc as usize + second + block <= acc.len());
        assert!(most.inp as usize + taps.inp as usize + block <= inp.len());
        assert!((taps.wgt as usize + most.wgt as usize + 1) * block * block <= self.wgt.len());
        assert!(
            self.second
                .is_none_or(|second| second.wgt.len() == self.taps.len())
        );
    }

    /// Checks that all tiles are laid out for a kernel.
    pub(super) fn check_tiles(&self, kernel: GemmKernel) {
        let (format, block, tiles) = (kernel.tile_format(), self.block, self.tiles);
        if format == Format::Plain {
            return;
        }
        assert!(block.is_multiple_of(COLUMN) && (tiles.format, tiles.block) == (format, block));
        let lines = panel::tile_lines(format, block) * tiles.columns();
        assert!(tiles.lines.len() == lines * tiles.laid_out.len());
        assert!(tiles.corrections.len() == tiles.columns() * tiles.laid_out.len());
        let laid_out = |tile: u32| tiles.laid_out[tile as usize];
        assert!(self.taps.iter().all(|tap| laid_out(tap.wgt)));
        let mut second = self.second.iter().flat_map(|second| second.wgt);
        assert!(second.all(|&tile| laid_out(tile)));
        assert!(self.second.is_none() || kernel.takes_two_columns());
        assert!(self.rows.most.wgt == 0);
    }

    /// Gives each column's rows to a kernel, at most `most` together.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn each_column(
        &self,
        inp: &[u8],
        acc: &mut [i32],
        most: usize,
        add: impl Fn(&DotColumn<'_>, &[DotRow]),
    ) {
        let lines = panel::tile_lines(self.tiles.format, self.block);
        for column in 0..self.block / COLUMN {
            let here = DotColumn {
                dots: self,
                #[cfg(target_arch = "x86_64")]
                first: self.first(column),
                lines: self.tiles.lines[column * lines..].as_ptr(),
                tile_lines: lines * self.tiles.columns(),
                inp: inp.as_ptr(),
                acc: acc[column * COLUMN..].as_mut_ptr(),
            };
            let mut rest = self.rows.list();
            while !rest.is_empty() {
                // About even: 13 rows are seven and six, not twelve and one.
                let (now, later) = rest.split_at(rest.len().div_ceil(rest.len().div_ceil(most)));
                add(&here, now);
                rest = later;
            }
        }
    }

    /// Gives each row to a kernel of tiles of 16 by 16 as they are: its sums, its inputs, and the tiles.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn each_row(
        &self,
        inp: &[u8],
        acc: &mut [i32],
        add: impl Fn(&mut [i32; COLUMN], *const u8, *const u8),
    ) {
        for row in self.rows.list() {
            let sums = acc[row.acc as usize..].first_chunk_mut();
            let (inputs, tiles) = (
                &inp[row.inp as usize..],
                &self.wgt[256 * row.wgt as usize..],
            );
            sums.into_iter()
                .for_each(|sums| add(sums, inputs.as_ptr(), tiles.as_ptr()));
        }
    }

    /// What the sums of a column start from beside the accumulators, and those of the second tiles.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn first(&self, column: usize) -> [[i32; COLUMN]; 2] {
        let columns = self.tiles.columns();
        let mut first = [[0i32; COLUMN]; 2];
        if self.tiles.format != Format::Biased {
            return first;
        }
        let add = |sums: &mut [i32; COLUMN], tile: u32| {
            let correction = &self.tiles.corrections[tile as usize * columns + column];
            for (sum, more) in sums.iter_mut().zip(correction) {
                *sum = sum.wrapping_add(*more);
            }
        };
        self.taps.iter().for_each(|tap| add(&mut first[0], tap.wgt));
        let second = self.second.iter().flat_map(|second| second.wgt);
        second.for_each(|tile| add(&mut first[1], *tile));
        first
    }
}

/// A column of all tiles, as kernels with vectors reach it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) struct DotColumn<'a> {
    pub dots: &'a Dots<'a>,
    /// What the sums start from beside the accumulators, and those of the second tiles.
    #[cfg(target_arch = "x86_64")]
    pub first: [[i32; COLUMN]; 2],
    /// The column's lines of the first tile.
    lines: *const Line,
    /// Lines from tile to tile.
    tile_lines: usize,
    inp: *const u8,
    /// The column's accumulators, which rows count from.
    pub acc: *mut i32,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl DotColumn<'_> {
    /// Where the inputs of each row lie for a tap.
    #[inline(always)]
    pub fn inputs<const N: usize>(&self, tap: &Tap, rows: &[DotRow; N]) -> [*const u8; N] {
        rows.map(|row| self.inp.wrapping_add((row.inp + tap.inp) as usize))
    }

    /// The column's lines of a tile.
    #[inline(always)]
    pub fn panel(&self, tile: u32) -> *const Line {
        self.lines.wrapping_add(tile as usize * self.tile_lines)
    }
}

/// Adds the products of a tile, whose rows are as long as the input.
pub(crate) fn add_tile(sums: &mut [i32], input: &[u8], tile: &[u8]) {
    for (sum, weights) in sums.iter_mut().zip(tile.chunks_exact(input.len())) {
        let dot = input.iter().zip(weights);
        let dot = dot.map(|(&x, &w)| i32::from(x as i8) * i32::from(w as i8));
        *sum = dot.fold(*sum, i32::wrapping_add);
    }
}

/// Adds the products in plain loops.
pub(super) fn scalar(dots: &Dots<'_>, inp: &[u8], acc: &mut [i32]) {
    let block = dots.block;
    for row in dots.rows.list() {
        let sums = &mut acc[row.acc as usize..][..block];
        for tap in dots.taps {
            let input = &inp[(row.inp + tap.inp) as usize..][..block];
            let tile = (row.wgt + tap.wgt) as usize;
            let tile = &dots.wgt[tile * block * block..][..block * block];
            add_tile(sums, input, tile);
        }
    }
}
