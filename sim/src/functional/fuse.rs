//! Fusing: resets, residuals, ALU steps and stores become part of the products they belong to.
//!
//! An operation is moved only across others that touch none of the accumulator tiles and none of
//! the DRAM bytes that it touches, so the result is that of the order it was in.

use vta_driver::Span;
use vta_isa::{AluOp, MemType};

use super::columns;
use super::draft::{
    AluDraft, Draft, Kind, Matmul, OperandDraft, Scaled, Side, StepDraft, Tiles, Vector, join,
    overlap,
};
use super::elementwise::same_vector;
use super::rectangles::Stores;
use super::residual::fold_residual;
use super::split;
use super::table::Table;

/// Operations that are looked through for a partner.
const WINDOW: usize = 512;

/// Fuses what it can; the operations that are left, in order.
///
/// Tiles have `lanes` bytes; `columns` groups are worked on together at best.
pub(super) fn fuse(drafts: Vec<Draft>, lanes: usize, columns: usize) -> Vec<Draft> {
    let mut drafts: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    for index in 0..drafts.len() {
        let kind = drafts[index].as_ref().map(|d| &d.kind);
        if matches!(kind, Some(Kind::Zero)) {
            fold_zero(&mut drafts, index);
        }
    }
    for index in 0..drafts.len() {
        let kind = drafts[index].as_ref().map(|d| &d.kind);
        if matches!(kind, Some(Kind::Load(op)) if op.mem == MemType::Acc8) {
            fold_residual(&mut drafts, index, lanes);
        }
    }
    for index in 0..drafts.len() {
        let kind = drafts[index].as_ref().map(|d| &d.kind);
        if matches!(kind, Some(Kind::Matmul(_))) {
            fold_chunk(&mut drafts, index);
        }
    }
    let mut drafts = split::split(drafts);
    for index in 0..drafts.len() {
        let kind = drafts[index].as_ref().map(|d| &d.kind);
        if matches!(kind, Some(Kind::Matmul(_))) {
            fold_after(&mut drafts, index, lanes);
        }
    }
    let mut drafts: Vec<Draft> = drafts.into_iter().flatten().flat_map(plain).collect();
    find_dead_writes(&mut drafts);
    drop_unread_inputs(&mut drafts, lanes);
    columns::join(drafts, columns)
}

/// What no product took is a product of its own.
fn plain(draft: Draft) -> Vec<Draft> {
    let Kind::Scaled(scaled) = draft.kind else {
        return vec![draft];
    };
    let parts = scaled.plain.into_iter();
    let product = |(matmul, tiles): (Matmul, Tiles)| Draft {
        kind: Kind::Matmul(Box::new(matmul)),
        reads: tiles.clone(),
        writes: tiles,
    };
    parts.map(product).collect()
}

/// A product whose sums the next product goes on with: the next takes its taps. Both read their
/// inputs from the same region of DRAM, and what the first reads is still there. Constants that
/// the first adds, a bias, may as well be added last: sums wrap.
fn fold_chunk(drafts: &mut [Option<Draft>], index: usize) {
    let Some(first) = drafts[index].take() else {
        return;
    };
    let next = next_touching(drafts, index, &first.writes);
    let Some(next) = next.filter(|&n| continues(drafts, index, n, &first)) else {
        drafts[index] = Some(first);
        return;
    };
    if let (Kind::Matmul(mut first), Some(draft)) = (first.kind, &mut drafts[next])
        && let Kind::Matmul(matmul) = &mut draft.kind
    {
        std::mem::swap(&mut matmul.inputs, &mut first.inputs);
        matmul.inputs.append(&mut first.inputs);
        for (group, mut before) in matmul.groups.iter_mut().zip(first.groups) {
            std::mem::swap(&mut group.weights, &mut before.weights);
            group.weights.append(&mut before.weights);
        }
        if let (Some(a), Some(b)) = (&mut matmul.read, &first.read) {
            *a = join(a, b);
        }
        matmul.from_zero = first.from_zero;
        matmul.side = first.side;
        matmul.before = first.before;
        first.after.append(&mut matmul.after);
        matmul.after = first.after;
        draft.reads = first_reads(&draft.writes, matmul, tiles_before(matmul));
    }
}

/// Tiles that steps before the products read.
fn tiles_before(matmul: &Matmul) -> Tiles {
    let mut tiles = Tiles::NONE;
    for (_, operand) in matmul.before.iter().flatten() {
        if let OperandDraft::Tiles(list) = operand {
            list.iter().for_each(|&t| {
                tiles.insert(usize::from(t));
            });
        }
    }
    tiles
}

/// What a product reads of the accumulators before its products are added.
fn first_reads(writes: &Tiles, matmul: &Matmul, mut before: Tiles) -> Tiles {
    if !matmul.from_zero && matmul.before.is_none() {
        before.add(writes);
    }
    before
}

/// Whether the draft at `next` goes on with the sums of `first`, which stood at `index`.
fn continues(drafts: &[Option<Draft>], index: usize, next: usize, first: &Draft) -> bool {
    let (Kind::Matmul(a), Some(draft)) = (&first.kind, &drafts[next]) else {
        return false;
    };
    let Kind::Matmul(b) = &draft.kind else {
        return false;
    };
    let region = |m: &Matmul| m.read.map(|s| s.region);
    let constant = |step: &StepDraft| matches!(step, (AluOp::Add, OperandDraft::Values(_)));
    let same = (a.has_no_taps() || region(a).is_some() && region(a) == region(b))
        && !b.from_zero
        && b.side.is_none()
        && b.before.is_none()
        && a.after.iter().all(constant)
        && a.positions == b.positions
        && a.groups
            .iter()
            .map(|g| g.dst)
            .eq(b.groups.iter().map(|g| g.dst));
    let mut between = drafts[index + 1..next].iter().flatten();
    // Operand tiles of steps on the residual must stay as they are, too.
    let before = tiles_before(a);
    same && !between.any(|d| {
        let written = d.dram_write();
        d.writes.meets(&before)
            || written.is_some_and(|w| first.dram_reads().any(|r| overlap(&r, &w)))
    })
}

/// Drops loads of inputs that nothing reads from the scratchpad, neither in this batch nor after.
fn drop_unread_inputs(drafts: &mut Vec<Draft>, lanes: usize) {
    let mut live = Tiles::ALL;
    let mut keep = vec![true; drafts.len()];
    for (draft, keep) in drafts.iter().zip(&mut keep).rev() {
        match &draft.kind {
            Kind::Load(op) if op.mem == MemType::Inp => {
                let [cols, rows] = op.size;
                let [left, right, above, below] = op.pads;
                let tiles = (left + cols + right) * (above + rows + below);
                let tiles = Tiles::range(op.first, tiles);
                *keep = tiles.meets(&live);
                live.remove(&tiles);
            }
            Kind::Matmul(matmul) if matmul.read.is_none() => {
                for &byte in &matmul.inputs {
                    live.insert(byte as usize / lanes);
                }
            }
            Kind::Mark(_)
            | Kind::Load(_)
            | Kind::Store(_)
            | Kind::Zero
            | Kind::Alu(_)
            | Kind::Scaled(_)
            | Kind::Matmul(_) => {}
        }
    }
    let mut keep = keep.into_iter();
    drafts.retain(|_| keep.next().unwrap_or(true));
}

/// The next operation after `index` that touches any of the tiles.
pub(super) fn next_touching(
    drafts: &[Option<Draft>],
    index: usize,
    tiles: &Tiles,
) -> Option<usize> {
    let window = drafts.iter().enumerate().skip(index + 1).take(WINDOW);
    let mut touching = window.filter(|(_, d)| d.as_ref().is_some_and(|d| d.touches(tiles)));
    touching.next().map(|(i, _)| i)
}

/// A reset right before products that begin on all of its tiles, each on some.
fn fold_zero(drafts: &mut [Option<Draft>], index: usize) {
    let Some(mut tiles) = drafts[index].as_ref().map(|d| d.writes.clone()) else {
        return;
    };
    let mut at = index;
    while let Some(next) = next_touching(drafts, at, &tiles) {
        let Some(draft) = &mut drafts[next] else {
            return;
        };
        let Kind::Matmul(matmul) = &mut draft.kind else {
            break;
        };
        if matmul.from_zero || matmul.before.is_some() || !tiles.includes(&draft.writes) {
            break;
        }
        matmul.from_zero = true;
        draft.reads = Tiles::NONE;
        tiles.remove(&draft.writes);
        at = next;
    }
    if tiles == Tiles::NONE {
        drafts[index] = None;
    } else if let Some(zero) = &mut drafts[index] {
        zero.writes = tiles;
    }
}

/// What was passed over while looking ahead.
#[derive(Default)]
pub(super) struct Passed {
    read: Option<Tiles>,
    written: Option<Tiles>,
    dram_read: Vec<Span>,
    dram_written: Vec<Span>,
}

impl Passed {
    pub fn pass(&mut self, draft: &Draft) {
        self.read.get_or_insert(Tiles::NONE).add(&draft.reads);
        self.written.get_or_insert(Tiles::NONE).add(&draft.writes);
        self.dram_read.extend(draft.dram_reads());
        self.dram_written.extend(draft.dram_write());
    }

    fn writes_any(&self, tiles: impl IntoIterator<Item = u16>) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|w| tiles.into_iter().any(|t| w.contains(usize::from(t))))
    }

    /// Whether something stored to the span.
    pub fn stored(&self, span: &Span) -> bool {
        self.dram_written.iter().any(|s| overlap(s, span))
    }

    /// Whether something touched the tiles.
    pub fn touches(&self, tiles: &Tiles) -> bool {
        let met = |t: &Option<Tiles>| t.as_ref().is_some_and(|t| t.meets(tiles));
        met(&self.written) || met(&self.read)
    }

    /// Whether a store to the span may be done before what was passed over.
    pub fn lets_store(&self, span: &Span) -> bool {
        !self
            .dram_read
            .iter()
            .chain(&self.dram_written)
            .any(|s| overlap(s, span))
    }
}

/// ALU instructions, biases and residuals on a product's tiles, then the stores of all of them.
fn fold_after(drafts: &mut [Option<Draft>], index: usize, lanes: usize) {
    let Some(mut draft) = drafts[index].take() else {
        return;
    };
    let Kind::Matmul(matmul) = &mut draft.kind else {
        drafts[index] = Some(draft);
        return;
    };
    let mut passed = Passed::default();
    let mut stores = Stores::new(matmul.groups.len());
    let mut at = index;
    while at + 1 < drafts.len().min(index + WINDOW) {
        at += 1;
        let Some(other) = &drafts[at] else { continue };
        if !other.touches(&draft.writes) {
            passed.pass(other);
            continue;
        }
        if matches!(other.kind, Kind::Store(_)) {
            let taken = stores.take(at, other, matmul, &passed, lanes);
            if !taken || stores.is_whole() {
                break;
            }
            continue;
        }
        let step = match &other.kind {
            _ if stores.has_any() => None,
            Kind::Alu(alu) => operand(alu, matmul, &draft.writes, &passed).map(|o| (alu.op, o)),
            Kind::Matmul(more) if other.writes == draft.writes => added(more, matmul),
            Kind::Scaled(more) if other.writes == draft.writes => scaled(more, matmul, &passed),
            _ => None,
        };
        let Some(step) = step else { break };
        if let OperandDraft::Tiles(tiles) = &step.1 {
            tiles.iter().for_each(|&t| {
                draft.reads.insert(usize::from(t));
            });
        }
        matmul.after.push(step);
        drafts[at] = None;
    }
    // A kernel reads these bytes while it writes the stored ones.
    matmul.stored = stores.finish(drafts, matmul.dram_reads());
    drafts[index] = Some(draft);
}

/// A product without taps, which adds a vector to each of its groups, as a step on the sums of
/// another over the same tiles.
fn added(more: &Matmul, matmul: &Matmul) -> Option<StepDraft> {
    let [(AluOp::Add, OperandDraft::Values(values))] = &more.after[..] else {
        return None;
    };
    let plain = more.has_no_taps() && !more.from_zero && more.before.is_none();
    if !plain || more.stored.is_some() {
        return None;
    }
    let mut by_tile: Table<u16, &Vector> = Table::default();
    for (group, vector) in more.groups.iter().zip(values) {
        by_tile.extend(more.positions.iter().map(|p| (group.dst + p, vector)));
    }
    let vectors = matmul.by_group(|tile| by_tile.get(&tile).copied(), |a, b| same_vector(a, b))?;
    let vectors = vectors.into_iter().cloned().collect();
    Some((AluOp::Add, OperandDraft::Values(vectors)))
}

/// Scaled inputs as a step on a product's sums. All steps of a product scale the same bytes.
fn scaled(more: &Scaled, matmul: &mut Matmul, passed: &Passed) -> Option<StepDraft> {
    if passed.stored(&more.read) {
        return None;
    }
    let by_tile = more.by_tile();
    let factors = matmul.by_group(
        |tile| by_tile.get(&tile).map(|t| t.1),
        |a, b| same_vector(a, b),
    )?;
    let start = |group: usize, position: usize| {
        let tile = matmul.groups.get(group)?.dst + matmul.positions.get(position)?;
        by_tile.get(&tile).map(|t| t.0)
    };
    let groups = 0..matmul.groups.len();
    let first: Vec<u32> = groups.map(|g| start(g, 0)).collect::<Option<_>>()?;
    let base = *first.first()?;
    let offset = |position: usize| start(0, position)?.checked_sub(base);
    let positions = 0..matmul.positions.len();
    let offsets: Vec<u32> = positions.map(offset).collect::<Option<_>>()?;
    let follows = |(group, &first): (usize, &u32)| {
        let mut offsets = offsets.iter().enumerate();
        offsets.all(|(p, offset)| start(group, p) == first.checked_add(*offset))
    };
    if !first.iter().enumerate().all(follows) {
        return None;
    }
    let side = Side {
        span: more.read,
        first,
        offsets,
    };
    let same = |s: &Side| {
        s.span.region == side.span.region && s.first == side.first && s.offsets == side.offsets
    };
    if matmul.side.as_ref().is_some_and(|s| !same(s)) {
        return None;
    }
    let factors = factors.into_iter().cloned().collect();
    let step = (AluOp::Add, OperandDraft::Scaled(factors));
    matmul.side.get_or_insert(side);
    Some(step)
}

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
    let mut seen = Tiles::NONE;
    let all_once = alu
        .pairs
        .iter()
        .all(|&(dst, _)| seen.insert(usize::from(dst)));
    if !all_once || seen != *tiles {
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

/// Finds products whose tiles are overwritten before anybody reads them.
fn find_dead_writes(drafts: &mut [Draft]) {
    let mut live = Tiles::ALL;
    for draft in drafts.iter_mut().rev() {
        if let Kind::Matmul(matmul) = &mut draft.kind {
            matmul.write_acc = draft.writes.meets(&live);
        }
        // Every kind overwrites its tiles whole; what it also reads is added back.
        live.remove(&draft.writes);
        live.add(&draft.reads);
    }
}
