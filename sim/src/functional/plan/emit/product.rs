//! Products as the kernels take them.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use vta_driver::{DeviceMemory, Span};
use vta_isa::AluOp;

use super::super::draft::{ByteTiles, Matmul, OperandDraft, StartDraft, StepDraft, Vector, Weight};
use super::super::elementwise::{diagonal_of, is_diagonal};
use super::super::places::{Lists, Places, Same};
use super::super::unplanned::Unplanned;
use super::taps::Taps;
use crate::functional::run::ops::{Columns, Op, ProductOp};
use crate::functional::run::scratchpads::Scratchpads;
use crate::kernels::{
    Bases, COLUMN, Column, Format, Grid, Inputs, MAX_COLUMNS, Operand, PADDING, Panel, Row, Rows,
    Sheets, Start, Step, Steps, Way,
};

/// What rows depend on: positions, and the bytes of each that are stored and read beside.
type RowsKey = (Vec<u16>, Vec<u32>, Vec<u32>);
/// What the order of inputs depends on: where they lie, their kernel, positions and columns.
type OrderKey = (Places, Way, [usize; 2]);
/// What inputs depend on: rows, rows of a block, taps of a bundle, products that read them, and the bytes of each tap and position.
type InputsKey = ([usize; 4], Same<u32>);
/// What a panel depends on: how weights lie, weights and first output of each column.
type PanelKey = (Format, Vec<(usize, Vec<Weight>)>);

/// The order in which a kernel takes taps and positions, and inputs in this order, from the first byte that is read.
struct Order {
    taps: Taps,
    inputs: Same<u32>,
    /// The order of positions, if it isn't the product's.
    grid: Option<Grid>,
}

impl Order {
    /// What there is of each position, in order.
    fn arrange<T: Copy>(&self, list: &[T]) -> Vec<T> {
        match &self.grid {
            Some(grid) => grid.arrange(list),
            None => list.to_vec(),
        }
    }
}

/// Makes the products of one plan; equal parts are shared.
pub(in super::super) struct Products<'a> {
    memory: &'a DeviceMemory,
    pads: &'a Scratchpads,
    rows: FxHashMap<RowsKey, Arc<Rows>>,
    orders: FxHashMap<OrderKey, Rc<Order>>,
    /// Inputs in order; none that is equal to another.
    lists: Lists<u32>,
    inputs: FxHashMap<InputsKey, Arc<Inputs>>,
    panels: FxHashMap<PanelKey, Arc<Panel>>,
    /// What panels are written on.
    pub sheets: Sheets,
    /// Bytes of weights, rows and offsets that the plan keeps, and how many it may.
    pub kept_bytes: usize,
    most_bytes: usize,
    steps: FxHashMap<Vec<Step>, Arc<Steps>>,
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
            orders: FxHashMap::default(),
            lists: Lists::default(),
            inputs: FxHashMap::default(),
            panels: FxHashMap::default(),
            sheets: Sheets::default(),
            steps: FxHashMap::default(),
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
            kernel.of_product(
                positions * batch,
                taps * block,
                self.lie_side_by_side(matmul),
            )
        };
        let most = way.columns();
        let order = self.order((way, matmul), columns.len());
        let rows = self.rows(matmul, &order);
        let mut groups = Vec::with_capacity(columns.len().div_ceil(most));
        let shift = |column: &(usize, usize)| matmul.groups[column.0].shift;
        for mut rest in columns.chunk_by(|a, b| shift(a) == shift(b)) {
            while !rest.is_empty() {
                // About even: five columns are three and two, not four and one.
                let take = rest.len().div_ceil(rest.len().div_ceil(most));
                let (now, later) = rest.split_at(take);
                rest = later;
                groups.push(self.group((way, matmul), &order, now)?);
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

    /// Whether the inputs of all rows lie side by side in every tap.
    fn lie_side_by_side(&self, matmul: &Matmul) -> bool {
        let step = (self.pads.batch * self.pads.block) as u32;
        let follows = |pair: &[u32]| pair[1].checked_sub(pair[0]) == Some(step);
        let side_by_side = |tap: &[u32]| !tap.contains(&PADDING) && tap.windows(2).all(follows);
        let mut taps = matmul.inputs.taps(matmul.positions.len().max(1));
        taps.all(|(tap, _)| side_by_side(tap))
    }

    /// Whether no weight tile has anything beside its diagonal.
    fn is_diagonal(&self, matmul: &Matmul) -> bool {
        let mut weights = matmul.weights.iter();
        weights.all(|weight| is_diagonal(&self.tile(weight), self.pads.block))
    }

    fn rows(&mut self, matmul: &Matmul, order: &Order) -> Arc<Rows> {
        let offsets = |tiles: &Option<ByteTiles>| {
            let tiles = tiles.as_ref().map(|tiles| order.arrange(&tiles.offsets));
            tiles.unwrap_or_default()
        };
        let key = (
            order.arrange(&matmul.positions),
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

    fn order(&mut self, (way, matmul): (Way, &Matmul), columns: usize) -> Rc<Order> {
        // Counted from the first byte that is read, products are often the same.
        let first = matmul.read.map_or(0, |s| s.start as u32);
        let (places, positions) = (matmul.inputs.behind(first), matmul.positions.len());
        let (block, batch, lists) = (self.pads.block, self.pads.batch, &mut self.lists);
        let order = self.orders.entry((places, way, [positions, columns]));
        let order = order.or_insert_with_key(|(places, ..)| {
            let offsets = places.to_vec();
            let taps = Taps::of(way, &offsets, [positions, columns, block]);
            let mut inputs = taps.arrange(&offsets, (positions, 0..positions), &PADDING);
            let window = taps.window.filter(|_| way.takes_patches() && batch == 1);
            let grid = window.and_then(|window| Grid::of(window, &inputs, positions));
            if let Some(grid) = &grid {
                inputs = grid.arrange(&inputs);
            }
            let inputs = Same(lists.one(&inputs));
            Rc::new(Order { taps, inputs, grid })
        });
        Rc::clone(order)
    }

    fn inputs(
        &mut self,
        (way, matmul): (Way, &Matmul),
        order: &Order,
        columns: usize,
    ) -> Arc<Inputs> {
        let rows = matmul.positions.len() * self.pads.batch;
        let most = way.rows(columns);
        let bundles = order.taps.bundles;
        let bundle = bundles.map_or(1, |bundles| bundles.taps);
        // Those of each column or few.
        let readers = matmul.groups.len() * self.pads.block / COLUMN.min(self.pads.block);
        let readers = readers.div_ceil(way.columns());
        let key = ([rows, most, bundle, readers.min(2)], order.inputs.clone());
        if let Some(found) = self.inputs.get(&key) {
            return Arc::clone(found);
        }
        let (list, batch, block) = (&order.inputs.0, self.pads.batch, self.pads.block);
        let row = |&byte: &u32| {
            (0..batch).map(move |b| match byte {
                PADDING => PADDING,
                byte => byte + (b * block) as u32,
            })
        };
        self.kept_bytes += size_of_val(&list[..]) * batch;
        let mut made = match (&order.grid, batch) {
            (Some(grid), _) => Inputs::in_patches(list, grid, bundles),
            (None, 1) => Inputs::new(list, rows, most, bundles),
            (None, _) => Inputs::new(
                &list.iter().flat_map(row).collect::<Vec<_>>(),
                rows,
                most,
                bundles,
            ),
        };
        if self.pads.staged_inputs {
            made = made.staged_for(way, block);
        }
        let made = Arc::new(made.side_by_side_for(way, block).packed_for(way, readers));
        self.inputs.insert(key, Arc::clone(&made));
        made
    }

    /// Columns that are worked on together: `(group, first output)`.
    fn group(
        &mut self,
        (way, matmul): (Way, &Matmul),
        order: &Order,
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
        let panel = self.panel((way, matmul), &order.taps, columns)?;
        let mut first: Box<[[i32; COLUMN]]> = panel.corrections().into();
        let after = self.add_first(&mut first, &matmul.after, columns);
        Ok(Columns {
            inputs: self.inputs((way, matmul), order, columns.len()),
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

    fn steps(&mut self, steps: &[StepDraft], columns: &[(usize, usize)]) -> Arc<Steps> {
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
        let steps = self.steps.entry(steps.iter().map(step).collect());
        let steps = steps.or_insert_with_key(|list| Arc::new(Steps::new(list.clone())));
        Arc::clone(steps)
    }

    fn panel(
        &mut self,
        (way, matmul): (Way, &Matmul),
        taps: &Taps,
        columns: &[(usize, usize)],
    ) -> Result<Arc<Panel>, Unplanned> {
        let weights = |&(group, first): &(usize, usize)| {
            let of_group = (matmul.groups.len(), group..group + 1);
            (
                first,
                taps.arrange(&matmul.weights, of_group, &Weight::Zero),
            )
        };
        let key: PanelKey = (way.format, columns.iter().map(weights).collect());
        if let Some(panel) = self.panels.get(&key) {
            return Ok(Arc::clone(panel));
        }
        let mut sheets = std::mem::take(&mut self.sheets);
        let tiles = |(first, weights): &(usize, Vec<Weight>)| {
            let tiles: Vec<_> = weights.iter().map(|w| self.tile(w)).collect();
            (*first, tiles)
        };
        let tiles: Vec<_> = key.1.iter().map(tiles).collect();
        let parts: Vec<Column<'_>> = tiles.iter().map(column).collect();
        let panel = Panel::new(&parts, way.format, self.pads.block, &mut sheets);
        self.sheets = sheets;
        let panel = Arc::new(panel.ok_or(Unplanned::Memory)?);
        self.kept_bytes += panel.bytes();
        if self.kept_bytes > self.most_bytes {
            return Err(Unplanned::Memory);
        }
        self.panels.insert(key, Arc::clone(&panel));
        Ok(panel)
    }

    /// The bytes of a weight tile.
    pub fn tile(&self, weight: &Weight) -> Cow<'_, [u8]> {
        let len = self.zeros.len();
        let zeros = Cow::Borrowed(&self.zeros[..]);
        // Spans were resolved in this memory.
        let tile = weight.read(len, self.memory).unwrap_or(zeros);
        match *weight {
            Weight::Held(tile) => Cow::Borrowed(&self.pads.wgt[usize::from(tile) * len..][..len]),
            Weight::Tap { tap, .. } => Cow::Owned(diagonal_of(&tile, tap, self.pads.block)),
            Weight::Zero | Weight::Dram { .. } => tile,
        }
    }
}

fn column<'t>((first, tiles): &'t (usize, Vec<Cow<'_, [u8]>>)) -> Column<'t> {
    Column {
        tiles: tiles.iter().map(|tile| &**tile).collect(),
        first: *first,
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
