//! Joining products that read the same inputs: a compiler whose tile has few output channels
//! makes one product for each, and a kernel is faster on several columns at once.

use super::draft::{Draft, Kind, Matmul, OperandDraft, StepDraft, join as joined_span, overlap};
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
            let mut own = first.reads.clone();
            if a.write_acc {
                own.add(&first.writes);
            }
            let apart = !passed.touches(&own) && !other.touches(&own);
            let kept = a.stored.as_ref().is_none_or(|s| passed.lets_store(&s.span))
                && !first.dram_reads().any(|read| passed.stored(&read));
            return (apart && kept).then_some(at);
        }
        passed.pass(other);
    }
    None
}

/// Whether two products differ in their groups alone. Their steps read no accumulators.
fn alike(a: &Matmul, b: &Matmul) -> bool {
    let region = |m: &Matmul| m.read.map(|s| s.region);
    let stored = match (&a.stored, &b.stored) {
        (Some(x), Some(y)) => {
            let all = joined_span(&x.span, &y.span);
            let sides = a.side.iter().zip(&b.side);
            let side = sides.map(|(x, y)| joined_span(&x.span, &y.span)).next();
            (x.shape, x.span.region) == (y.shape, y.span.region)
                && !overlap(&x.span, &y.span)
                // What is read lies outside of all that is stored, also together.
                && !a.read.into_iter().chain(b.read).chain(side).any(|r| overlap(&r, &all))
        }
        (x, y) => x.is_none() && y.is_none(),
    };
    let start = match (&a.before, &b.before) {
        (Some(x), Some(y)) => same_steps(x, y),
        (x, y) => x.is_none() && y.is_none() && a.from_zero == b.from_zero,
    };
    let side = match (&a.side, &b.side) {
        (Some(x), Some(y)) => x.span.region == y.span.region && x.offsets == y.offsets,
        (x, y) => x.is_none() && y.is_none(),
    };
    stored
        && start
        && side
        && a.write_acc == b.write_acc
        && (region(a).is_some() || (a.has_no_taps() && b.has_no_taps()))
        && region(a) == region(b)
        && a.positions == b.positions
        && same_steps(&a.after, &b.after)
        && a.inputs == b.inputs
}

/// Whether the steps are the same but for constants, which each group has of its own.
fn same_steps(a: &[StepDraft], b: &[StepDraft]) -> bool {
    let same = |(x, y): (&StepDraft, &StepDraft)| {
        x.0 == y.0
            && match (&x.1, &y.1) {
                (OperandDraft::Imm(x), OperandDraft::Imm(y)) => x == y,
                (OperandDraft::Constants(_), OperandDraft::Constants(_))
                | (OperandDraft::Values(_), OperandDraft::Values(_))
                | (OperandDraft::Scaled(_), OperandDraft::Scaled(_)) => true,
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
    if let (Some(x), Some(y)) = (a.side, &mut b.side) {
        y.span = joined_span(&x.span, &y.span);
        y.first.extend(x.first);
    }
    if let (Some(x), Some(y)) = (a.before, &mut b.before) {
        absorb_constants(x, y);
    }
    absorb_constants(a.after, &mut b.after);
}

fn absorb_constants(from: Vec<StepDraft>, to: &mut [StepDraft]) {
    for (from, to) in from.into_iter().zip(to) {
        match (from.1, &mut to.1) {
            (OperandDraft::Constants(from), OperandDraft::Constants(to)) => to.extend(from),
            (OperandDraft::Values(from), OperandDraft::Values(to))
            | (OperandDraft::Scaled(from), OperandDraft::Scaled(to)) => to.extend(from),
            _ => {}
        }
    }
}
