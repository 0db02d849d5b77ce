//! Splitting products: a compiler that works on some of a product's groups before the others,
//! so that storing the first overlaps the rest, gets a product for each part.

use super::draft::{Draft, GroupDraft, Kind, Matmul, OperandDraft, Tiles};
use super::fuse::next_touching;

/// Splits every product whose groups the next instruction on them treats differently.
pub(super) fn split(drafts: Vec<Option<Draft>>) -> Vec<Option<Draft>> {
    // The second time, products whose biases were split the first time.
    split_once(split_once(drafts))
}

fn split_once(drafts: Vec<Option<Draft>>) -> Vec<Option<Draft>> {
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
    done.iter().map(|groups| part(matmul, groups)).collect()
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
fn part(matmul: &Matmul, groups: &[usize]) -> Draft {
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
    }
}
