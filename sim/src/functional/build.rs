//! From a batch to operations: instructions in token order, checked and resolved.

use vta_driver::{DeviceMemory, LayerMark, Span};
use vta_isa::tokens::{self, At};
use vta_isa::{Alu, AluOperand, Config, Gemm, Insn, Load, MemType, Module, Store, Uop};

use super::draft::{AluDraft, Draft, Input, Kind, Matmul, Scaled, Weight};
use super::elementwise::TileReader;
use super::interpret::{affine, check_load, check_store, steps};
use super::matmul;
use super::ops::{LoadOp, StoreOp};
use super::origin::Origin;
use super::spans::{meets_any, merge, overlap};
use super::tiles::Tiles;
use super::unplanned::Unplanned;
use crate::StepBudget;
use crate::kernels::PADDING;
use crate::oracle::{dram, index, uop_range};

/// ALU steps of one instruction that are listed; longer ones aren't planned.
const MOST_ALU_STEPS: u64 = 1 << 17;

/// What building finds.
pub(super) struct Trace {
    pub drafts: Vec<Draft>,
    /// Bytes that are taken as constants.
    pub constants: Vec<Span>,
    /// Contents of the scratchpads after the batch, where it loaded them.
    pub uops: Vec<Option<Uop>>,
    pub weights: Vec<Option<Weight>>,
    /// Whether micro-ops or weights that the batch didn't load were read.
    pub once: bool,
    /// What the batch stores, sorted, apart.
    pub stored: Vec<Span>,
    pub leftover_tokens: [u32; 4],
}

struct Builder<'a> {
    config: &'a Config,
    memory: &'a DeviceMemory,
    /// Micro-ops before the batch.
    held: &'a [Uop],
    marks: &'a [LayerMark],
    next_mark: usize,
    /// Index of the instruction that is resolved.
    index: usize,
    trace: Trace,
    /// Where each input tile comes from.
    inputs: Vec<Input>,
    /// Where accumulator tiles were loaded from, where `loaded` has them.
    sources: Vec<Span>,
    loaded: Tiles,
    /// What was stored, with how many operations had been done.
    stored: Vec<(Span, usize)>,
}

/// Runs the tokens and resolves every instruction, without touching memory. `held` are the
/// micro-ops that the scratchpad has.
///
/// # Errors
/// When the batch is faulty, or has something that only the interpreter does.
pub(super) fn trace(
    insns: &[Insn],
    marks: &[LayerMark],
    config: &Config,
    memory: &DeviceMemory,
    held: &[Uop],
    max_steps: u64,
) -> Result<Trace, Unplanned> {
    let mut builder = Builder {
        config,
        memory,
        held,
        marks,
        next_mark: 0,
        index: 0,
        trace: Trace {
            drafts: Vec::with_capacity(insns.len()),
            constants: Vec::new(),
            uops: vec![None; config.depth(MemType::Uop)],
            weights: vec![None; config.depth(MemType::Wgt)],
            once: false,
            stored: Vec::new(),
            leftover_tokens: [0; 4],
        },
        inputs: vec![Input::Unknown; config.depth(MemType::Inp)],
        sources: vec![Span::default(); config.depth(MemType::Acc)],
        loaded: Tiles::NONE,
        stored: Vec::new(),
    };
    let mut budget = StepBudget::new(max_steps);
    let leftover = tokens::run_in_token_order(insns, |index, insn| {
        let at = At { index, insn: *insn };
        budget.spend(&at)?;
        builder.index = index;
        if insn.module() == Module::Compute {
            builder.reach(index);
        }
        builder.insn(&at)
    })?;
    let mut stored: Vec<Span> = builder.stored.iter().map(|s| s.0).collect();
    let mut trace = builder.trace;
    trace.leftover_tokens = leftover;
    // Merged first: a layer loads neighbouring rows of one buffer.
    merge(&mut trace.constants);
    merge(&mut stored);
    let clash = |c: &Span| meets_any(&stored, c);
    if trace.constants.iter().any(clash) {
        return Err(Unplanned::Pattern);
    }
    for draft in &mut trace.drafts {
        if let Kind::Alu(alu) = &mut draft.kind
            && alu.constants.iter().any(|(_, span)| clash(span))
        {
            alu.constants.clear();
        }
    }
    trace.stored = stored;
    Ok(trace)
}

/// Source tiles of an ALU instruction that are looked up as constants at most.
const MOST_CONSTANTS: usize = 64;

impl Builder<'_> {
    fn reach(&mut self, index: usize) {
        let reached = |mark: &LayerMark| mark.first_insn <= index;
        while self.marks.get(self.next_mark).is_some_and(reached) {
            self.push(Kind::Mark(self.next_mark), Tiles::NONE, Tiles::NONE);
            self.next_mark += 1;
        }
    }

    fn push(&mut self, kind: Kind, reads: Tiles, writes: Tiles) {
        self.loaded.remove(&writes);
        self.trace.drafts.push(Draft {
            origin: match kind {
                Kind::Mark(_) => Origin::default(),
                _ => Origin::of(self.index),
            },
            kind,
            reads,
            writes,
        });
    }

    fn insn(&mut self, at: &At) -> Result<(), Unplanned> {
        match &at.insn {
            Insn::Load(load) if load.is_sync() => Ok(()),
            Insn::Load(load) => self.load(at, load),
            Insn::Store(store) if store.is_sync() => Ok(()),
            Insn::Store(store) => self.store(at, store),
            Insn::Gemm(gemm) => self.gemm(at, gemm),
            Insn::Alu(alu) => self.alu(at, alu),
            Insn::Finish(_) => Ok(()),
        }
    }

    /// All rows as one span: the planner refuses rows of different regions.
    fn span(
        &self,
        at: &At,
        dram_base: u32,
        [rows, cols, stride]: [u16; 3],
        elem: usize,
    ) -> Result<Span, Unplanned> {
        let (elem, cols) = (elem as u64, u64::from(cols));
        let last = u64::from(rows - 1) * u64::from(stride);
        let span = self
            .memory
            .span(u64::from(dram_base) * elem, (last + cols) * elem);
        span.map_err(|source| dram(at, source).into())
    }

    fn load(&mut self, at: &At, load: &Load) -> Result<(), Unplanned> {
        check_load(at, load, self.config)?;
        let elem = self.config.elem_bytes(load.mem);
        let shape = [load.y_size, load.x_size, load.x_stride];
        let padding = [load.x_pad_0, load.x_pad_1, load.y_pad_0, load.y_pad_1];
        let op = LoadOp {
            mem: load.mem,
            first: usize::from(load.sram_base),
            span: self.span(at, load.dram_base, shape, elem)?,
            row_bytes: usize::from(load.x_size) * elem,
            stride_bytes: usize::from(load.x_stride) * elem,
            size: [usize::from(load.x_size), usize::from(load.y_size)],
            padding: padding.map(usize::from),
        };
        let tiles = load.sram_tiles() as usize;
        match load.mem {
            MemType::Uop => self.load_uops(&op),
            MemType::Wgt => self.load_weights(&op),
            MemType::Inp => self.load_inputs(op),
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                let writes = Tiles::range(op.first, tiles);
                let constants = (load.mem == MemType::Acc).then(|| op.clone());
                self.push(Kind::Load(op), Tiles::NONE, writes);
                for (to, from) in constants.iter().flat_map(|op| Self::elements(op, elem)) {
                    let region = constants.as_ref().map_or(0, |op| op.span.region);
                    if let Some(start) = from {
                        let len = elem;
                        self.sources[to] = Span { region, start, len };
                        self.loaded.insert(to);
                    }
                }
            }
        }
        Ok(())
    }

    /// Elements that a load fills, in order, with where each comes from; `None` is padding. Loads
    /// are large: `for_each` is the quick way through them.
    fn elements(op: &LoadOp, elem: usize) -> impl Iterator<Item = (usize, Option<usize>)> {
        let ([cols, rows], [left, right, above, below]) = (op.size, op.padding);
        let pitch = left + cols + right;
        let (first, start, stride) = (op.first, op.span.start, op.stride_bytes);
        (0..above + rows + below).flat_map(move |y| {
            let row = (above..above + rows).contains(&y);
            let row = row.then(|| start + (y - above) * stride);
            (0..pitch).map(move |x| {
                let inside = (left..left + cols).contains(&x);
                let from = row.filter(|_| inside).map(|row| row + (x - left) * elem);
                (first + y * pitch + x, from)
            })
        })
    }

    fn load_uops(&mut self, op: &LoadOp) {
        let bytes = self.memory.region(op.span.region);
        Self::elements(op, 4).for_each(|(to, from)| {
            let word = from.and_then(|at| bytes.get(at..at + 4)?.as_array::<4>().copied());
            let uop = word.map_or(Uop::default(), |w| Uop::decode(u32::from_le_bytes(w)));
            self.trace.uops[to] = Some(uop);
        });
        self.trace.constants.push(op.span);
    }

    fn load_weights(&mut self, op: &LoadOp) {
        let elem = self.config.elem_bytes(MemType::Wgt);
        let region = op.span.region as u32;
        Self::elements(op, elem).for_each(|(to, from)| {
            let weight = from.map_or(Weight::Zero, |start| Weight::Dram {
                region,
                start: start as u32,
            });
            self.trace.weights[to] = Some(weight);
        });
        self.trace.constants.push(op.span);
    }

    fn load_inputs(&mut self, op: LoadOp) {
        let elem = self.config.elem_bytes(MemType::Inp);
        let (region, since) = (op.span.region as u32, self.trace.drafts.len() as u32);
        Self::elements(&op, elem).for_each(|(to, from)| {
            self.inputs[to] = match from.map(u32::try_from) {
                None => Input::Zero,
                Some(Ok(start)) if start != PADDING => Input::Dram {
                    region,
                    start,
                    since,
                },
                Some(_) => Input::Unknown,
            };
        });
        self.push(Kind::Load(op), Tiles::NONE, Tiles::NONE);
    }

    /// Where the tiles lie in DRAM, if all that aren't padding were loaded from one region and
    /// nothing was stored there since. Then the product can read them without the scratchpad.
    fn sources(&self, tiles: &[u16]) -> Option<(Vec<u32>, Span)> {
        let lanes = self.config.lanes();
        let mut starts = Vec::with_capacity(tiles.len());
        let (mut from, mut low, mut high) = (None, u32::MAX, 0);
        let mut first = u32::MAX;
        for &tile in tiles {
            match self.inputs[usize::from(tile)] {
                Input::Unknown => return None,
                Input::Zero => starts.push(PADDING),
                Input::Dram {
                    region,
                    start,
                    since,
                } => {
                    if *from.get_or_insert(region) != region {
                        return None;
                    }
                    (low, high) = (low.min(start), high.max(start));
                    first = first.min(since);
                    starts.push(start);
                }
            }
        }
        let span = Span {
            region: from? as usize,
            start: low as usize,
            len: (high - low) as usize + lanes,
        };
        let mut later = self
            .stored
            .iter()
            .rev()
            .take_while(|s| s.1 > first as usize);
        let intact = !later.any(|(stored, _)| overlap(stored, &span));
        intact.then_some((starts, span))
    }

    /// Where each of some accumulator tiles was loaded from, if all were, as int32 whose batch
    /// rows are the same.
    fn constants(&self, tiles: &Tiles) -> Option<Vec<(u16, Span)>> {
        if tiles.len() > MOST_CONSTANTS {
            return None;
        }
        let row = self.config.block() * 4;
        let constant = |tile: usize| {
            let span = self.loaded.contains(tile).then(|| self.sources[tile])?;
            let bytes = self.memory.region(span.region);
            let bytes = bytes.get(span.start..span.start + span.len)?;
            let mut rows = bytes.chunks(row);
            let first = rows.next()?;
            rows.all(|r| r == first).then_some((tile as u16, span))
        };
        let runs = tiles.runs();
        let tiles = runs.iter().flat_map(|&(first, len)| first..first + len);
        tiles.map(constant).collect()
    }

    fn store(&mut self, at: &At, store: &Store) -> Result<(), Unplanned> {
        check_store(at, store, self.config)?;
        let elem = self.config.elem_bytes(MemType::Out);
        let shape = [store.y_size, store.x_size, store.x_stride];
        let span = self.span(at, store.dram_base, shape, elem)?;
        let op = StoreOp {
            first: usize::from(store.sram_base) * self.config.lanes(),
            span,
            row_bytes: usize::from(store.x_size) * elem,
            stride_bytes: usize::from(store.x_stride) * elem,
            rows: usize::from(store.y_size),
        };
        let reads = Tiles::range(usize::from(store.sram_base), store.tiles() as usize);
        self.stored.push((span, self.trace.drafts.len() + 1));
        self.push(Kind::Store(op), reads, Tiles::NONE);
        Ok(())
    }

    /// Micro-ops that this batch has loaded, or that were there before.
    fn uops(&mut self, at: &At, bgn: u16, end: u16) -> Result<Vec<Uop>, Unplanned> {
        uop_range(at, bgn, end, self.trace.uops.len())?;
        let range = usize::from(bgn)..usize::from(end);
        let known = &self.trace.uops[range.clone()];
        self.trace.once |= known.iter().any(Option::is_none);
        let held = &self.held[range];
        Ok(known
            .iter()
            .zip(held)
            .map(|(k, h)| k.unwrap_or(*h))
            .collect())
    }

    fn gemm(&mut self, at: &At, gemm: &Gemm) -> Result<(), Unplanned> {
        if gemm.steps() == 0 {
            uop_range(at, gemm.uop_bgn, gemm.uop_end, self.trace.uops.len())?;
            return Ok(());
        }
        let uops = self.uops(at, gemm.uop_bgn, gemm.uop_end)?;
        let depth = |mem: MemType| self.config.depth(mem);
        let reach = |out: u16, inner: u16| {
            affine(
                0,
                u64::from(gemm.iter_out) - 1,
                out,
                u64::from(gemm.iter_in) - 1,
                inner,
            )
        };
        let dst = reach(gemm.dst_factor_out, gemm.dst_factor_in);
        let src = reach(gemm.src_factor_out, gemm.src_factor_in);
        let wgt = reach(gemm.wgt_factor_out, gemm.wgt_factor_in);
        let check = |field, base: u16, reach: u64, mem: MemType| {
            index(at, field, u64::from(base) + reach, mem.name(), depth(mem))
        };
        for uop in &uops {
            check("dst", uop.dst, dst, MemType::Acc)?;
            if !gemm.reset {
                check("src", uop.src, src, MemType::Inp)?;
                check("wgt", uop.wgt, wgt, MemType::Wgt)?;
            }
        }
        if gemm.reset {
            let writes = destinations(gemm, &uops)?;
            self.push(Kind::Zero, Tiles::NONE, writes);
            return Ok(());
        }
        self.products(gemm, &uops)
    }

    /// The products of a GEMM whose indices are checked.
    fn products(&mut self, gemm: &Gemm, uops: &[Uop]) -> Result<(), Unplanned> {
        let (forms, held) = matmul::recognise(gemm, uops, &self.trace.weights)?;
        self.trace.once |= held;
        let lanes = self.config.lanes() as u32;
        let mut parts = Vec::with_capacity(forms.len());
        for (form, writes) in forms {
            let (inputs, read) = match self.sources(&form.inputs) {
                Some((starts, span)) => (starts, Some(span)),
                None => {
                    let byte = |&tile: &u16| u32::from(tile) * lanes;
                    (form.inputs.iter().map(byte).collect(), None)
                }
            };
            let matmul = Matmul {
                groups: form.groups,
                positions: form.positions,
                inputs,
                read,
                from_zero: false,
                side: None,
                before: None,
                after: Vec::new(),
                stored: None,
                write_acc: true,
            };
            parts.push((matmul, writes));
        }
        let tiles = TileReader {
            config: self.config,
            memory: self.memory,
        };
        if let Some((terms, factors, read)) = tiles.scaled(&parts) {
            let mut writes = Tiles::NONE;
            parts.iter().for_each(|(_, tiles)| writes.add(tiles));
            let scaled = Scaled {
                terms,
                factors,
                read,
                plain: parts,
            };
            self.push(Kind::Scaled(Box::new(scaled)), writes.clone(), writes);
            return Ok(());
        }
        for (matmul, writes) in parts {
            self.push(Kind::Matmul(Box::new(matmul)), writes.clone(), writes);
        }
        Ok(())
    }

    fn alu(&mut self, at: &At, alu: &Alu) -> Result<(), Unplanned> {
        if alu.steps() == 0 {
            uop_range(at, alu.uop_bgn, alu.uop_end, self.trace.uops.len())?;
            return Ok(());
        }
        if alu.steps() > MOST_ALU_STEPS {
            return Err(Unplanned::Pattern);
        }
        let uops = self.uops(at, alu.uop_bgn, alu.uop_end)?;
        let depth = self.config.depth(MemType::Acc);
        let imm = match alu.operand {
            AluOperand::Imm(imm) => Some(i32::from(imm)),
            AluOperand::Acc => None,
        };
        let (mut reads, mut writes) = (Tiles::NONE, Tiles::NONE);
        let mut pairs = Vec::with_capacity(alu.steps() as usize);
        for (i, j, u) in steps(alu.iter_out, alu.iter_in, 0, uops.len() as u16) {
            let uop = uops[usize::from(u)];
            let dst = affine(uop.dst, i, alu.dst_factor_out, j, alu.dst_factor_in);
            let dst = index(at, "dst", dst, "acc", depth)?;
            let mut src = dst;
            if imm.is_none() {
                let tile = affine(uop.src, i, alu.src_factor_out, j, alu.src_factor_in);
                src = index(at, "src", tile, "acc", depth)?;
            }
            reads.insert(src);
            writes.insert(dst);
            pairs.push((dst as u16, src as u16));
        }
        let constants = match imm {
            Some(_) => Vec::new(),
            None => self.constants(&reads).unwrap_or_default(),
        };
        reads.add(&writes);
        let draft = AluDraft {
            constants,
            op: alu.op,
            imm,
            pairs,
        };
        self.push(Kind::Alu(draft), reads, writes);
        Ok(())
    }
}

/// The tiles that a reset zeroes.
fn destinations(gemm: &Gemm, uops: &[Uop]) -> Result<Tiles, Unplanned> {
    if gemm.steps() > MOST_ALU_STEPS {
        return Err(Unplanned::Pattern);
    }
    let mut tiles = Tiles::NONE;
    for (i, j, u) in steps(gemm.iter_out, gemm.iter_in, 0, uops.len() as u16) {
        let base = uops[usize::from(u)].dst;
        tiles.insert(affine(base, i, gemm.dst_factor_out, j, gemm.dst_factor_in) as usize);
    }
    Ok(tiles)
}
