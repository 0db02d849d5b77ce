//! From fused operations to the plan: offsets in bytes and lanes, weights laid out.

mod pairs;
mod product;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use self::pairs::Pairs;
pub(super) use self::product::Products;
use super::draft::{AluDraft, Draft, Kind};
use super::ops::{Columns, Op};
use super::origin::Origin;
use super::table::Table;
use super::tiles::Tiles;
use super::unplanned::Unplanned;
use crate::kernels::{Panel, Step};

/// Operations in order, each with where it comes from.
pub(super) struct Emitted {
    pub ops: Vec<Op>,
    pub origins: Vec<Origin>,
}

impl Emitted {
    fn with_capacity(len: usize) -> Self {
        Self {
            ops: Vec::with_capacity(len),
            origins: Vec::with_capacity(len),
        }
    }

    fn push(&mut self, op: Op, origin: Origin) {
        self.ops.push(op);
        self.origins.push(origin);
    }

    fn extend(&mut self, op: Option<(Op, Origin)>) {
        if let Some((op, origin)) = op {
            self.push(op, origin);
        }
    }

    /// A step on some runs, which are apart; one more step of the operation before if that is a
    /// chain on the same.
    fn chain(&mut self, step: Step, runs: Box<[(u32, u32)]>, origin: &Origin) {
        match (self.ops.last_mut(), self.origins.last_mut()) {
            (Some(Op::Chain { steps, runs: same }), Some(from)) if **same == *runs => {
                steps.push(step);
                from.take(origin.clone(), "chains");
            }
            _ => {
                let (steps, runs) = (vec![step], runs.into());
                self.push(Op::Chain { steps, runs }, origin.clone());
            }
        }
    }

    /// Immediate steps. They are the same function of each tile alone, so only how often a tile
    /// is visited counts: tiles that are visited equally often are one chain, whose runs are
    /// apart. So chains on the same runs may be done run by run.
    fn immediates(&mut self, alu: &AluDraft, writes: &Tiles, origin: &Origin, lanes: usize) {
        let Some(imm) = alu.imm else {
            debug_assert!(false, "steps on two tiles are pairs");
            return;
        };
        if writes.len() == alu.pairs.len() {
            let step = Step::immediate(alu.op, imm);
            return self.chain(step, runs(writes, lanes), origin);
        }
        let mut visits: Table<u16, u32> = Table::default();
        for (dst, _) in &alu.pairs {
            *visits.entry(*dst).or_default() += 1;
        }
        let mut by_visits: BTreeMap<u32, Tiles> = BTreeMap::new();
        for (tile, visits) in visits {
            let tiles = by_visits.entry(visits).or_insert(Tiles::NONE);
            tiles.insert(tile.into());
        }
        for (visits, tiles) in by_visits {
            let step = Step::immediate_times(alu.op, imm, visits);
            self.chain(step, runs(&tiles, lanes), origin);
        }
    }
}

/// All operations, in order.
///
/// # Errors
/// [`Unplanned::Pattern`] when the weights would take too much memory.
pub(super) fn emit(drafts: Vec<Draft>, products: &mut Products<'_>) -> Result<Emitted, Unplanned> {
    let lanes = products.lanes();
    let mut out = Emitted::with_capacity(drafts.len());
    let mut pairs: Option<(Pairs, Origin)> = None;
    for draft in drafts {
        let Draft {
            kind,
            writes,
            origin,
            ..
        } = draft;
        if let Kind::Alu(AluDraft {
            op,
            imm: None,
            pairs: more,
            ..
        }) = kind
        {
            let joined = pairs.as_mut().is_some_and(|(p, _)| p.join(op, &more));
            match &mut pairs {
                Some((_, from)) if joined => from.take(origin, "lists"),
                _ => {
                    let before = pairs.replace((Pairs::new(op, more), origin));
                    out.extend(before.map(|(pairs, from)| (pairs.op(lanes), from)));
                }
            }
            continue;
        }
        out.extend(pairs.take().map(|(pairs, from)| (pairs.op(lanes), from)));
        match kind {
            Kind::Mark(mark) => out.push(Op::Mark(mark), origin),
            Kind::Load(op) => out.push(Op::Load(op), origin),
            Kind::Store(op) => out.push(Op::Store(op), origin),
            Kind::Zero => out.push(Op::Zero(runs(&writes, lanes)), origin),
            Kind::Alu(alu) => out.immediates(&alu, &writes, &origin, lanes),
            Kind::Matmul(matmul) => out.push(products.product(&matmul)?, origin),
            Kind::Scaled(scaled) => {
                for (matmul, _) in &scaled.plain {
                    out.push(products.product(matmul)?, origin.clone());
                }
            }
        }
    }
    out.extend(pairs.take().map(|(pairs, from)| (pairs.op(lanes), from)));
    look_ahead(&mut out.ops);
    Ok(out)
}

/// First int32 and how many, of each run of tiles.
fn runs(tiles: &Tiles, lanes: usize) -> Box<[(u32, u32)]> {
    // Scratchpads have at most `Config::MAX_ACC_DEPTH` tiles of a few kilobytes.
    let run = |(first, len)| ((first * lanes) as u32, (len * lanes) as u32);
    tiles.runs().into_iter().map(run).collect()
}

/// Tells each group whose successor uses a panel for the first time which that is: one that was
/// used before is near.
fn look_ahead(ops: &mut [Op]) {
    let mut seen = HashSet::new();
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
