//! The second pass: steps find their tiles' places.

use std::ops::Range;

use vta_isa::resolve::{AluAccess, LoadAccess, Rows, StoreAccess, Uops};
use vta_isa::{Config, MemType};

use crate::chain::Chain;
use crate::error::EngineError;
use crate::ops::{Kind, Op, Touches};
use crate::products::{Product, Target};
use crate::steps::{Step, loaded, narrow};
use crate::versions::{Pad, Places};

/// A step at its place, not yet joined with others.
#[derive(Debug)]
pub(crate) enum Placed {
    Product(Product),
    Chain(Chain),
    Op(Box<Op>),
}

fn moved(range: &Range<u32>, shift: u32) -> Range<usize> {
    range.start.wrapping_add(shift) as usize..range.end.wrapping_add(shift) as usize
}

/// Gives steps their places, in their order.
///
/// - *Pattern*: a LOAD or a reset overwrites tiles that something before it still needs.
/// - *Condition*: the device has room for the tiles elsewhere, until the last step that reads
///   them; what one step reads together stays together, what is left at the batch's end stays at
///   home ([`Versions`](crate::versions::Versions)).
/// - *Proof*: every step reads from where the last writer of each tile was sent, since places
///   follow the writes in the order of the steps, as the program's own would; and no place is
///   given again before the last reader of what it holds. So each step finds the words that it
///   would find at home.
pub(crate) struct Placer<'a> {
    config: &'a Config,
    target: Target,
    /// The address of the first byte of the device's memory buffer.
    dram_base: u64,
    places: Places,
}

impl<'a> Placer<'a> {
    pub fn new(config: &'a Config, target: Target, dram_base: u64, places: Places) -> Self {
        Self {
            config,
            target,
            dram_base,
            places,
        }
    }

    /// The next step, which has this number.
    ///
    /// # Errors
    /// [`EngineError::Internal`]: what the first pass kept as a chain is none.
    pub fn place(&mut self, number: usize, step: Step) -> Result<Placed, EngineError> {
        Ok(match step {
            Step::Load(access) => {
                let (pad, tiles) = loaded(&access);
                let runs = std::slice::from_ref(&tiles);
                let shift = self.places.write(pad, runs, number);
                Placed::Op(Box::new(self.load(&access, pad, moved(&tiles, shift))))
            }
            Step::Store(access) => {
                let tiles = narrow(&access.tiles);
                let shift = self.places.shift(Pad::Acc, tiles.start);
                Placed::Op(Box::new(self.store(&access, moved(&tiles, shift))))
            }
            Step::Clear(runs) => {
                self.places.write(Pad::Acc, &runs, number);
                self.chain(Chain::clear(runs.into_iter().flatten()))
            }
            Step::Chain(alu, uops) => {
                let access = AluAccess::of(alu, Uops::of(&uops));
                let chain = Chain::of(&access, self.config.depth(MemType::Acc));
                let lost = EngineError::Internal("an ALU instruction is no chain any more");
                self.chain(chain.ok_or(lost)?)
            }
            Step::Product(mut product) => {
                product.place(&self.places);
                Placed::Product(product)
            }
            Step::Op(op) => Placed::Op(op),
        })
    }

    fn chain(&self, mut chain: Chain) -> Placed {
        chain.place(|tile| self.places.shift(Pad::Acc, tile));
        Placed::Chain(chain)
    }

    /// The place of the first row in the device's buffer. The rows were checked, so they lie
    /// behind its first byte.
    fn offset(&self, rows: &Rows) -> u32 {
        (rows.first - self.dram_base) as u32
    }

    fn load(&self, access: &LoadAccess, pad: Pad, to: Range<usize>) -> Op {
        let (load, rows) = (&access.load, access.rows);
        let (y, x, offset) = (load.y_size, load.x_size, self.offset(&rows));
        let lanes = self.target.batch * self.target.block;
        let area = self.target.block.pow(2);
        let tiles = to.len() as u32;
        let shape = self.target.shape;
        let (kind, units, cost) = match load.mem {
            MemType::Wgt => (Kind::LoadWgt, area / shape.wgt_elems, area * 3),
            MemType::Inp => (Kind::LoadInp, lanes / shape.lanes, lanes * 2),
            MemType::Acc => (Kind::LoadAcc, lanes / shape.lanes, lanes * 2),
            MemType::Acc8 | MemType::Out | MemType::Uop => {
                (Kind::LoadAcc8, lanes / shape.lanes, lanes * 2)
            }
        };
        let cols = u32::from(load.x_pad_0) + u32::from(x) + u32::from(load.x_pad_1);
        let args = vec![
            to.start as u32,
            offset,
            rows.stride_bytes as u32,
            x.into(),
            y.into(),
            load.x_pad_0.into(),
            load.y_pad_0.into(),
            cols,
        ];
        Op {
            kind,
            units: tiles * units,
            args,
            touches: Touches {
                reads_dram: Some(rows),
                ..Touches::default().writing(pad, to)
            },
            cost: u64::from(tiles) * u64::from(cost),
        }
    }

    fn store(&self, access: &StoreAccess, from: Range<usize>) -> Op {
        let rows = access.rows;
        let (y, x) = (access.store.y_size, access.store.x_size);
        let offset = self.offset(&rows);
        let tiles = from.len() as u32;
        let lanes = self.target.batch * self.target.block;
        let stride = rows.stride_bytes as u32;
        let args = vec![
            from.start as u32,
            offset,
            stride,
            x.into(),
            y.into(),
            0,
            0,
            x.into(),
        ];
        Op {
            kind: Kind::Store,
            units: tiles * (lanes / self.target.shape.lanes),
            args,
            touches: Touches {
                writes_dram: Some(rows),
                ..Touches::default().reading(Pad::Acc, from)
            },
            cost: u64::from(tiles * lanes * 2),
        }
    }
}
