//! Operations before they are fused: tiles and DRAM that each touches.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use vta_driver::{DeviceMemory, Span};
use vta_isa::resolve::{Interval, TileSet};
use vta_isa::{AluOp, MemType};

use super::super::run::ops::{LoadOp, MapOp, StoreOp};
use super::origin::Origin;
use super::places::Places;
use crate::kernels::{PADDING, lanes};

/// One operation of the trace with what it touches.
pub(crate) struct Draft {
    pub kind: Kind,
    /// Accumulator tiles. Operations of the same shape share them.
    pub reads: Rc<TileSet>,
    pub writes: Rc<TileSet>,
    pub origin: Origin,
}

/// An operation; `None` where it has become part of another.
pub(crate) type Slot = Option<Draft>;

impl Draft {
    /// A product on some tiles.
    pub fn product(matmul: Matmul, writes: Rc<TileSet>, origin: Origin) -> Self {
        Self {
            reads: matmul.reads(&writes),
            kind: Kind::Matmul(Box::new(matmul)),
            writes,
            origin,
        }
    }

    pub fn touches(&self, tiles: &TileSet) -> bool {
        self.reads.meets(tiles) || self.writes.meets(tiles)
    }

    /// From the accumulator tiles that are read behind it to those that are read before it is done.
    pub fn read_before(&self, live: &mut TileSet) {
        // What it also reads is added back.
        live.remove(&self.writes);
        live.add(&self.reads);
    }

    /// DRAM that it reads, from the first byte to the last.
    pub fn dram_reads(&self) -> impl Iterator<Item = Span> {
        let spans = match &self.kind {
            Kind::Load(op) => [Some(op.span), None],
            Kind::Matmul(op) => op.dram_reads(),
            Kind::Scaled(op) => [Some(op.read), None],
            Kind::Map(op) => [Some(op.from), op.with],
            Kind::Mark(_) | Kind::Store(_) | Kind::Zero | Kind::Alu(_) => [None, None],
        };
        spans.into_iter().flatten()
    }

    /// DRAM that it writes.
    pub fn dram_write(&self) -> Option<Span> {
        match &self.kind {
            Kind::Store(op) => Some(op.span),
            Kind::Map(op) => Some(op.out),
            Kind::Matmul(op) => op.stored.as_ref().map(|s| s.span),
            Kind::Mark(_) | Kind::Load(_) | Kind::Zero | Kind::Alu(_) | Kind::Scaled(_) => None,
        }
    }
}

pub(crate) enum Kind {
    Mark(usize),
    Load(LoadOp),
    Store(StoreOp),
    /// Zeroes `writes`.
    Zero,
    Alu(AluDraft),
    Matmul(Box<Matmul>),
    Scaled(Box<Scaled>),
    Map(Box<MapOp>),
}

/// The tiles of an ALU instruction, or of many that go over the same.
pub(crate) struct AluSteps {
    /// Destination and source tiles, in order.
    pub pairs: Vec<(u16, u16)>,
    pub destinations: Rc<TileSet>,
    /// None of an immediate.
    pub sources: TileSet,
    /// Both.
    pub reads: Rc<TileSet>,
}

/// An ALU instruction.
pub(crate) struct AluDraft {
    pub op: AluOp,
    /// The immediate; without one the second of each pair is the operand's tile.
    pub imm: Option<i32>,
    pub steps: Rc<AluSteps>,
    /// Where all source tiles were loaded from, if they are constants.
    pub constants: Vec<(u16, Span)>,
}

/// Where a weight tile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Weight {
    /// Padding of a LOAD.
    Zero,
    /// A byte of a region, where a tile begins.
    Dram {
        region: u32,
        start: u32,
        mem: MemType,
    },
    /// The scratchpad's tile as it was before the batch.
    Held(u16),
    /// One with nothing beside its diagonal, where it has a tap of each channel, of the tile at a byte of a region.
    Tap {
        region: u32,
        start: u32,
        mem: MemType,
        tap: u8,
    },
}

impl Weight {
    /// What DEPTHWISE multiplies by, tap by tap, if the tile isn't the scratchpad's own.
    pub fn taps(self, count: usize) -> Option<Vec<Self>> {
        let tap = |tap: u8| match self {
            Self::Zero => Some(Self::Zero),
            Self::Dram { region, start, mem } => Some(Self::Tap {
                region,
                start,
                mem,
                tap,
            }),
            Self::Held(_) | Self::Tap { .. } => None,
        };
        (0..count as u8).map(tap).collect()
    }

    /// The int8 of the tile in DRAM, so many; `None` beyond its region, and for others.
    pub fn read<'m>(&self, count: usize, memory: &'m DeviceMemory) -> Option<Cow<'m, [u8]>> {
        let (Self::Dram { region, start, mem }
        | Self::Tap {
            region, start, mem, ..
        }) = *self
        else {
            return None;
        };
        let bytes = memory.region(region as usize).get(start as usize..)?;
        if mem != MemType::Wgt4 {
            return bytes.get(..count).map(Cow::Borrowed);
        }
        let mut tile = vec![0; count];
        lanes::unpack(bytes.get(..count.div_ceil(2))?, &mut tile);
        Some(Cow::Owned(tile))
    }

    /// Whether it was there before the batch.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }
}

/// A matrix product: every group's tile at every position sums the same taps.
pub(crate) struct Matmul {
    pub groups: Rc<[GroupDraft]>,
    /// Those of each tap, `[tap][group]`.
    pub weights: Vec<Weight>,
    /// Accumulator tiles, from the group's first.
    pub positions: Rc<[u16]>,
    /// Where the input tiles lie: in a region of DRAM (or padding), or in the input scratchpad.
    pub inputs: Places,
    /// The DRAM that is read; without one inputs are read from the scratchpad.
    pub read: Option<Span>,
    pub start: StartDraft,
    /// Bytes that sums start from or that steps scale.
    pub side: Option<ByteTiles>,
    /// Steps on the sums.
    pub after: Vec<StepDraft>,
    pub stored: Option<ByteTiles>,
    /// Whether somebody reads the accumulators later.
    pub write_acc: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupDraft {
    /// First accumulator tile.
    pub dst: u16,
    /// Bytes from the product's inputs to the group's: 0 for all but convolutions in groups.
    pub shift: u32,
}

impl GroupDraft {
    /// Where the group's inputs lie, from the product's.
    pub fn inputs<'a>(&self, inputs: &'a Places) -> impl Iterator<Item = u32> + use<'a> {
        let shift = self.shift;
        inputs.iter().map(move |start| match start {
            PADDING => PADDING,
            start => start + shift,
        })
    }
}

/// What sums start from.
#[derive(Clone, Debug)]
pub(crate) enum StartDraft {
    /// What the accumulators hold.
    Acc,
    Zero,
    /// The bytes of `side`, after these steps on them.
    Side(Vec<StepDraft>),
}

impl Matmul {
    /// Products that go on with the sums of the accumulators, and nothing else.
    pub fn new(
        groups: impl Into<Rc<[GroupDraft]>>,
        weights: Vec<Weight>,
        positions: impl Into<Rc<[u16]>>,
        inputs: impl Into<Places>,
        read: Option<Span>,
    ) -> Self {
        Self {
            groups: groups.into(),
            weights,
            positions: positions.into(),
            inputs: inputs.into(),
            read,
            start: StartDraft::Acc,
            side: None,
            after: Vec::new(),
            stored: None,
            write_acc: true,
        }
    }

    /// Memory of its lists.
    pub fn bytes(&self) -> usize {
        self.inputs.len() * size_of::<u32>()
            + size_of_val(&self.positions[..])
            + size_of_val(&self.weights[..])
    }

    /// Whether the groups of two products, of which there are as many, read inputs that are as far apart.
    pub fn same_shifts(&self, other: &Self) -> bool {
        let shifts = [self, other].map(|m| m.groups.iter().map(|group| group.shift));
        let [first, second] = shifts;
        first.eq(second)
    }

    /// Whether there is no tap at all: only what steps and stores do.
    pub fn has_no_taps(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Whether it goes on with what the accumulators hold.
    pub fn goes_on(&self) -> bool {
        matches!(self.start, StartDraft::Acc)
    }

    /// Steps on the bytes that sums start from.
    pub fn before(&self) -> &[StepDraft] {
        match &self.start {
            StartDraft::Side(steps) => steps,
            StartDraft::Acc | StartDraft::Zero => &[],
        }
    }

    /// Accumulator tiles that steps before the products read.
    pub fn tiles_before(&self) -> TileSet {
        let steps = self.before().iter();
        steps.flat_map(|(_, operand)| operand.tiles()).collect()
    }

    /// Accumulator tiles that it reads: the sums that it goes on with and operands of steps.
    pub fn reads(&self, writes: &Rc<TileSet>) -> Rc<TileSet> {
        let goes_on = self.goes_on();
        if goes_on && self.after.is_empty() {
            return Rc::clone(writes);
        }
        let mut reads = self.tiles_before();
        reads.extend(self.after.iter().flat_map(|(_, operand)| operand.tiles()));
        // Sums are read where they are written.
        if goes_on {
            reads.add(writes);
        }
        Rc::new(reads)
    }

    /// The weights of some products, which have as many taps, if all their groups are one product's in this order.
    pub fn weights_of_all(products: &[&Self]) -> Vec<Weight> {
        let taps = |matmul: &&Self| matmul.weights.len() / matmul.groups.len().max(1);
        let taps = products.first().map_or(0, taps);
        let mut all = Vec::with_capacity(products.iter().map(|m| m.weights.len()).sum());
        for tap in 0..taps {
            for matmul in products {
                let groups = matmul.groups.len();
                all.extend_from_slice(&matmul.weights[tap * groups..][..groups]);
            }
        }
        all
    }

    /// The weights of each tap of a group.
    pub fn weights_of(&self, group: usize) -> Vec<Weight> {
        let weights = self.weights.iter().skip(group);
        weights.step_by(self.groups.len()).copied().collect()
    }

    /// DRAM that it reads, from the first byte to the last.
    pub fn dram_reads(&self) -> [Option<Span>; 2] {
        [self.read, self.side.as_ref().map(|s| s.span)]
    }

    /// Accumulator tiles of a group, position by position.
    pub fn tiles_of(&self, group: &GroupDraft) -> impl Iterator<Item = u16> {
        let dst = group.dst;
        self.positions.iter().map(move |offset| dst + offset)
    }

    /// What `of` says of a group's tiles, for each group: `None` unless it is the same for every
    /// position.
    pub fn by_group<T: PartialEq>(&self, of: impl Fn(u16) -> Option<T>) -> Option<Vec<T>> {
        let group = |group: &GroupDraft| {
            let mut tiles = self.tiles_of(group).map(&of);
            let first = tiles.next()??;
            tiles.all(|t| t.as_ref() == Some(&first)).then_some(first)
        };
        self.groups.iter().map(group).collect()
    }
}

/// A lane-wise step on all sums of a product.
pub(crate) type StepDraft = (AluOp, OperandDraft);

/// One int32 for each output of a tile, the same in all batch rows.
pub(crate) type Vector = Arc<[i32]>;

#[derive(Clone, Debug)]
pub(crate) enum OperandDraft {
    Imm(i32),
    /// Accumulator tiles.
    Tiles(Vec<u16>),
    /// int32 tiles in DRAM that nothing stores to, whose batch rows are the same.
    Constants(Vec<Span>),
    /// A vector for each group.
    Values(Vec<Vector>),
    /// The bytes of the product's `side` times each group's vector; only ADD has it.
    Scaled(Vec<Vector>),
}

impl OperandDraft {
    /// Accumulator tiles that it is.
    pub fn tiles(&self) -> impl Iterator<Item = u16> {
        let tiles: &[u16] = match self {
            Self::Tiles(tiles) => tiles,
            Self::Imm(_) | Self::Constants(_) | Self::Values(_) | Self::Scaled(_) => &[],
        };
        tiles.iter().copied()
    }
}

/// int8 tiles in DRAM, one for each sum of a product: what it stores, or reads beside its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByteTiles {
    pub span: Span,
    /// First byte of each group.
    pub first: Vec<u32>,
    /// Bytes from there to the tile of each position.
    pub offsets: Vec<u32>,
}

impl ByteTiles {
    /// Adds the groups of another product, whose tiles lie in the same region at the same offsets.
    pub fn append(&mut self, more: Self) {
        self.span = self.span.hull(&more.span);
        self.first.extend(more.first);
    }
}

/// A GEMM whose weight tiles are diagonal: it adds an input, scaled lane by lane, to each tile.
pub(crate) struct Scaled {
    /// Of each group of the products.
    pub factors: Vec<Vector>,
    /// The DRAM that is read.
    pub read: Span,
    /// The same as products.
    pub plain: Vec<(Matmul, Rc<TileSet>)>,
}

impl Scaled {
    /// Each accumulator tile with the byte of its input tile in the region, and the factors.
    pub fn terms(&self) -> impl Iterator<Item = (u16, (u32, &Vector))> {
        let products = self.plain.iter().map(|(matmul, _)| matmul);
        let groups = products.flat_map(|m| m.groups.iter().map(move |group| (m, group)));
        groups
            .zip(&self.factors)
            .flat_map(|((matmul, group), factors)| {
                let starts = matmul.tiles_of(group).zip(group.inputs(&matmul.inputs));
                starts.map(move |(tile, start)| (tile, (start, factors)))
            })
    }

    /// Whether the other scales the same inputs.
    pub fn same_inputs(&self, other: &Self) -> bool {
        let mut pairs = self.plain.iter().zip(&other.plain);
        let alike = self.plain.len() == other.plain.len()
            && pairs
                .clone()
                .all(|((a, _), (b, _))| a.groups == b.groups && a.positions == b.positions);
        if alike {
            return pairs.all(|((a, _), (b, _))| a.inputs.hold_same(&b.inputs));
        }
        // Mostly the first tells.
        let starts = || self.terms().map(|(tile, (start, _))| (tile, start));
        let others = || other.terms().map(|(tile, (start, _))| (tile, start));
        if starts()
            .next()
            .is_some_and(|first| !others().any(|term| term == first))
        {
            return false;
        }
        let others: FxHashMap<u16, u32> = others().collect();
        starts().all(|(tile, start)| others.get(&tile) == Some(&start))
    }
}
