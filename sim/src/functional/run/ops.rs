//! The operations of a plan.

use std::ops::Range;
use std::sync::Arc;

use vta_driver::Span;
use vta_isa::resolve::{self, Interval};
use vta_isa::{Load, MemType, Requantize, Store};

use super::shape::Shape;
use crate::kernels::lanes::{Gather, Map, TileRun};
use crate::kernels::requantize::Requantizing;
use crate::kernels::{Bases, COLUMN, Inputs, Panel, Rows, Start, Step, Steps, Way};

/// One thing to do.
pub(crate) enum Op {
    /// The compute module reaches a layer's first instruction.
    Mark(usize),
    Load(LoadOp),
    Store(StoreOp),
    /// Makes all tiles of some runs of accumulators the same.
    Fill {
        runs: Box<[Filled]>,
        /// Tiles, one behind the other.
        values: Box<[i32]>,
    },
    /// Immediate steps on runs of accumulators that are apart: first int32 and how many.
    Chain {
        steps: Vec<Step>,
        runs: Arc<[(u32, u32)]>,
    },
    /// Steps on two accumulator tiles, in order.
    Zip {
        op: vta_isa::AluOp,
        runs: Box<[TileRun]>,
    },
    /// Tiles that take in lists of tiles.
    Gather {
        op: vta_isa::AluOp,
        table: Box<Gather>,
    },
    Map(Box<MapOp>),
    Product(Box<ProductOp>),
}

impl Op {
    /// Memory that it takes, without what it shares with others.
    pub fn bytes(&self) -> usize {
        let lists = match self {
            Self::Mark(_) | Self::Load(_) | Self::Store(_) => 0,
            Self::Fill { runs, values } => size_of_val(&**runs) + size_of_val(&**values),
            Self::Chain { steps, runs } => size_of_val(&steps[..]) + size_of_val(&**runs),
            Self::Zip { runs, .. } => size_of_val(&**runs),
            Self::Gather { table, .. } => table.bytes(),
            Self::Map(op) => size_of_val(&**op) + op.map.bytes(),
            Self::Product(product) => {
                let sums = |columns: &Columns| size_of_val(&*columns.first);
                size_of_val(&**product)
                    + size_of_val(&product.groups[..])
                    + product.groups.iter().map(sums).sum::<usize>()
            }
        };
        size_of_val(self) + lists
    }
}

/// A run of accumulators: its first int32 and how many, and the first of the tile that all become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub first: u32,
    pub len: u32,
    pub from: u32,
}

/// Rows of DRAM bytes into a scratchpad.
#[derive(Clone, Debug)]
pub(crate) struct LoadOp {
    pub mem: MemType,
    /// Elements of the scratchpad, padding included.
    pub entries: Range<usize>,
    /// From the first byte of the first row to the last byte of the last.
    pub span: Span,
    pub shape: Shape,
    /// Elements of a row.
    pub cols: usize,
    /// Elements of padding left and right, rows of padding above and below.
    pub padding: [usize; 4],
    /// What bytes of padding are, of inputs.
    pub pad_value: i8,
}

/// Accumulator tiles to DRAM.
#[derive(Clone, Debug)]
pub(crate) struct StoreOp {
    /// First int32.
    pub first: usize,
    pub span: Span,
    pub shape: Shape,
    pub how: Narrow<Requantize>,
    /// int32 of a tile.
    pub lanes: usize,
}

/// What a STORE makes of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow<R> {
    /// Their low bytes.
    Low,
    /// Sums clamped to int8.
    Saturate,
    /// What they are rounded to.
    Requantize(R),
}

impl Narrow<Requantize> {
    /// What a STORE does.
    pub fn of(store: &Store) -> Self {
        match store.requantize {
            Some(how) => Self::Requantize(how),
            None if store.saturate => Self::Saturate,
            None => Self::Low,
        }
    }

    /// The same in one of its rows, of tiles of so many lanes.
    fn row(self, row: usize, lanes: usize) -> Narrow<Requantizing> {
        match self {
            Self::Low => Narrow::Low,
            Self::Saturate => Narrow::Saturate,
            Self::Requantize(how) => Narrow::Requantize(Requantizing::of(&how, row, lanes)),
        }
    }
}

/// Bytes of DRAM computed of others, lane by lane; no accumulator is touched.
#[derive(Clone, Debug)]
pub(crate) struct MapOp {
    pub map: Map,
    pub from: Span,
    /// The bytes of second operands.
    pub with: Option<Span>,
    /// As many as those of `from`; they overlap neither.
    pub out: Span,
}

/// Consecutive elements that go to neighbouring bytes of DRAM: int32 of the accumulators, or bytes of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub from: usize,
    pub to: Span,
    pub how: Narrow<Requantizing>,
}

impl Copied {
    /// Adds elements to a list: to the last of it if they follow right behind that.
    pub fn push(list: &mut Vec<Self>, new: Self) {
        let joins = |last: &Self| {
            last.from + last.to.len == new.from
                && last.to.end() == new.to.start()
                && last.how == new.how
        };
        match list.last_mut() {
            Some(last) if joins(last) => last.to.len += new.to.len,
            _ => list.push(new),
        }
    }
}

impl LoadOp {
    /// What a LOAD does whose rows lie in a span.
    pub fn of(load: &Load, rows: &resolve::Rows, span: Span) -> Self {
        let first = usize::from(load.sram_base);
        let padding = [load.x_pad_0, load.x_pad_1, load.y_pad_0, load.y_pad_1];
        Self {
            mem: load.mem,
            entries: first..first + load.sram_tiles() as usize,
            span,
            shape: Shape::of(rows),
            cols: load.x_size.into(),
            padding: padding.map(usize::from),
            pad_value: load.pad_value,
        }
    }
}

impl StoreOp {
    /// What a STORE does whose rows lie in a span; `lanes` are the int32 of a tile.
    pub fn of(store: &Store, rows: &resolve::Rows, span: Span, lanes: usize) -> Self {
        Self {
            first: usize::from(store.sram_base) * lanes,
            span,
            shape: Shape::of(rows),
            how: Narrow::of(store),
            lanes,
        }
    }

    /// The rows, from int32 of the accumulators.
    pub fn rows(&self) -> impl Iterator<Item = Copied> {
        let Self { span, shape, .. } = *self;
        let (first, how, lanes) = (self.first, self.how, self.lanes);
        (0..shape.rows).map(move |row| Copied {
            from: first + row * shape.row_bytes,
            to: Span {
                start: span.start + row * shape.stride_bytes,
                len: shape.row_bytes,
                ..span
            },
            how: how.row(row, lanes),
        })
    }
}

/// A blocked matrix product with everything fused into it.
pub(crate) struct ProductOp {
    pub way: Way,
    pub rows: Arc<Rows>,
    /// The bytes that inputs are read from; the scratchpad if there are none.
    pub read: Option<Span>,
    pub groups: Vec<Columns>,
    pub start: Start,
    pub write_acc: bool,
    /// The bytes that are stored to; those that are read lie elsewhere.
    pub out: Option<Span>,
    /// The bytes that the sums start from.
    pub residual: Option<Span>,
}

/// Columns that a kernel works on together.
pub(crate) struct Columns {
    pub inputs: Arc<Inputs>,
    /// Bytes from where the product's inputs lie to those of these columns.
    pub shift: u32,
    pub panel: Arc<Panel>,
    /// The next other panel that the plan reads.
    pub ahead: Option<Arc<Panel>>,
    /// What every sum of a column starts from, beside `start`.
    pub first: Box<[[i32; COLUMN]]>,
    pub bases: Bases,
    pub before: Arc<Steps>,
    pub after: Arc<Steps>,
}
