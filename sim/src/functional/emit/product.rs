//! Products as the kernels take them.

use std::sync::Arc;

use vta_driver::{DeviceMemory, Span};
use vta_isa::AluOp;

use super::super::draft::{Matmul, OperandDraft, StepDraft, Vector, Weight};
use super::super::ops::{Columns, Op, ProductOp};
use super::super::scratchpads::Scratchpads;
use super::super::table::Table;
use super::super::unplanned::Unplanned;
use crate::kernels::{
    Bases, COLUMN, Column, Inputs, MAX_COLUMNS, Operand, PADDING, Panel, Row, Rows, Start, Step,
    Steps,
};

/// Bytes of laid-out weights and offsets that a plan may keep.
const MOST_BYTES: usize = 2 << 30;

/// What rows depend on: positions, and the bytes of each that are stored and read beside.
type RowsKey = (Vec<u16>, Vec<u32>, Vec<u32>);
/// What inputs depend on: rows, rows of a block, and the bytes of each tap and position.
type InputsKey = ([usize; 2], Vec<u32>);
/// What a panel depends on: weights and first output of each column.
type PanelKey = Vec<(usize, Vec<Weight>)>;

/// Makes the products of one plan; equal parts are shared.
pub(in super::super) struct Products<'a> {
    memory: &'a DeviceMemory,
    pads: &'a Scratchpads,
    rows: Table<RowsKey, Arc<Rows>>,
    inputs: Table<InputsKey, Arc<Inputs>>,
    panels: Table<PanelKey, Arc<Panel>>,
    kept_bytes: usize,
    zeros: Vec<u8>,
    /// Bytes that became operands of steps.
    pub constants: Vec<Span>,
}

impl<'a> Products<'a> {
    pub fn new(memory: &'a DeviceMemory, pads: &'a Scratchpads) -> Self {
        Self {
            memory,
            pads,
            rows: Table::default(),
            inputs: Table::default(),
            panels: Table::default(),
            kept_bytes: 0,
            zeros: vec![0; pads.weight_tile_bytes()],
            constants: Vec::new(),
        }
    }

    /// int32 of an accumulator tile.
    pub fn lanes(&self) -> usize {
        self.pads.lanes
    }

    fn lane(&self, tiles: usize) -> u32 {
        // Scratchpads have at most `Config::MAX_ACC_DEPTH` tiles of a few kilobytes.
        (tiles * self.pads.lanes) as u32
    }

    pub fn product(&mut self, matmul: &Matmul) -> Result<Op, Unplanned> {
        let before = matmul.before.iter().flatten();
        for (_, operand) in before.chain(&matmul.after) {
            if let OperandDraft::Constants(spans) = operand {
                self.constants.extend_from_slice(spans);
            }
        }
        let rows = self.rows(matmul);
        let width = self.pads.block.min(COLUMN);
        let mut columns: Vec<(usize, usize)> = Vec::new();
        for group in 0..matmul.groups.len() {
            columns.extend(
                (0..self.pads.block)
                    .step_by(width)
                    .map(|first| (group, first)),
            );
        }
        let most = self.pads.kernel.columns();
        let mut groups = Vec::with_capacity(columns.len().div_ceil(most));
        let mut rest = &columns[..];
        while !rest.is_empty() {
            // About even: five columns are three and two, not four and one.
            let take = rest.len().div_ceil(rest.len().div_ceil(most));
            let (now, later) = rest.split_at(take);
            rest = later;
            groups.push(self.group(matmul, now)?);
        }
        let start = match (&matmul.before, matmul.from_zero) {
            (Some(_), _) => Start::Residual,
            (None, true) => Start::Zero,
            (None, false) => Start::Acc,
        };
        Ok(Op::Product(Box::new(ProductOp {
            rows,
            read: matmul.read,
            groups,
            start,
            write_acc: matmul.write_acc,
            out: matmul.stored.as_ref().map(|s| s.span),
            residual: matmul.side.as_ref().map(|s| s.span),
        })))
    }

    fn rows(&mut self, matmul: &Matmul) -> Arc<Rows> {
        let (lanes, positions) = (self.pads.lanes, matmul.positions.len());
        let out = matmul.stored.as_ref().map(|s| {
            let offset = |position: usize| s.shape.offset(position, lanes) as u32;
            (0..positions).map(offset).collect()
        });
        let side = matmul.side.as_ref().map(|s| s.offsets.clone());
        let key = (
            matmul.positions.clone(),
            out.unwrap_or_default(),
            side.unwrap_or_default(),
        );
        if let Some(rows) = self.rows.get(&key) {
            return Arc::clone(rows);
        }
        let (positions, out, side) = &key;
        let mut rows = Vec::with_capacity(positions.len() * self.pads.batch);
        for (i, &dst) in positions.iter().enumerate() {
            for b in 0..self.pads.batch {
                let lane = (b * self.pads.block) as u32;
                let byte = |bytes: &[u32]| bytes.get(i).map_or(0, |byte| byte + lane);
                rows.push(Row {
                    dst: self.lane(dst.into()) + lane,
                    out: byte(out),
                    residual: byte(side),
                    lane,
                });
            }
        }
        let rows = Arc::new(Rows::new(rows));
        self.rows.insert(key, Arc::clone(&rows));
        rows
    }

    fn inputs(&mut self, matmul: &Matmul, columns: usize) -> Arc<Inputs> {
        let rows = matmul.positions.len() * self.pads.batch;
        let most = self.pads.kernel.rows(columns);
        // Counted from the first byte that is read, products are often the same.
        let first = matmul.read.map_or(0, |s| s.start as u32);
        let relative = |&byte: &u32| match byte {
            PADDING => PADDING,
            byte => byte - first,
        };
        let inputs: Vec<u32> = matmul.inputs.iter().map(relative).collect();
        let key = ([rows, most], inputs);
        if let Some(found) = self.inputs.get(&key) {
            return Arc::clone(found);
        }
        let (batch, block) = (self.pads.batch as u32, self.pads.block as u32);
        let mut offsets = Vec::with_capacity(key.1.len() * self.pads.batch);
        for &byte in &key.1 {
            offsets.extend((0..batch).map(|b| match byte {
                PADDING => PADDING,
                byte => byte + b * block,
            }));
        }
        self.kept_bytes += size_of_val(&offsets[..]);
        let made = Arc::new(Inputs::new(&offsets, rows, most));
        self.inputs.insert(key, Arc::clone(&made));
        made
    }

    /// Columns that are worked on together: `(group, first output)`.
    fn group(&mut self, matmul: &Matmul, columns: &[(usize, usize)]) -> Result<Columns, Unplanned> {
        let base = |&(group, first): &(usize, usize)| {
            // Counted from the first byte that is stored or read.
            let byte = |bytes: &[u32], span: &Span| bytes[group] - span.start as u32 + first as u32;
            Row {
                dst: self.lane(matmul.groups[group].dst.into()) + first as u32,
                out: matmul
                    .stored
                    .as_ref()
                    .map_or(0, |s| byte(&s.first, &s.span)),
                residual: matmul.side.as_ref().map_or(0, |s| byte(&s.first, &s.span)),
                ..Row::default()
            }
        };
        let bases: Vec<Row> = columns.iter().map(base).collect();
        let before = matmul.before.as_deref().unwrap_or_default();
        let panel = self.panel(matmul, columns)?;
        let mut first: Box<[[i32; COLUMN]]> = panel.corrections().into();
        let after = self.add_first(&mut first, &matmul.after, columns);
        Ok(Columns {
            inputs: self.inputs(matmul, columns.len()),
            ahead: None,
            panel,
            first,
            bases: Bases::new(&bases),
            before: self.steps(before, columns),
            after: self.steps(after, columns),
        })
    }

    /// 16 int32 of a tile in DRAM, from one of its lanes on; fewer if the block is smaller.
    fn values(&self, span: &Span, first: usize) -> [i32; COLUMN] {
        let bytes = self.memory.region(span.region);
        let bytes = bytes.get(span.start + 4 * first..span.start + span.len);
        let (words, _) = bytes.unwrap_or(&[]).as_chunks::<4>();
        let mut values = [0; COLUMN];
        for (to, from) in values.iter_mut().zip(words) {
            *to = i32::from_le_bytes(*from);
        }
        values
    }

    /// Adds to what sums start from what the first steps would add to them; the other steps.
    fn add_first<'b>(
        &self,
        first: &mut [[i32; COLUMN]],
        steps: &'b [StepDraft],
        columns: &[(usize, usize)],
    ) -> &'b [StepDraft] {
        let mut rest = steps;
        while let [(AluOp::Add, operand), later @ ..] = rest {
            let added: Vec<[i32; COLUMN]> = match operand {
                OperandDraft::Imm(imm) => vec![[*imm; COLUMN]; columns.len()],
                OperandDraft::Constants(spans) => self.constants(spans, columns),
                OperandDraft::Values(vectors) => columns_of(vectors, columns),
                OperandDraft::Tiles(_) | OperandDraft::Scaled(_) => break,
            };
            for (x, y) in first
                .as_flattened_mut()
                .iter_mut()
                .zip(added.as_flattened())
            {
                *x = x.wrapping_add(*y);
            }
            rest = later;
        }
        rest
    }

    fn constants(&self, spans: &[Span], columns: &[(usize, usize)]) -> Vec<[i32; COLUMN]> {
        let column = |&(group, first): &(usize, usize)| self.values(&spans[group], first);
        columns.iter().map(column).collect()
    }

    fn steps(&self, steps: &[StepDraft], columns: &[(usize, usize)]) -> Steps {
        let step = |(op, operand): &StepDraft| match operand {
            OperandDraft::Imm(imm) => Step::immediate(*op, *imm),
            OperandDraft::Constants(spans) => {
                let operand = Operand::Lanes(self.constants(spans, columns).into());
                Step { op: *op, operand }
            }
            OperandDraft::Values(vectors) => {
                let operand = Operand::Lanes(columns_of(vectors, columns).into());
                Step { op: *op, operand }
            }
            OperandDraft::Scaled(vectors) => {
                let operand = Operand::Scaled(columns_of(vectors, columns).into());
                Step { op: *op, operand }
            }
            OperandDraft::Tiles(tiles) => {
                let mut lanes = [0; MAX_COLUMNS];
                for (lane, &(group, first)) in lanes.iter_mut().zip(columns) {
                    *lane = self.lane(tiles[group].into()) + first as u32;
                }
                let operand = Operand::Tiles(lanes);
                Step { op: *op, operand }
            }
        };
        Steps::new(steps.iter().map(step).collect())
    }

    fn panel(
        &mut self,
        matmul: &Matmul,
        columns: &[(usize, usize)],
    ) -> Result<Arc<Panel>, Unplanned> {
        let weights =
            |&(group, first): &(usize, usize)| (first, matmul.groups[group].weights.clone());
        let key: PanelKey = columns.iter().map(weights).collect();
        if let Some(panel) = self.panels.get(&key) {
            return Ok(Arc::clone(panel));
        }
        let column = |(first, weights): &(usize, Vec<Weight>)| Column {
            tiles: weights.iter().map(|w| self.tile(w)).collect(),
            first: *first,
        };
        let format = self.pads.kernel.format();
        let parts: Vec<Column<'_>> = key.iter().map(column).collect();
        let panel = Arc::new(Panel::new(&parts, format, self.pads.block));
        self.kept_bytes += size_of_val(panel.lines());
        if self.kept_bytes > MOST_BYTES {
            return Err(Unplanned::Pattern);
        }
        self.panels.insert(key, Arc::clone(&panel));
        Ok(panel)
    }

    /// The bytes of a weight tile.
    pub fn tile(&self, weight: &Weight) -> &[u8] {
        match weight {
            Weight::Zero => &self.zeros,
            Weight::Held(tile) => {
                let at = usize::from(*tile) * self.zeros.len();
                &self.pads.wgt[at..at + self.zeros.len()]
            }
            Weight::Dram { region, start } => {
                let start = *start as usize;
                let bytes = self.memory.region(*region as usize);
                // Spans were resolved in this memory.
                bytes
                    .get(start..start + self.zeros.len())
                    .unwrap_or(&self.zeros)
            }
        }
    }
}

/// 16 values of each column's vector, from its first output on; fewer if the block is smaller.
fn columns_of(vectors: &[Vector], columns: &[(usize, usize)]) -> Vec<[i32; COLUMN]> {
    let column = |&(group, first): &(usize, usize)| {
        let mut values = [0; COLUMN];
        for (to, from) in values.iter_mut().zip(&vectors[group][first..]) {
            *to = *from;
        }
        values
    };
    columns.iter().map(column).collect()
}
