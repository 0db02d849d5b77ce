//! From fused operations to the plan: offsets in bytes and lanes, weights laid out.

mod pairs;
mod product;
mod taps;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use vta_isa::AluOp;
use vta_isa::resolve::TileSet;

use self::pairs::Pairs;
pub(super) use self::product::Products;
use super::super::run::ops::{Columns, Filled, Op};
use super::draft::{AluDraft, Kind, Matmul, OperandDraft, Slot, StartDraft};
use super::origin::Origin;
use super::unplanned::{GoOn, Unplanned};
use crate::kernels::{Panel, Step};

/// Operations in order, each with where it comes from.
pub(super) struct Emitted {
    pub ops: Vec<Op>,
    pub origins: Vec<Origin>,
    /// Steps on two tiles that those of the next instruction may join.
    waiting: Option<(Pairs, Origin)>,
    /// int32 of a tile.
    lanes: usize,
}

impl Emitted {
    fn push(&mut self, op: Op, origin: Origin) {
        self.flush();
        self.ops.push(op);
        self.origins.push(origin);
    }

    /// Steps on two tiles, which wait for more of them.
    fn pairs(&mut self, op: AluOp, pairs: &[(u16, u16)], origin: Origin) {
        if let Some((waiting, from)) = &mut self.waiting
            && waiting.join(op, pairs)
        {
            from.take(origin, "lists");
            return;
        }
        self.flush();
        self.waiting = Some((Pairs::new(op, pairs.to_vec()), origin));
    }

    /// Pushes the steps that wait.
    fn flush(&mut self) {
        if let Some((pairs, origin)) = self.waiting.take() {
            self.ops.push(pairs.op(self.lanes));
            self.origins.push(origin);
        }
    }

    /// A step on some tiles; one more step of the operation before if that is a chain on the same.
    fn chain(&mut self, step: Step, tiles: &TileSet, origin: &Origin) {
        self.flush();
        let on = runs(tiles, self.lanes);
        match (self.ops.last_mut(), self.origins.last_mut()) {
            (Some(Op::Chain { steps, runs }), Some(from)) if **runs == *on => {
                steps.push(step);
                from.take(origin.clone(), "chains");
            }
            _ => {
                let (steps, runs) = (vec![step], on.into());
                self.push(Op::Chain { steps, runs }, origin.clone());
            }
        }
    }

    /// Immediate steps. They are the same function of each tile alone, so only how often a tile
    /// is visited counts: tiles that are visited equally often are one chain, whose runs are
    /// apart. So chains on the same runs may be done run by run.
    fn immediates(&mut self, alu: &AluDraft, imm: i32, writes: &TileSet, origin: &Origin) {
        if writes.len() == alu.steps.pairs.len() {
            return self.chain(Step::immediate(alu.op, imm), writes, origin);
        }
        let mut visits: FxHashMap<u16, u32> = FxHashMap::default();
        for (dst, _) in &alu.steps.pairs {
            *visits.entry(*dst).or_default() += 1;
        }
        let mut by_visits: BTreeMap<u32, TileSet> = BTreeMap::new();
        for (tile, visits) in visits {
            by_visits.entry(visits).or_default().insert(tile.into());
        }
        for (visits, tiles) in by_visits {
            self.chain(Step::immediate_times(alu.op, imm, visits), &tiles, origin);
        }
    }
}

/// All operations, in order, as long as `go_on` says so.
///
/// # Errors
/// [`Unplanned::Pattern`] when the weights would take too much memory; at the word of `go_on`.
pub(super) fn emit(
    slots: Vec<Slot>,
    products: &mut Products<'_>,
    go_on: GoOn<'_>,
) -> Result<Emitted, Unplanned> {
    let lanes = products.lanes();
    let left = slots.iter().flatten().count();
    let mut out = Emitted {
        ops: Vec::with_capacity(left),
        origins: Vec::with_capacity(left),
        waiting: None,
        lanes,
    };
    for draft in slots.into_iter().flatten() {
        if !go_on() {
            return Err(Unplanned::Unwanted);
        }
        let (writes, origin) = (draft.writes, draft.origin);
        match draft.kind {
            Kind::Mark(mark) => out.push(Op::Mark(mark), origin),
            Kind::Load(op) => out.push(Op::Load(op), origin),
            Kind::Store(op) => out.push(Op::Store(op), origin),
            Kind::Map(op) => out.push(Op::Map(op), origin),
            Kind::Zero => {
                let runs = filled(&writes, lanes, 0).collect();
                let values = vec![0; lanes].into();
                out.push(Op::Fill { runs, values }, origin);
            }
            Kind::Alu(alu) => match alu.imm {
                Some(imm) => out.immediates(&alu, imm, &writes, &origin),
                None => out.pairs(alu.op, &alu.steps.pairs, origin),
            },
            Kind::Matmul(matmul) => match constants(&matmul, lanes) {
                Some(fill) => out.push(fill, origin),
                None => out.push(products.product(&matmul)?, origin),
            },
            Kind::Scaled(scaled) => {
                for (matmul, _) in &scaled.plain {
                    out.push(products.product(matmul)?, origin.clone());
                }
            }
        }
    }
    out.flush();
    products.sheets.finish();
    look_ahead(&mut out.ops);
    Ok(out)
}

/// What a product without taps does that leaves constants in the accumulators.
fn constants(matmul: &Matmul, lanes: usize) -> Option<Op> {
    if !matmul.has_no_taps() || matmul.stored.is_some() || !matches!(matmul.start, StartDraft::Zero)
    {
        return None;
    }
    let (mut runs, mut values) = (Vec::new(), vec![0i32; matmul.groups.len() * lanes]);
    for (at, group) in matmul.groups.iter().enumerate() {
        let tile = &mut values[at * lanes..][..lanes];
        for (op, operand) in &matmul.after {
            let (AluOp::Add, OperandDraft::Values(vectors)) = (op, operand) else {
                return None;
            };
            let added = vectors[at].iter().cycle();
            tile.iter_mut()
                .zip(added)
                .for_each(|(x, y)| *x = x.wrapping_add(*y));
        }
        let tiles: TileSet = matmul.tiles_of(group).collect();
        runs.extend(filled(&tiles, lanes, at * lanes));
    }
    let (runs, values) = (runs.into(), values.into());
    Some(Op::Fill { runs, values })
}

/// The runs of tiles that become one that begins at a value.
fn filled(tiles: &TileSet, lanes: usize, from: usize) -> impl Iterator<Item = Filled> {
    let run = move |(first, len)| Filled {
        first,
        len,
        from: from as u32,
    };
    runs(tiles, lanes).into_iter().map(run)
}

/// First int32 and how many, of each run of tiles.
fn runs(tiles: &TileSet, lanes: usize) -> Box<[(u32, u32)]> {
    // Scratchpads have at most `Config::MAX_ACC_DEPTH` tiles of a few kilobytes.
    let run = |run: Range<usize>| ((run.start * lanes) as u32, (run.len() * lanes) as u32);
    tiles.runs().map(run).collect()
}

/// Tells each group whose successor uses a panel for the first time which that is: one that was
/// used before is near.
fn look_ahead(ops: &mut [Op]) {
    let mut seen = FxHashSet::default();
    let mut groups: Vec<(&mut Columns, bool)> = Vec::new();
    for op in ops {
        if let Op::Product(product) = op {
            groups.extend(product.groups.iter_mut().map(|group| {
                let new = seen.insert(Arc::as_ptr(&group.panel));
                (group, new)
            }));
        }
    }
    let mut next: Option<Arc<Panel>> = None;
    for (group, new) in groups.into_iter().rev() {
        group.ahead = next.take();
        if new {
            next = Some(Arc::clone(&group.panel));
        }
    }
}
