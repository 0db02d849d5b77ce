//! Fusing: resets, residuals, ALU steps and stores become part of the products they belong to.
//!
//! An operation is moved only across others that touch none of the accumulator tiles and none of
//! the DRAM bytes that it touches, so the result is that of the order it was in.

use vta_driver::Span;
use vta_isa::MemType;

use super::columns;
use super::draft::{
    AluDraft, Draft, Kind, Matmul, OperandDraft, Residual, Stored, Tiles, join, overlap,
};

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
    for index in 0..drafts.len() {
        let kind = drafts[index].as_ref().map(|d| &d.kind);
        if matches!(kind, Some(Kind::Matmul(_))) {
            fold_after(&mut drafts, index, lanes);
        }
    }
    let mut drafts: Vec<Draft> = drafts.into_iter().flatten().collect();
    find_dead_writes(&mut drafts);
    drop_unread_inputs(&mut drafts, lanes);
    columns::join(drafts, columns)
}

/// A product whose sums the next product goes on with: the next takes its taps. Both read their
/// inputs from the same region of DRAM, and what the first reads is still there.
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
        matmul.residual = first.residual;
        draft.reads = first_reads(&draft.writes, matmul, first_before(&matmul.residual));
    }
}

/// Tiles that steps on the residual read.
fn first_before(residual: &Option<Residual>) -> Tiles {
    let mut tiles = Tiles::NONE;
    for (_, operand) in residual.iter().flat_map(|r| &r.before) {
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
    if !matmul.from_zero && matmul.residual.is_none() {
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
    let same = region(a).is_some()
        && region(a) == region(b)
        && !b.from_zero
        && b.residual.is_none()
        && a.positions == b.positions
        && a.groups
            .iter()
            .map(|g| g.dst)
            .eq(b.groups.iter().map(|g| g.dst));
    let mut between = drafts[index + 1..next].iter().flatten();
    // Operand tiles of steps on the residual must stay as they are, too.
    let before = first_before(&a.residual);
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
            | Kind::Matmul(_) => {}
        }
    }
    let mut keep = keep.into_iter();
    drafts.retain(|_| keep.next().unwrap_or(true));
}

/// The next operation after `index` that touches any of the tiles.
fn next_touching(drafts: &[Option<Draft>], index: usize, tiles: &Tiles) -> Option<usize> {
    let window = drafts.iter().enumerate().skip(index + 1).take(WINDOW);
    let mut touching = window.filter(|(_, d)| d.as_ref().is_some_and(|d| d.touches(tiles)));
    touching.next().map(|(i, _)| i)
}

/// A reset right before a product over the same tiles.
fn fold_zero(drafts: &mut [Option<Draft>], index: usize) {
    let Some(tiles) = drafts[index].as_ref().map(|d| d.writes.clone()) else {
        return;
    };
    let Some(next) = next_touching(drafts, index, &tiles) else {
        return;
    };
    if let Some(draft) = &mut drafts[next]
        && draft.writes == tiles
        && let Kind::Matmul(matmul) = &mut draft.kind
    {
        matmul.from_zero = true;
        draft.reads = Tiles::NONE;
        drafts[index] = None;
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

/// ALU instructions on a product's tiles, then the stores of all of them.
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
        match &other.kind {
            Kind::Alu(alu) if stores.found == 0 => {
                let Some(operand) = operand(alu, matmul, &draft.writes, &passed) else {
                    break;
                };
                if let OperandDraft::Tiles(tiles) = &operand {
                    tiles.iter().for_each(|&t| {
                        draft.reads.insert(usize::from(t));
                    });
                }
                matmul.after.push((alu.op, operand));
                drafts[at] = None;
            }
            Kind::Store(_) => {
                if !stores.take(at, other, matmul, &passed, lanes) {
                    break;
                }
                if stores.found == matmul.groups.len() {
                    break;
                }
            }
            _ => break,
        }
    }
    // A kernel reads these regions while it writes the stored one.
    let residual = matmul.residual.as_ref().map(|r| r.span.region);
    matmul.stored = stores.finish(drafts, [matmul.read.map(|s| s.region), residual]);
    drafts[index] = Some(draft);
}

/// An ALU instruction as a step on all sums of a product, if it is one: every tile once, and
/// the same operand tile for all positions of a group.
fn operand(
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
    let source: std::collections::HashMap<u16, u16> = alu.pairs.iter().copied().collect();
    let group = |dst: u16| {
        let mut sources = matmul
            .positions
            .iter()
            .map(|offset| source.get(&(dst + offset)).copied());
        let first = sources.next()??;
        sources.all(|s| s == Some(first)).then_some(first)
    };
    let groups = matmul.groups.iter().map(|g| group(g.dst));
    let sources = groups.collect::<Option<Vec<u16>>>()?;
    if !constant {
        return Some(OperandDraft::Tiles(sources));
    }
    let span = |tile: u16| alu.constants.iter().find(|c| c.0 == tile).map(|c| c.1);
    let spans = sources.into_iter().map(span).collect::<Option<Vec<Span>>>();
    spans.map(OperandDraft::Constants)
}

/// Rectangles of one shape in one region, one for each group of a product.
struct Rectangles {
    spans: Vec<Option<Span>>,
    /// Bytes of a row, from one row to the next, rows.
    shape: Option<[usize; 3]>,
}

impl Rectangles {
    fn new(groups: usize) -> Self {
        Self {
            spans: vec![None; groups],
            shape: None,
        }
    }

    /// Takes the rectangle of the group whose tiles start at `first`; whether it is one, whose
    /// rows don't overlap.
    fn take(
        &mut self,
        matmul: &Matmul,
        first: usize,
        span: Span,
        shape: [usize; 3],
        lanes: usize,
    ) -> bool {
        let [row_bytes, stride_bytes, rows] = shape;
        let group = matmul
            .groups
            .iter()
            .position(|g| usize::from(g.dst) == first);
        let Some(group) = group.filter(|&g| self.spans[g].is_none()) else {
            return false;
        };
        let region = self.spans.iter().flatten().next().map(|s| s.region);
        let good = row_bytes * rows == matmul.positions.len() * lanes
            && (rows == 1 || stride_bytes >= row_bytes)
            && self.shape.is_none_or(|s| s == shape)
            && region.is_none_or(|r| r == span.region)
            && u32::try_from(span.start + span.len).is_ok();
        if good {
            self.spans[group] = Some(span);
            self.shape = Some(shape);
        }
        good
    }

    /// First bytes of all groups and the span over all, if all are there.
    fn finish(&self) -> Option<(Vec<u32>, Span, [usize; 3])> {
        let spans: Vec<Span> = self.spans.iter().copied().collect::<Option<_>>()?;
        let all = spans.iter().copied().reduce(|a, b| join(&a, &b))?;
        let first = spans.iter().map(|s| s.start as u32).collect();
        Some((first, all, self.shape?))
    }

    /// Whether no two rectangles share a byte, judged by their spans.
    fn are_apart(&self) -> bool {
        let mut spans: Vec<&Span> = self.spans.iter().flatten().collect();
        spans.sort_unstable_by_key(|s| s.start);
        spans.windows(2).all(|pair| !overlap(pair[0], pair[1]))
    }
}

/// Whether the positions' accumulator tiles are consecutive, in order.
fn consecutive(matmul: &Matmul) -> bool {
    let mut offsets = matmul.positions.iter().map(|&p| usize::from(p));
    (0..matmul.positions.len()).all(|i| offsets.next() == Some(i))
}

/// Stores of a product's groups as they are found.
struct Stores {
    rectangles: Rectangles,
    /// Indices of the drafts.
    taken: Vec<usize>,
    found: usize,
}

impl Stores {
    fn new(groups: usize) -> Self {
        Self {
            rectangles: Rectangles::new(groups),
            taken: Vec::new(),
            found: 0,
        }
    }

    fn take(
        &mut self,
        at: usize,
        draft: &Draft,
        matmul: &Matmul,
        passed: &Passed,
        lanes: usize,
    ) -> bool {
        let Kind::Store(op) = &draft.kind else {
            return false;
        };
        let shape = [op.row_bytes, op.stride_bytes, op.rows];
        let good = consecutive(matmul)
            && passed.lets_store(&op.span)
            && self
                .rectangles
                .take(matmul, op.first / lanes, op.span, shape, lanes);
        if good {
            self.taken.push(at);
            self.found += 1;
        }
        good
    }

    /// Removes the stores if every group has one.
    fn finish(self, drafts: &mut [Option<Draft>], read: [Option<usize>; 2]) -> Option<Stored> {
        let (first, span, [row_bytes, stride_bytes, _]) = self.rectangles.finish()?;
        if !self.rectangles.are_apart() || read.contains(&Some(span.region)) {
            return None;
        }
        for at in self.taken {
            drafts[at] = None;
        }
        Some(Stored {
            span,
            first,
            row_bytes,
            stride_bytes,
        })
    }
}

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
        good = consecutive(matmul) && !matmul.from_zero && matmul.residual.is_none();
        // Walks back from the product: what is passed over comes after what is taken.
        for at in (index..target).rev() {
            let Some(other) = &drafts[at] else { continue };
            if !other.touches(&tiles) {
                passed.pass(other);
                continue;
            }
            match &other.kind {
                Kind::Alu(alu) if taken.is_empty() || rectangles.shape.is_none() => {
                    match operand(alu, matmul, &tiles, &passed) {
                        Some(operand) => before.push((alu.op, operand)),
                        None => good = false,
                    }
                }
                Kind::Load(op) if op.mem == MemType::Acc8 && op.pads == [0; 4] => {
                    let shape = [op.row_bytes, op.stride_bytes, op.size[1]];
                    let kept = !passed.dram_written.iter().any(|s| overlap(s, &op.span));
                    good = good && kept && rectangles.take(matmul, op.first, op.span, shape, lanes);
                }
                _ => good = false,
            }
            taken.push(at);
            if !good {
                break;
            }
        }
    }
    fold_found(drafts, target, draft, rectangles, taken, before, good);
}

/// Puts the product back, with the residual if it was whole.
fn fold_found(
    drafts: &mut [Option<Draft>],
    target: usize,
    mut draft: Draft,
    rectangles: Rectangles,
    taken: Vec<usize>,
    mut before: Vec<(vta_isa::AluOp, OperandDraft)>,
    good: bool,
) {
    if let Kind::Matmul(matmul) = &mut draft.kind
        && good
        && let Some((first, span, [row_bytes, stride_bytes, _])) = rectangles.finish()
    {
        for at in taken {
            drafts[at] = None;
        }
        before.reverse();
        draft.reads = Tiles::NONE;
        for (_, operand) in &before {
            if let OperandDraft::Tiles(tiles) = operand {
                tiles.iter().for_each(|&t| {
                    draft.reads.insert(usize::from(t));
                });
            }
        }
        matmul.residual = Some(Residual {
            span,
            first,
            row_bytes,
            stride_bytes,
            before,
        });
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
            Kind::Load(_) | Kind::Store(_) | Kind::Zero | Kind::Mark(_) => return None,
        }
    }
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
