//! The second pass of decoding: steps find their tiles' places, join what was begun, and become
//! operations.

use std::ops::Range;

use vta_isa::resolve::{AluAccess, LoadAccess, Rows, StoreAccess, Uops};
use vta_isa::{Alu, Config, MemType, Uop};

use crate::chain::Chain;
use crate::ops::{Decoded, Kind, Op, Tables, Touches};
use crate::products::{Joined, Product, Products, Target};
use crate::versions::{Pad, Places};

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
pub(crate) fn loaded(access: &LoadAccess) -> (Pad, Range<u32>) {
    let pad = match access.load.mem {
        MemType::Inp => Pad::Inp,
        MemType::Wgt => Pad::Wgt,
        // LOAD OUT doesn't decode, and micro-ops stay on the host.
        MemType::Acc | MemType::Acc8 | MemType::Out | MemType::Uop => Pad::Acc,
    };
    (pad, narrow(&access.entries))
}

/// Tiles of a scratchpad, whose indices have 16 bits at most.
pub(crate) fn narrow(tiles: &Range<usize>) -> Range<u32> {
    tiles.start as u32..tiles.end as u32
}

fn moved(range: &Range<u32>, shift: u32) -> Range<usize> {
    range.start.wrapping_add(shift) as usize..range.end.wrapping_add(shift) as usize
}

/// What the second pass starts from.
pub(crate) struct Source<'a> {
    pub config: &'a Config,
    pub target: Target,
    /// The address of the first byte of the device's memory buffer.
    pub dram_base: u64,
    pub places: Places,
    pub products: Products,
    pub tables: Tables,
}

/// Makes operations of all steps.
pub(crate) fn emit(source: Source<'_>, steps: Vec<Step>) -> Decoded {
    let mut emitter = Emitter {
        source,
        ops: Vec::new(),
        joined: None,
        chain: None,
    };
    for (number, step) in steps.into_iter().enumerate() {
        emitter.step(number, step);
    }
    emitter.close_joined();
    emitter.close_chain();
    Decoded {
        ops: emitter.ops,
        tables: emitter.source.tables.words,
    }
}

struct Emitter<'a> {
    source: Source<'a>,
    ops: Vec<Op>,
    /// What may still be joined to. Neither touches what the other writes, and nothing that was
    /// emitted since either began does.
    joined: Option<Joined>,
    chain: Option<(Chain, Touches)>,
}

impl Emitter<'_> {
    fn step(&mut self, number: usize, step: Step) {
        match step {
            Step::Load(access) => {
                let (pad, tiles) = loaded(&access);
                let shift = self
                    .source
                    .places
                    .write(pad, std::slice::from_ref(&tiles), number);
                let op = self.load(&access, pad, moved(&tiles, shift));
                self.push(op);
            }
            Step::Store(access) => {
                let tiles = narrow(&access.tiles);
                let shift = self.source.places.shift(Pad::Acc, tiles.start);
                let op = self.store(&access, moved(&tiles, shift));
                self.push(op);
            }
            Step::Clear(runs) => {
                let mut chain = Chain::clear(runs.iter().cloned().flatten());
                self.source.places.write(Pad::Acc, &runs, number);
                chain.place(|tile| self.source.places.shift(Pad::Acc, tile));
                self.extend_chain(chain);
            }
            Step::Chain(alu, uops) => {
                let depth = self.source.config.depth(MemType::Acc);
                let access = AluAccess::of(alu, Uops::of(&uops));
                if let Some(mut chain) = Chain::of(&access, depth) {
                    chain.place(|tile| self.source.places.shift(Pad::Acc, tile));
                    self.extend_chain(chain);
                }
            }
            Step::Product(mut product) => {
                product.place(&self.source.places);
                self.join(product);
            }
            Step::Op(op) => self.push(*op),
        }
    }

    /// Emits an operation behind what it must wait for.
    fn push(&mut self, op: Op) {
        self.close_before(&op.touches);
        self.ops.push(op);
    }

    fn close_before(&mut self, touches: &Touches) {
        let conflicts = |t: &Touches| t.conflicts(touches);
        if self.joined.as_ref().is_some_and(|j| conflicts(&j.touches)) {
            self.close_joined();
        }
        if self.chain.as_ref().is_some_and(|c| conflicts(&c.1)) {
            self.close_chain();
        }
    }

    fn join(&mut self, product: Product) {
        let touches = product.touches();
        if self.chain.as_ref().is_some_and(|c| c.1.conflicts(&touches)) {
            self.close_chain();
        }
        let rest = match &mut self.joined {
            Some(joined) => joined.take(product, &touches),
            None => Some(product),
        };
        if let Some(product) = rest {
            self.close_joined();
            self.joined = Some(Joined::new(product, touches));
        }
    }

    fn close_joined(&mut self) {
        if let Some(joined) = self.joined.take() {
            let ops = joined.encode(
                &mut self.source.products,
                &mut self.source.tables,
                &self.source.target,
            );
            self.ops.extend(ops);
        }
    }

    /// Appends to the chain that is being built, or starts another.
    fn extend_chain(&mut self, more: Chain) {
        let touches = more.touches();
        if self
            .joined
            .as_ref()
            .is_some_and(|j| j.touches.conflicts(&touches))
        {
            self.close_joined();
        }
        if let Some((chain, all)) = &mut self.chain {
            if chain.append(&more) {
                *all = chain.touches();
                return;
            }
            self.close_chain();
        }
        self.chain = Some((more, touches));
    }

    fn close_chain(&mut self) {
        let Some((chain, touches)) = self.chain.take() else {
            return;
        };
        let tables = &mut self.source.tables;
        let args = chain.encode(|list| tables.list(list));
        let tiles = touches.writes[Pad::Acc as usize]
            .iter()
            .map(|r| r.len() as u32);
        let tiles: u32 = tiles.sum();
        let lanes = self.source.target.batch * self.source.target.block;
        self.ops.push(Op {
            kind: Kind::Chain,
            units: tiles * (lanes / self.source.target.shape.lanes),
            cost: u64::from(tiles * lanes) * (2 + u64::from(args[1])),
            args,
            touches,
        });
    }

    /// The place of the first row in the device's buffer. The rows were checked, so they lie
    /// behind its first byte.
    fn offset(&self, rows: &Rows) -> u32 {
        (rows.first - self.source.dram_base) as u32
    }

    fn load(&self, access: &LoadAccess, pad: Pad, to: Range<usize>) -> Op {
        let (load, rows) = (&access.load, access.rows);
        let (y, x, offset) = (load.y_size, load.x_size, self.offset(&rows));
        let lanes = self.source.target.batch * self.source.target.block;
        let area = self.source.target.block.pow(2);
        let tiles = to.len() as u32;
        let shape = self.source.target.shape;
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
        let lanes = self.source.target.batch * self.source.target.block;
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
            units: tiles * (lanes / self.source.target.shape.lanes),
            args,
            touches: Touches {
                writes_dram: Some(rows),
                ..Touches::default().reading(Pad::Acc, from)
            },
            cost: u64::from(tiles * lanes * 2),
        }
    }
}
