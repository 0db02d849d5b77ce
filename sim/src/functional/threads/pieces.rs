//! Pieces of products: some rows of one group, with what they touch.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use vta_driver::Span;
use vta_isa::resolve::disjoint;

use super::super::run::ops::{Columns, Copied, Narrow, ProductOp};
use super::cells::Dims;
use super::unit::{Piece, Unit, Work};
use crate::kernels::{Bases, Inputs, MAX_COLUMNS, Operand, PADDING, Row, Rows, Start, Steps, Way};

/// Makes pieces; what they share is kept once.
pub(crate) struct Parts {
    dims: Dims,
    rows: HashMap<(*const Rows, Range<usize>), Arc<Rows>>,
    inputs: HashMap<(*const Inputs, Range<usize>, u32), Arc<Inputs>>,
}

impl Parts {
    pub fn new(dims: Dims) -> Self {
        Self {
            dims,
            rows: HashMap::new(),
            inputs: HashMap::new(),
        }
    }

    /// Some blocks of a group's rows.
    pub fn piece(
        &mut self,
        (index, number): (usize, usize),
        op: &ProductOp,
        group: &Columns,
        blocks: Range<usize>,
    ) -> Unit {
        let dims = self.dims;
        let range = group.inputs.rows_of(&blocks);
        let rows = &op.rows.list()[range.clone()];
        let (bases, width) = (&group.bases, dims.width);
        let stage = op.out.map(|span| Stage::new(span, rows, bases, width));
        let stage = stage.unwrap_or_default();
        let residual = op.residual;
        let residual = residual.and_then(|span| self::residual(span, rows, bases, width));
        let (read, cells) = self.inputs_of(op, group, &blocks);
        let offset = |part: Option<Span>, whole: Option<Span>| match (part, whole) {
            (Some(part), Some(whole)) => (part.start - whole.start) as u32,
            _ => 0,
        };
        let base = offset(read, op.read).saturating_sub(group.shift);
        let inputs = self.part((op.way, &group.inputs), &blocks, base, read);
        let sums = sums(rows, bases, dims);
        let mut reads = cells;
        if op.start == Start::Acc {
            reads.extend_from_slice(&sums);
        }
        for steps in [&group.before, &group.after] {
            operands(steps, rows, bases.list().len(), dims, &mut reads);
        }
        let reads_of = |span: Span| inputs.runs().of(span).collect::<Vec<_>>();
        let mut dram_reads = read.map_or_else(Vec::new, reads_of);
        dram_reads.extend(residual);
        let dram_writes = stage.copies.iter().map(|c| c.to).collect();
        // Bytes that are stored lie in the stage, and those that sums start from count from their own first.
        let from = offset(residual, op.residual);
        let moved = bases.list().iter().zip(stage.bases).map(|(base, out)| Row {
            out,
            residual: base.residual.saturating_sub(from),
            ..*base
        });
        let moved: Vec<Row> = moved.collect();
        let piece = Piece {
            op: index,
            group: number,
            rows: self.staged_rows(&op.rows, range, op.out.is_some()),
            inputs,
            bases: Bases::new(&moved),
            read,
            residual,
            ahead: None,
            staged_bytes: stage.bytes,
            copies: stage.copies,
        };
        let sums = if op.write_acc { sums } else { Vec::new() };
        Unit {
            dram_reads,
            dram_writes,
            ..Unit::new(index, Work::Product(Box::new(piece)), reads, sums)
        }
    }

    /// The DRAM that the blocks' inputs lie in, or the cells.
    fn inputs_of(
        &self,
        op: &ProductOp,
        group: &Columns,
        blocks: &Range<usize>,
    ) -> (Option<Span>, Vec<Range<usize>>) {
        let (dims, shift) = (self.dims, group.shift as usize);
        let inside = || group.inputs.offsets_of(blocks).filter(|&o| o != PADDING);
        let Some(whole) = op.read else {
            let cell = |offset: u32| dims.acc_cells + (offset as usize + shift) / dims.block;
            return (None, inside().map(|o| cell(o)..cell(o) + 1).collect());
        };
        let least = inside().min().map_or(0, |o| o as usize);
        let end = inside().max().map_or(0, |o| o as usize + dims.block);
        let span = Span {
            start: whole.start + shift + least,
            len: end - least,
            ..whole
        };
        (Some(span), Vec::new())
    }

    fn part(
        &mut self,
        (way, inputs): (Way, &Arc<Inputs>),
        blocks: &Range<usize>,
        base: u32,
        read: Option<Span>,
    ) -> Arc<Inputs> {
        let dims = self.dims;
        if read.is_none() && *blocks == (0..inputs.blocks()) && base == 0 {
            return Arc::clone(inputs);
        }
        let key = (Arc::as_ptr(inputs), blocks.clone(), base);
        let made = self.inputs.entry(key).or_insert_with(|| {
            let mut part = inputs.part(blocks, base).side_by_side_for(way, dims.block);
            if dims.staged_inputs {
                part = part.staged_for(way, dims.block);
            }
            if let Some(read) = read {
                part = part.in_runs(dims.block, read.len);
            }
            Arc::new(part)
        });
        Arc::clone(made)
    }

    /// Some rows; if they are stored, one after the other.
    fn staged_rows(&mut self, rows: &Arc<Rows>, range: Range<usize>, stored: bool) -> Arc<Rows> {
        if range == (0..rows.list().len()) && !stored {
            return Arc::clone(rows);
        }
        let width = self.dims.width as u32;
        let key = (Arc::as_ptr(rows), range.clone());
        let made = self.rows.entry(key).or_insert_with(|| {
            let staged = |(row, at): (&Row, u32)| Row {
                out: at * width,
                ..*row
            };
            let rows = rows.list()[range].iter().zip(0..);
            Arc::new(Rows::new(rows.map(staged).collect()))
        });
        Arc::clone(made)
    }
}

/// Cells of a product's sums.
fn sums(rows: &[Row], bases: &Bases, dims: Dims) -> Vec<Range<usize>> {
    let column = |base: &Row| {
        let first = base.dst;
        let cell = move |row: &Row| dims.acc((first + row.dst) as usize, dims.width);
        rows.iter().map(cell)
    };
    bases.list().iter().flat_map(column).collect()
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
    let bases = bases.list().iter().map(|base| base.residual);
    let start = bases.clone().min()? as usize;
    let most = bases.max()? as usize + rows.iter().map(|row| row.residual).max()? as usize;
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
    copies: Vec<Copied>,
}

impl Stage {
    /// No byte is stored twice: passes take no other stores.
    fn new(whole: Span, rows: &[Row], bases: &Bases, width: usize) -> Self {
        let mut stage = Self::default();
        for (m, base) in bases.list().iter().enumerate() {
            stage.bases[m] = stage.bytes as u32;
            for row in rows {
                let to = Span {
                    start: whole.start + (base.out + row.out) as usize,
                    len: width,
                    ..whole
                };
                let copied = Copied {
                    from: stage.bytes,
                    to,
                    how: Narrow::Low,
                };
                Copied::push(&mut stage.copies, copied);
                stage.bytes += width;
            }
        }
        debug_assert!(
            disjoint(stage.copies.iter().map(|c| c.to).collect()),
            "the last would have to stay"
        );
        stage
    }
}
