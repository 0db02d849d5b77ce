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

use std::mem;
use std::rc::Rc;

use vta_isa::resolve::{Interval, TileSet};

use super::super::draft::{ByteTiles, Draft, Kind, Matmul, OperandDraft, StartDraft, StepDraft};
use super::list::{Pass, Passed, Slot, join};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        list.each(|_, slot, behind| {
            if let Some(next) = slot
                .as_ref()
                .and_then(|d| partner(d, behind, context.columns))
                && let Some(second) = &mut behind[next]
                && let Some(first) = join(slot, &mut second.origin, NAME)
            {
                absorb(first, second);
            }
        })
    },
};

const NAME: &str = "columns";

/// Operations that are looked through for a product with the same inputs.
const WINDOW: usize = 96;

/// The product that a product can be moved to and joined with.
fn partner(first: &Draft, behind: &[Slot], columns: usize) -> Option<usize> {
    let Kind::Matmul(a) = &first.kind else {
        return None;
    };
    let room = columns
        .checked_sub(a.groups.len())
        .filter(|&room| room > 0)?;
    let mut passed = Passed::default();
    for (at, other) in behind.iter().enumerate().take(WINDOW) {
        let Some(other) = other else { continue };
        if let Kind::Matmul(b) = &other.kind
            && b.groups.len() <= room
            && alike(a, b)
        {
            let mut own = TileSet::clone(&first.reads);
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
    let apart = match (&a.stored, &b.stored) {
        (Some(x), Some(y)) => {
            // What is read lies outside of all that is stored, also together.
            let all = x.span.hull(&y.span);
            let side = a
                .side
                .iter()
                .zip(&b.side)
                .map(|(x, y)| x.span.hull(&y.span));
            let mut reads = a.read.into_iter().chain(b.read).chain(side);
            !x.span.overlaps(&y.span) && !reads.any(|r| r.overlaps(&all))
        }
        _ => true,
    };
    let start = match (&a.start, &b.start) {
        (StartDraft::Side(x), StartDraft::Side(y)) => same_steps(x, y),
        (x, y) => mem::discriminant(x) == mem::discriminant(y),
    };
    same_offsets(&a.stored, &b.stored)
        && same_offsets(&a.side, &b.side)
        && apart
        && start
        && a.write_acc == b.write_acc
        && (region(a).is_some() || (a.has_no_taps() && b.has_no_taps()))
        && region(a) == region(b)
        && a.positions == b.positions
        && same_steps(&a.after, &b.after)
        && a.inputs.hold_same(&b.inputs)
}

/// Whether both have tiles in one region at the same offsets, or neither has.
fn same_offsets(a: &Option<ByteTiles>, b: &Option<ByteTiles>) -> bool {
    match (a, b) {
        (Some(x), Some(y)) => x.span.region == y.span.region && x.offsets == y.offsets,
        (x, y) => x.is_none() && y.is_none(),
    }
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

/// Makes two products that are alike one: the second, with the first's groups behind its own.
fn absorb(first: Draft, second: &mut Draft) {
    let (Kind::Matmul(a), Kind::Matmul(b)) = (first.kind, &mut second.kind) else {
        return;
    };
    b.weights = Matmul::weights_of_all(&[b, &a]);
    b.groups = b.groups.iter().chain(&*a.groups).copied().collect();
    // Groups of one may read further on.
    b.read = b.read.zip(a.read).map(|(x, y)| x.hull(&y));
    for (a, b) in [(a.stored, &mut b.stored), (a.side, &mut b.side)] {
        if let (Some(a), Some(b)) = (a, b) {
            b.append(a);
        }
    }
    if let (StartDraft::Side(a), StartDraft::Side(b)) = (a.start, &mut b.start) {
        absorb_constants(a, b);
    }
    absorb_constants(a.after, &mut b.after);
    Rc::make_mut(&mut second.reads).add(&first.reads);
    Rc::make_mut(&mut second.writes).add(&first.writes);
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
