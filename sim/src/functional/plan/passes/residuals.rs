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

use super::super::draft::{Draft, Kind, StartDraft};
use super::list::{Pass, Passed, Slot, WINDOW, join};
use super::operand::operand;
use super::rectangles::Rectangles;

pub(super) const PASS: Pass = Pass {
    name: NAME,
    run: |list, context| {
        let lanes = context.config.lanes();
        list.each(|before, slot, _| {
            if let Some(product) = slot {
                fold_before(before, product, lanes);
            }
        })
    },
};

const NAME: &str = "residuals";

/// LOADs ACC8 of all tiles of a product, and immediate or vector steps on them before it. Walks
/// back from the product: what is passed over comes after what is taken.
fn fold_before(before: &mut [Slot], draft: &mut Draft, lanes: usize) {
    let Kind::Matmul(matmul) = &mut draft.kind else {
        return;
    };
    if !matmul.goes_on() {
        return;
    }
    let Some(mut rectangles) = Rectangles::new(matmul, lanes) else {
        return;
    };
    let mut passed = Passed::default();
    let (mut taken, mut steps) = (Vec::new(), Vec::new());
    for (at, slot) in before.iter().enumerate().rev().take(WINDOW) {
        let Some(other) = slot else { continue };
        if !other.touches(&draft.writes) {
            passed.pass(other);
            continue;
        }
        match &other.kind {
            Kind::Alu(alu) if rectangles.is_empty() => {
                match operand(alu, matmul, [&draft.writes, &other.writes], &passed) {
                    Some(operand) => steps.push((alu.op, operand)),
                    None => return,
                }
            }
            Kind::Load(op)
                if op.mem == MemType::Acc8
                    && op.padding == [0; 4]
                    && !passed.stored(&op.span)
                    && rectangles.take(matmul, op.entries.start, op.span, op.shape) => {}
            _ => return,
        }
        taken.push(at);
        if rectangles.is_whole() {
            break;
        }
    }
    let Some(tiles) = rectangles.finish(matmul) else {
        return;
    };
    // The first step was found last.
    steps.reverse();
    matmul.side = Some(tiles);
    matmul.start = StartDraft::Side(steps);
    draft.reads = matmul.reads(&draft.writes);
    for at in taken {
        join(&mut before[at], &mut draft.origin, NAME);
    }
}
