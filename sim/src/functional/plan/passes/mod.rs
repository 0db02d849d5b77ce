//! Fusions: passes over the list of a batch's operations.
//!
//! Each pass is a file that says its pattern, its condition, and why what it leaves does the same.
//! All of them build on one rule: an operation may be moved across others that touch none of the
//! accumulator tiles and none of the DRAM bytes that it touches, as far as one of the two writes
//! them.

mod biases;
mod chunks;
mod columns;
mod diagonals;
mod ends;
mod interior;
mod list;
mod maps;
mod operand;
mod rectangles;
mod resets;
mod residuals;
mod split;
mod taps;
mod unread;

use list::Pass;
pub(super) use list::{Context, List};

/// All passes, in the order in which they run.
pub(super) const PASSES: [Pass; 15] = [
    diagonals::PASS,
    taps::PASS,
    // Behind the taps: it is whole products that are constant.
    biases::PASS,
    resets::PASS,
    // Behind the resets: sums that start from zero start from no bytes.
    residuals::PASS,
    chunks::PASS,
    // Behind the chunks, whose groups are those of their instructions.
    split::PASS,
    // The second time, products whose biases were split the first time.
    split::PASS,
    ends::PASS,
    diagonals::REST,
    // What is left is what will be read.
    unread::SUMS,
    interior::PASS,
    unread::INPUTS,
    columns::PASS,
    // What no product took.
    maps::PASS,
];
