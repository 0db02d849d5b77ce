//! ALU steps, biases, residuals and stores become the end of a product.
//!
//! Pattern: a product; then ALU instructions, biases and diagonal residuals on its tiles; then stores
//! of all of them.
//!
//! Condition: a step visits each of the product's tiles once and no others, with an operand that the
//! product can read where it stands (see `operand`); a bias or a residual has the same tiles, and what
//! it adds is the same for all positions of a group. Nothing in between touches the tiles, writes an
//! operand, or stores to what is read. Stores cover every group once, as rectangles of one shape, apart
//! from each other and from all that the product reads, and nothing between touches their bytes. There
//! is no step behind the first store. Where stores saturate, all do, and nobody reads their tiles later: the clamp becomes
//! the product's last step.
//!
//! Proof: each moves back to the product across operations that touch nothing of what it
//! touches. What reads the tiles next finds what the last step left.

use rustc_hash::FxHashMap;
use vta_isa::AluOp;
use vta_isa::resolve::{Interval, TileSet};

use super::super::super::run::ops::Narrow;
use super::super::draft::{
    ByteTiles, Draft, Kind, Matmul, OperandDraft, Scaled, StepDraft, Vector,
};
use super::list::{Pass, Passed, Slot, WINDOW, join};
use super::operand::operand;
use super::rectangles::Rectangles;

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        let lanes = context.config.lanes();
        let last = last_saturated(&list.slots);
        list.each(|before, slot, behind| {
            if let Some(product) = slot {
                fold_after(product, (behind, &last[before.len() + 1..]), lanes);
            }
        })
    },
};

const NAME: &str = "ends";

/// Which operations are stores that saturate tiles that nobody reads later.
fn last_saturated(slots: &[Slot]) -> Vec<bool> {
    let saturates = |slot: &Slot| match slot.as_ref().map(|draft| &draft.kind) {
        Some(Kind::Store(op)) => op.how == Narrow::Saturate,
        _ => false,
    };
    let mut last = vec![false; slots.len()];
    if !slots.iter().any(saturates) {
        return last;
    }
    let mut live = TileSet::ALL;
    for (slot, last) in slots.iter().zip(&mut last).rev() {
        let Some(draft) = slot else { continue };
        *last = saturates(slot) && !draft.reads.meets(&live);
        draft.read_before(&mut live);
    }
    last
}

/// ALU instructions, biases and residuals on a product's tiles, then the stores of all of them. `last` says which of
/// what is behind [`last_saturated`] names.
fn fold_after(draft: &mut Draft, (behind, last): (&mut [Slot], &[bool]), lanes: usize) {
    let Kind::Matmul(matmul) = &mut draft.kind else {
        return;
    };
    let mut passed = Passed::default();
    let mut rectangles = Rectangles::new(matmul, lanes);
    let (mut stores, mut saturates) = (Vec::new(), None);
    for (at, slot) in behind.iter_mut().enumerate().take(WINDOW) {
        let Some(other) = slot else { continue };
        if !other.touches(&draft.writes) {
            passed.pass(other);
            continue;
        }
        if let Kind::Store(op) = &other.kind {
            let saturated = match op.how {
                Narrow::Low => false,
                Narrow::Saturate if last[at] => true,
                // The tiles may be its table or its residual, too.
                Narrow::Saturate | Narrow::Requantize(_) => break,
            };
            if *saturates.get_or_insert(saturated) != saturated {
                break;
            }
            let first = op.first / lanes;
            let take = |mut r: Rectangles| r.take(matmul, first, op.span, op.shape).then_some(r);
            rectangles = rectangles
                .filter(|_| passed.lets_store(&op.span))
                .and_then(take);
            stores.push(at);
            match &rectangles {
                Some(stored) if !stored.is_whole() => continue,
                _ => break,
            }
        }
        let step = match &other.kind {
            _ if !stores.is_empty() => None,
            Kind::Alu(alu) => {
                let tiles = [&*draft.writes, &*other.writes];
                operand(alu, matmul, tiles, &passed).map(|o| (alu.op, o))
            }
            Kind::Matmul(more) if other.writes == draft.writes => added(more, matmul),
            Kind::Scaled(more) if other.writes == draft.writes => scaled(more, matmul, &passed),
            _ => None,
        };
        let Some(step) = step else { break };
        matmul.after.push(step);
        join(slot, &mut draft.origin, NAME);
    }
    // A kernel reads these bytes while it writes the stored ones.
    let stored = rectangles.filter(Rectangles::are_apart);
    let stored = stored.and_then(|r| r.finish(matmul));
    let mut reads = matmul.dram_reads().into_iter().flatten();
    let stored = stored.filter(|tiles| !reads.any(|r| r.overlaps(&tiles.span)));
    if stored.is_some() {
        matmul.stored = stored;
        if saturates == Some(true) {
            clamp(&mut matmul.after);
        }
        for at in stores {
            join(&mut behind[at], &mut draft.origin, NAME);
        }
    }
    draft.reads = matmul.reads(&draft.writes);
}

/// Clamps to int8. A bound that is there already serves.
fn clamp(steps: &mut Vec<StepDraft>) {
    let bound = match steps.last() {
        Some((op, OperandDraft::Imm(y))) if i8::try_from(*y).is_ok() => Some(*op),
        _ => None,
    };
    let bounds = [(AluOp::Min, 127), (AluOp::Max, -128)];
    let missing = bounds.into_iter().filter(|(op, _)| bound != Some(*op));
    steps.extend(missing.map(|(op, y)| (op, OperandDraft::Imm(y))));
}

/// A product without taps, which adds a vector to each of its groups, as a step on the sums of
/// another over the same tiles.
fn added(more: &Matmul, matmul: &Matmul) -> Option<StepDraft> {
    let [(AluOp::Add, OperandDraft::Values(values))] = &more.after[..] else {
        return None;
    };
    debug_assert!(more.stored.is_none(), "its turn comes later");
    if !more.has_no_taps() || !more.goes_on() {
        return None;
    }
    let mut by_tile: FxHashMap<u16, &Vector> = FxHashMap::default();
    for (group, vector) in more.groups.iter().zip(values) {
        by_tile.extend(more.tiles_of(group).map(|tile| (tile, vector)));
    }
    let vectors = matmul.by_group(|tile| by_tile.get(&tile).copied())?;
    let vectors = vectors.into_iter().cloned().collect();
    Some((AluOp::Add, OperandDraft::Values(vectors)))
}

/// Scaled inputs as a step on a product's sums. All steps of a product scale the same bytes.
fn scaled(more: &Scaled, matmul: &mut Matmul, passed: &Passed) -> Option<StepDraft> {
    if passed.stored(&more.read) {
        return None;
    }
    let terms: FxHashMap<u16, (u32, &Vector)> = more.terms().collect();
    let factors = matmul.by_group(|tile| terms.get(&tile).map(|t| t.1))?;
    let mut side: Option<ByteTiles> = None;
    for group in &*matmul.groups {
        let starts = matmul.tiles_of(group).map(|tile| Some(terms.get(&tile)?.0));
        let starts: Vec<u32> = starts.collect::<Option<_>>()?;
        let first = *starts.first()?;
        let offsets = starts.iter().map(|start| start.checked_sub(first));
        let offsets: Vec<u32> = offsets.collect::<Option<_>>()?;
        match &mut side {
            Some(side) if side.offsets == offsets => side.first.push(first),
            Some(_) => return None,
            None => {
                side = Some(ByteTiles {
                    span: more.read,
                    first: vec![first],
                    offsets,
                });
            }
        }
    }
    let side = side?;
    let same = |s: &ByteTiles| {
        s.span.region == side.span.region && s.first == side.first && s.offsets == side.offsets
    };
    if matmul.side.as_ref().is_some_and(|s| !same(s)) {
        return None;
    }
    let factors = factors.into_iter().cloned().collect();
    let step = (AluOp::Add, OperandDraft::Scaled(factors));
    matmul.side.get_or_insert(side);
    Some(step)
}
