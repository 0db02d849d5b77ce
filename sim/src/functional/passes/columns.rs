//! Products that read the same inputs become one of several columns.
//!
//! Pattern: two products of the same positions and inputs, near each other; a compiler whose tile has
//! few output channels makes one for each, and a kernel is faster on several columns at once.
//!
//! Condition: together they have no more groups than a kernel's columns. They start alike, go through
//! the same steps but for constants, and store alike: rows of one shape in one region, apart, with
//! nothing that either reads inside all that both store. No step reads accumulators. Nothing between
//! them touches what the first reads or leaves in the accumulators, stores to what it reads, or touches
//! what it stores; nor does the second touch the first's tiles.
//!
//! Proof: the first may be moved to the second. There each group does what it did, since groups
//! neither share tiles nor read each other's.

use super::super::draft::{Draft, Kind, Matmul, OperandDraft, StepDraft};
use super::super::spans::{join, overlap};
use super::list::{Pass, Passed};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        let product = |d: &Draft| matches!(d.kind, Kind::Matmul(_));
        list.each(product, |drafts, index| {
            if let Some(next) = partner(drafts, index, context.columns)
                && let Some(first) = drafts[index].take()
                && let Some(second) = &mut drafts[next]
            {
                absorb(first, second);
            }
        })
    },
};

const NAME: &str = "columns";

/// Operations that are looked through for a product with the same inputs.
const WINDOW: usize = 96;

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
            let all = join(&x.span, &y.span);
            let sides = a.side.iter().zip(&b.side);
            let side = sides.map(|(x, y)| join(&x.span, &y.span)).next();
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
                // One operand of all groups, which read others.
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
    second.origin.take(first.origin, NAME);
    b.groups.extend(a.groups);
    if let (Some(x), Some(y)) = (a.stored, &mut b.stored) {
        y.span = join(&x.span, &y.span);
        y.first.extend(x.first);
    }
    if let (Some(x), Some(y)) = (a.side, &mut b.side) {
        y.span = join(&x.span, &y.span);
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
