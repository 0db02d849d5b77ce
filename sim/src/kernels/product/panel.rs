//! Weights as the kernels want them.

use super::super::{COLUMN, Format};
use super::sheets::{Line, Sheets, Strip};

/// Columns of `Fours` that lie side by side.
pub(in crate::kernels) const PAIR: usize = 2;

/// The weights of some columns for some taps, in the order in which a kernel reads them.
///
/// For each tap, each group of inputs and each column, four inputs of 16 outputs: one line (`Biased`, `BiasedWeights`, `Fours`), or two of int16 (`Wide`: of eight outputs, `Pairs`: of two inputs). `Plain` has, for
/// each tap, a column's outputs one after the other, BLOCK bytes each. `Fours` has pairs of columns, all taps of one
/// pair before the next. Of diagonal tiles only the diagonals are there, those of several taps in one line.
#[derive(Debug)]
pub(crate) struct Panel {
    lines: Strip,
    corrections: Box<[[i32; COLUMN]]>,
    columns: usize,
    taps: usize,
    block: usize,
    format: Format,
}

/// One column: a weight tile's bytes for every tap, and its first output.
pub(crate) struct Column<'a> {
    pub tiles: Vec<&'a [u8]>,
    pub first: usize,
}

impl Panel {
    /// Lays out columns that have equally many taps, on a sheet that is to be finished before anybody reads them; tiles
    /// are `block * block` bytes. `None` when the host has no memory for it.
    pub fn new(
        columns: &[Column<'_>],
        format: Format,
        block: usize,
        sheets: &mut Sheets,
    ) -> Option<Self> {
        let taps = columns.first().map_or(0, |c| c.tiles.len());
        let count = Self::lines_for(format, columns.len(), taps, block);
        let (strip, lines) = sheets.strip(count)?;
        let together = match format {
            Format::Fours => PAIR,
            _ => columns.len().max(1),
        };
        let all = columns.chunks(together);
        let all = all.flat_map(|some| {
            (0..taps)
                .step_by(line_taps(format))
                .map(move |tap| (some, tap))
        });
        let mut rest = &mut lines[..];
        for (columns, tap) in all {
            let count = Self::lines_for(format, columns.len(), 1, block);
            let to = rest.split_off_mut(..count).unwrap_or_default();
            match format {
                Format::Diagonal | Format::DiagonalPairs => {
                    for (column, line) in columns.iter().zip(to) {
                        *line = diagonals(&column.tiles[tap..], line_taps(format));
                    }
                }
                Format::Plain => plain(columns, tap, block, to),
                Format::Wide => interleave::<8>(columns, tap, block, to),
                Format::Pairs => pairs(columns, tap, block, to),
                Format::Biased | Format::BiasedWeights | Format::Fours => {
                    interleave::<16>(columns, tap, block, to);
                }
            }
        }
        if format == Format::BiasedWeights {
            let weights = lines.iter_mut().flat_map(|line| &mut line.0);
            weights.for_each(|w| *w ^= 0x80);
        }
        Some(Self {
            lines: strip,
            corrections: columns
                .iter()
                .map(|column| correction(&column.tiles, column.first, format, block))
                .collect(),
            columns: columns.len(),
            taps,
            block,
            format,
        })
    }

    /// Lines of a panel.
    fn lines_for(format: Format, columns: usize, taps: usize, block: usize) -> usize {
        let line = size_of::<Line>();
        let tap = match format {
            Format::Plain => (block * block.min(COLUMN)).div_ceil(line),
            Format::Diagonal | Format::DiagonalPairs => 1,
            _ => tile_lines(format, block),
        };
        columns * taps.div_ceil(line_taps(format)) * tap
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    /// What every sum of each column starts from: what the bias of the inputs adds, negated;
    /// else zero.
    pub fn corrections(&self) -> &[[i32; COLUMN]] {
        &self.corrections
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// None until its sheet is finished.
    pub fn lines(&self) -> &[Line] {
        self.lines.lines()
    }

    /// Memory of its lines.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Whether a kernel of that format may read `taps` taps of that block.
    pub fn fits(&self, format: Format, taps: usize, block: usize) -> bool {
        (format, taps, block) == (self.format, self.taps, self.block)
            && self.lines().len() == Self::lines_for(format, self.columns, taps, block)
    }
}

/// `-128 * sum of weights` for each output from `first` on where inputs are biased.
fn correction(tiles: &[&[u8]], first: usize, format: Format, block: usize) -> [i32; COLUMN] {
    let mut correction = [0; COLUMN];
    if !matches!(format, Format::Biased | Format::Diagonal) {
        return correction;
    }
    for tile in tiles {
        let rows = tile[first * block..].chunks_exact(block);
        for (to, row) in correction.iter_mut().zip(rows) {
            let sums = row.as_chunks().0.iter().map(sum);
            *to = to.wrapping_sub(sums.sum::<i32>().wrapping_mul(128));
        }
    }
    correction
}

/// The sum of int8, by way of bytes without a sign: CPUs have an instruction for those. Rows of biased blocks have a
/// multiple of so many.
fn sum(row: &[u8; COLUMN]) -> i32 {
    let biased: u32 = row.iter().map(|&w| u32::from(w ^ 0x80)).sum();
    biased as i32 - 128 * row.len() as i32
}

/// Taps whose weights share lines.
const fn line_taps(format: Format) -> usize {
    match format {
        Format::Diagonal => 4,
        Format::DiagonalPairs => 2,
        _ => 1,
    }
}

/// The diagonals of the first of some tiles, of which a line has so many: as bytes, or as int16 if it has two.
fn diagonals(tiles: &[&[u8]], of_line: usize) -> Line {
    let mut line = Line([0; 64]);
    let size = 4 / of_line;
    for (at, tile) in tiles.iter().take(of_line).enumerate() {
        let weights = tile.iter().step_by(COLUMN + 1);
        for (to, &w) in line.0.as_chunks_mut::<4>().0.iter_mut().zip(weights) {
            let bytes = i16::from(w as i8).to_le_bytes();
            to[at * size..][..size].copy_from_slice(&bytes[..size]);
        }
    }
    line
}

fn plain(columns: &[Column<'_>], tap: usize, block: usize, lines: &mut [Line]) {
    let len = block.min(COLUMN) * block;
    let columns = columns.iter().flat_map(|column| {
        column.tiles[tap][column.first * block..][..len].chunks(size_of::<Line>())
    });
    for (bytes, line) in columns.zip(lines) {
        line.0[..bytes.len()].copy_from_slice(bytes);
    }
}

/// For each group of four inputs and each column, lines of `OUTPUTS` outputs: 16 of bytes or 8 of
/// int16.
fn interleave<const OUTPUTS: usize>(
    columns: &[Column<'_>],
    tap: usize,
    block: usize,
    lines: &mut [Line],
) {
    let parts = COLUMN / OUTPUTS;
    for (at, Column { tiles, first }) in columns.iter().enumerate() {
        let tile = tiles[tap];
        if OUTPUTS == COLUMN && block == COLUMN {
            fours(tile, columns.len(), &mut lines[at..]);
            continue;
        }
        for (fours, lines) in lines.chunks_exact_mut(columns.len() * parts).enumerate() {
            for (part, line) in lines[at * parts..][..parts].iter_mut().enumerate() {
                let from = [first + part * OUTPUTS, fours * 4];
                *line = self::line::<OUTPUTS>(tile, from, block);
            }
        }
    }
}

/// The lines of a tile of the usual size, each so far behind the one before.
fn fours(tile: &[u8], step: usize, lines: &mut [Line]) {
    let rows = tile.as_chunks::<4>().0.as_chunks::<4>().0;
    for (at, row) in rows.iter().enumerate() {
        for (k, four) in row.iter().enumerate() {
            lines[k * step].0[at * 4..][..4].copy_from_slice(four);
        }
    }
}

/// For each group of two inputs and each column, a line of int16 for 16 outputs.
fn pairs(columns: &[Column<'_>], tap: usize, block: usize, lines: &mut [Line]) {
    for (twos, lines) in lines.chunks_exact_mut(columns.len()).enumerate() {
        for (column, line) in columns.iter().zip(lines) {
            *line = pair(column.tiles[tap], [column.first, twos * 2], block);
        }
    }
}

/// The weights of 16 outputs for two inputs, from the first of each on.
fn pair(tile: &[u8], [output, k]: [usize; 2], block: usize) -> Line {
    let mut line = Line([0; 64]);
    let rows = tile[output * block..].chunks_exact(block);
    for (to, row) in line.0.as_chunks_mut::<4>().0.iter_mut().zip(rows) {
        let [low, high] = [row[k], row[k + 1]].map(|w| i16::from(w as i8).to_le_bytes());
        *to = [low[0], low[1], high[0], high[1]];
    }
    line
}

/// The weights of `OUTPUTS` outputs for four inputs, from the first of each on.
fn line<const OUTPUTS: usize>(tile: &[u8], [output, k]: [usize; 2], block: usize) -> Line {
    let rows = &tile[output * block..][..OUTPUTS * block];
    match rows.as_chunks::<COLUMN>() {
        // The usual size, which the compiler may know.
        (rows, []) if block == COLUMN => line_of::<OUTPUTS>(rows.iter().map(|row| &row[k..k + 4])),
        _ => line_of::<OUTPUTS>(rows.chunks_exact(block).map(|row| &row[k..k + 4])),
    }
}

#[inline(always)]
fn line_of<'a, const OUTPUTS: usize>(fours: impl Iterator<Item = &'a [u8]>) -> Line {
    let mut line = Line([0; 64]);
    for (to, from) in line.0.chunks_exact_mut(64 / OUTPUTS).zip(fours) {
        if OUTPUTS == COLUMN {
            to.copy_from_slice(from);
            continue;
        }
        for (to, &w) in to.chunks_exact_mut(2).zip(from) {
            to.copy_from_slice(&i16::from(w as i8).to_le_bytes());
        }
    }
    line
}

/// Lays out the column of one tile that begins with output `first`, for a product of one column;
/// `lines` are [`tile_lines`] lines. What its sums start from.
pub(in crate::kernels) fn lay_out(
    tile: &[u8],
    first: usize,
    format: Format,
    lines: &mut [Line],
) -> [i32; COLUMN] {
    let block = tile.len().isqrt();
    if block == COLUMN && matches!(format, Format::Biased | Format::Fours) {
        fours(tile, 1, lines);
        return correction(&[tile], first, format, block);
    }
    for (at, to) in lines.iter_mut().enumerate() {
        *to = match format {
            // Of these no tiles are laid out.
            Format::Plain | Format::BiasedWeights | Format::Diagonal | Format::DiagonalPairs => {
                return [0; COLUMN];
            }
            Format::Pairs => pair(tile, [first, at * 2], block),
            Format::Wide => line::<8>(tile, [first + at % 2 * 8, at / 2 * 4], block),
            Format::Biased | Format::Fours => line::<16>(tile, [first, at * 4], block),
        };
    }
    correction(&[tile], first, format, block)
}

/// Lines of a column of one tile; none where kernels read the tile itself.
pub(in crate::kernels) const fn tile_lines(format: Format, block: usize) -> usize {
    match format {
        Format::Plain | Format::Diagonal | Format::DiagonalPairs => 0,
        Format::Wide | Format::Pairs => block / 2,
        Format::Biased | Format::BiasedWeights | Format::Fours => block / 4,
    }
}
