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

use vta_isa::AluOp;

use super::super::draft::{Draft, Kind, Matmul, OperandDraft, StepDraft};
use super::super::spans::{join, overlap};
use super::super::tiles::Tiles;
use super::list::{Pass, next_touching};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| list.each(|d| matches!(d.kind, Kind::Matmul(_)), fold_chunk),
};

const NAME: &str = "chunks";

/// A product whose sums the next product goes on with: the next takes its taps. Both read their
/// inputs from the same region of DRAM, and what the first reads is still there. Constants that
/// the first adds, a bias, may as well be added last: sums wrap.
fn fold_chunk(drafts: &mut [Option<Draft>], index: usize) {
    let Some(first) = drafts[index].take() else {
        return;
    };
    let next = next_touching(drafts, index, &first.writes);
    let Some(next) = next.filter(|&n| continues(drafts, index, n, &first)) else {
        drafts[index] = Some(first);
        return;
    };
    let origin = first.origin;
    if let (Kind::Matmul(mut first), Some(draft)) = (first.kind, &mut drafts[next])
        && let Kind::Matmul(matmul) = &mut draft.kind
    {
        draft.origin.take(origin, NAME);
        std::mem::swap(&mut matmul.inputs, &mut first.inputs);
        matmul.inputs.append(&mut first.inputs);
        for (group, mut before) in matmul.groups.iter_mut().zip(first.groups) {
            std::mem::swap(&mut group.weights, &mut before.weights);
            group.weights.append(&mut before.weights);
        }
        if let (Some(a), Some(b)) = (&mut matmul.read, &first.read) {
            *a = join(a, b);
        }
        matmul.from_zero = first.from_zero;
        matmul.side = first.side;
        matmul.before = first.before;
        first.after.append(&mut matmul.after);
        matmul.after = first.after;
        draft.reads = first_reads(&draft.writes, matmul, tiles_before(matmul));
    }
}

/// Tiles that steps before the products read.
fn tiles_before(matmul: &Matmul) -> Tiles {
    let mut tiles = Tiles::NONE;
    for (_, operand) in matmul.before.iter().flatten() {
        if let OperandDraft::Tiles(list) = operand {
            list.iter().for_each(|&t| {
                tiles.insert(usize::from(t));
            });
        }
    }
    tiles
}

/// What a product reads of the accumulators before its products are added.
fn first_reads(writes: &Tiles, matmul: &Matmul, mut before: Tiles) -> Tiles {
    if !matmul.from_zero && matmul.before.is_none() {
        before.add(writes);
    }
    before
}

/// Whether the draft at `next` goes on with the sums of `first`, which stood at `index`.
fn continues(drafts: &[Option<Draft>], index: usize, next: usize, first: &Draft) -> bool {
    let (Kind::Matmul(a), Some(draft)) = (&first.kind, &drafts[next]) else {
        return false;
    };
    let Kind::Matmul(b) = &draft.kind else {
        return false;
    };
    let region = |m: &Matmul| m.read.map(|s| s.region);
    let constant = |step: &StepDraft| matches!(step, (AluOp::Add, OperandDraft::Values(_)));
    let same = (a.has_no_taps() || region(a).is_some() && region(a) == region(b))
        && !b.from_zero
        && b.before.is_none()
        && a.positions == b.positions
        && a.groups
            .iter()
            .map(|g| g.dst)
            .eq(b.groups.iter().map(|g| g.dst));
    debug_assert!(
        b.before.is_some() == b.side.is_some(),
        "no step has joined it"
    );
    debug_assert!(a.after.iter().all(constant), "no step has joined it");
    let mut between = drafts[index + 1..next].iter().flatten();
    // Operand tiles of steps on the residual must stay as they are, too.
    let before = tiles_before(a);
    same && !between.any(|d| {
        let written = d.dram_write();
        d.writes.meets(&before)
            || written.is_some_and(|w| first.dram_reads().any(|r| overlap(&r, &w)))
    })
}
