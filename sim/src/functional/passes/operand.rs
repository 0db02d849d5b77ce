//! ALU instructions as steps on a product's sums.

use vta_driver::Span;
use vta_isa::resolve::TileSet;

use super::super::draft::{AluDraft, Matmul, OperandDraft};
use super::super::table::Table;
use super::list::Passed;

/// An ALU instruction as a step on all sums of a product, if it is one: every tile once, and
/// the same operand tile for all positions of a group.
pub(super) fn operand(
    alu: &AluDraft,
    matmul: &Matmul,
    tiles: &TileSet,
    passed: &Passed,
) -> Option<OperandDraft> {
    // As many steps as tiles, and all of the tiles: each once.
    let each_once = alu.pairs.len() == matmul.groups.len() * matmul.positions.len()
        && alu.pairs.iter().map(|p| p.0).collect::<TileSet>() == *tiles;
    if !each_once {
        return None;
    }
    if let Some(imm) = alu.imm {
        return Some(OperandDraft::Imm(imm));
    }
    let sources: TileSet = alu.pairs.iter().map(|p| p.1).collect();
    let constant = !alu.constants.is_empty();
    if sources.meets(tiles) || !constant && passed.wrote(&sources) {
        return None;
    }
    let source: Table<u16, u16> = alu.pairs.iter().copied().collect();
    let sources = matmul.by_group(|tile| source.get(&tile).copied())?;
    if !constant {
        return Some(OperandDraft::Tiles(sources));
    }
    let span = |tile: u16| alu.constants.iter().find(|c| c.0 == tile).map(|c| c.1);
    let spans = sources.into_iter().map(span).collect::<Option<Vec<Span>>>();
    spans.map(OperandDraft::Constants)
}
