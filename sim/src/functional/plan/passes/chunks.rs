//! Products on the same sums become one: the chunks of a reduction.
//!
//! Pattern: a product, and the next operation that touches its tiles is a product, too.
//!
//! Condition: both have the same groups and positions, and the second goes on with the sums as they
//! are. Both read their inputs from one region of DRAM, or the first has no taps. Between them nothing
//! stores to what the first reads, nor writes an operand tile of the steps on its residual.
//!
//! Proof: sums wrap, so that the order in which products and constants (biases) are added is
//! free. What the first reads is still there when the second runs, and nobody looks at the sums
//! meanwhile, which the next touching operation being the second says.

use std::rc::Rc;

use vta_isa::AluOp;
use vta_isa::resolve::Interval;

use super::super::draft::{Draft, Kind, Matmul, OperandDraft, StepDraft};
use super::list::{Pass, Slot, join, next_touching};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| list.each(|_, slot, behind| fold_chunk(slot, behind)),
};

const NAME: &str = "chunks";

/// A product whose sums the next product goes on with: the next takes its taps.
fn fold_chunk(slot: &mut Slot, behind: &mut [Slot]) {
    let Some(first) = slot.as_ref().filter(|d| matches!(d.kind, Kind::Matmul(_))) else {
        return;
    };
    let Some(next) = next_touching(behind, &first.writes) else {
        return;
    };
    let (between, rest) = behind.split_at_mut(next);
    if let Some(Some(second)) = rest.first_mut()
        && let Kind::Matmul(matmul) = &mut second.kind
        && continues(first, matmul, between)
        && let Some(first) = join(slot, &mut second.origin, NAME)
        && let Kind::Matmul(first) = first.kind
    {
        absorb(*first, matmul);
        second.reads = matmul.reads(&second.writes);
    }
}

/// Puts the taps and the steps of the first product before those of the second, which starts from
/// what the first did.
fn absorb(mut first: Matmul, second: &mut Matmul) {
    first.inputs.append(std::mem::take(&mut second.inputs));
    first.weights.append(&mut second.weights);
    // The first's are the same, unless it has no taps.
    first.groups = Rc::clone(&second.groups);
    first.read = match (first.read, second.read) {
        (Some(a), Some(b)) => Some(a.hull(&b)),
        (a, b) => a.or(b),
    };
    first.after.append(&mut second.after);
    *second = first;
}

/// Whether the second product goes on with the sums of the first.
fn continues(first: &Draft, b: &Matmul, between: &[Slot]) -> bool {
    let Kind::Matmul(a) = &first.kind else {
        return false;
    };
    let region = |m: &Matmul| m.read.map(|s| s.region);
    let constant = |step: &StepDraft| matches!(step, (AluOp::Add, OperandDraft::Values(_)));
    debug_assert!(a.after.iter().all(constant), "no step has joined it");
    debug_assert!(b.side.is_none() || !b.goes_on(), "no step has joined it");
    let mut groups = a.groups.iter().zip(&*b.groups);
    let same = (a.has_no_taps() || region(a).is_some() && region(a) == region(b))
        && b.goes_on()
        && a.positions == b.positions
        && a.groups.len() == b.groups.len()
        && groups.all(|(x, y)| x.dst == y.dst)
        && (a.has_no_taps() || a.same_shifts(b));
    // Operand tiles of steps on the residual must stay as they are, too.
    let before = a.tiles_before();
    same && !between.iter().flatten().any(|d| {
        let written = d.dram_write();
        d.writes.meets(&before)
            || written.is_some_and(|w| first.dram_reads().any(|r| r.overlaps(&w)))
    })
}
