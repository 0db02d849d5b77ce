//! From a batch to operations: instructions in token order, checked and resolved.

use vta_driver::{DeviceMemory, MemoryError, Span, StepBudget};
use vta_isa::resolve::{
    AluAccess, GemmAccess, Interval, LoadAccess, Resolved, Rows, StoreAccess, TileSet,
    UopScratchpad, meet, merge,
};
use vta_isa::tokens;
use vta_isa::{AluOperand, Config, MemType, Module, Uop};

use super::super::run::ops::{LoadOp, StoreOp};
use super::draft::{AluDraft, Draft, Input, Kind, Scaled, Weight};
use super::elementwise::TileReader;
use super::matmul;
use super::origin::Origin;
use super::unplanned::Unplanned;
use super::{ASKED_EVERY, GoOn, Subject};
use crate::SimError;
use crate::kernels::PADDING;

/// ALU steps of one instruction that are listed; longer ones aren't planned.
const MOST_ALU_STEPS: u64 = 1 << 17;
/// Source tiles of an ALU instruction that are looked up as constants at most.
const MOST_CONSTANTS: usize = 64;

/// What building finds.
#[derive(Default)]
pub(crate) struct Trace {
    pub drafts: Vec<Draft>,
    /// Bytes that are taken as constants.
    pub constants: Vec<Span>,
    /// Micro-ops that the batch leaves in the scratchpad.
    pub uops: Vec<(usize, Uop)>,
    /// Where each weight tile comes from.
    pub weights: Vec<Weight>,
    /// Whether micro-ops or weights that the batch didn't load were read.
    pub once: bool,
    /// What the batch stores, sorted, apart.
    pub stored: Vec<Span>,
    pub leftover_tokens: [u32; 4],
}

struct Builder<'a> {
    config: &'a Config,
    memory: &'a DeviceMemory,
    /// Index of the instruction that is resolved.
    index: usize,
    trace: Trace,
    /// Where each input tile comes from.
    inputs: Vec<Input>,
    /// Where accumulator tiles were loaded from, where `loaded` has them; empty for padding.
    sources: Vec<Span>,
    loaded: TileSet,
    /// What was stored, with how many operations had been done.
    stored: Vec<(Span, usize)>,
    /// What the lists of operations may take yet.
    room_bytes: usize,
}

/// Runs the tokens and resolves every instruction, without touching memory, as long as `go_on` says so.
///
/// # Errors
/// When the batch is faulty, or has something that only runs one instruction at a time; at the word of `go_on`.
pub(crate) fn trace(subject: &Subject<'_>, go_on: GoOn<'_>) -> Result<Trace, Unplanned> {
    let &Subject {
        config,
        pads,
        limits,
        insns,
        marks,
        memory,
        ..
    } = subject;
    let mut uops = UopScratchpad::holding(pads.uop.clone());
    let mut builder = Builder {
        config,
        memory,
        index: 0,
        trace: Trace {
            drafts: Vec::with_capacity(insns.len()),
            weights: (0..config.depth(MemType::Wgt) as u16)
                .map(Weight::Held)
                .collect(),
            ..Trace::default()
        },
        inputs: vec![Input::Unknown; config.depth(MemType::Inp)],
        sources: vec![Span::default(); config.depth(MemType::Acc)],
        loaded: TileSet::EMPTY,
        stored: Vec::new(),
        room_bytes: limits.plan_bytes,
    };
    let mut budget = StepBudget::new(limits.steps);
    let mut marks = (0..).zip(marks).peekable();
    let leftover_tokens = tokens::run_in_token_order(insns, |index, insn| {
        budget.spend(index, insn).map_err(SimError::from)?;
        if index % ASKED_EVERY == 0 && !go_on() {
            return Err(Unplanned::Unwanted);
        }
        builder.index = index;
        if insn.module() == Module::Compute {
            while let Some((mark, _)) = marks.next_if(|m| m.1.first_insn <= index) {
                builder.push(Kind::Mark(mark), TileSet::EMPTY, TileSet::EMPTY);
            }
        }
        match uops.resolve(config, insn)? {
            Resolved::Sync => Ok(()),
            Resolved::Load(access) => {
                builder.load(&access)?;
                uops.fill(config, &access.load, memory);
                Ok(())
            }
            Resolved::Store(access) => builder.store(&access),
            Resolved::Gemm(access) => builder.gemm(&access),
            Resolved::Alu(access) => builder.alu(&access),
        }
    })?;
    let mut trace = Trace {
        uops: uops.loaded().collect(),
        stored: builder.stored.iter().map(|s| s.0).collect(),
        leftover_tokens,
        ..builder.trace
    };
    // Merged first: a layer loads neighbouring rows of one buffer.
    merge(&mut trace.constants);
    merge(&mut trace.stored);
    if meet(&trace.stored, &trace.constants) {
        return Err(Unplanned::Pattern);
    }
    let stored = |(_, span): &(u16, Span)| meet(&trace.stored, &[*span]);
    for draft in &mut trace.drafts {
        if let Kind::Alu(alu) = &mut draft.kind
            && alu.constants.iter().any(stored)
        {
            alu.constants.clear();
        }
    }
    Ok(trace)
}

/// All rows as one span: the planner refuses rows of different regions.
pub(crate) fn span(memory: &DeviceMemory, rows: &Rows) -> Result<Span, MemoryError> {
    let bytes = rows.span();
    memory.span(bytes.start, bytes.end - bytes.start)
}

/// Notes where each element that a LOAD fills comes from: `padding`, or what `of` makes of its
/// first byte in the span's region.
fn fill<T: Clone>(
    config: &Config,
    (access, span): (&LoadAccess, Span),
    elements: &mut [T],
    padding: T,
    of: impl Fn(usize) -> T,
) {
    let elem = config.elem_bytes(access.load.mem);
    for piece in access.load.fills(config) {
        let elements = &mut elements[piece.entries];
        let Some(row) = piece.from else {
            elements.fill(padding.clone());
            continue;
        };
        let first = span.start + (row.start - access.rows.first) as usize;
        for (element, start) in elements.iter_mut().zip((first..).step_by(elem)) {
            *element = of(start);
        }
    }
}

impl Builder<'_> {
    fn push(&mut self, kind: Kind, reads: TileSet, writes: TileSet) {
        let origin = match kind {
            Kind::Mark(_) => Origin::default(),
            _ => Origin::of(self.index),
        };
        self.loaded.remove(&writes);
        self.trace.drafts.push(Draft {
            kind,
            reads,
            writes,
            origin,
        });
    }

    /// Counts the lists of an operation.
    fn take_room(&mut self, bytes: usize) -> Result<(), Unplanned> {
        let left = self.room_bytes.checked_sub(bytes);
        self.room_bytes = left.ok_or(Unplanned::Memory)?;
        Ok(())
    }

    fn reader(&self) -> TileReader<'_> {
        TileReader {
            config: self.config,
            memory: self.memory,
        }
    }

    fn load(&mut self, access: &LoadAccess) -> Result<(), Unplanned> {
        let (config, load) = (self.config, &access.load);
        let span = span(self.memory, &access.rows)?;
        let op = LoadOp::of(load, &access.rows, span);
        let (from, region) = ((access, span), span.region as u32);
        match load.mem {
            MemType::Uop => self.trace.constants.push(span),
            MemType::Wgt => {
                let weight = |start| {
                    let start = start as u32;
                    Weight::Dram { region, start }
                };
                fill(config, from, &mut self.trace.weights, Weight::Zero, weight);
                self.trace.constants.push(span);
            }
            MemType::Inp => {
                let since = self.trace.drafts.len() as u32;
                // Regions end below 2^32, and only a tile of one byte can be the last.
                let input = |start| match start as u32 {
                    PADDING => Input::Unknown,
                    start => Input::Dram {
                        region,
                        start,
                        since,
                    },
                };
                fill(config, from, &mut self.inputs, Input::Zero, input);
                self.push(Kind::Load(op), TileSet::EMPTY, TileSet::EMPTY);
            }
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                let writes = TileSet::range(access.entries.clone());
                self.push(Kind::Load(op), TileSet::EMPTY, writes.clone());
                if load.mem == MemType::Acc {
                    let len = config.elem_bytes(MemType::Acc);
                    let source = |start| Span { start, len, ..span };
                    fill(config, from, &mut self.sources, Span::default(), source);
                    self.loaded.add(&writes);
                }
            }
        }
        Ok(())
    }

    /// Where the tiles lie in DRAM, if all that aren't padding were loaded from one region and
    /// nothing was stored there since. Then the product can read them without the scratchpad.
    fn sources(&self, tiles: &[u32]) -> Option<(Vec<u32>, Span)> {
        let mut starts = Vec::with_capacity(tiles.len());
        let (mut from, mut low, mut high) = (None, u32::MAX, 0);
        let mut first = u32::MAX;
        for &tile in tiles {
            match self.inputs[tile as usize] {
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
            len: (high - low) as usize + self.config.lanes(),
        };
        let later = self.stored.iter().rev();
        let mut later = later.take_while(|s| s.1 > first as usize);
        let intact = !later.any(|(stored, _)| stored.overlaps(&span));
        intact.then_some((starts, span))
    }

    /// Where each of some accumulator tiles was loaded from, if all were, as int32 whose batch
    /// rows are the same.
    fn constants(&self, tiles: &TileSet) -> Option<Vec<(u16, Span)>> {
        if tiles.len() > MOST_CONSTANTS || !self.loaded.includes(tiles) {
            return None;
        }
        let (reader, row_bytes) = (self.reader(), self.config.block() * 4);
        let constant = |tile: usize| {
            let span = self.sources[tile];
            let equal = reader.rows_are_equal(&span, row_bytes);
            equal.then_some((tile as u16, span))
        };
        tiles.iter().map(constant).collect()
    }

    fn store(&mut self, access: &StoreAccess) -> Result<(), Unplanned> {
        let span = span(self.memory, &access.rows)?;
        let op = StoreOp::of(&access.store, &access.rows, span, self.config.lanes());
        self.stored.push((span, self.trace.drafts.len() + 1));
        let reads = TileSet::range(access.tiles.clone());
        self.push(Kind::Store(op), reads, TileSet::EMPTY);
        Ok(())
    }

    fn gemm(&mut self, access: &GemmAccess<'_>) -> Result<(), Unplanned> {
        if access.gemm.steps() == 0 {
            return Ok(());
        }
        self.trace.once |= access.uops.from_before;
        let writes = access.dst.set();
        let Some(operands) = access.operands else {
            self.push(Kind::Zero, TileSet::EMPTY, writes);
            return Ok(());
        };
        let mut parts = matmul::recognise(access.dst, operands, &self.trace.weights)?;
        let lanes = self.config.lanes() as u32;
        for (matmul, _) in &mut parts {
            self.take_room(matmul.bytes())?;
            let mut weights = matmul.groups.iter().flat_map(|group| &group.weights);
            self.trace.once |= weights.any(Weight::is_held);
            match self.sources(&matmul.inputs) {
                Some((starts, span)) => {
                    matmul.inputs = starts;
                    matmul.read = Some(span);
                }
                None => matmul.inputs.iter_mut().for_each(|tile| *tile *= lanes),
            }
        }
        if let Some((terms, read)) = self.reader().scaled(&parts) {
            let scaled = Scaled {
                terms,
                read,
                plain: matmul::join_groups(parts),
            };
            self.push(Kind::Scaled(Box::new(scaled)), writes.clone(), writes);
            return Ok(());
        }
        for (matmul, writes) in matmul::join_groups(parts) {
            self.push(Kind::Matmul(Box::new(matmul)), writes.clone(), writes);
        }
        Ok(())
    }

    fn alu(&mut self, access: &AluAccess<'_>) -> Result<(), Unplanned> {
        let steps = access.alu.steps();
        if steps == 0 {
            return Ok(());
        }
        if steps > MOST_ALU_STEPS {
            return Err(Unplanned::Pattern);
        }
        self.trace.once |= access.uops.from_before;
        let writes = access.dst.set();
        let mut reads = writes.clone();
        let imm = match access.alu.operand {
            AluOperand::Imm(imm) => Some(i32::from(imm)),
            AluOperand::Acc => None,
        };
        let mut constants = None;
        if let Some(src) = access.src {
            let src = src.set();
            constants = self.constants(&src);
            reads.add(&src);
        }
        self.take_room(steps as usize * size_of::<(u16, u16)>())?;
        let mut pairs = Vec::with_capacity(steps as usize);
        let mut pair = |(dst, src)| pairs.push((dst as u16, src as u16));
        access.steps().for_each(&mut pair);
        let draft = AluDraft {
            op: access.alu.op,
            imm,
            pairs,
            constants: constants.unwrap_or_default(),
        };
        self.push(Kind::Alu(draft), reads, writes);
        Ok(())
    }
}
