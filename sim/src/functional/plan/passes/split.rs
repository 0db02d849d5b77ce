//! Products are split where what follows treats some of their groups before the others.
//!
//! Pattern: a product, and the next operation that touches some of its groups is ALU steps, a
//! residual or a bias on part of them: a compiler that stores the first half while it computes the
//! rest makes such.
//!
//! Condition: no step or store has joined the product yet but biases, which each group has of its own,
//! as it has the bytes that its sums start from and the operands of steps on those.
//!
//! Proof: groups share no accumulator tile and read no sums of each other, so that each can be
//! computed alone; the parts stand where the whole stood.

use std::rc::Rc;

use vta_driver::Span;
use vta_isa::resolve::TileSet;

use super::super::draft::{
    ByteTiles, Draft, Kind, Matmul, OperandDraft, StartDraft, StepDraft, Vector,
};
use super::list::{Pass, Slot, next_touching};

pub(super) const PASS: Pass = Pass {
    name: "split",
    run: |list, context| {
        let (slots, lanes) = (&list.slots, context.config.lanes());
        let parts = |at| parts_of(slots, at, lanes);
        let parts: Vec<Vec<Draft>> = (0..slots.len()).map(parts).collect();
        if parts.iter().all(Vec::is_empty) {
            return;
        }
        let mut all = Vec::with_capacity(parts.len());
        for (slot, parts) in std::mem::take(&mut list.slots).into_iter().zip(parts) {
            if parts.is_empty() {
                all.push(slot);
            } else {
                all.extend(parts.into_iter().map(Some));
            }
        }
        list.slots = all;
    },
};

/// The parts of one product; none if it stays whole. A tile has so many lanes.
fn parts_of(slots: &[Slot], at: usize, lanes: usize) -> Vec<Draft> {
    let Some(draft) = &slots[at] else {
        return Vec::new();
    };
    let Kind::Matmul(matmul) = &draft.kind else {
        return Vec::new();
    };
    let values = |(_, operand): &StepDraft| matches!(operand, OperandDraft::Values(_));
    debug_assert!(
        matmul.stored.is_none() && matmul.after.iter().all(values),
        "nothing but biases has joined it"
    );
    if matmul.groups.len() < 2 {
        return Vec::new();
    }
    // Mostly all groups are treated at once.
    let next = next_touching(&slots[at + 1..], &draft.writes);
    let next = next.and_then(|next| slots[at + 1 + next].as_ref());
    if next.is_none_or(|next| next.writes.includes(&draft.writes)) {
        return Vec::new();
    }
    let all = (0..matmul.groups.len()).collect();
    let mut whole: Vec<Part> = vec![(all, Rc::clone(&draft.writes))];
    let mut done: Vec<Part> = Vec::new();
    while let Some(part) = whole.pop() {
        let (now, later) = first_treated(matmul, &part, &slots[at + 1..]);
        if now.is_empty() || later.is_empty() {
            done.push(part);
        } else {
            whole.extend([later, now].map(|groups| {
                let tiles = Rc::new(tiles_of(matmul, &groups));
                (groups, tiles)
            }));
        }
    }
    if done.len() < 2 {
        return Vec::new();
    }
    let part = |(groups, tiles): Part| {
        let part = part(matmul, &groups, lanes);
        Draft::product(part, tiles, draft.origin.clone())
    };
    done.into_iter().map(part).collect()
}

/// Some groups and their tiles.
type Part = (Vec<usize>, Rc<TileSet>);

/// The groups that what follows treats first, and the others.
fn first_treated(
    matmul: &Matmul,
    (groups, tiles): &Part,
    behind: &[Slot],
) -> (Vec<usize>, Vec<usize>) {
    let next = next_touching(behind, tiles);
    let next = next.and_then(|next| behind[next].as_ref());
    // A product with taps is a chunk, which goes on with all groups.
    let next = next.filter(|d| !matches!(&d.kind, Kind::Matmul(m) if !m.has_no_taps()));
    let all = |d: &Draft, group: usize| {
        let mut tiles = matmul.tiles_of(&matmul.groups[group]);
        tiles.all(|tile| d.writes.contains(tile.into()))
    };
    let inside = |group: &usize| next.is_some_and(|d| all(d, *group));
    groups.iter().partition(|group| inside(group))
}

fn tiles_of(matmul: &Matmul, groups: &[usize]) -> TileSet {
    let groups = groups.iter().map(|&group| &matmul.groups[group]);
    groups.flat_map(|group| matmul.tiles_of(group)).collect()
}

/// Some groups of a product.
fn part(matmul: &Matmul, groups: &[usize], lanes: usize) -> Matmul {
    let taps = matmul.weights.chunks(matmul.groups.len());
    let weights = taps.flat_map(|tap| groups.iter().map(|&g| tap[g]));
    let step = |(op, operand): &StepDraft| (*op, operand_of(operand, groups));
    let start = match &matmul.start {
        StartDraft::Side(steps) => StartDraft::Side(steps.iter().map(step).collect()),
        StartDraft::Acc => StartDraft::Acc,
        StartDraft::Zero => StartDraft::Zero,
    };
    let side = matmul.side.as_ref();
    Matmul {
        start,
        side: side.map(|side| bytes_of(side, groups, lanes)),
        after: matmul.after.iter().map(step).collect(),
        ..Matmul::new(
            groups.iter().map(|&g| matmul.groups[g]).collect::<Vec<_>>(),
            weights.collect(),
            matmul.positions.clone(),
            matmul.inputs.clone(),
            matmul.read,
        )
    }
}

/// An operand of some groups.
fn operand_of(operand: &OperandDraft, groups: &[usize]) -> OperandDraft {
    let vectors = |all: &[Vector]| groups.iter().map(|&g| all[g].clone()).collect();
    match operand {
        OperandDraft::Imm(imm) => OperandDraft::Imm(*imm),
        OperandDraft::Tiles(tiles) => {
            OperandDraft::Tiles(groups.iter().map(|&g| tiles[g]).collect())
        }
        OperandDraft::Constants(spans) => {
            OperandDraft::Constants(groups.iter().map(|&g| spans[g]).collect())
        }
        OperandDraft::Values(all) => OperandDraft::Values(vectors(all)),
        OperandDraft::Scaled(all) => OperandDraft::Scaled(vectors(all)),
    }
}

/// The bytes of some groups.
fn bytes_of(bytes: &ByteTiles, groups: &[usize], lanes: usize) -> ByteTiles {
    let first: Vec<u32> = groups.iter().map(|&g| bytes.first[g]).collect();
    let ends = |all: &[u32]| (all.iter().min().copied(), all.iter().max().copied());
    let span = match (ends(&first), ends(&bytes.offsets)) {
        ((Some(low), Some(high)), (Some(nearest), Some(farthest))) => {
            let start = (low + nearest) as usize;
            Span {
                start,
                len: (high + farthest) as usize + lanes - start,
                ..bytes.span
            }
        }
        _ => bytes.span,
    };
    ByteTiles {
        span,
        first,
        offsets: bytes.offsets.clone(),
    }
}
