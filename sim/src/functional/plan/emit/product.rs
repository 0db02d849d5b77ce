//! Products as the kernels take them.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use vta_driver::{DeviceMemory, Span};
use vta_isa::AluOp;

use super::super::draft::{ByteTiles, Matmul, OperandDraft, StartDraft, StepDraft, Vector, Weight};
use super::super::elementwise::is_diagonal;
use super::super::unplanned::Unplanned;
use super::taps::Taps;
use crate::functional::run::ops::{Columns, Op, ProductOp};
use crate::functional::run::scratchpads::Scratchpads;
use crate::kernels::{
    Bases, COLUMN, Column, Format, Inputs, MAX_COLUMNS, Operand, PADDING, Panel, Row, Rows, Start,
    Step, Steps, Way,
};

/// What rows depend on: positions, and the bytes of each that are stored and read beside.
type RowsKey = (Vec<u16>, Vec<u32>, Vec<u32>);
/// What inputs depend on: rows, rows of a block, taps of a bundle, products that read them, and the bytes of each tap and position.
type InputsKey = ([usize; 4], Vec<u32>);
/// What a panel depends on: how weights lie, weights and first output of each column.
type PanelKey = (Format, Vec<(usize, Vec<Weight>)>);

/// Makes the products of one plan; equal parts are shared.
pub(in super::super) struct Products<'a> {
    memory: &'a DeviceMemory,
    pads: &'a Scratchpads,
    rows: FxHashMap<RowsKey, Arc<Rows>>,
    inputs: FxHashMap<InputsKey, Arc<Inputs>>,
    panels: FxHashMap<PanelKey, Arc<Panel>>,
    /// The last inputs of the product at hand, with the columns of their group.
    last: Option<(usize, Arc<Inputs>)>,
    /// Bytes of weights, rows and offsets that the plan keeps, and how many it may.
    pub kept_bytes: usize,
    most_bytes: usize,
    zeros: Vec<u8>,
    /// Bytes that became operands of steps.
    pub constants: Vec<Span>,
}

impl<'a> Products<'a> {
    /// Products that keep at most so many bytes.
    pub fn new(memory: &'a DeviceMemory, pads: &'a Scratchpads, most_bytes: usize) -> Self {
        Self {
            memory,
            pads,
            rows: FxHashMap::default(),
            inputs: FxHashMap::default(),
            panels: FxHashMap::default(),
            last: None,
            kept_bytes: 0,
            most_bytes,
            zeros: vec![0; pads.weight_tile_bytes()],
            constants: Vec::new(),
        }
    }

    /// int32 of an accumulator tile.
    pub fn lanes(&self) -> usize {
        self.pads.lanes
    }

    pub fn product(&mut self, matmul: &Matmul) -> Result<Op, Unplanned> {
        for (_, operand) in matmul.before().iter().chain(&matmul.after) {
            if let OperandDraft::Constants(spans) = operand {
                self.constants.extend_from_slice(spans);
            }
        }
        self.last = None;
        let rows = self.rows(matmul);
        let block = self.pads.block;
        let width = block.min(COLUMN);
        let of_group = |group| (0..block).step_by(width).map(move |first| (group, first));
        let columns: Vec<(usize, usize)> = (0..matmul.groups.len()).flat_map(of_group).collect();
        let taps = matmul.inputs.len() / matmul.positions.len().max(1);
        let (positions, batch) = (matmul.positions.len(), self.pads.batch);
        let kernel = self.pads.kernel;
        let way = if taps > 0 && block == COLUMN && self.is_diagonal(matmul) {
            kernel.of_diagonal_product()
        } else {
            kernel.of_product(positions * batch, taps * block)
        };
        let most = way.columns();
        let taps = Taps::of(way, matmul, columns.len(), block);
        let mut groups = Vec::with_capacity(columns.len().div_ceil(most));
        let shift = |column: &(usize, usize)| matmul.groups[column.0].shift;
        for mut rest in columns.chunk_by(|a, b| shift(a) == shift(b)) {
            while !rest.is_empty() {
                // About even: five columns are three and two, not four and one.
                let take = rest.len().div_ceil(rest.len().div_ceil(most));
                let (now, later) = rest.split_at(take);
                rest = later;
                groups.push(self.group((way, matmul), &taps, now)?);
            }
        }
        let start = match matmul.start {
            StartDraft::Side(_) => Start::Residual,
            StartDraft::Zero => Start::Zero,
            StartDraft::Acc => Start::Acc,
        };
        Ok(Op::Product(Box::new(ProductOp {
            way,
            rows,
            read: matmul.read,
            groups,
            start,
            write_acc: matmul.write_acc,
            out: matmul.stored.as_ref().map(|s| s.span),
            residual: matmul.side.as_ref().map(|s| s.span),
        })))
    }

    /// Whether no weight tile has anything beside its diagonal.
    fn is_diagonal(&self, matmul: &Matmul) -> bool {
        let mut weights = matmul.groups.iter().flat_map(|group| &group.weights);
        weights.all(|weight| is_diagonal(self.tile(weight), self.pads.block))
    }

    fn rows(&mut self, matmul: &Matmul) -> Arc<Rows> {
        let offsets = |tiles: &Option<ByteTiles>| {
            let tiles = tiles.as_ref().map(|t| t.offsets.clone());
            tiles.unwrap_or_default()
        };
        let key = (
            matmul.positions.clone(),
            offsets(&matmul.stored),
            offsets(&matmul.side),
        );
        let (pads, kept_bytes) = (self.pads, &mut self.kept_bytes);
        let rows = self.rows.entry(key);
        let rows = rows.or_insert_with_key(|(positions, out, side)| {
            let row = |(i, b): (usize, usize)| {
                let lane = (b * pads.block) as u32;
                let byte = |bytes: &[u32]| bytes.get(i).map_or(0, |byte| byte + lane);
                Row {
                    dst: lane_of(pads, positions[i]) + lane,
                    out: byte(out),
                    residual: byte(side),
                    lane,
                }
            };
            let all = (0..positions.len()).flat_map(|i| (0..pads.batch).map(move |b| (i, b)));
            *kept_bytes += positions.len() * pads.batch * size_of::<Row>();
            Arc::new(Rows::new(all.map(row).collect()))
        });
        Arc::clone(rows)
    }

    fn inputs(
        &mut self,
        (way, matmul): (Way, &Matmul),
        taps: &Taps,
        columns: usize,
    ) -> Arc<Inputs> {
        if let Some((_, inputs)) = self.last.as_ref().filter(|last| last.0 == columns) {
            return Arc::clone(inputs);
        }
        let rows = matmul.positions.len() * self.pads.batch;
        let most = way.rows(columns);
        // Counted from the first byte that is read, products are often the same.
        let first = matmul.read.map_or(0, |s| s.start as u32);
        let relative = |&byte: &u32| match byte {
            PADDING => PADDING,
            byte => byte - first,
        };
        let inputs: Vec<u32> = matmul.inputs.iter().map(relative).collect();
        let inputs = taps.arrange(inputs, matmul.positions.len(), &PADDING);
        let bundle = taps.bundles.map_or(1, |bundles| bundles.taps);
        // Those of each column or few.
        let readers = matmul.groups.len() * self.pads.block / COLUMN.min(self.pads.block);
        let readers = readers.div_ceil(way.columns());
        let key = ([rows, most, bundle, readers.min(2)], inputs);
        if let Some(found) = self.inputs.get(&key) {
            self.last = Some((columns, Arc::clone(found)));
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
        let mut made = Inputs::new(&offsets, rows, most, taps.bundles);
        if self.pads.staged_inputs {
            made = made.staged_for(way, self.pads.block);
        }
        made = made.packed_for(way, readers);
        let made = Arc::new(made);
        self.inputs.insert(key, Arc::clone(&made));
        self.last = Some((columns, Arc::clone(&made)));
        made
    }

    /// Columns that are worked on together: `(group, first output)`.
    fn group(
        &mut self,
        (way, matmul): (Way, &Matmul),
        taps: &Taps,
        columns: &[(usize, usize)],
    ) -> Result<Columns, Unplanned> {
        let base = |&(group, first): &(usize, usize)| {
            // Counted from the first byte that is stored or read.
            let byte =
                |tiles: &ByteTiles| tiles.first[group] - tiles.span.start as u32 + first as u32;
            Row {
                dst: lane_of(self.pads, matmul.groups[group].dst) + first as u32,
                out: matmul.stored.as_ref().map_or(0, byte),
                residual: matmul.side.as_ref().map_or(0, byte),
                ..Row::default()
            }
        };
        let bases: Vec<Row> = columns.iter().map(base).collect();
        let panel = self.panel((way, matmul), taps, columns)?;
        let mut first: Box<[[i32; COLUMN]]> = panel.corrections().into();
        let after = self.add_first(&mut first, &matmul.after, columns);
        Ok(Columns {
            inputs: self.inputs((way, matmul), taps, columns.len()),
            shift: columns.first().map_or(0, |c| matmul.groups[c.0].shift),
            ahead: None,
            panel,
            first,
            bases: Bases::new(&bases),
            before: self.steps(matmul.before(), columns),
            after: self.steps(after, columns),
        })
    }

    /// 16 values of the first batch row of an int32 tile in DRAM, from an output on; fewer if the block is smaller.
    fn vector(&self, span: &Span, first: usize) -> [i32; COLUMN] {
        let bytes = &self.memory.region(span.region)[span.start..span.start + span.len];
        let words = bytes.as_chunks::<4>().0.iter().take(self.pads.block);
        let mut values = [0; COLUMN];
        for (to, word) in values.iter_mut().zip(words.skip(first)) {
            *to = i32::from_le_bytes(*word);
        }
        values
    }

    /// What a constant operand is for each column; `None` for tiles and bytes.
    fn constant(
        &self,
        operand: &OperandDraft,
        columns: &[(usize, usize)],
    ) -> Option<Vec<[i32; COLUMN]>> {
        match operand {
            OperandDraft::Imm(imm) => Some(vec![[*imm; COLUMN]; columns.len()]),
            OperandDraft::Constants(spans) => {
                let column = |&(group, first): &(usize, usize)| self.vector(&spans[group], first);
                Some(columns.iter().map(column).collect())
            }
            OperandDraft::Values(vectors) => Some(columns_of(vectors, columns)),
            OperandDraft::Tiles(_) | OperandDraft::Scaled(_) => None,
        }
    }

    /// Adds to what sums start from what the first steps would add to them; the other steps.
    fn add_first<'b>(
        &self,
        first: &mut [[i32; COLUMN]],
        mut steps: &'b [StepDraft],
        columns: &[(usize, usize)],
    ) -> &'b [StepDraft] {
        while let [(AluOp::Add, operand), later @ ..] = steps
            && let Some(added) = self.constant(operand, columns)
        {
            let sums = first.as_flattened_mut().iter_mut();
            for (x, y) in sums.zip(added.as_flattened()) {
                *x = x.wrapping_add(*y);
            }
            steps = later;
        }
        steps
    }

    fn steps(&self, steps: &[StepDraft], columns: &[(usize, usize)]) -> Steps {
        let step = |(op, operand): &StepDraft| {
            let operand = match operand {
                OperandDraft::Imm(imm) => return Step::immediate(*op, *imm),
                OperandDraft::Constants(_) | OperandDraft::Values(_) => {
                    let lanes = self.constant(operand, columns);
                    Operand::Lanes(lanes.unwrap_or_default().into())
                }
                OperandDraft::Scaled(vectors) => {
                    Operand::Scaled(columns_of(vectors, columns).into())
                }
                OperandDraft::Tiles(tiles) => {
                    let mut lanes = [0; MAX_COLUMNS];
                    for (lane, &(group, first)) in lanes.iter_mut().zip(columns) {
                        *lane = lane_of(self.pads, tiles[group]) + first as u32;
                    }
                    Operand::Tiles(lanes)
                }
            };
            Step { op: *op, operand }
        };
        Steps::new(steps.iter().map(step).collect())
    }

    fn panel(
        &mut self,
        (way, matmul): (Way, &Matmul),
        taps: &Taps,
        columns: &[(usize, usize)],
    ) -> Result<Arc<Panel>, Unplanned> {
        let weights = |&(group, first): &(usize, usize)| {
            let weights = matmul.groups[group].weights.clone();
            (first, taps.arrange(weights, 1, &Weight::Zero))
        };
        let key: PanelKey = (way.format, columns.iter().map(weights).collect());
        if let Some(panel) = self.panels.get(&key) {
            return Ok(Arc::clone(panel));
        }
        let column = |(first, weights): &(usize, Vec<Weight>)| Column {
            tiles: weights.iter().map(|w| self.tile(w)).collect(),
            first: *first,
        };
        let parts: Vec<Column<'_>> = key.1.iter().map(column).collect();
        let panel = Arc::new(Panel::new(&parts, way.format, self.pads.block));
        self.kept_bytes += size_of_val(panel.lines());
        if self.kept_bytes > self.most_bytes {
            return Err(Unplanned::Memory);
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

/// The first int32 of an accumulator tile.
fn lane_of(pads: &Scratchpads, tile: u16) -> u32 {
    // Scratchpads have at most `Config::MAX_ACC_DEPTH` tiles of a few kilobytes.
    u32::from(tile) * pads.lanes as u32
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
