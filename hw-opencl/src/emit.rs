//! The second pass of decoding: steps find their tiles' places, join what was begun, and become
//! operations.

use std::ops::Range;

use vta_isa::{Alu, Config, Load, MemType, Store};

use crate::chain::Chain;
use crate::ops::{Decoded, DramRows, Kind, Op, Tables, Touches};
use crate::products::{Joined, Product, Products, Target};
use crate::versions::{Pad, Places};

/// What an instruction does, with tiles at home.
#[derive(Debug)]
pub(crate) enum Step {
    Load(Load),
    Store(Store),
    /// Zeroes runs of tiles.
    Clear(Vec<Range<u32>>),
    /// An instruction that is a chain, with its micro-ops.
    Chain(Alu, Vec<u32>),
    Product(Product),
    /// Only works at home.
    Op(Box<Op>),
}

/// The tiles that a LOAD fills.
pub(crate) fn loaded(load: &Load) -> (Pad, Range<u32>) {
    let pad = match load.mem {
        MemType::Inp => Pad::Inp,
        MemType::Wgt => Pad::Wgt,
        // LOAD OUT doesn't decode, and micro-ops stay on the host.
        MemType::Acc | MemType::Acc8 | MemType::Out | MemType::Uop => Pad::Acc,
    };
    let first = u32::from(load.sram_base);
    (pad, first..first + load.sram_tiles() as u32)
}

/// The tiles that a STORE reads.
pub(crate) fn stored(store: &Store) -> Range<u32> {
    let first = u32::from(store.sram_base);
    first..first + store.tiles() as u32
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
            Step::Load(load) => {
                let (pad, tiles) = loaded(&load);
                let shift = self
                    .source
                    .places
                    .write(pad, std::slice::from_ref(&tiles), number);
                let op = self.load(&load, pad, moved(&tiles, shift));
                self.push(op);
            }
            Step::Store(store) => {
                let tiles = stored(&store);
                let shift = self.source.places.shift(Pad::Acc, tiles.start);
                let op = self.store(&store, moved(&tiles, shift));
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
                if let Some(mut chain) = Chain::of(&alu, &uops, depth) {
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

    /// Rows in DRAM, and the first one's place in the device's buffer.
    fn transfer(&self, mem: MemType, base: u32, y: u16, x: u16, stride: u16) -> (DramRows, u32) {
        let elem = self.source.config.elem_bytes(mem) as u64;
        let rows = DramRows {
            first: u64::from(base) * elem,
            row_bytes: u64::from(x) * elem,
            stride_bytes: u64::from(stride) * elem,
            rows: u32::from(y),
        };
        // The rows were checked, so they lie behind the first byte of the buffer.
        (rows, (rows.first - self.source.dram_base) as u32)
    }

    fn load(&self, load: &Load, pad: Pad, to: Range<usize>) -> Op {
        let (y, x) = (load.y_size, load.x_size);
        let (rows, offset) = self.transfer(load.mem, load.dram_base, y, x, load.x_stride);
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

    fn store(&self, store: &Store, from: Range<usize>) -> Op {
        let (y, x) = (store.y_size, store.x_size);
        let (rows, offset) = self.transfer(MemType::Out, store.dram_base, y, x, store.x_stride);
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
