//! Sums start from int8 tiles in DRAM.
//!
//! Pattern: LOADs ACC8 of all tiles of a product, then ALU steps on all of them, then the product.
//!
//! Condition: every group is loaded as one rectangle of rows, all of one shape in one region, without
//! padding, and no load has other tiles as well. Steps come behind all loads and are such as a
//! product can do (see `operand`). Between them and the product nothing else touches the tiles, stores
//! to the bytes or writes an operand of the steps.
//!
//! Proof: the product is the first to read the tiles, so that it may load and step them itself,
//! where their bytes and operands are still the same.

use vta_isa::MemType;

use super::super::draft::{Draft, Kind, OperandDraft, Side, StepDraft};
use super::super::tiles::Tiles;
use super::list::{Pass, Passed, next_touching};
use super::operand::operand;
use super::rectangles::{Rectangles, TileRows, consecutive};

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        let load = |d: &Draft| matches!(&d.kind, Kind::Load(op) if op.mem == MemType::Acc8);
        let lanes = context.lanes();
        list.each(load, |drafts, index| fold_residual(drafts, index, lanes))
    },
};

const NAME: &str = "residuals";

/// LOADs ACC8 of all tiles of a product, and immediate or vector steps on them before it.
/// `index` is the first of the loads.
fn fold_residual(drafts: &mut [Option<Draft>], index: usize, lanes: usize) {
    let Some(target) = find_product(drafts, index) else {
        return;
    };
    let Some(draft) = drafts[target].take() else {
        return;
    };
    let tiles = draft.writes.clone();
    let mut passed = Passed::default();
    let mut rectangles = Rectangles::new(0);
    let (mut taken, mut before) = (Vec::new(), Vec::new());
    let mut good = false;
    if let Kind::Matmul(matmul) = &draft.kind {
        rectangles = Rectangles::new(matmul.groups.len());
        good = consecutive(matmul) && !matmul.from_zero;
        // Walks back from the product: what is passed over comes after what is taken.
        for at in (index..target).rev() {
            let Some(other) = &drafts[at] else { continue };
            if !other.touches(&tiles) {
                passed.pass(other);
                continue;
            }
            match &other.kind {
                Kind::Alu(alu) if rectangles.is_empty() => {
                    match operand(alu, matmul, &tiles, &passed) {
                        Some(operand) => before.push((alu.op, operand)),
                        None => good = false,
                    }
                }
                Kind::Load(op) if op.mem == MemType::Acc8 && op.padding == [0; 4] => {
                    let rows = TileRows {
                        first: op.first,
                        span: op.span,
                        row_bytes: op.row_bytes,
                        stride_bytes: op.stride_bytes,
                        rows: op.size[1],
                    };
                    let kept = !passed.stored(&op.span);
                    good = good && kept && rectangles.take(matmul, rows, lanes);
                }
                _ => good = false,
            }
            taken.push(at);
            if !good {
                break;
            }
        }
    }
    let found = Found {
        rectangles,
        taken,
        before,
    };
    let found = Some(found).filter(|_| good);
    fold_found(drafts, target, draft, found, lanes);
}

/// Loads of a product's tiles and the steps on them.
struct Found {
    rectangles: Rectangles,
    /// Indices of all of them.
    taken: Vec<usize>,
    /// The last first.
    before: Vec<StepDraft>,
}

/// Puts the product back, with what was found if it is whole.
fn fold_found(
    drafts: &mut [Option<Draft>],
    target: usize,
    mut draft: Draft,
    found: Option<Found>,
    lanes: usize,
) {
    if let Kind::Matmul(matmul) = &mut draft.kind
        && let Some(mut found) = found
        && let Some((first, span, shape)) = found.rectangles.finish()
    {
        for at in found.taken {
            if let Some(taken) = drafts[at].take() {
                draft.origin.take(taken.origin, NAME);
            }
        }
        found.before.reverse();
        draft.reads = Tiles::NONE;
        for (_, operand) in &found.before {
            if let OperandDraft::Tiles(tiles) = operand {
                tiles.iter().for_each(|&t| {
                    draft.reads.insert(usize::from(t));
                });
            }
        }
        let offset = |position: usize| shape.offset(position, lanes) as u32;
        matmul.side = Some(Side {
            span,
            first,
            offsets: (0..matmul.positions.len()).map(offset).collect(),
        });
        matmul.before = Some(found.before);
    }
    drafts[target] = Some(draft);
}

/// The product that the tiles of a LOAD ACC8 go to, past ALU instructions.
fn find_product(drafts: &[Option<Draft>], index: usize) -> Option<usize> {
    let tiles = drafts[index].as_ref()?.writes.clone();
    let mut at = index;
    loop {
        at = next_touching(drafts, at, &tiles)?;
        match &drafts[at].as_ref()?.kind {
            Kind::Alu(_) => {}
            Kind::Matmul(_) => return Some(at),
            Kind::Load(_) | Kind::Store(_) | Kind::Zero | Kind::Mark(_) | Kind::Scaled(_) => {
                return None;
            }
        }
    }
}
