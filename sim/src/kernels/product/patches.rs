//! Patches: rows of a product that are windows over an image, and share most of its bytes.
//!
//! A line is four inputs that lie side by side, of which a kernel of diagonal weights multiplies one bundle of a
//! window's taps. It lies in the windows of outputs above each other, each with the weights of another row of taps, and
//! in those of two outputs side by side, with weights that are moved by a tap. A patch of eight outputs reads six lines
//! for three rows of taps, where eight windows alone would read 24.

use rustc_hash::FxHashMap;

use super::super::COLUMN;
use super::bundles::{Joined, PADDING};
use super::stretches::{Patch, Stretch};

/// Inputs of a line, and taps of a bundle.
const LINE: usize = 4;
/// Outputs above each other in a patch at most.
const MOST_ABOVE: usize = 4;
/// Outputs that are worked on together at most.
pub(in crate::kernels) const TOGETHER: usize = 8;
/// Rows of taps, and rows of the image from an output to the one below it, that kernels are written for.
const ROWS: [usize; 2] = [3, 5];
/// Bundles of a window at most.
pub(in crate::kernels) const MOST_BUNDLES: usize = 10;
const STEPS: [usize; 2] = [1, 2];

/// The windows of all outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Rows of taps.
    pub rows: usize,
    /// Bundles of a row.
    pub bundles: usize,
    /// Taps of a row, which lie side by side; the weights of the others in its bundles are zero.
    pub taps: usize,
}

/// The rows of a product in the order of their patches.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(in crate::kernels) window: Window,
    /// Rows of the image from an output's window to that of the one below it.
    pub(in crate::kernels) step: usize,
    /// The row, as they were counted, that comes at each place.
    pub order: Box<[u32]>,
    pub(in crate::kernels) stretches: Box<[Stretch]>,
}

/// Where the lines of all patches lie.
#[derive(Debug)]
pub(in crate::kernels) struct Patches {
    pub window: Window,
    pub step: usize,
    /// `[patch][bundle][row of the image][column]`.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "no kernel takes patches")
    )]
    pub lines: Box<[Joined]>,
}

impl Window {
    /// Taps, those of zeros among them.
    fn all_taps(self) -> usize {
        self.rows * self.bundles * LINE
    }

    /// A tap of the bundles' order: its row, and its place in that.
    fn place(self, tap: usize) -> (usize, usize) {
        let of_row = self.bundles * LINE;
        (tap / of_row, tap % of_row)
    }
}

impl Patch {
    /// The same of so many columns.
    fn times(self, columns: usize) -> Self {
        Self { columns, ..self }
    }

    fn outputs(self) -> usize {
        self.columns * self.above * self.side_by_side
    }

    /// Rows of the image that its windows cover.
    pub fn lines(self, window: Window, step: usize) -> usize {
        (self.above - 1) * step + window.rows
    }
}

/// Windows as they lie in an image, by offsets `[tap][row]`.
struct Image<'a> {
    window: Window,
    offsets: &'a [u32],
    /// Where the first tap of each row's window is, or would be; `None` for those of padding alone.
    firsts: Vec<Option<i64>>,
    by_first: FxHashMap<i64, u32>,
    /// Bytes from a row of taps to the next.
    pitch: i64,
}

impl<'a> Image<'a> {
    /// `None` if inputs don't lie as those of an image.
    fn of(window: Window, offsets: &'a [u32], rows: usize) -> Option<Self> {
        // Where the first tap of a row of taps is, or would be.
        let left = |row: usize, of: usize| {
            let taps = window.bundles * LINE;
            let mut taps = (0..taps).map(|tap| offsets[(of * taps + tap) * rows + row]);
            let tap = taps.clone().position(|offset| offset != PADDING)?;
            Some(i64::from(taps.nth(tap)?) - (tap * COLUMN) as i64)
        };
        let pitch = (0..rows).find_map(|row| Some(left(row, 1)? - left(row, 0)?))?;
        let first = |row: usize| {
            let mut lefts = (0..window.rows).map(|of| Some(left(row, of)? - of as i64 * pitch));
            lefts.find_map(|first| first)
        };
        let firsts: Vec<Option<i64>> = (0..rows).map(first).collect();
        for (tap, offsets) in offsets.chunks_exact(rows).enumerate() {
            let (row, tap) = window.place(tap);
            let behind = row as i64 * pitch + (tap * COLUMN) as i64;
            let lies = |(first, offset): (&Option<i64>, &u32)| {
                *offset == PADDING || *first == Some(i64::from(*offset) - behind)
            };
            if !firsts.iter().zip(offsets).all(lies) {
                return None;
            }
        }
        let by_first = (0..).zip(&firsts);
        let by_first = by_first.filter_map(|(row, first)| Some(((*first)?, row)));
        Some(Self {
            window,
            offsets,
            by_first: by_first.collect(),
            firsts,
            pitch,
        })
    }

    /// Whether both windows find padding in the same places, where the second lies so many rows and taps behind.
    fn agree(&self, first: u32, second: u32, [down, right]: [usize; 2]) -> bool {
        let rows = self.firsts.len();
        let inside = |of: usize, tap: usize, row: u32| {
            let tap = of * self.window.bundles * LINE + tap;
            self.offsets[tap * rows + row as usize] != PADDING
        };
        let mut places = (down..self.window.rows)
            .flat_map(|of| (right..self.window.taps).map(move |tap| (of, tap)));
        places.all(|(of, tap)| inside(of, tap, first) == inside(of - down, tap - right, second))
    }

    /// The row whose window lies so many rows of taps and taps behind that of another, and shares its padding.
    fn behind(&self, row: u32, [down, right]: [usize; 2]) -> Option<u32> {
        let bytes = down as i64 * self.pitch + (right * COLUMN) as i64;
        let first = self.firsts[row as usize]? + bytes;
        let found = *self.by_first.get(&first)?;
        (found != row && self.agree(row, found, [down, right])).then_some(found)
    }

    /// Rows of the image from an output to the one below it: the least that some output has.
    fn step(&self) -> usize {
        let rows = 0..self.firsts.len() as u32;
        let is_step = |step: &usize| {
            let mut below = rows.clone().map(|row| self.behind(row, [*step, 0]));
            below.any(|below| below.is_some())
        };
        (1..self.window.rows).find(is_step).unwrap_or(1)
    }

    /// The patch of one column that begins with a row, of rows that aren't taken, and its rows.
    fn patch(&self, row: u32, step: usize, taken: &[bool]) -> (Patch, Vec<u32>) {
        let free = |row: u32, rows: &[u32]| !taken[row as usize] && !rows.contains(&row);
        let mut rows = vec![row];
        if self.window.taps < self.window.bundles * LINE {
            let right = self.behind(row, [0, 1]);
            rows.extend(right.filter(|&right| free(right, &rows)));
        }
        let side_by_side = rows.len();
        let mut above = 1;
        while above < MOST_ABOVE {
            let last = rows[rows.len() - side_by_side..].iter();
            let below = last.map(|&row| self.behind(row, [step, 0]));
            let below = below.map(|below| below.filter(|&below| free(below, &rows)));
            let Some(below) = below.collect::<Option<Vec<u32>>>() else {
                break;
            };
            rows.extend(below);
            above += 1;
        }
        let patch = Patch {
            columns: 1,
            above,
            side_by_side,
        };
        (patch, rows)
    }
}

impl Grid {
    /// From offsets `[tap][row]`, where taps are in the order of the window's bundles; `None` if inputs don't lie as those
    /// of an image.
    pub fn of(window: Window, offsets: &[u32], rows: usize) -> Option<Self> {
        let fits = ROWS.contains(&window.rows) && window.rows * window.bundles <= MOST_BUNDLES;
        if !fits || offsets.len() != window.all_taps() * rows {
            return None;
        }
        let image = Image::of(window, offsets, rows)?;
        let step = image.step();
        if !STEPS.contains(&step) {
            return None;
        }
        let mut order = Vec::with_capacity(rows);
        let mut taken = vec![false; rows];
        let mut patches: Vec<Patch> = Vec::new();
        for row in 0..rows as u32 {
            if taken[row as usize] {
                continue;
            }
            let (patch, all) = image.patch(row, step, &taken);
            all.iter().for_each(|&row| taken[row as usize] = true);
            order.extend(all);
            patches.push(patch);
        }
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut first = 0;
        for same in patches.chunk_by(|a, b| a == b) {
            // The most columns that go together, and what is left of them one by one.
            let most = match same[0].above {
                1 | MOST_ABOVE => TOGETHER / same[0].outputs(),
                _ => 1,
            };
            let together = (same[0].times(most), same.len() / most);
            for (patch, blocks) in [together, (same[0], same.len() % most)] {
                let stretch = Stretch {
                    first,
                    blocks,
                    rows: patch.outputs(),
                    rows_after: 0,
                    patch: Some(patch),
                };
                first += blocks * stretch.rows;
                stretches.extend((blocks > 0).then_some(stretch));
            }
        }
        Some(Self {
            window,
            step,
            order: order.into(),
            stretches: stretches.into(),
        })
    }

    /// What there is of each tap and row of a list `[tap][row]`, with rows in the patches' order.
    pub fn arrange<T: Copy>(&self, list: &[T]) -> Vec<T> {
        let taps = list.chunks_exact(self.order.len());
        taps.flat_map(|tap| self.order.iter().map(|&row| tap[row as usize]))
            .collect()
    }
}

impl Patches {
    /// From offsets `[block][tap][row of the block]`; `None` if windows of a patch don't agree on a line.
    pub fn of(
        (window, step): (Window, usize),
        offsets: &[u32],
        stretches: &[Stretch],
    ) -> Option<Self> {
        let rows: usize = stretches.iter().map(|s| s.blocks * s.rows).sum();
        if offsets.len() != window.all_taps() * rows {
            return None;
        }
        let mut lines = Vec::new();
        for stretch in stretches {
            let patch = stretch.patch?;
            let of_block = window.all_taps() * stretch.rows;
            let offsets =
                &offsets[stretch.first * window.all_taps()..][..stretch.blocks * of_block];
            for block in offsets.chunks_exact(of_block) {
                for bundle in 0..window.bundles {
                    for row in 0..patch.lines(window, step) {
                        for column in 0..patch.columns {
                            lines.push(line(window, step, patch, block, [bundle, row, column])?);
                        }
                    }
                }
            }
        }
        Some(Self {
            window,
            step,
            lines: lines.into(),
        })
    }
}

/// A line of a patch: where all windows that it lies in have it.
fn line(
    window: Window,
    step: usize,
    patch: Patch,
    block: &[u32],
    [bundle, row, column]: [usize; 3],
) -> Option<Joined> {
    let (mut inside, mut outside) = ([None; LINE], [false; LINE]);
    for above in 0..patch.above {
        let Some(of) = row.checked_sub(above * step).filter(|of| *of < window.rows) else {
            continue;
        };
        for aside in 0..patch.side_by_side {
            let output = (column * patch.above + above) * patch.side_by_side + aside;
            for place in 0..LINE {
                // Those of zeros multiply whatever is there.
                let tap = (bundle * LINE + place).checked_sub(aside);
                let Some(tap) = tap.filter(|tap| *tap < window.taps) else {
                    continue;
                };
                let tap = of * window.bundles * LINE + tap;
                match block[tap * patch.outputs() + output] {
                    PADDING => outside[place] = true,
                    offset if inside[place].is_none_or(|found| found == offset) => {
                        inside[place] = Some(offset);
                    }
                    _ => return None,
                }
            }
        }
    }
    let both = inside
        .iter()
        .zip(outside)
        .any(|(inside, outside)| inside.is_some() && outside);
    let offsets = inside.map(|offset| offset.unwrap_or(PADDING));
    Joined::of(offsets.into_iter(), COLUMN).filter(|_| !both)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        rows: 3,
        bundles: 1,
        taps: 3,
    };

    /// Windows of outputs of `[columns, rows]` over an image with a border of padding, so far apart.
    fn offsets([columns, rows]: [usize; 2], apart: usize) -> Vec<u32> {
        let [width, height] = [columns, rows].map(|outputs| (outputs - 1) * apart + 1);
        let mut offsets = Vec::new();
        for (of, tap) in (0..WINDOW.rows).flat_map(|of| (0..LINE).map(move |tap| (of, tap))) {
            for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
                let [x, y] = [x * apart + tap, y * apart + of].map(|at| at.wrapping_sub(1));
                let inside = tap < WINDOW.taps && x < width && y < height;
                let at = y.wrapping_mul(width).wrapping_add(x).wrapping_mul(COLUMN);
                offsets.push(if inside { at as u32 } else { PADDING });
            }
        }
        offsets
    }

    /// Blocks, and columns, outputs above each other and side by side of each.
    fn shapes(grid: &Grid) -> Vec<(usize, [usize; 3])> {
        let shape = |stretch: &Stretch| {
            let patch = stretch.patch.unwrap();
            let shape = [patch.columns, patch.above, patch.side_by_side];
            (stretch.blocks, shape)
        };
        grid.stretches.iter().map(shape).collect()
    }

    #[test]
    fn every_output_is_in_one_patch() {
        for (columns, rows, apart) in
            (1..12).flat_map(|x| (1..12).flat_map(move |y| [1, 2].map(|by| (x, y, by))))
        {
            let list = offsets([columns, rows], apart);
            let grid = Grid::of(WINDOW, &list, columns * rows);
            if (rows, columns) == (1, 1) || rows == 1 {
                // Nothing tells how far rows of the image lie apart.
                assert!(grid.is_none());
                continue;
            }
            let grid = grid.unwrap();
            let mut order = grid.order.to_vec();
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..(columns * rows) as u32));
            let outputs = grid.stretches.iter().map(|s| s.blocks * s.rows);
            assert_eq!(outputs.sum::<usize>(), columns * rows);
            let arranged = grid.arrange(&list);
            let mut ordered = Vec::new();
            for range in grid.stretches.iter().flat_map(|s| s.ranges()) {
                let taps = arranged.chunks_exact(columns * rows);
                taps.for_each(|tap| ordered.extend_from_slice(&tap[range.clone()]));
            }
            let windows = (WINDOW, grid.step);
            assert_eq!(grid.step, apart);
            assert!(Patches::of(windows, &ordered, &grid.stretches).is_some());
        }
    }

    #[test]
    fn patches_are_as_large_as_can_be() {
        let of = |size: [usize; 2], apart| {
            let offsets = offsets(size, apart);
            Grid::of(WINDOW, &offsets, size[0] * size[1]).unwrap()
        };
        assert_eq!(shapes(&of([56, 8], 1)), [(56, [1, 4, 2])]);
        let found = [
            (3, [1, 4, 2]),
            (1, [1, 4, 1]),
            (3, [1, 3, 2]),
            (1, [1, 3, 1]),
        ];
        assert_eq!(shapes(&of([7, 7], 1)), found);
        assert_eq!(shapes(&of([7, 4], 2)), [(3, [2, 4, 1]), (1, [1, 4, 1])]);
        let found = [(5, [1, 4, 2]), (1, [4, 1, 2]), (1, [1, 1, 2])];
        assert_eq!(shapes(&of([10, 5], 1)), found);
    }

    #[test]
    fn windows_that_are_not_over_one_image_are_no_patches() {
        let mut list = offsets([6, 5], 1);
        assert!(Grid::of(WINDOW, &list, 30).is_some());
        // An input that lies elsewhere.
        let inside = list.iter().rposition(|offset| *offset != PADDING).unwrap();
        list[inside] += 16;
        assert!(Grid::of(WINDOW, &list, 30).is_none());
        // Windows without a place for a neighbour's tap have none.
        let list = offsets([6, 5], 1);
        let wide = Window { taps: 4, ..WINDOW };
        let found = Grid::of(wide, &list, 30).unwrap();
        assert!(shapes(&found).iter().all(|(_, shape)| shape[2] == 1));
    }

    #[test]
    fn windows_agree_on_what_is_padding() {
        let list = offsets([2, 5], 1);
        let grid = Grid::of(WINDOW, &list, 10).unwrap();
        let arranged = grid.arrange(&list);
        let windows = (WINDOW, grid.step);
        // The first block's rows, eight of ten.
        let mut block: Vec<u32> = arranged
            .chunks_exact(10)
            .flat_map(|tap| &tap[..8])
            .copied()
            .collect();
        let first = &grid.stretches[..1];
        assert!(Patches::of(windows, &block, first).is_some());
        // The second output's first tap is the first one's second.
        let tap = 4 * 8;
        assert_eq!(block[tap + 1], block[tap + 8]);
        block[tap + 1] = PADDING;
        assert!(Patches::of(windows, &block, first).is_none());
    }
}
