//! Products are split where what follows treats some of their groups before the others.
//!
//! Pattern: a product, and the next operation that touches some of its groups is ALU steps, a
//! residual or a bias on part of them: a compiler that stores the first half while it computes the
//! rest makes such.
//!
//! Condition: sums start from no bytes. No step or store has joined the product yet but biases, which
//! each group has of its own.
//!
//! Proof: groups share no accumulator tile and read no sums of each other, so that each can be
//! computed alone; the parts stand where the whole stood.

use vta_isa::resolve::TileSet;

use super::super::draft::{Draft, GroupDraft, Kind, Matmul, OperandDraft, StepDraft};
use super::list::{Pass, Place, next_touching};

pub(super) const PASS: Pass = Pass {
    name: "split",
    run: |mut list, _| {
        let places = &list.places;
        let parts: Vec<Vec<Draft>> = (0..places.len()).map(|at| parts_of(places, at)).collect();
        let mut all = Vec::with_capacity(parts.len());
        for (place, parts) in list.places.into_iter().zip(parts) {
            if parts.is_empty() {
                all.push(place);
            } else {
                all.extend(parts.into_iter().map(Some));
            }
        }
        list.places = all;
        list
    },
};

/// The parts of one product; none if it stays whole.
fn parts_of(places: &[Place], at: usize) -> Vec<Draft> {
    let Some(draft) = &places[at] else {
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
    // A residual before this is rare; such a product stays whole.
    if matmul.side.is_some() {
        return Vec::new();
    }
    let mut whole = vec![(0..matmul.groups.len()).collect::<Vec<usize>>()];
    let mut done: Vec<Vec<usize>> = Vec::new();
    while let Some(groups) = whole.pop() {
        let (now, later) = first_treated(matmul, &groups, &places[at + 1..]);
        if now.is_empty() || later.is_empty() {
            done.push(groups);
        } else {
            whole.push(later);
            whole.push(now);
        }
    }
    if done.len() < 2 {
        return Vec::new();
    }
    let part = |groups: &Vec<usize>| {
        let writes = tiles_of(matmul, groups);
        Draft::product(part(matmul, groups), writes, draft.origin.clone())
    };
    done.iter().map(part).collect()
}

/// The groups that what follows treats first, and the others.
fn first_treated(matmul: &Matmul, groups: &[usize], behind: &[Place]) -> (Vec<usize>, Vec<usize>) {
    let next = next_touching(behind, &tiles_of(matmul, groups));
    let next = next.and_then(|next| behind[next].as_ref());
    // A product with taps is a chunk, which goes on with all groups.
    let next = next.filter(|d| !matches!(&d.kind, Kind::Matmul(m) if !m.has_no_taps()));
    let all = |d: &Draft, group: usize| d.writes.includes(&tiles_of(matmul, &[group]));
    let inside = |group: &usize| next.is_some_and(|d| all(d, *group));
    groups.iter().partition(|group| inside(group))
}

fn tiles_of(matmul: &Matmul, groups: &[usize]) -> TileSet {
    let groups = groups.iter().map(|&group| &matmul.groups[group]);
    groups.flat_map(|group| matmul.tiles_of(group)).collect()
}

/// Some groups of a product.
fn part(matmul: &Matmul, groups: &[usize]) -> Matmul {
    let group = |&g: &usize| GroupDraft {
        dst: matmul.groups[g].dst,
        weights: matmul.groups[g].weights.clone(),
    };
    let step = |(op, operand): &StepDraft| match operand {
        OperandDraft::Values(values) => {
            let values = groups.iter().map(|&g| values[g].clone());
            (*op, OperandDraft::Values(values.collect()))
        }
        other => (*op, other.clone()),
    };
    Matmul {
        start: matmul.start.clone(),
        after: matmul.after.iter().map(step).collect(),
        ..Matmul::new(
            groups.iter().map(group).collect(),
            matmul.positions.clone(),
            matmul.inputs.clone(),
            matmul.read,
        )
    }
}
