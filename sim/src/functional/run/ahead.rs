//! What the next products are made of, on its way from memory.
//!
//! A plan is read once a run, piece after piece that lie scattered, and an image's other data has driven it out of the
//! caches meanwhile. A short product would wait for each of its pieces, which name the next.

use super::ops::{Op, ProductOp};
use crate::kernels::lanes::bring_closer as bring;

/// Products ahead that a piece is asked for; each is named by one that was asked for a product before.
const STAGES: [fn(&ProductOp); 4] = [weights, constants, groups, |product| bring(product, LINES)];

/// Lines of a piece, and groups of a product, that are asked for at most: what comes behind them comes in time.
const LINES: usize = 10;
const GROUPS: usize = 4;

/// Asks for pieces of the next products among some operations.
pub(super) fn bring_closer(later: &[Op]) {
    for (op, stage) in later.iter().zip(STAGES) {
        match op {
            Op::Product(product) => stage(product),
            Op::Fill { runs, values } => {
                bring(&**runs, LINES);
                bring(&**values, LINES);
            }
            _ => {}
        }
    }
}

fn groups(product: &ProductOp) {
    for group in product.groups.iter().take(GROUPS) {
        bring(group, LINES);
    }
}

fn constants(product: &ProductOp) {
    for group in product.groups.iter().take(GROUPS) {
        bring(&*group.panel, LINES);
        bring(&*group.inputs, LINES);
        bring(&*group.first, LINES);
        bring(&*group.after, LINES);
    }
}

fn weights(product: &ProductOp) {
    for group in product.groups.iter().take(GROUPS) {
        bring(group.panel.lines(), LINES);
        bring(group.after.lanes(), LINES);
    }
}
