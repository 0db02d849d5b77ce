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
//! is no step behind the first store.
//!
//! Proof: each moves back to the product across operations that touch nothing of what it
//! touches. What reads the tiles next finds what the last step left.

use vta_isa::AluOp;

use super::super::draft::{Draft, Kind, Matmul, OperandDraft, Scaled, Side, StepDraft, Vector};
use super::super::elementwise::same_vector;
use super::super::table::Table;
use super::list::{Pass, Passed, WINDOW};
use super::operand::operand;
use super::rectangles::Stores;

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        let product = |d: &Draft| matches!(d.kind, Kind::Matmul(_));
        let lanes = context.lanes();
        list.each(product, |drafts, index| fold_after(drafts, index, lanes))
    },
};

const NAME: &str = "ends";

/// ALU instructions, biases and residuals on a product's tiles, then the stores of all of them.
fn fold_after(drafts: &mut [Option<Draft>], index: usize, lanes: usize) {
    let Some(mut draft) = drafts[index].take() else {
        return;
    };
    let Kind::Matmul(matmul) = &mut draft.kind else {
        drafts[index] = Some(draft);
        return;
    };
    let mut passed = Passed::default();
    let mut stores = Stores::new(matmul.groups.len());
    let mut at = index;
    while at + 1 < drafts.len().min(index + WINDOW) {
        at += 1;
        let Some(other) = &drafts[at] else { continue };
        if !other.touches(&draft.writes) {
            passed.pass(other);
            continue;
        }
        if matches!(other.kind, Kind::Store(_)) {
            let taken = stores.take(at, other, matmul, &passed, lanes);
            if !taken || stores.is_whole() {
                break;
            }
            continue;
        }
        let step = match &other.kind {
            _ if stores.has_any() => None,
            Kind::Alu(alu) => operand(alu, matmul, &draft.writes, &passed).map(|o| (alu.op, o)),
            Kind::Matmul(more) if other.writes == draft.writes => added(more, matmul),
            Kind::Scaled(more) if other.writes == draft.writes => scaled(more, matmul, &passed),
            _ => None,
        };
        let Some(step) = step else { break };
        if let OperandDraft::Tiles(tiles) = &step.1 {
            tiles.iter().for_each(|&t| {
                draft.reads.insert(usize::from(t));
            });
        }
        matmul.after.push(step);
        if let Some(taken) = drafts[at].take() {
            draft.origin.take(taken.origin, NAME);
        }
    }
    // A kernel reads these bytes while it writes the stored ones.
    if let Some((stored, taken)) = stores.finish(matmul.dram_reads()) {
        matmul.stored = Some(stored);
        for at in taken {
            if let Some(taken) = drafts[at].take() {
                draft.origin.take(taken.origin, NAME);
            }
        }
    }
    drafts[index] = Some(draft);
}

/// A product without taps, which adds a vector to each of its groups, as a step on the sums of
/// another over the same tiles.
fn added(more: &Matmul, matmul: &Matmul) -> Option<StepDraft> {
    let [(AluOp::Add, OperandDraft::Values(values))] = &more.after[..] else {
        return None;
    };
    let plain = more.has_no_taps() && !more.from_zero && more.before.is_none();
    if !plain || more.stored.is_some() {
        return None;
    }
    let mut by_tile: Table<u16, &Vector> = Table::default();
    for (group, vector) in more.groups.iter().zip(values) {
        by_tile.extend(more.positions.iter().map(|p| (group.dst + p, vector)));
    }
    let vectors = matmul.by_group(|tile| by_tile.get(&tile).copied(), |a, b| same_vector(a, b))?;
    let vectors = vectors.into_iter().cloned().collect();
    Some((AluOp::Add, OperandDraft::Values(vectors)))
}

/// Scaled inputs as a step on a product's sums. All steps of a product scale the same bytes.
fn scaled(more: &Scaled, matmul: &mut Matmul, passed: &Passed) -> Option<StepDraft> {
    if passed.stored(&more.read) {
        return None;
    }
    let by_tile = more.by_tile();
    let factors = matmul.by_group(
        |tile| by_tile.get(&tile).map(|t| t.1),
        |a, b| same_vector(a, b),
    )?;
    let start = |group: usize, position: usize| {
        let tile = matmul.groups.get(group)?.dst + matmul.positions.get(position)?;
        by_tile.get(&tile).map(|t| t.0)
    };
    let groups = 0..matmul.groups.len();
    let first: Vec<u32> = groups.map(|g| start(g, 0)).collect::<Option<_>>()?;
    let base = *first.first()?;
    let offset = |position: usize| start(0, position)?.checked_sub(base);
    let positions = 0..matmul.positions.len();
    let offsets: Vec<u32> = positions.map(offset).collect::<Option<_>>()?;
    let follows = |(group, &first): (usize, &u32)| {
        let mut offsets = offsets.iter().enumerate();
        offsets.all(|(p, offset)| start(group, p) == first.checked_add(*offset))
    };
    if !first.iter().enumerate().all(follows) {
        return None;
    }
    let side = Side {
        span: more.read,
        first,
        offsets,
    };
    let same = |s: &Side| {
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
