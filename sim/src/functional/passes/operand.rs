//! ALU instructions as steps on a product's sums.

use vta_driver::Span;

use super::super::draft::{AluDraft, Matmul, OperandDraft};
use super::super::table::Table;
use super::super::tiles::Tiles;
use super::list::Passed;

/// An ALU instruction as a step on all sums of a product, if it is one: every tile once, and
/// the same operand tile for all positions of a group.
pub(super) fn operand(
    alu: &AluDraft,
    matmul: &Matmul,
    tiles: &Tiles,
    passed: &Passed,
) -> Option<OperandDraft> {
    if alu.pairs.len() != matmul.groups.len() * matmul.positions.len() {
        return None;
    }
    // As many steps as tiles, and all of the tiles: each once.
    let mut seen = Tiles::NONE;
    for (dst, _) in &alu.pairs {
        seen.insert(usize::from(*dst));
    }
    if seen != *tiles {
        return None;
    }
    if let Some(imm) = alu.imm {
        return Some(OperandDraft::Imm(imm));
    }
    let outside = |&(_, src): &(u16, u16)| !tiles.contains(usize::from(src));
    let constant = !alu.constants.is_empty();
    let changed = !constant && passed.writes_any(alu.pairs.iter().map(|p| p.1));
    if changed || !alu.pairs.iter().all(outside) {
        return None;
    }
    let source: Table<u16, u16> = alu.pairs.iter().copied().collect();
    let sources = matmul.by_group(|tile| source.get(&tile).copied(), |a, b| a == b)?;
    if !constant {
        return Some(OperandDraft::Tiles(sources));
    }
    let span = |tile: u16| alu.constants.iter().find(|c| c.0 == tile).map(|c| c.1);
    let spans = sources.into_iter().map(span).collect::<Option<Vec<Span>>>();
    spans.map(OperandDraft::Constants)
}
