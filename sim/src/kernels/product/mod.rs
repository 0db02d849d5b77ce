//! Products as kernels take them, with every offset checked.

pub(super) mod bundles;
pub(super) mod panel;
mod part;
pub(super) mod patches;
pub(in super::super) mod sheets;
pub(crate) mod staging;
pub(super) mod steps;
pub(super) mod stretches;

use self::bundles::{Bundles, Joined, PADDING, joined_rows};
use self::panel::Panel;
use self::patches::{Grid, Patches, Window};
use self::sheets::Line;
use self::staging::{Lines, Staging};
use self::steps::Steps;
use self::stretches::{Stretch, blocks};
use super::kernel::{COLUMN, Format, GemmKernel, MAX_COLUMNS, Way};
use super::source::{Runs, Source};

/// One accumulator row: offsets from the bases of the product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// int32 in the accumulators.
    pub dst: u32,
    /// Bytes in the DRAM region that is stored to.
    pub out: u32,
    /// Bytes in the DRAM region that the sums start from.
    pub residual: u32,
    /// int32 in a tile that is an operand of a step: the batch row.
    pub lane: u32,
}

impl Row {
    /// The largest of each offset.
    fn most(rows: &[Self]) -> Self {
        rows.iter().fold(Self::default(), |most, row| Self {
            dst: most.dst.max(row.dst),
            out: most.out.max(row.out),
            residual: most.residual.max(row.residual),
            lane: most.lane.max(row.lane),
        })
    }
}

/// Rows with the largest of each offset.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(in crate::kernels) rows: Box<[Row]>,
    pub(in crate::kernels) most: Row,
}

impl Rows {
    pub fn new(rows: Vec<Row>) -> Self {
        Self {
            most: Row::most(&rows),
            rows: rows.into(),
        }
    }

    /// Offsets of every row.
    pub fn list(&self) -> &[Row] {
        &self.rows
    }
}

/// Where the inputs of every row and tap lie, block by block as a kernel takes the rows: what it
/// reads is one stretch of memory.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// Bytes, or [`PADDING`]; `[block][tap][row of the block]`.
    pub(in crate::kernels) offsets: Box<[u32]>,
    rows: usize,
    taps: usize,
    /// Rows of a block at most.
    pub(in crate::kernels) block: usize,
    /// The blocks.
    pub(in crate::kernels) stretches: Box<[Stretch]>,
    pub(in crate::kernels) most: u32,
    pub(in crate::kernels) only_padding: bool,
    /// For kernels that take several taps at once, whose number is a multiple of those.
    pub(in crate::kernels) bundles: Option<Bundles>,
    /// Where the rows of the bundles lie, if all are joined.
    /// `[block][bundle][row of the block]`.
    pub(in crate::kernels) joined: Option<Box<[Joined]>>,
    /// Where the lines of patches lie, if the blocks are patches.
    pub(in crate::kernels) patches: Option<Patches>,
    /// The lines whose copies are read, if offsets count in these.
    pub(in crate::kernels) lines: Option<Lines>,
    /// The first row's input of each tap, if the kernel knows that the others lie side by side behind them.
    starts: Option<Box<[u32]>>,
    /// Whether the kernel reads the rows of bundles packed, each in a line: `[block][bundle][row of the largest block]`.
    packed: bool,
    runs: Runs,
}

/// Bytes of packed rows at most: what stays in a second cache.
const MOST_PACKED_BYTES: usize = 1 << 19;

impl Inputs {
    /// From offsets `[tap][row]` of `rows` rows, which are worked on at most `block` at a time.
    pub fn new(offsets: &[u32], rows: usize, block: usize, bundles: Option<Bundles>) -> Self {
        Self::in_blocks(offsets, [rows, block], blocks(rows, block), bundles, None)
    }

    /// From offsets `[tap][row]` in the order of patches.
    pub fn in_patches(offsets: &[u32], grid: &Grid, bundles: Option<Bundles>) -> Self {
        let shape = [grid.order.len(), patches::TOGETHER];
        let (stretches, windows) = (grid.stretches.clone(), Some((grid.window, grid.step)));
        Self::in_blocks(offsets, shape, stretches, bundles, windows)
    }

    fn in_blocks(
        offsets: &[u32],
        [rows, block]: [usize; 2],
        stretches: Box<[Stretch]>,
        bundles: Option<Bundles>,
        windows: Option<(Window, usize)>,
    ) -> Self {
        let mut ordered = Vec::with_capacity(offsets.len());
        for range in stretches.iter().flat_map(|s| s.ranges()) {
            for tap in offsets.chunks_exact(rows) {
                ordered.extend_from_slice(&tap[range.clone()]);
            }
        }
        let taps = offsets.len().checked_div(rows).unwrap_or(0);
        let shape = [rows, taps, block];
        Self::ordered(ordered.into(), shape, stretches, bundles, windows)
    }

    /// From offsets in the order of the blocks, of so many rows, taps and rows of a block at most; windows are those of
    /// patches.
    fn ordered(
        offsets: Box<[u32]>,
        [rows, taps, block]: [usize; 3],
        stretches: Box<[Stretch]>,
        bundles: Option<Bundles>,
        windows: Option<(Window, usize)>,
    ) -> Self {
        let most = offsets.iter().copied().filter(|&o| o != PADDING).max();
        let patches = windows.and_then(|windows| Patches::of(windows, &offsets, &stretches));
        let ranges = || stretches.iter().flat_map(|s| s.ranges());
        let joined = bundles
            .filter(|_| patches.is_none())
            .and_then(|bundles| joined_rows(&offsets, ranges(), taps, bundles));
        Self {
            patches,
            joined,
            offsets,
            rows,
            taps,
            block,
            stretches,
            most: most.unwrap_or(0),
            only_padding: most.is_none(),
            bundles,
            lines: None,
            starts: None,
            packed: false,
            runs: Runs::default(),
        }
    }

    /// The same for a kernel that may know that rows lie side by side, whose inputs have `block` bytes each.
    pub fn side_by_side_for(mut self, way: Way, block: usize) -> Self {
        let mut blocks = self.stretches.iter().flat_map(|s| s.ranges());
        if way.knows_side_by_side()
            && let Some(rows) = blocks.next()
        {
            let first = self.offsets[..rows.len() * self.taps].chunks_exact(rows.len());
            let starts: Box<[u32]> = first.map(|tap| tap[0]).collect();
            let blocks = self.stretches.iter().flat_map(|s| s.ranges());
            let expected = blocks.flat_map(|rows| {
                let starts = starts.iter().map(|&start| start as usize);
                starts.flat_map(move |start| rows.clone().map(move |row| start + row * block))
            });
            let offsets = self.offsets.iter().map(|&offset| offset as usize);
            let are_inputs = !starts.contains(&PADDING);
            self.starts = (are_inputs && offsets.eq(expected)).then_some(starts);
        }
        self
    }

    /// The same for a kernel that reads copies of the inputs, of `block` bytes each, if it can: see [`Way::stage`].
    pub fn staged_for(mut self, way: Way, block: usize) -> Self {
        if way.can_stage_inputs() {
            self.lines = Lines::of(&mut self.offsets, block);
        }
        if self.lines.is_some() {
            self.runs = Runs::default();
            self.most = self.offsets.iter().copied().max().unwrap_or(0);
        }
        self
    }

    /// What is read of the bytes that offsets count in, or that are copied or packed first.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Whether offsets count in copies.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn are_staged(&self) -> bool {
        self.lines.is_some()
    }

    /// The same for a kernel that reads rows which are packed once for so many products: see
    /// [`Way::stage`].
    pub fn packed_for(mut self, way: Way, products: usize) -> Self {
        let bytes = self.packed_bytes();
        self.packed =
            products > 1 && way.can_pack_inputs() && (1..=MOST_PACKED_BYTES).contains(&bytes);
        self
    }

    /// Bytes of all packed rows.
    fn packed_bytes(&self) -> usize {
        self.blocks() * self.bundle_count() * self.block * size_of::<Line>()
    }

    /// Whether rows are packed.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn are_packed(&self) -> bool {
        self.packed
    }

    /// Room for the rows that a kernel packs; `None` if it reads them where they lie.
    ///
    /// # Panics
    /// When an input lies outside the bytes: a fault of the caller.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn room_for_rows<'a>(
        &self,
        from: Source<'_>,
        staging: &'a mut Staging,
    ) -> Option<&'a mut [u8]> {
        assert!(!self.packed || self.lie_inside(self.tap_bytes(), from.len()));
        self.packed.then(|| staging.room(self.packed_bytes()))
    }

    /// Where the first row's input of each tap lies, of `block` bytes, behind which all others' do; and room for the sum of
    /// each row.
    ///
    /// # Panics
    /// When rows don't lie side by side, or an input lies outside the bytes: a fault of the caller.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn room_for_sums<'a>(
        &self,
        block: usize,
        from: Source<'_>,
        staging: &'a mut Staging,
    ) -> (&[u32], &'a mut [i32]) {
        let inside = self.starts.is_some() && self.lie_inside(block, from.len());
        assert!(inside || self.offsets.is_empty());
        staging.sums.clear();
        staging.sums.resize(self.rows, 0);
        (
            self.starts.as_deref().unwrap_or_default(),
            &mut staging.sums,
        )
    }

    /// The first row's input of each tap, if the other rows' lie side by side behind it.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn starts(&self) -> Option<&[u32]> {
        self.starts.as_deref()
    }

    /// What offsets count in, when [`Way::stage`] has been called last for these inputs.
    pub fn memory<'a>(&self, from: Source<'a>, staging: &'a Staging) -> Source<'a> {
        match &self.lines {
            Some(lines) => lines.copies(staging).into(),
            None if self.packed => staging.lines(self.packed_bytes()).into(),
            None => from,
        }
    }

    /// Whether what the kernel reads lies inside so many bytes.
    #[cfg(target_arch = "x86_64")]
    fn lie_inside(&self, tap_bytes: usize, bytes: usize) -> bool {
        u64::from(self.most) + tap_bytes as u64 <= bytes as u64 || self.only_padding
    }

    /// Taps of every row.
    pub fn taps(&self) -> usize {
        self.taps
    }

    /// Taps that are multiplied together count as one.
    pub(in crate::kernels) fn bundle_count(&self) -> usize {
        self.taps / self.bundles.map_or(1, |bundles| bundles.taps)
    }

    /// Bytes of a row of a bundle; 0 if there are none.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn bundle_bytes(&self) -> usize {
        self.bundles.map_or(0, Bundles::bytes)
    }

    /// Bytes of a tap's input; 0 if there are no bundles.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn tap_bytes(&self) -> usize {
        self.bundles.map_or(0, |bundles| bundles.tap_bytes)
    }

    /// Where the rows of the bundles lie, if they are joined.
    #[cfg(target_arch = "x86_64")]
    pub(in crate::kernels) fn joined(&self) -> Option<&[Joined]> {
        self.joined.as_deref()
    }

    /// Whether a kernel may read bundles of inputs of so many bytes.
    fn bundles_fit(&self, way: Way, block: usize) -> bool {
        let (Some(bundles), Some(fit)) = (self.bundles, way.bundle_taps(block)) else {
            return self.bundles.is_none() && way.bundle_taps(block).is_none();
        };
        let all = self.rows * self.bundle_count();
        bundles.tap_bytes == block
            && fit.contains(&bundles.taps)
            && self.taps.is_multiple_of(bundles.taps)
            && match &self.joined {
                Some(joined) => joined.len() == all,
                None => bundles.taps > 1 || all == 0,
            }
    }
}

/// What the sums start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Zero,
    /// What the accumulators hold.
    Acc,
    /// Bytes of the residual's DRAM region, sign-extended, after the first steps.
    Residual,
}

/// Where the columns of a product begin, with the largest of each: the int32 of the accumulators (`dst`), the byte that
/// is stored to (`out`) and the residual's. Columns that aren't used count as zero.
#[derive(Debug)]
pub(crate) struct Bases {
    pub(in crate::kernels) columns: [Row; MAX_COLUMNS],
    pub(in crate::kernels) used: usize,
    pub(in crate::kernels) most: Row,
}

impl Bases {
    /// At most [`MAX_COLUMNS`] count.
    pub fn new(list: &[Row]) -> Self {
        let mut columns = [Row::default(); MAX_COLUMNS];
        let used = list.len().min(MAX_COLUMNS);
        columns[..used].copy_from_slice(&list[..used]);
        Self {
            columns,
            used,
            most: Row::most(&columns),
        }
    }

    /// Where each column begins.
    pub fn list(&self) -> &[Row] {
        &self.columns[..self.used]
    }
}

/// A blocked matrix product with what comes before and after.
#[derive(Debug)]
pub(crate) struct Product<'a> {
    pub rows: &'a Rows,
    pub inputs: &'a Inputs,
    pub panel: &'a Panel,
    /// What every sum of a column starts from, beside `start`.
    pub first: &'a [[i32; COLUMN]],
    /// Inputs of a tile's row: BLOCK.
    pub block: usize,
    pub bases: &'a Bases,
    pub start: Start,
    /// Steps on the residual before the products are added.
    pub before: &'a Steps,
    pub after: &'a Steps,
    pub write_acc: bool,
    pub store: bool,
    /// Weights that are wanted next: they are brought closer meanwhile, where that helps.
    #[cfg_attr(
        target_family = "wasm",
        expect(dead_code, reason = "there are no prefetches")
    )]
    pub ahead: &'a [Line],
}

/// What a product reads and writes.
pub(crate) struct Memory<'a> {
    /// What input offsets count in: see [`Inputs::memory`].
    pub inp: Source<'a>,
    /// -128 times the sum of each row's inputs, for kernels whose weights are biased.
    pub input_sums: &'a [i32],
    /// At least BLOCK zeros.
    pub zeros: &'a [u8],
    pub acc: &'a mut [i32],
    /// The stored region; empty if nothing is stored.
    pub out: &'a mut [u8],
    /// The residual's region; empty if there is none.
    pub residual: &'a [u8],
}

impl Product<'_> {
    /// Checks every offset against the memory, so that kernels needn't.
    pub(in crate::kernels) fn check(&self, way: Way, memory: &Memory<'_>) {
        let width = self.block.min(COLUMN) as u64;
        let fits = |base: u32, offset: u32, room: usize| {
            u64::from(base) + u64::from(offset) + width <= room as u64
        };
        let (most, bases) = (&self.rows.most, &self.bases.most);
        let columns = self.panel.columns();
        assert!(columns == self.bases.used && (1..=way.columns()).contains(&columns));
        assert!(way.kernel == GemmKernel::Scalar || self.block.is_multiple_of(COLUMN));
        assert!(!way.format.is_diagonal() || self.block == COLUMN);
        let (inputs, rows) = (self.inputs, self.rows.rows.len());
        assert!(inputs.rows == rows && inputs.offsets.len() == rows * inputs.taps());
        assert!(inputs.block == way.rows(columns));
        assert!(inputs.bundles_fit(way, self.block));
        assert!(self.panel.fits(way.format, inputs.taps(), self.block));
        assert!(memory.inp.serves(&inputs.runs));
        let room = memory.inp.len() as u64;
        // Padding alone reads no input.
        let inside = u64::from(inputs.most) + self.block as u64 <= room || inputs.only_padding;
        assert!(if inputs.packed {
            inputs.packed_bytes() as u64 <= room && way.can_pack_inputs()
        } else {
            inside
        });
        assert!(way.format != Format::BiasedWeights || memory.input_sums.len() == rows);
        assert!(memory.zeros.len() >= self.block);
        let acc = memory.acc.len();
        assert!(fits(bases.dst, most.dst, acc));
        assert!(!self.store || fits(bases.out, most.out, memory.out.len()));
        let residual = memory.residual.len();
        let steps = [self.before, self.after];
        let beside = self.start == Start::Residual || steps.iter().any(|s| s.reads_residual());
        assert!(!beside || fits(bases.residual, most.residual, residual));
        let tile = self.before.most_tile().max(self.after.most_tile());
        assert!(fits(tile, most.lane, acc));
        assert!(self.first.len() == columns);
        assert!(steps.iter().all(|s| s.fit(columns)));
    }
}
