//! Steps, which the first pass makes of instructions, and the second pass: they find their tiles' places.

use std::ops::Range;

use vta_isa::resolve::{AluAccess, LoadAccess, Rows, StoreAccess, Uops, merge};
use vta_isa::{Alu, Load, MemType, Requantize, Uop};

use crate::error::EngineError;
use crate::plan::chain::Chain;
use crate::plan::join::Group;
use crate::plan::ops::{Kind, Op, Touches, narrow};
use crate::plan::products::{Joined, Product};
use crate::plan::target::Target;
use crate::plan::versions::{Places, Scratchpad};

/// What an instruction does, with tiles at home.
#[derive(Debug)]
pub(crate) enum Step {
    Load(LoadAccess),
    Store(StoreAccess),
    /// Zeroes runs of tiles.
    Clear(Vec<Range<u32>>),
    /// An instruction that is a chain, with its micro-ops.
    Chain(Alu, Vec<Uop>),
    Product(Product),
    /// Only works at home.
    Op(Box<Op>),
}

/// The scratchpad that a LOAD fills, and the tiles there.
pub(crate) fn loaded(access: &LoadAccess) -> (Scratchpad, Range<u32>) {
    let scratchpad = match access.load.mem {
        MemType::Inp => Scratchpad::Inp,
        MemType::Wgt | MemType::Wgt4 => Scratchpad::Wgt,
        // LOAD OUT doesn't decode, and micro-ops stay on the host.
        MemType::Acc | MemType::Acc8 | MemType::Out | MemType::Uop => Scratchpad::Acc,
    };
    (scratchpad, narrow(&access.entries))
}

fn moved(range: &Range<u32>, shift: u32) -> Range<usize> {
    range.start.wrapping_add(shift) as usize..range.end.wrapping_add(shift) as usize
}

/// Gives steps their places, in their order.
///
/// - *Pattern*: a LOAD or a reset overwrites tiles that something before it still needs.
/// - *Condition*: the device has room for the tiles elsewhere, until the last step that reads
///   them; what one step reads together stays together, what is left at the batch's end stays at
///   home ([`Versions`](crate::plan::versions::Versions)).
/// - *Proof*: every step reads from where the last writer of each tile was sent, since places
///   follow the writes in the order of the steps, as the program's own would; and no place is
///   given again before the last reader of what it holds. So each step finds the words that it
///   would find at home.
pub(crate) struct Placer<'a> {
    pub target: &'a Target,
    pub places: Places,
}

impl Placer<'_> {
    /// The next step, which has this number.
    ///
    /// # Errors
    /// [`EngineError::Internal`]: what the first pass kept as a chain is none.
    pub fn place(&mut self, number: usize, step: Step) -> Result<Group, EngineError> {
        Ok(match step {
            Step::Load(access) => {
                let (scratchpad, tiles) = loaded(&access);
                let runs = std::slice::from_ref(&tiles);
                let shift = self.places.write(scratchpad, runs, number);
                Group::Op(Box::new(self.load(
                    &access,
                    scratchpad,
                    moved(&tiles, shift),
                )))
            }
            Step::Store(access) => {
                let place = |tiles: &Range<usize>| {
                    let tiles = narrow(tiles);
                    let shift = self.places.shift(Scratchpad::Acc, tiles.start);
                    moved(&tiles, shift)
                };
                let (tiles, rows) = (place(&access.tiles), self.in_buffer(access.rows));
                match &access.store.requantize {
                    None => Chain::store(&tiles, &rows, access.store.saturate).into(),
                    Some(how) => {
                        let read = [tiles].into_iter().chain(access.operands.iter().map(place));
                        Group::Op(Box::new(self.requantize(
                            how,
                            &rows,
                            &read.collect::<Vec<_>>(),
                        )))
                    }
                }
            }
            Step::Clear(runs) => {
                self.places.write(Scratchpad::Acc, &runs, number);
                self.chain(Chain::clear(runs))
            }
            Step::Chain(alu, uops) => {
                let access = AluAccess::of(alu, Uops::of(&uops));
                let chain = Chain::of(&access, self.target.config.depth(MemType::Acc));
                let lost = EngineError::Internal("an ALU instruction is no chain any more");
                self.chain(chain.ok_or(lost)?)
            }
            Step::Product(mut product) => {
                product.place(&self.places);
                Group::Products(Joined::new(product))
            }
            Step::Op(op) => Group::Op(op),
        })
    }

    fn chain(&self, chain: Chain) -> Group {
        let placed = chain.placed(|tiles| self.places.parts(Scratchpad::Acc, tiles));
        placed.into()
    }

    /// A STORE of sums with the tiles of a table and of residuals, if there are any, to rows that don't overlap.
    fn requantize(&self, how: &Requantize, rows: &Rows, read: &[Range<usize>]) -> Op {
        let [sums, table, residuals] = [0, 1, 2].map(|n| read.get(n).cloned().unwrap_or(0..0));
        let (tiles, lanes) = (sums.len() as u32, self.target.lanes());
        let entry = if how.by_row { how.entry_tiles() } else { 0 };
        let args = vec![
            sums.start as u32,
            rows.first as u32,
            rows.stride_bytes as u32,
            tiles / u32::from(rows.rows),
            table.start as u32,
            entry as u32,
            u32::from(!residuals.is_empty()),
            residuals.start as u32,
        ];
        let mut writes_dram: Vec<_> = rows
            .iter()
            .map(|row| row.start as usize..row.end as usize)
            .collect();
        merge(&mut writes_dram);
        let touches = Touches {
            writes_dram,
            ..Touches::default()
        };
        let read = [sums, table, residuals].into_iter();
        let read = read.filter(|tiles| !tiles.is_empty());
        Op {
            kind: Kind::Requantize,
            units: tiles * (lanes / self.target.shape.lanes),
            args,
            touches: read.fold(touches, |touches, tiles| {
                touches.reading(Scratchpad::Acc, tiles)
            }),
            cost: u64::from(tiles) * u64::from(lanes) * 8,
        }
    }

    fn load(&self, access: &LoadAccess, scratchpad: Scratchpad, to: Range<usize>) -> Op {
        let (load, shape) = (&access.load, self.target.shape);
        let (lanes, area) = (
            self.target.lanes(),
            self.target.config.block().pow(2) as u32,
        );
        let (kind, units, cost) = match load.mem {
            MemType::Wgt | MemType::Wgt4 => (Kind::LoadWgt, area / shape.wgt_elems, area * 3),
            MemType::Inp => (Kind::LoadInp, lanes / shape.lanes, lanes * 2),
            MemType::Acc => (Kind::LoadAcc, lanes / shape.lanes, lanes * 2),
            MemType::Acc8 | MemType::Out | MemType::Uop => {
                (Kind::LoadAcc8, lanes / shape.lanes, lanes * 2)
            }
        };
        let tiles = to.len() as u32;
        let rows = self.in_buffer(access.rows);
        let bytes = rows.apart();
        Op {
            kind,
            units: tiles * units,
            args: words(&rows, &to, load),
            touches: Touches {
                reads_dram: bytes
                    .map(|row| row.start as usize..row.end as usize)
                    .collect(),
                ..Touches::default().writing(scratchpad, to)
            },
            cost: u64::from(tiles) * u64::from(cost),
        }
    }

    /// Rows from the first byte of the device's buffer on. They were checked, so they lie behind it.
    fn in_buffer(&self, rows: Rows) -> Rows {
        Rows {
            first: rows.first - self.target.dram.0,
            ..rows
        }
    }
}

/// The words of a LOAD of tiles from rows of the device's buffer.
fn words(rows: &Rows, tiles: &Range<usize>, load: &Load) -> Vec<u32> {
    let cols = u32::from(load.x_pad_0) + u32::from(load.x_size) + u32::from(load.x_pad_1);
    vec![
        tiles.start as u32,
        rows.first as u32,
        rows.stride_bytes as u32,
        load.x_size.into(),
        load.y_size.into(),
        load.x_pad_0.into(),
        load.y_pad_0.into(),
        cols,
        i32::from(load.pad_value) as u32,
        u32::from(load.mem == MemType::Wgt4),
    ]
}
