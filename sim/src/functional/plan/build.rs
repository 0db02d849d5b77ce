//! From a batch to operations: instructions in token order, checked and resolved.

use std::rc::Rc;

use vta_driver::{DeviceMemory, MemoryError, Span, StepBudget};
use vta_isa::resolve::{
    AluAccess, DepthwiseAccess, GemmAccess, Interval, LoadAccess, Resolved, Rows, StoreAccess,
    TileSet, UopScratchpad, meet, merge,
};
use vta_isa::tokens;
use vta_isa::{AluOp, AluOperand, Config, MemType, Module, Uop};

use super::super::run::ops::{LoadOp, StoreOp};
use super::Subject;
use super::draft::{AluDraft, AluSteps, Draft, Kind, Matmul, Scaled, Slot, Weight};
use super::elementwise::TileReader;
use super::inputs::{InputTiles, fill};
use super::matmul::{self, Forms};
use super::origin::Origin;
use super::places::{Lists, Places};
use super::shapes::Shapes;
use super::unplanned::{GoOn, Unplanned};
use crate::SimError;

/// ALU steps of one instruction that are listed; longer ones aren't planned.
const MOST_ALU_STEPS: u64 = 1 << 17;
/// Steps of a DEPTHWISE that are listed; longer ones aren't planned.
const MOST_WINDOWS: u64 = 1 << 16;
/// Source tiles of an ALU instruction that are looked up as constants at most.
const MOST_CONSTANTS: usize = 64;

/// What building finds.
#[derive(Default)]
pub(crate) struct Trace {
    pub drafts: Vec<Slot>,
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
    /// Whether a plan for one run will do.
    once: bool,
    /// Index of the instruction that is resolved.
    index: usize,
    trace: Trace,
    inputs: InputTiles<'a>,
    gemms: Shapes<Forms>,
    positions: Lists<u16>,
    alus: Shapes<AluSteps>,
    /// Where accumulator tiles were loaded from, where `loaded` has them; empty for padding.
    sources: Vec<Span>,
    loaded: TileSet,
    /// The products of the instruction.
    parts: Vec<(Matmul, Rc<TileSet>)>,
    /// No tiles.
    none: Rc<TileSet>,
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
        once,
        ..
    } = subject;
    let before = || vec![Uop::default(); config.depth(MemType::Uop)];
    let before = if once { pads.uop.clone() } else { before() };
    let mut uops = UopScratchpad::holding(before);
    let mut builder = Builder {
        config,
        memory,
        once,
        index: 0,
        trace: Trace {
            drafts: Vec::with_capacity(insns.len()),
            weights: (0..config.depth(MemType::Wgt) as u16)
                .map(Weight::Held)
                .collect(),
            ..Trace::default()
        },
        inputs: InputTiles::new(config),
        gemms: Shapes::default(),
        positions: Lists::default(),
        alus: Shapes::default(),
        sources: vec![Span::default(); config.depth(MemType::Acc)],
        loaded: TileSet::EMPTY,
        parts: Vec::new(),
        none: Rc::default(),
        stored: Vec::new(),
        room_bytes: limits.plan_bytes,
    };
    let mut budget = StepBudget::new(limits.steps);
    let mut marks = (0..).zip(marks).peekable();
    let leftover_tokens = tokens::run_in_token_order(insns, |index, insn| {
        budget.spend(index, insn).map_err(SimError::from)?;
        if !go_on() {
            return Err(Unplanned::Unwanted);
        }
        builder.index = index;
        if insn.module() == Module::Compute {
            while let Some((mark, _)) = marks.next_if(|m| m.1.first_insn <= index) {
                builder.push(Kind::Mark(mark), None, None);
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
            Resolved::Depthwise(access) => builder.windows(&access),
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
    for draft in trace.drafts.iter_mut().flatten() {
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

impl Builder<'_> {
    fn push(&mut self, kind: Kind, reads: Option<&Rc<TileSet>>, writes: Option<&Rc<TileSet>>) {
        let origin = match kind {
            Kind::Mark(_) => Origin::default(),
            _ => Origin::of(self.index),
        };
        let [reads, writes] = [reads, writes].map(|tiles| Rc::clone(tiles.unwrap_or(&self.none)));
        self.loaded.remove(&writes);
        self.trace.drafts.push(Some(Draft {
            kind,
            reads,
            writes,
            origin,
        }));
    }

    /// Notes whether an instruction needs micro-ops or weights that were in the scratchpads before the batch.
    fn needs_before(&mut self, needs: bool) -> Result<(), Unplanned> {
        self.trace.once |= needs;
        if needs && !self.once {
            return Err(Unplanned::Once);
        }
        Ok(())
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
            MemType::Wgt | MemType::Wgt4 => {
                let weight = |start| Weight::Dram {
                    region,
                    start: start as u32,
                    mem: load.mem,
                };
                fill(config, from, &mut self.trace.weights, Weight::Zero, weight);
                self.trace.constants.push(span);
            }
            MemType::Inp => {
                self.inputs.load(access, span, self.trace.drafts.len());
                self.push(Kind::Load(op), None, None);
            }
            MemType::Acc | MemType::Acc8 | MemType::Out => {
                let writes = Rc::new(TileSet::range(access.entries.clone()));
                self.push(Kind::Load(op), None, Some(&writes));
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

    /// Where a product's inputs lie in DRAM, if they were loaded from one region and nothing was stored there since. Then
    /// it can read them without the scratchpad.
    fn sources(&mut self, form: &matmul::Form) -> Option<(Places, Span)> {
        let (places, span, first) = self.inputs.find(&form.inputs, &form.ends)?;
        let later = self.stored.iter().rev();
        let mut later = later.take_while(|s| s.1 > first);
        let intact = !later.any(|(stored, _)| stored.overlaps(&span));
        intact.then_some((places, span))
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
        let mut reads = TileSet::range(access.tiles.clone());
        let operands = access.operands.iter();
        operands.for_each(|tiles| reads.add(&TileSet::range(tiles.clone())));
        self.push(Kind::Store(op), Some(&Rc::new(reads)), None);
        Ok(())
    }

    fn gemm(&mut self, access: &GemmAccess<'_>) -> Result<(), Unplanned> {
        if access.gemm.steps() == 0 {
            return Ok(());
        }
        self.needs_before(access.uops.from_before)?;
        let Some(operands @ [src, wgt]) = access.operands else {
            self.push(Kind::Zero, None, Some(&Rc::new(access.dst.set())));
            return Ok(());
        };
        if access.gemm.overwrite {
            if !access.dst.is_apart() {
                return Err(Unplanned::Pattern);
            }
            self.push(Kind::Zero, None, Some(&Rc::new(access.dst.set())));
        }
        let make = || Forms::of(access.dst, operands, &mut self.positions);
        let forms = self.gemms.of([access.dst, src, wgt].map(Some), make)?;
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        for form in &forms.products {
            let matmul = form.product(&self.trace.weights);
            parts.push(self.part(form, matmul)?);
        }
        if let Some((factors, read)) = self.reader().scaled(&parts) {
            matmul::join_groups(&mut parts);
            let scaled = Scaled {
                factors,
                read,
                plain: parts,
            };
            let tiles = Some(&forms.tiles);
            self.push(Kind::Scaled(Box::new(scaled)), tiles, tiles);
            return Ok(());
        }
        matmul::join_groups(&mut parts);
        for (matmul, tiles) in parts.drain(..) {
            let tiles = Some(&tiles);
            self.push(Kind::Matmul(Box::new(matmul)), tiles, tiles);
        }
        self.parts = parts;
        Ok(())
    }

    /// A product with its inputs, and the tiles that it changes.
    fn part(
        &mut self,
        form: &matmul::Form,
        mut matmul: Matmul,
    ) -> Result<(Matmul, Rc<TileSet>), Unplanned> {
        match self.sources(form) {
            Some((places, span)) => {
                matmul.inputs = places;
                matmul.read = Some(span);
            }
            None => {
                let lanes = self.config.lanes() as u32;
                let bytes = form.inputs.iter().map(|tile| tile * lanes);
                matmul.inputs = bytes.collect::<Vec<_>>().into();
            }
        }
        self.take_room(matmul.bytes())?;
        self.needs_before(matmul.weights.iter().any(Weight::is_held))?;
        Ok((matmul, Rc::clone(&form.tiles)))
    }

    /// Windows are products with diagonal weights, tap by tap.
    fn windows(&mut self, access: &DepthwiseAccess<'_>) -> Result<(), Unplanned> {
        let insn = &access.insn;
        if insn.steps() == 0 {
            return Ok(());
        }
        // Of several steps on a tile the last one counts, if they overwrite.
        if insn.steps() > MOST_WINDOWS || !access.dst.is_apart() {
            return Err(Unplanned::Pattern);
        }
        self.needs_before(access.uops.from_before)?;
        if insn.overwrite {
            self.push(Kind::Zero, None, Some(&Rc::new(access.dst.set())));
        }
        let mut parts = Vec::with_capacity(access.uops.known.len());
        for uop in access.uops.known {
            let tile = self.trace.weights[usize::from(uop.wgt)];
            let weights = tile.taps(insn.taps()).ok_or(Unplanned::Pattern)?;
            let form = matmul::Form::windows(access, uop, &mut self.positions);
            parts.push(self.part(&form, form.with(weights))?);
        }
        matmul::join_groups(&mut parts);
        for (matmul, tiles) in parts {
            let tiles = Some(&tiles);
            self.push(Kind::Matmul(Box::new(matmul)), tiles, tiles);
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
        self.needs_before(access.uops.from_before)?;
        self.take_room(steps as usize * size_of::<(u16, u16)>())?;
        let imm = match access.alu.operand {
            AluOperand::Imm(imm) => Some(i32::from(imm)),
            AluOperand::Acc => None,
        };
        let tiles = [Some(access.dst), access.src, None];
        let steps = self
            .alus
            .of(tiles, || Ok::<_, Unplanned>(AluSteps::of(access)))?;
        // A copy is added to nothing, if no step reads or writes what another has written.
        let apart = steps.destinations.len() == steps.pairs.len()
            && !steps.destinations.meets(&steps.sources);
        let op = match access.alu.op {
            AluOp::Mov if apart => {
                self.push(Kind::Zero, None, Some(&steps.destinations));
                AluOp::Add
            }
            op => op,
        };
        let constants = access.src.and_then(|_| self.constants(&steps.sources));
        let draft = AluDraft {
            op,
            imm,
            steps: Rc::clone(&steps),
            constants: constants.unwrap_or_default(),
        };
        self.push(
            Kind::Alu(draft),
            Some(&steps.reads),
            Some(&steps.destinations),
        );
        Ok(())
    }
}

impl AluSteps {
    fn of(access: &AluAccess<'_>) -> Self {
        let sources = access.src.map_or(TileSet::EMPTY, |src| src.set());
        let mut reads = access.dst.set();
        reads.add(&sources);
        let mut pairs = Vec::with_capacity(access.alu.steps() as usize);
        // Nested loops, as `collect` wouldn't be.
        let steps = access.steps();
        steps.for_each(|(dst, src)| pairs.push((dst as u16, src as u16)));
        Self {
            pairs,
            destinations: Rc::new(access.dst.set()),
            sources,
            reads: Rc::new(reads),
        }
    }
}
