//! Operations cut into units, with exactly what each touches.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use vta_driver::Span;
use vta_isa::AluOp;

use super::cells::{Cells, Dims};
use super::plan::{Group, Op, ProductOp, StoreOp};
use crate::kernels::lanes::{Gather, TileRun};
use crate::kernels::{
    Bases, Inputs, MAX_COLUMNS, Operand, PADDING, Panel, Row, Rows, Start, Steps,
};

/// Units that a store or a gather is cut into at most.
const MOST_OWNERS: usize = 16;

/// What a unit does.
pub(super) enum Work {
    /// An operation of the plan that is neither a product nor a store.
    Op(usize),
    /// Accumulators to DRAM.
    Store(Vec<Stored>),
    /// Some tiles of an operation that takes in lists of tiles.
    Gather(AluOp, Box<Gather>),
    Product(Box<Piece>),
}

/// Neighbouring accumulators whose low bytes are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// First int32.
    pub first: usize,
    pub to: Span,
}

/// Some rows of one group of a product. Offsets count from the spans.
pub(super) struct Piece {
    /// The operation, and its group.
    pub op: usize,
    pub group: usize,
    pub rows: Arc<Rows>,
    pub inputs: Arc<Inputs>,
    pub bases: Bases,
    /// The DRAM that is read; without it inputs are read from the scratchpad.
    pub read: Option<Span>,
    pub residual: Option<Span>,
    /// The weights that the thread wants next.
    pub ahead: Option<Arc<Panel>>,
    /// Bytes that are put together elsewhere before they are stored, row after row of each
    /// column: no two threads may have a region to write, even if they write different bytes.
    pub staged_bytes: usize,
    pub copies: Vec<Staged>,
}

/// Bytes that go from the stage to DRAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub from: usize,
    pub to: Span,
}

/// A unit with what it touches.
pub(super) struct Unit {
    /// Index of the operation in the plan.
    pub op: usize,
    pub work: Work,
    pub reads: Cells,
    /// Cells that are overwritten whole.
    pub writes: Cells,
    pub dram_reads: Vec<Span>,
    pub dram_writes: Vec<Span>,
    /// About what it takes, in nanoseconds.
    pub cost_ns: u64,
}

/// Cuts operations into units; what they share is kept once.
pub(super) struct Cutter {
    dims: Dims,
    /// Products that take longer are cut, in nanoseconds.
    grain_ns: u64,
    rows: HashMap<(*const Rows, Range<usize>, bool), Arc<Rows>>,
    inputs: HashMap<(*const Inputs, Range<usize>, u32), Arc<Inputs>>,
}

impl Cutter {
    pub fn new(dims: Dims, grain_ns: u64) -> Self {
        Self {
            dims,
            grain_ns: grain_ns.max(1),
            rows: HashMap::new(),
            inputs: HashMap::new(),
        }
    }

    /// Adds the units of an operation, in order; whether it has a known form. A store is cut
    /// where `owner` says that other units wrote its cells.
    pub fn cut(
        &mut self,
        index: usize,
        op: &Op,
        owner: impl Fn(usize) -> u32,
        units: &mut Vec<Unit>,
    ) -> bool {
        let dims = self.dims;
        let (mut reads, mut writes, mut dram_reads) = (Vec::new(), Vec::new(), Vec::new());
        match op {
            Op::Mark(_) => return true,
            Op::Product(op) => return self.product(index, op, units),
            Op::Store(op) => {
                units.extend(self.stores(index, op, owner));
                return true;
            }
            Op::Gather { op, table } => {
                units.extend(self.gathers((index, *op), table, owner));
                return true;
            }
            Op::Load(op) => match dims.loaded(op) {
                Some(cells) => {
                    writes.push(cells);
                    dram_reads.push(op.span);
                }
                None => return false,
            },
            Op::Zero(runs) => {
                let run = |&(first, len): &(u32, u32)| dims.acc(first as usize, len as usize);
                writes.extend(runs.iter().map(run));
            }
            Op::Chain { runs, .. } => {
                let run = |&(first, len): &(u32, u32)| dims.acc(first as usize, len as usize);
                writes.extend(runs.iter().map(run));
                reads.extend_from_slice(&writes);
            }
            Op::Zip { runs, .. } => {
                for (dst, src) in runs.iter().flat_map(tiles_of) {
                    writes.push(dims.tile(dst));
                    reads.push(dims.tile(src));
                }
                reads.extend_from_slice(&writes);
            }
        }
        units.push(Unit {
            op: index,
            work: Work::Op(index),
            reads: Cells::new(reads),
            writes: Cells::new(writes),
            dram_reads,
            dram_writes: Vec::new(),
            cost_ns: dims.cost_ns(op),
        });
        true
    }

    /// A store's units, one for each owner of its cells, in ascending order of owners.
    fn stores(&self, index: usize, op: &StoreOp, owner: impl Fn(usize) -> u32) -> Vec<Unit> {
        let dims = self.dims;
        let mut by_owner: BTreeMap<u32, Vec<Stored>> = BTreeMap::new();
        for row in 0..op.rows {
            let (acc, to) = (op.first + row * op.row_bytes, op.row(row));
            for at in (0..op.row_bytes).step_by(dims.width) {
                let list = by_owner.entry(owner((acc + at) / dims.width)).or_default();
                match list.last_mut() {
                    Some(last)
                        if last.first + last.to.len == acc + at
                            && last.to.start + last.to.len == to.start + at =>
                    {
                        last.to.len += dims.width;
                    }
                    _ => list.push(Stored {
                        first: acc + at,
                        to: Span {
                            start: to.start + at,
                            len: dims.width,
                            ..to
                        },
                    }),
                }
            }
        }
        // Rows may overlap; then the last must stay, and the store stays whole.
        let overlaps = op.rows > 1 && op.stride_bytes < op.row_bytes;
        if overlaps || by_owner.len() > MOST_OWNERS {
            let row = |row: usize| Stored {
                first: op.first + row * op.row_bytes,
                to: op.row(row),
            };
            by_owner = BTreeMap::from([(0, (0..op.rows).map(row).collect())]);
        }
        let unit = |list: Vec<Stored>| {
            let cells = list.iter().map(|s| dims.acc(s.first, s.to.len));
            let bytes: usize = list.iter().map(|s| s.to.len).sum();
            Unit {
                op: index,
                reads: Cells::new(cells.collect()),
                writes: Cells::default(),
                dram_reads: Vec::new(),
                dram_writes: list.iter().map(|s| s.to).collect(),
                cost_ns: 20 + bytes as u64 / 16,
                work: Work::Store(list),
            }
        };
        by_owner.into_values().map(unit).collect()
    }

    /// A gather's units, one for all tiles that need the same owners. No tile depends on another.
    fn gathers(
        &self,
        (index, op): (usize, AluOp),
        table: &Gather,
        owner: impl Fn(usize) -> u32,
    ) -> Vec<Unit> {
        let dims = self.dims;
        let mut by_owners: BTreeMap<Vec<u32>, Gather> = BTreeMap::new();
        let mut owners = Vec::new();
        for (tile, list) in table.lists() {
            owners.clear();
            let tiles = list.iter().chain([&tile]);
            owners.extend(tiles.flat_map(|&tile| dims.tile(tile)).map(&owner));
            owners.sort_unstable();
            owners.dedup();
            if !by_owners.contains_key(&owners) && by_owners.len() < MOST_OWNERS {
                by_owners.insert(owners.clone(), Gather::default());
            }
            // What doesn't fit goes with what needs the most.
            match by_owners.get_mut(&owners) {
                Some(part) => part.push(tile, list),
                None => {
                    if let Some(mut last) = by_owners.last_entry() {
                        last.get_mut().push(tile, list);
                    }
                }
            }
        }
        let unit = |part: Gather| {
            let writes: Vec<_> = part.tiles.iter().map(|&tile| dims.tile(tile)).collect();
            let mut reads: Vec<_> = part.operands.iter().map(|&tile| dims.tile(tile)).collect();
            reads.extend_from_slice(&writes);
            Unit {
                op: index,
                reads: Cells::new(reads),
                writes: Cells::new(writes),
                dram_reads: Vec::new(),
                dram_writes: Vec::new(),
                cost_ns: dims.gather_ns(&part),
                work: Work::Gather(op, Box::new(part)),
            }
        };
        by_owners.into_values().map(unit).collect()
    }

    fn product(&mut self, index: usize, op: &ProductOp, units: &mut Vec<Unit>) -> bool {
        let dims = self.dims;
        for (number, group) in op.groups.iter().enumerate() {
            let whole = dims.product_ns(op, group);
            let blocks = group.inputs.blocks();
            let parts = (whole / self.grain_ns).clamp(1, blocks.max(1) as u64) as usize;
            for part in 0..parts {
                let part = blocks * part / parts..blocks * (part + 1) / parts;
                let Some(mut unit) = self.piece((index, number), op, group, part) else {
                    return false;
                };
                unit.cost_ns = whole / parts as u64;
                units.push(unit);
            }
        }
        true
    }

    /// Some blocks of a group's rows; `None` if stored rows overlap.
    fn piece(
        &mut self,
        (index, number): (usize, usize),
        op: &ProductOp,
        group: &Group,
        blocks: Range<usize>,
    ) -> Option<Unit> {
        let dims = self.dims;
        let range = group.inputs.rows_of(&blocks);
        let rows = &op.rows.list()[range.clone()];
        let stage = match op.out {
            Some(span) => Stage::new(span, rows, &group.bases, dims.width)?,
            None => Stage::default(),
        };
        let residual = op
            .residual
            .and_then(|span| residual(span, rows, &group.bases, dims.width));
        let (read, cells) = self.inputs_of(op, group, &blocks);
        let offset = |part: Option<Span>, whole: Option<Span>| match (part, whole) {
            (Some(part), Some(whole)) => (part.start - whole.start) as u32,
            _ => 0,
        };
        let base = offset(read, op.read);
        let inputs = self.part(&group.inputs, &blocks, base);
        let sums = sums(rows, &group.bases, dims);
        let mut reads = cells;
        if op.start == Start::Acc {
            reads.extend_from_slice(&sums);
        }
        for steps in [&group.before, &group.after] {
            operands(steps, rows, group.bases.list().count(), dims, &mut reads);
        }
        let dram_writes = stage.copies.iter().map(|c| c.to).collect();
        let from = offset(residual, op.residual);
        let piece = Piece {
            op: index,
            group: number,
            rows: self.staged_rows(&op.rows, range, op.out.is_some()),
            inputs,
            bases: group.bases.moved(stage.bases, from),
            read,
            residual,
            ahead: None,
            staged_bytes: stage.bytes,
            copies: stage.copies,
        };
        Some(Unit {
            op: index,
            work: Work::Product(Box::new(piece)),
            reads: Cells::new(reads),
            writes: Cells::new(if op.write_acc { sums } else { Vec::new() }),
            dram_reads: read.into_iter().chain(residual).collect(),
            dram_writes,
            cost_ns: 0,
        })
    }

    /// The DRAM that the blocks' inputs lie in, or the cells.
    fn inputs_of(
        &self,
        op: &ProductOp,
        group: &Group,
        blocks: &Range<usize>,
    ) -> (Option<Span>, Vec<Range<usize>>) {
        let (dims, offsets) = (self.dims, group.inputs.offsets_of(blocks));
        let inside = || offsets.iter().copied().filter(|&o| o != PADDING);
        let Some(whole) = op.read else {
            let cell = |offset: u32| dims.acc_cells + offset as usize / dims.block;
            return (None, inside().map(|o| cell(o)..cell(o) + 1).collect());
        };
        let least = inside().min().map_or(0, |o| o as usize);
        let end = inside().max().map_or(0, |o| o as usize + dims.block);
        let span = Span {
            start: whole.start + least,
            len: end - least,
            ..whole
        };
        (Some(span), Vec::new())
    }

    fn part(&mut self, inputs: &Arc<Inputs>, blocks: &Range<usize>, base: u32) -> Arc<Inputs> {
        if *blocks == (0..inputs.blocks()) && base == 0 {
            return Arc::clone(inputs);
        }
        let key = (Arc::as_ptr(inputs), blocks.clone(), base);
        let made = self.inputs.entry(key);
        Arc::clone(made.or_insert_with(|| Arc::new(inputs.part(blocks, base))))
    }

    /// Some rows; if they are stored, one after the other.
    fn staged_rows(&mut self, rows: &Arc<Rows>, range: Range<usize>, stored: bool) -> Arc<Rows> {
        if range == (0..rows.list().len()) && !stored {
            return Arc::clone(rows);
        }
        let width = self.dims.width as u32;
        let key = (Arc::as_ptr(rows), range.clone(), stored);
        let made = self.rows.entry(key).or_insert_with(|| {
            let staged = |(row, out): (&Row, u32)| Row {
                out: if stored { out * width } else { 0 },
                ..*row
            };
            let rows = rows.list()[range].iter().zip(0..);
            Arc::new(Rows::new(rows.map(staged).collect()))
        });
        Arc::clone(made)
    }
}

/// First int32 of the tiles that each step changes and reads.
fn tiles_of(run: &TileRun) -> impl Iterator<Item = (u32, u32)> {
    let run = *run;
    (0..run.tiles as i32).map(move |i| {
        (
            run.dst.wrapping_add_signed(i.wrapping_mul(run.dst_step)),
            run.src.wrapping_add_signed(i.wrapping_mul(run.src_step)),
        )
    })
}

/// Cells of a product's sums.
fn sums(rows: &[Row], bases: &Bases, dims: Dims) -> Vec<Range<usize>> {
    let column = |base: Row| {
        let cell = move |row: &Row| dims.acc((base.dst + row.dst) as usize, dims.width);
        rows.iter().map(cell)
    };
    bases.list().flat_map(column).collect()
}

/// Adds the cells that steps read.
fn operands(
    steps: &Steps,
    rows: &[Row],
    columns: usize,
    dims: Dims,
    reads: &mut Vec<Range<usize>>,
) {
    for step in steps.list() {
        if let Operand::Tiles(tiles) = step.operand {
            for tile in tiles.into_iter().take(columns) {
                let cell = |row: &Row| dims.acc((tile + row.lane) as usize, dims.width);
                reads.extend(rows.iter().map(cell));
            }
        }
    }
}

/// The DRAM that rows start from or scale, from the first byte to the last.
fn residual(whole: Span, rows: &[Row], bases: &Bases, width: usize) -> Option<Span> {
    // Bases move by the start, and no offset of a row is negative.
    let start = bases.list().map(|base| base.residual).min()? as usize;
    let column = |base: Row| rows.iter().map(move |row| base.residual + row.residual);
    let most = bases.list().flat_map(column).max()? as usize;
    Some(Span {
        start: whole.start + start,
        len: most + width - start,
        ..whole
    })
}

/// Where a product's bytes are put together, and where they go.
#[derive(Default)]
struct Stage {
    bases: [u32; MAX_COLUMNS],
    bytes: usize,
    copies: Vec<Staged>,
}

impl Stage {
    /// `None` if the same byte is stored twice: the last would have to stay.
    fn new(whole: Span, rows: &[Row], bases: &Bases, width: usize) -> Option<Self> {
        let mut stage = Self::default();
        for (m, base) in bases.list().enumerate() {
            stage.bases[m] = stage.bytes as u32;
            for row in rows {
                let start = whole.start + (base.out + row.out) as usize;
                match stage.copies.last_mut() {
                    Some(last) if last.to.start + last.to.len == start => last.to.len += width,
                    _ => stage.copies.push(Staged {
                        from: stage.bytes,
                        to: Span {
                            start,
                            len: width,
                            ..whole
                        },
                    }),
                }
                stage.bytes += width;
            }
        }
        let mut spans: Vec<Span> = stage.copies.iter().map(|c| c.to).collect();
        spans.sort_unstable_by_key(|s| s.start);
        let apart = spans
            .windows(2)
            .all(|pair| pair[0].start + pair[0].len <= pair[1].start);
        apart.then_some(stage)
    }
}
