//! Joining products that read the same inputs: a compiler whose tile has few output channels
//! makes one product for each, and a kernel is faster on several columns at once.

use super::draft::{Draft, Kind, Matmul, OperandDraft, join as joined_span, overlap};
use super::fuse::Passed;

/// Operations that are looked through for a product with the same inputs.
const WINDOW: usize = 96;

/// Joins products as far as they have at most `columns` groups together.
pub(super) fn join(drafts: Vec<Draft>, columns: usize) -> Vec<Draft> {
    let mut drafts: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    for index in 0..drafts.len() {
        if let Some(next) = partner(&drafts, index, columns)
            && let Some(first) = drafts[index].take()
            && let Some(second) = &mut drafts[next]
        {
            absorb(first, second);
        }
    }
    drafts.into_iter().flatten().collect()
}

/// The product that the one at `index` can be moved to and joined with.
fn partner(drafts: &[Option<Draft>], index: usize, columns: usize) -> Option<usize> {
    let first = drafts[index].as_ref()?;
    let Kind::Matmul(a) = &first.kind else {
        return None;
    };
    let stored = a.stored.as_ref()?;
    if a.groups.len() >= columns {
        return None;
    }
    let mut passed = Passed::default();
    for (at, other) in drafts.iter().enumerate().skip(index + 1).take(WINDOW) {
        let Some(other) = other else { continue };
        if let Kind::Matmul(b) = &other.kind
            && a.groups.len() + b.groups.len() <= columns
            && alike(a, b)
        {
            let apart = !a.write_acc || !passed.touches(&first.writes);
            let disjoint = !a.write_acc || !first.touches(&other.writes);
            let kept = passed.lets_store(&stored.span)
                && !first.dram_reads().any(|read| passed.stored(&read));
            return (apart && disjoint && kept).then_some(at);
        }
        passed.pass(other);
    }
    None
}

/// Whether two products differ in their groups alone. Neither reads accumulators.
fn alike(a: &Matmul, b: &Matmul) -> bool {
    let region = |m: &Matmul| m.read.map(|s| s.region);
    let (Some(x), Some(y)) = (&a.stored, &b.stored) else {
        return false;
    };
    let stored = (x.row_bytes, x.stride_bytes, x.span.region)
        == (y.row_bytes, y.stride_bytes, y.span.region)
        && !overlap(&x.span, &y.span);
    let start = match (&a.residual, &b.residual) {
        (None, None) => a.from_zero && b.from_zero,
        (Some(x), Some(y)) => {
            (x.row_bytes, x.stride_bytes, x.span.region)
                == (y.row_bytes, y.stride_bytes, y.span.region)
                && same_steps(&x.before, &y.before)
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    stored
        && start
        && a.write_acc == b.write_acc
        && region(a).is_some()
        && region(a) == region(b)
        && a.positions == b.positions
        && same_steps(&a.after, &b.after)
        && a.inputs == b.inputs
}

/// Whether the steps are the same but for constants, which each group has of its own.
fn same_steps(a: &[(vta_isa::AluOp, OperandDraft)], b: &[(vta_isa::AluOp, OperandDraft)]) -> bool {
    let same = |(x, y): (&(_, OperandDraft), &(_, OperandDraft))| {
        x.0 == y.0
            && match (&x.1, &y.1) {
                (OperandDraft::Imm(x), OperandDraft::Imm(y)) => x == y,
                (OperandDraft::Constants(_), OperandDraft::Constants(_)) => true,
                // Tiles may have changed in between.
                _ => false,
            }
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Adds the groups of the first product to the second, which is [`alike`].
fn absorb(first: Draft, second: &mut Draft) {
    let (Kind::Matmul(a), Kind::Matmul(b)) = (first.kind, &mut second.kind) else {
        return;
    };
    second.reads.add(&first.reads);
    second.writes.add(&first.writes);
    b.groups.extend(a.groups);
    if let (Some(x), Some(y)) = (a.stored, &mut b.stored) {
        y.span = joined_span(&x.span, &y.span);
        y.first.extend(x.first);
    }
    if let (Some(x), Some(y)) = (a.residual, &mut b.residual) {
        y.span = joined_span(&x.span, &y.span);
        y.first.extend(x.first);
        absorb_constants(x.before, &mut y.before);
    }
    absorb_constants(a.after, &mut b.after);
}

fn absorb_constants(
    from: Vec<(vta_isa::AluOp, OperandDraft)>,
    to: &mut [(vta_isa::AluOp, OperandDraft)],
) {
    for (from, to) in from.into_iter().zip(to) {
        if let (OperandDraft::Constants(from), OperandDraft::Constants(to)) = (from.1, &mut to.1) {
            to.extend(from);
        }
    }
}
