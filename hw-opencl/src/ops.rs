//! Decoding for the throughput structure: instructions become operations whose units don't
//! depend on each other. The words are those that `vta_lanes.cl` reads.

use std::collections::HashMap;
use std::ops::Range;

use vta_isa::{Alu, AluOperand, Config, Gemm, Load, MemType, Store, Uop};

use crate::batch::{Sink, reach, rows};
use crate::chain::Chain;

/// Words of an operation in the kernel's table.
pub(crate) const OP_WORDS: usize = 24;
/// ALU steps that are written out one by one; a longer instruction runs in order.
const MAX_LISTED_STEPS: u64 = 1 << 16;

/// What a unit is, which follows from how the kernels were built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Lanes of a unit.
    pub lanes: u32,
    /// Accumulator rows that a GEMM unit sums at once.
    pub rows: u32,
    /// Elements of a weight tile that a unit loads.
    pub wgt_elems: u32,
    /// Work-items of a work-group.
    pub group: u32,
}

/// What an operation is, in the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    LoadInp,
    LoadWgt,
    LoadAcc,
    LoadAcc8,
    Store,
    Gemm,
    Chain,
    GemmInOrder,
    AluInOrder,
}

/// Rows of DRAM bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DramRows {
    pub first: u64,
    pub row_bytes: u64,
    pub stride_bytes: u64,
    pub rows: u32,
}

/// What an operation reads and writes: tiles of the scratchpads, rows of DRAM. Ranges may be
/// wider than what is touched; that only orders more than necessary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    pub reads_inp: Range<usize>,
    pub reads_wgt: Range<usize>,
    pub reads_acc: Range<usize>,
    pub writes_inp: Range<usize>,
    pub writes_wgt: Range<usize>,
    pub writes_acc: Range<usize>,
    pub reads_dram: Option<DramRows>,
    pub writes_dram: Option<DramRows>,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub kind: Kind,
    pub units: u32,
    /// The kind's own words.
    pub args: Vec<u32>,
    pub touches: Touches,
    /// Work in products, roughly; other work is counted as if it were.
    pub cost: u64,
}

/// Everything that a batch, or a part of one, has for the device to do.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub ops: Vec<Op>,
    /// Micro-ops, groups of micro-ops, chains.
    pub tables: Vec<u32>,
}

/// The groups of a list of micro-ops.
#[derive(Clone, Copy)]
struct Groups {
    table: u32,
    count: u32,
    /// Micro-ops of the longest.
    longest: u32,
}

/// Makes operations of checked instructions.
pub(crate) struct Decoder<'a> {
    config: &'a Config,
    shape: Shape,
    dram_base: u64,
    out: Decoded,
    chain: Option<Chain>,
    groups: HashMap<Vec<u32>, Groups>,
    lists: HashMap<Vec<u32>, u32>,
    /// Which turn last wrote a tile, for finding destinations that meet.
    seen: Vec<u32>,
    turn: u32,
}

impl<'a> Decoder<'a> {
    /// `dram_base` is the address of the first byte of the device's memory buffer.
    pub fn new(config: &'a Config, shape: Shape, dram_base: u64) -> Self {
        Self {
            config,
            shape,
            dram_base,
            out: Decoded::default(),
            chain: None,
            groups: HashMap::new(),
            lists: HashMap::new(),
            seen: vec![0; config.depth(MemType::Acc)],
            turn: 0,
        }
    }

    pub fn finish(mut self) -> Decoded {
        self.close_chain();
        self.out
    }

    fn close_chain(&mut self) {
        let Some(chain) = self.chain.take() else {
            return;
        };
        let lanes = self.config.lanes() as u32;
        let tables = &mut self.out.tables;
        let lists = &mut self.lists;
        let (args, touches) = chain.encode(|list| intern(tables, lists, list));
        let tiles = touches.writes_acc.len() as u32;
        let cost = u64::from(tiles * lanes) * (2 + u64::from(args[1]));
        self.out.ops.push(Op {
            kind: Kind::Chain,
            units: tiles * (lanes / self.shape.lanes),
            args,
            touches,
            cost,
        });
    }

    fn push(&mut self, op: Op) {
        self.close_chain();
        self.out.ops.push(op);
    }

    /// A list of words in the tables; equal lists are stored once.
    fn list(&mut self, words: &[u32]) -> u32 {
        intern(&mut self.out.tables, &mut self.lists, words)
    }

    fn transfer(&self, mem: MemType, base: u32, y: u16, x: u16, stride: u16) -> (DramRows, u32) {
        let elem = self.config.elem_bytes(mem) as u64;
        let rows = DramRows {
            first: u64::from(base) * elem,
            row_bytes: u64::from(x) * elem,
            stride_bytes: u64::from(stride) * elem,
            rows: u32::from(y),
        };
        // The rows were checked, so they lie behind the first byte of the buffer.
        (rows, (rows.first - self.dram_base) as u32)
    }

    /// Sorts micro-ops by destination: those of one are summed one after the other.
    fn groups(&mut self, uops: &[u32]) -> Groups {
        if let Some(groups) = self.groups.get(uops) {
            return *groups;
        }
        let dst = |word: &u32| u32::from(Uop::decode(*word).dst);
        let mut sorted = uops.to_vec();
        sorted.sort_by_key(dst);
        let first = self.list(&sorted);
        let mut table = Vec::new();
        let (mut start, mut longest) = (0, 0);
        for run in sorted.chunk_by(|a, b| dst(a) == dst(b)) {
            let len = run.len() as u32;
            table.extend([dst(&run[0]), first + start, first + start + len]);
            (start, longest) = (start + len, longest.max(len));
        }
        let groups = Groups {
            table: self.list(&table),
            count: table.len() as u32 / 3,
            longest,
        };
        self.groups.insert(uops.to_vec(), groups);
        groups
    }

    /// Whether destinations of different groups and trips never meet.
    fn destinations_differ(&mut self, groups: Groups, trips: [u32; 2], factors: [u32; 2]) -> bool {
        let all = u64::from(groups.count) * u64::from(trips[0]) * u64::from(trips[1]);
        if all > self.seen.len() as u64 {
            return false;
        }
        self.turn += 1;
        for g in 0..groups.count {
            let dst = self.out.tables[(groups.table + 3 * g) as usize];
            for i in 0..trips[0] {
                for j in 0..trips[1] {
                    // Checked against the scratchpad's depth with the instruction.
                    let at = (dst + i * factors[0] + j * factors[1]) as usize;
                    if std::mem::replace(&mut self.seen[at], self.turn) == self.turn {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn reset(&mut self, gemm: &Gemm, uops: &[u32]) {
        // A loop that doesn't move the destination clears the same tiles again.
        let trips = |n: u16, factor: u16| if factor == 0 { 1 } else { u32::from(n) };
        let trips = [
            trips(gemm.iter_out, gemm.dst_factor_out),
            trips(gemm.iter_in, gemm.dst_factor_in),
        ];
        let steps = u64::from(trips[0]) * u64::from(trips[1]) * uops.len() as u64;
        if steps > MAX_LISTED_STEPS {
            self.gemm_in_order(gemm, uops);
            return;
        }
        let mut tiles = Vec::with_capacity(steps as usize);
        for i in 0..trips[0] {
            for j in 0..trips[1] {
                let offset = i * u32::from(gemm.dst_factor_out) + j * u32::from(gemm.dst_factor_in);
                tiles.extend(uops.iter().map(|w| u32::from(Uop::decode(*w).dst) + offset));
            }
        }
        tiles.sort_unstable();
        tiles.dedup();
        self.extend_chain(Chain::clear(&tiles));
    }

    /// Appends to the chain that is being built, or starts another.
    fn extend_chain(&mut self, more: Chain) {
        if let Some(chain) = &mut self.chain {
            if chain.append(&more) {
                return;
            }
            self.close_chain();
        }
        self.chain = Some(more);
    }

    fn gemm_in_order(&mut self, gemm: &Gemm, uops: &[u32]) {
        let first = self.list(uops);
        let factors = [
            gemm.dst_factor_out,
            gemm.dst_factor_in,
            gemm.src_factor_out,
            gemm.src_factor_in,
            gemm.wgt_factor_out,
            gemm.wgt_factor_in,
        ];
        let mut args = vec![gemm.iter_out.into(), gemm.iter_in.into()];
        args.extend(factors.map(u32::from));
        args.extend([first, first + uops.len() as u32, gemm.reset.into()]);
        let touches = gemm_touches(gemm, uops);
        self.push(Op {
            kind: Kind::GemmInOrder,
            units: self.config.lanes() as u32 / self.shape.lanes,
            args,
            touches,
            cost: gemm.steps().saturating_mul(self.config.macs_per_step()),
        });
    }

    fn alu_in_order(&mut self, alu: &Alu, uops: &[u32]) {
        let first = self.list(uops);
        let factors = [
            alu.dst_factor_out,
            alu.dst_factor_in,
            alu.src_factor_out,
            alu.src_factor_in,
        ];
        let (use_imm, imm) = match alu.operand {
            AluOperand::Acc => (0, 0),
            AluOperand::Imm(imm) => (1, i32::from(imm) as u32),
        };
        let mut args = vec![alu.iter_out.into(), alu.iter_in.into()];
        args.extend(factors.map(u32::from));
        args.extend([0, 0, first, first + uops.len() as u32]);
        args.extend([alu.op.code().into(), use_imm, imm]);
        let iter = (alu.iter_out, alu.iter_in);
        let dst = span(
            uops,
            |u| u.dst,
            reach(iter, (alu.dst_factor_out, alu.dst_factor_in)),
        );
        let mut touches = Touches {
            reads_acc: dst.clone(),
            writes_acc: dst,
            ..Touches::default()
        };
        if use_imm == 0 {
            let src = span(
                uops,
                |u| u.src,
                reach(iter, (alu.src_factor_out, alu.src_factor_in)),
            );
            touches.reads_acc =
                touches.reads_acc.start.min(src.start)..touches.reads_acc.end.max(src.end);
        }
        self.push(Op {
            kind: Kind::AluInOrder,
            units: self.config.lanes() as u32 / self.shape.lanes,
            args,
            touches,
            cost: alu.steps().saturating_mul(4 * self.config.lanes() as u64),
        });
    }
}

/// Stores a list in the tables once.
fn intern(tables: &mut Vec<u32>, lists: &mut HashMap<Vec<u32>, u32>, words: &[u32]) -> u32 {
    if let Some(&at) = lists.get(words) {
        return at;
    }
    let at = tables.len() as u32;
    tables.extend_from_slice(words);
    lists.insert(words.to_vec(), at);
    at
}

/// The tiles from the smallest index of the micro-ops to the largest with its loops.
fn span(uops: &[u32], index: impl Fn(Uop) -> u16, reach: u64) -> Range<usize> {
    let all = uops.iter().map(|w| usize::from(index(Uop::decode(*w))));
    let first = all.clone().min().unwrap_or(0);
    first..all.max().map_or(first, |last| last + reach as usize + 1)
}

fn gemm_touches(gemm: &Gemm, uops: &[u32]) -> Touches {
    let iter = (gemm.iter_out, gemm.iter_in);
    let dst = span(
        uops,
        |u| u.dst,
        reach(iter, (gemm.dst_factor_out, gemm.dst_factor_in)),
    );
    let mut touches = Touches {
        reads_acc: dst.clone(),
        writes_acc: dst,
        ..Touches::default()
    };
    if !gemm.reset {
        touches.reads_inp = span(
            uops,
            |u| u.src,
            reach(iter, (gemm.src_factor_out, gemm.src_factor_in)),
        );
        touches.reads_wgt = span(
            uops,
            |u| u.wgt,
            reach(iter, (gemm.wgt_factor_out, gemm.wgt_factor_in)),
        );
    }
    touches
}

impl Sink for Decoder<'_> {
    fn load(&mut self, load: &Load) {
        if load.is_sync() {
            return;
        }
        let tiles = load.sram_tiles() as u32;
        let first = usize::from(load.sram_base);
        let to = first..first + tiles as usize;
        let (lanes, area) = (
            self.config.lanes() as u32,
            (self.config.block() as u32).pow(2),
        );
        let mut touches = Touches::default();
        let (kind, units, cost) = match load.mem {
            // The host has decoded the micro-ops.
            MemType::Uop => return,
            MemType::Inp => {
                touches.writes_inp = to;
                (
                    Kind::LoadInp,
                    tiles * (lanes / self.shape.lanes),
                    tiles * lanes * 2,
                )
            }
            MemType::Wgt => {
                touches.writes_wgt = to;
                (
                    Kind::LoadWgt,
                    tiles * (area / self.shape.wgt_elems),
                    tiles * area * 3,
                )
            }
            MemType::Acc => {
                touches.writes_acc = to;
                (
                    Kind::LoadAcc,
                    tiles * (lanes / self.shape.lanes),
                    tiles * lanes * 2,
                )
            }
            // LOAD OUT doesn't decode.
            MemType::Acc8 | MemType::Out => {
                touches.writes_acc = to;
                (
                    Kind::LoadAcc8,
                    tiles * (lanes / self.shape.lanes),
                    tiles * lanes * 2,
                )
            }
        };
        let (y, x) = (load.y_size, load.x_size);
        let (rows, offset) = self.transfer(load.mem, load.dram_base, y, x, load.x_stride);
        touches.reads_dram = Some(rows);
        let cols = u32::from(load.x_pad_0) + u32::from(x) + u32::from(load.x_pad_1);
        let args = vec![
            load.sram_base.into(),
            offset,
            rows.stride_bytes as u32,
            x.into(),
            y.into(),
            load.x_pad_0.into(),
            load.y_pad_0.into(),
            cols,
        ];
        self.push(Op {
            kind,
            units,
            args,
            touches,
            cost: cost.into(),
        });
    }

    fn store(&mut self, store: &Store) {
        if store.is_sync() {
            return;
        }
        let (y, x) = (store.y_size, store.x_size);
        let (rows, offset) = self.transfer(MemType::Out, store.dram_base, y, x, store.x_stride);
        if rows.stride_bytes < rows.row_bytes && y > 1 {
            // Rows that overlap in DRAM are written in order.
            for (row, (base, _)) in self::rows(store.dram_base, y, x, store.x_stride).enumerate() {
                self.store(&Store {
                    sram_base: store.sram_base + row as u16 * x,
                    dram_base: base as u32,
                    y_size: 1,
                    ..*store
                });
            }
            return;
        }
        let tiles = store.tiles() as u32;
        let first = usize::from(store.sram_base);
        let lanes = self.config.lanes() as u32;
        let args = vec![
            store.sram_base.into(),
            offset,
            rows.stride_bytes as u32,
            x.into(),
            y.into(),
            0,
            0,
            x.into(),
        ];
        self.push(Op {
            kind: Kind::Store,
            units: tiles * (lanes / self.shape.lanes),
            args,
            touches: Touches {
                reads_acc: first..first + tiles as usize,
                writes_dram: Some(rows),
                ..Touches::default()
            },
            cost: u64::from(tiles * lanes * 2),
        });
    }

    fn gemm(&mut self, gemm: &Gemm, uops: &[u32]) {
        if gemm.steps() == 0 {
            return;
        }
        if gemm.reset {
            self.reset(gemm, uops);
            return;
        }
        let groups = self.groups(uops);
        // A loop that leaves the destination where it is belongs to the sum.
        let iter = [gemm.iter_out, gemm.iter_in].map(u32::from);
        let dst = [gemm.dst_factor_out, gemm.dst_factor_in].map(u32::from);
        let src = [gemm.src_factor_out, gemm.src_factor_in].map(u32::from);
        let wgt = [gemm.wgt_factor_out, gemm.wgt_factor_in].map(u32::from);
        let mut trips = iter;
        let mut sums = [1; 2];
        for d in 0..2 {
            if dst[d] == 0 {
                (trips[d], sums[d]) = (1, iter[d]);
            }
        }
        if !self.destinations_differ(groups, trips, dst) {
            self.gemm_in_order(gemm, uops);
            return;
        }
        let rows = trips[0] * trips[1];
        let shared = (0..2).all(|d| trips[d] == 1 || wgt[d] == 0);
        let at_once = if shared && rows > 1 {
            self.shape.rows
        } else {
            1
        };
        let blocks = rows.div_ceil(at_once);
        let chunks = (self.config.block() as u32) / self.shape.lanes;
        let args = vec![
            trips[0],
            trips[1],
            dst[0],
            dst[1],
            src[0],
            src[1],
            wgt[0],
            wgt[1],
            sums[0],
            sums[1],
            src[0],
            src[1],
            wgt[0],
            wgt[1],
            groups.count,
            groups.table,
            blocks,
            at_once,
        ];
        // The sum's length decides how much a unit has to do.
        let sum = u64::from(sums[0]) * u64::from(sums[1]) * u64::from(groups.longest);
        let cost = sum * u64::from(blocks * at_once * groups.count) * self.config.macs_per_step();
        let touches = gemm_touches(gemm, uops);
        self.push(Op {
            kind: Kind::Gemm,
            units: groups.count * blocks * self.config.batch() as u32 * chunks,
            args,
            touches,
            cost,
        });
    }

    fn alu(&mut self, alu: &Alu, uops: &[u32]) {
        if alu.steps() == 0 {
            return;
        }
        let chain = (alu.steps() <= MAX_LISTED_STEPS)
            .then(|| Chain::of(alu, uops, self.seen.len()))
            .flatten();
        match chain {
            Some(chain) => self.extend_chain(chain),
            None => self.alu_in_order(alu, uops),
        }
    }
}
