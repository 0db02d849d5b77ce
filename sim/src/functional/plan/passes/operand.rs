//! ALU instructions as steps on a product's sums.

use vta_driver::Span;
use vta_isa::resolve::{MAX_TILES, TileSet};

use super::super::draft::{AluDraft, Matmul, OperandDraft};
use super::list::Passed;

/// An ALU instruction as a step on all sums of a product, if it is one: every tile once, and
/// the same operand tile for all positions of a group. `tiles` are the product's, and those that the instruction steps.
pub(super) fn operand(
    alu: &AluDraft,
    matmul: &Matmul,
    [tiles, stepped]: [&TileSet; 2],
    passed: &Passed,
) -> Option<OperandDraft> {
    // As many steps as tiles, and all of the tiles: each once.
    let each_once =
        alu.steps.pairs.len() == matmul.groups.len() * matmul.positions.len() && stepped == tiles;
    if !each_once {
        return None;
    }
    if let Some(imm) = alu.imm {
        return Some(OperandDraft::Imm(imm));
    }
    let sources = &alu.steps.sources;
    let constant = !alu.constants.is_empty();
    if sources.meets(tiles) || !constant && passed.wrote(sources) {
        return None;
    }
    let mut source = [0; MAX_TILES];
    let pairs = alu.steps.pairs.iter();
    pairs.for_each(|&(dst, src)| source[usize::from(dst)] = src);
    let sources = matmul.by_group(|tile| source.get(usize::from(tile)).copied())?;
    if !constant {
        return Some(OperandDraft::Tiles(sources));
    }
    let span = |tile: u16| alu.constants.iter().find(|c| c.0 == tile).map(|c| c.1);
    let spans = sources.into_iter().map(span).collect::<Option<Vec<Span>>>();
    spans.map(OperandDraft::Constants)
}
