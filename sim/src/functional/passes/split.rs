//! Products are split where what follows treats some of their groups before the others.
//!
//! Pattern: a product, and the next operation that touches some of its groups is ALU steps, a
//! residual or a bias on part of them: a compiler that stores the first half while it computes the
//! rest makes such.
//!
//! Condition: no step, residual or store has joined the product yet but biases, which each group has
//! of its own.
//!
//! Proof: groups share no accumulator tile and read no sums of each other, so that each can be
//! computed alone; the parts stand where the whole stood.

use super::super::draft::{Draft, GroupDraft, Kind, Matmul, OperandDraft};
use super::super::origin::Origin;
use super::super::tiles::Tiles;
use super::list::{List, Pass, next_touching};

pub(super) const PASS: Pass = Pass {
    name: "split",
    run: |list, _| List {
        drafts: split(list.drafts),
        constants: list.constants,
    },
};

fn split(drafts: Vec<Option<Draft>>) -> Vec<Option<Draft>> {
    let part = |(index, draft): (usize, &Option<Draft>)| match draft.as_ref().map(|d| &d.kind) {
        Some(Kind::Matmul(matmul)) if matmul.groups.len() > 1 => parts_of(&drafts, index, matmul),
        _ => Vec::new(),
    };
    let parts: Vec<Vec<Draft>> = drafts.iter().enumerate().map(part).collect();
    let mut all = Vec::with_capacity(drafts.len());
    for (draft, parts) in drafts.into_iter().zip(parts) {
        if parts.is_empty() {
            all.push(draft);
        } else {
            all.extend(parts.into_iter().map(Some));
        }
    }
    all
}

/// The parts of one product; none if it stays whole.
fn parts_of(drafts: &[Option<Draft>], index: usize, matmul: &Matmul) -> Vec<Draft> {
    // Steps that read other tiles or bytes are rare before this; such a product stays whole.
    let plain = matmul.stored.is_none() && matmul.side.is_none() && matmul.before.is_none();
    let values = |(_, operand): &(_, OperandDraft)| matches!(operand, OperandDraft::Values(_));
    if !plain || !matmul.after.iter().all(values) {
        return Vec::new();
    }
    let mut whole = vec![(0..matmul.groups.len()).collect::<Vec<usize>>()];
    let mut done: Vec<Vec<usize>> = Vec::new();
    while let Some(groups) = whole.pop() {
        let tiles = tiles_of(matmul, &groups);
        let next = next_touching(drafts, index, &tiles).and_then(|n| drafts[n].as_ref());
        let next = next.filter(|d| match &d.kind {
            Kind::Alu(_) | Kind::Scaled(_) => true,
            Kind::Matmul(matmul) => matmul.has_no_taps(),
            _ => false,
        });
        let Some(next) = next else {
            done.push(groups);
            continue;
        };
        let inside = |group: &usize| next.writes.includes(&tiles_of(matmul, &[*group]));
        let (now, later): (Vec<usize>, Vec<usize>) = groups.iter().partition(|g| inside(g));
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
    let origin = drafts[index].as_ref().map(|d| d.origin.clone());
    let origin = origin.unwrap_or_default();
    let part = |groups: &Vec<usize>| part(matmul, groups, origin.clone());
    done.iter().map(part).collect()
}

fn tiles_of(matmul: &Matmul, groups: &[usize]) -> Tiles {
    let mut tiles = Tiles::NONE;
    for &group in groups {
        for offset in &matmul.positions {
            tiles.insert(usize::from(matmul.groups[group].dst + offset));
        }
    }
    tiles
}

/// Some groups of a product.
fn part(matmul: &Matmul, groups: &[usize], origin: Origin) -> Draft {
    let writes = tiles_of(matmul, groups);
    let group = |&g: &usize| GroupDraft {
        dst: matmul.groups[g].dst,
        weights: matmul.groups[g].weights.clone(),
    };
    let step = |(op, operand): &(_, OperandDraft)| {
        let operand = match operand {
            OperandDraft::Values(values) => {
                OperandDraft::Values(groups.iter().map(|&g| values[g].clone()).collect())
            }
            other => other.clone(),
        };
        (*op, operand)
    };
    let reads = if matmul.from_zero {
        Tiles::NONE
    } else {
        writes.clone()
    };
    let part = Matmul {
        groups: groups.iter().map(group).collect(),
        positions: matmul.positions.clone(),
        inputs: matmul.inputs.clone(),
        read: matmul.read,
        from_zero: matmul.from_zero,
        side: None,
        before: None,
        after: matmul.after.iter().map(step).collect(),
        stored: None,
        write_acc: matmul.write_acc,
    };
    Draft {
        kind: Kind::Matmul(Box::new(part)),
        reads,
        writes,
        origin,
    }
}
