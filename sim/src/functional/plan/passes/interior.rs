//! Most sums of a product start from zero where the others start from what the accumulators hold.
//!
//! Pattern: a product without taps on reset tiles, and the next operation that touches these is a product on them and
//! some more: biases of outputs whose taps all lie inside the input are others than of those at its border.
//!
//! Condition: as many groups, all moved by equally much; the first adds constants alone, and has most of the
//! positions.
//!
//! Proof: positions share no accumulator tile and read no sums of each other, so that each can be computed alone. The
//! second is the first to read what the first leaves, which needn't be written therefore.

use std::rc::Rc;

use vta_isa::AluOp;
use vta_isa::resolve::TileSet;

use super::super::draft::{ByteTiles, Draft, Kind, Matmul, OperandDraft, StartDraft, StepDraft};
use super::list::{Pass, Slot, join, next_touching};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, _| {
        let mut inside: Vec<(usize, Draft)> = Vec::new();
        for at in 0..list.slots.len() {
            let (before, behind) = list.slots.split_at_mut(at + 1);
            let found = interior(&mut before[at], behind);
            inside.extend(found.map(|(next, product)| (at + 1 + next, product)));
        }
        // Of one place the first found first.
        inside.sort_by_key(|(at, _)| *at);
        let mut inside = inside.into_iter().peekable();
        for (at, slot) in std::mem::take(&mut list.slots).into_iter().enumerate() {
            while let Some((_, product)) = inside.next_if(|(before, _)| *before == at) {
                list.slots.push(Some(product));
            }
            list.slots.extend(slot.map(Some));
        }
    },
};

const NAME: &str = "interior";

/// The part of a product that starts from a product without taps, which it takes; and where that product is.
fn interior(slot: &mut Slot, behind: &mut [Slot]) -> Option<(usize, Draft)> {
    let draft = slot.as_ref()?;
    let first = constants(draft)?;
    let next = next_touching(behind, &draft.writes)?;
    let second = behind[next].as_mut()?;
    let Kind::Matmul(whole) = &mut second.kind else {
        return None;
    };
    let shift = shift(first, whole).filter(|_| whole.goes_on() && !whole.has_no_taps())?;
    if whole.positions.len() > 2 * first.positions.len() {
        return None;
    }
    let moved = first.positions.iter().map(|p| i32::from(*p) + shift);
    let own: TileSet = moved.filter_map(|p| u16::try_from(p).ok()).collect();
    let is_own = |position: &u16| own.contains((*position).into());
    let found = whole.positions.iter().filter(|p| is_own(p)).count();
    if found != first.positions.len() || found == whole.positions.len() {
        return None;
    }
    let mut inside = part(whole, is_own);
    inside.start = StartDraft::Zero;
    inside.after.splice(0..0, first.after.iter().cloned());
    **whole = part(whole, |position| !is_own(position));
    let writes = Rc::clone(&draft.writes);
    Rc::make_mut(&mut second.writes).remove(&writes);
    second.reads = whole.reads(&second.writes);
    let mut product = Draft::product(inside, writes, second.origin.clone());
    join(slot, &mut product.origin, NAME);
    Some((next, product))
}

/// A product that writes constants.
fn constants(draft: &Draft) -> Option<&Matmul> {
    let Kind::Matmul(matmul) = &draft.kind else {
        return None;
    };
    let constant = |step: &StepDraft| matches!(step, (AluOp::Add, OperandDraft::Values(_)));
    let starts = matches!(matmul.start, StartDraft::Zero) && matmul.has_no_taps();
    let found = starts && matmul.stored.is_none() && matmul.after.iter().all(constant);
    found.then_some(matmul)
}

/// How far the first product's groups lie behind the second's, if all lie equally far.
fn shift(first: &Matmul, second: &Matmul) -> Option<i32> {
    let pairs = first.groups.iter().zip(&*second.groups);
    let mut shifts = pairs.map(|(a, b)| i32::from(a.dst) - i32::from(b.dst));
    let shift = shifts.next()?;
    let same = first.groups.len() == second.groups.len() && shifts.all(|s| s == shift);
    same.then_some(shift)
}

/// Some positions of a product.
fn part(whole: &Matmul, keep: impl Fn(&u16) -> bool) -> Matmul {
    let kept: Vec<bool> = whole.positions.iter().map(keep).collect();
    let of_kept = |all: &[u32]| -> Rc<[u32]> {
        let both = all.iter().zip(kept.iter().cycle());
        both.filter(|(_, kept)| **kept).map(|(x, _)| *x).collect()
    };
    let tiles = |tiles: &ByteTiles| ByteTiles {
        offsets: of_kept(&tiles.offsets).to_vec(),
        ..tiles.clone()
    };
    let positions = whole.positions.iter().zip(&kept);
    Matmul {
        groups: Rc::clone(&whole.groups),
        weights: whole.weights.clone(),
        positions: positions
            .filter(|(_, kept)| **kept)
            .map(|(p, _)| *p)
            .collect(),
        inputs: whole.inputs.map(|list| of_kept(list)),
        read: whole.read,
        start: whole.start.clone(),
        side: whole.side.as_ref().map(tiles),
        after: whole.after.clone(),
        stored: whole.stored.as_ref().map(tiles),
        write_acc: whole.write_acc,
    }
}
