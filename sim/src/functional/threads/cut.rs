//! Cutting operations into units.

use std::collections::BTreeMap;

use vta_driver::Span;
use vta_isa::AluOp;

use super::super::run::ops::{Copied, Filled, Op, ProductOp, StoreOp};
use super::cells::Dims;
use super::pieces::Parts;
use super::unit::{Unit, Work};
use crate::kernels::lanes::{Gather, TileRun};

/// Units that a store or a gather is cut into at most.
const MOST_OWNERS: usize = 16;

/// Cuts operations into units; what they share is kept once.
pub(crate) struct Cutter {
    dims: Dims,
    /// Products that take longer are cut, in nanoseconds.
    grain_ns: u64,
    threads: usize,
    parts: Parts,
}

impl Cutter {
    pub fn new(dims: Dims, grain_ns: u64, threads: usize) -> Self {
        Self {
            dims,
            grain_ns: grain_ns.max(1),
            threads: threads.max(1),
            parts: Parts::new(dims),
        }
    }

    /// Adds the units of an operation, in order. A store is cut where `owner` says that other
    /// units wrote its cells.
    pub fn cut(
        &mut self,
        index: usize,
        op: &Op,
        owner: impl Fn(usize) -> u32,
        units: &mut Vec<Unit>,
    ) {
        let dims = self.dims;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let (mut dram_reads, mut dram_writes) = (Vec::new(), Vec::new());
        match op {
            Op::Mark(_) => return,
            Op::Product(op) => return self.product(index, op, units),
            Op::Store(op) => {
                units.extend(self.stores(index, op, owner));
                return;
            }
            Op::Gather { op, table } => {
                units.extend(self.gathers((index, *op), table, owner));
                return;
            }
            Op::Load(op) => {
                writes.push(dims.loaded(op));
                dram_reads.push(op.span);
            }
            Op::Map(op) => {
                dram_reads.extend([op.from].into_iter().chain(op.with));
                dram_writes.push(op.out);
            }
            Op::Fill { runs, .. } => {
                let run = |run: &Filled| dims.acc(run.first as usize, run.len as usize);
                writes.extend(runs.iter().map(run));
            }
            Op::Chain { runs, .. } => {
                let run = |&(first, len): &(u32, u32)| dims.acc(first as usize, len as usize);
                writes.extend(runs.iter().map(run));
                reads.extend_from_slice(&writes);
            }
            Op::Zip { runs, .. } => {
                for (dst, src) in runs.iter().flat_map(tiles_of) {
                    writes.push(dims.tile(dst));
                    reads.push(dims.tile(src));
                }
                reads.extend_from_slice(&writes);
            }
        }
        units.push(Unit {
            dram_reads,
            dram_writes,
            cost_ns: dims.cost_ns(op),
            ..Unit::new(index, Work::Op(index), reads, writes)
        });
    }

    /// A store's units, one for each owner of its cells, in ascending order of owners.
    fn stores(&self, index: usize, op: &StoreOp, owner: impl Fn(usize) -> u32) -> Vec<Unit> {
        let dims = self.dims;
        let mut by_owner: BTreeMap<u32, Vec<Copied>> = BTreeMap::new();
        for row in op.rows() {
            for at in (0..row.to.len).step_by(dims.width) {
                let part = Copied {
                    from: row.from + at,
                    to: Span {
                        start: row.to.start + at,
                        len: dims.width,
                        ..row.to
                    },
                    ..row
                };
                let list = by_owner.entry(owner(part.from / dims.width));
                Copied::push(list.or_default(), part);
            }
        }
        // Rows may overlap; then the last must stay, and the store stays whole.
        if op.shape.overlaps() || by_owner.len() > MOST_OWNERS {
            by_owner = BTreeMap::from([(0, op.rows().collect())]);
        }
        let unit = |list: Vec<Copied>| {
            let cells = list.iter().flat_map(|part| dims.stored(part)).collect();
            let bytes: usize = list.iter().map(|s| s.to.len).sum();
            Unit {
                dram_writes: list.iter().map(|s| s.to).collect(),
                cost_ns: 20 + bytes as u64 / 16,
                ..Unit::new(index, Work::Store(list), cells, Vec::new())
            }
        };
        by_owner.into_values().map(unit).collect()
    }

    /// A gather's units, one for all tiles that need the same owners. No tile depends on another.
    fn gathers(
        &self,
        (index, op): (usize, AluOp),
        table: &Gather,
        owner: impl Fn(usize) -> u32,
    ) -> Vec<Unit> {
        let dims = self.dims;
        let mut by_owners: BTreeMap<Vec<u32>, Gather> = BTreeMap::new();
        let mut owners = Vec::new();
        for (tile, list) in table.lists() {
            owners.clear();
            let tiles = list.iter().chain([&tile]);
            owners.extend(tiles.flat_map(|&tile| dims.tile(tile)).map(&owner));
            owners.sort_unstable();
            owners.dedup();
            let full = by_owners.len() == MOST_OWNERS && !by_owners.contains_key(&owners);
            if full && let Some((most, _)) = by_owners.last_key_value() {
                // What doesn't fit goes with what needs the most.
                owners.clone_from(most);
            }
            by_owners
                .entry(owners.clone())
                .or_default()
                .push(tile, list);
        }
        let unit = |part: Gather| {
            let writes: Vec<_> = part.tiles.iter().map(|&tile| dims.tile(tile)).collect();
            let mut reads: Vec<_> = part.operands.iter().map(|&tile| dims.tile(tile)).collect();
            reads.extend_from_slice(&writes);
            Unit {
                cost_ns: dims.gather_ns(&part),
                ..Unit::new(
                    index,
                    Work::Gather(Op::Gather {
                        op,
                        table: Box::new(part),
                    }),
                    reads,
                    writes,
                )
            }
        };
        by_owners.into_values().map(unit).collect()
    }

    fn product(&mut self, index: usize, op: &ProductOp, units: &mut Vec<Unit>) {
        let dims = self.dims;
        for (number, group) in op.groups.iter().enumerate() {
            let whole = dims.product_ns(op, group);
            let blocks = group.inputs.blocks();
            let most = (whole / self.grain_ns).clamp(1, blocks.max(1) as u64) as usize;
            // Blocks that a thread has in the end if all take parts of this product in turns: 24
            // parts keep 16 threads as long as 32.
            let of_a_thread = |parts: &usize| {
                (op.groups.len() * parts).div_ceil(self.threads) * blocks.div_ceil(*parts)
            };
            let parts = (1..=most).min_by_key(of_a_thread).unwrap_or(1);
            for part in 0..parts {
                let part = blocks * part / parts..blocks * (part + 1) / parts;
                units.push(Unit {
                    cost_ns: whole / parts as u64,
                    ..self.parts.piece((index, number), op, group, part)
                });
            }
        }
    }
}

/// First int32 of the tiles that each step changes and reads.
fn tiles_of(run: &TileRun) -> impl Iterator<Item = (u32, u32)> {
    let run = *run;
    (0..run.tiles as i32).map(move |i| {
        (
            run.dst.wrapping_add_signed(i.wrapping_mul(run.dst_step)),
            run.src.wrapping_add_signed(i.wrapping_mul(run.src_step)),
        )
    })
}
