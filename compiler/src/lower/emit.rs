//! Emitting commands: micro-op kernels shared by content, fields checked, tokens by name.

mod kernels;

use std::collections::HashSet;
use std::ops::Range;

use vta_isa::tokens::Edge;
use vta_isa::{
    Alu, AluOp, AluOperand, Deps, Depthwise, Extension, Field, Gemm, Insn, Load, MemType, Module,
    Requantize, Store, Uop,
};
use vta_program::{Command, KernelId, Layer, Symbol};

use super::seam;
use super::tokens::{Done, Tokens};
use super::transfer::{Transfer, between};
use super::{Fault, LowerError, Lowering};
use crate::qgraph::lane::{LaneKind, LaneOp, LaneOperand};

/// The commands of one layer.
pub(super) struct Emitter<'l, 'a> {
    pub lowering: &'l mut Lowering<'a>,
    pub node: String,
    commands: Vec<Command>,
    /// Index of the last command of each module since the last cut.
    last: [Option<usize>; Module::ALL.len()],
    cuts: Vec<u32>,
    /// Kernels since the last cut, and their micro-ops.
    kernels: HashSet<KernelId>,
    uops: usize,
    /// How many kernels the program had then.
    known: usize,
    tokens: Tokens,
}

/// What becomes of the accumulators where tiles go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// They are the tiles.
    Set,
    /// The tiles are added; through the matrix unit only.
    Add,
}

/// Loops of a GEMM or ALU command.
#[derive(Clone, Copy, Default)]
pub(super) struct Loops {
    pub iter: [usize; 2],
    pub dst: [usize; 2],
    pub src: [usize; 2],
}

impl Loops {
    /// One loop, in which each operand goes on by a number of tiles.
    pub const fn run(count: usize, [dst, src]: [usize; 2]) -> Self {
        Self {
            iter: [1, count],
            dst: [0, dst],
            src: [0, src],
        }
    }
}

/// A rectangle of accumulator tiles: `rows` times `cols`, rows `pitch` apart.
#[derive(Clone, Copy)]
pub(super) struct Rect {
    pub first: usize,
    pub size: [usize; 2],
    pub pitch: usize,
}

impl Rect {
    /// Tiles without gaps.
    pub fn run(first: usize, count: usize) -> Self {
        Self {
            first,
            size: [1, count],
            pitch: count,
        }
    }

    /// Loops over its tiles, of which both operands are the same.
    fn loops(self) -> Loops {
        let [rows, cols] = self.size;
        // Rows without gaps are one row.
        let (iter, step) = if self.pitch == cols {
            ([1, rows * cols], [0, 1])
        } else {
            ([rows, cols], [self.pitch, 1])
        };
        Loops {
            iter,
            dst: step,
            src: step,
        }
    }
}

/// A micro-op on tiles. What no field holds is refused with its kernel.
pub(super) fn uop([dst, src, wgt]: [usize; 3]) -> Uop {
    let [dst, src, wgt] = [dst, src, wgt].map(|tile| u16::try_from(tile).unwrap_or(u16::MAX));
    Uop { dst, src, wgt }
}

impl<'l, 'a> Emitter<'l, 'a> {
    pub fn new(lowering: &'l mut Lowering<'a>, node: &str) -> Self {
        let known = lowering.program.kernels.len();
        Self {
            lowering,
            node: node.to_owned(),
            commands: Vec::new(),
            last: [None; Module::ALL.len()],
            cuts: Vec::new(),
            kernels: HashSet::new(),
            uops: 0,
            known,
            tokens: Tokens::new(),
        }
    }

    /// A fault of the node.
    pub fn fault(&self, fault: impl Into<Fault>) -> LowerError {
        fault.into().of(&self.node)
    }

    /// A size as a field of at most 16 bits.
    fn narrow(&self, field: Field, value: usize) -> Result<u16, LowerError> {
        let fits = field.put(value as u64);
        fits.map(|_| value as u16).map_err(|e| self.fault(e))
    }

    fn push(&mut self, mut insn: Insn, symbol: Symbol) -> Result<(), LowerError> {
        let module = insn.module();
        self.tokens.pops(module, insn.deps_mut());
        insn.encode().map_err(|e| self.fault(e))?;
        self.last[module as usize] = Some(self.commands.len());
        self.commands.push(Command { insn, symbol });
        Ok(())
    }

    /// Says that something is done, once the last command of its module is. Where that command
    /// can't say so, since it has told before or what follows it waits, an empty one does.
    pub fn tell(&mut self, done: Done) -> Result<(), LowerError> {
        let edge = done.edge();
        let module = edge.producer();
        let told = self.last_of(module).is_none_or(|deps| *edge.push(deps));
        if told || self.tokens.waits(module) {
            self.sync(module)?;
        }
        if let Some(deps) = self.last_of(module) {
            *edge.push(deps) = true;
        }
        self.tokens.tell(done);
        Ok(())
    }

    /// The next command that relies on something waits until it is done. A command takes one token
    /// of a queue: if there is one to take already, an empty one takes that.
    pub fn wait(&mut self, done: Done) -> Result<(), LowerError> {
        let edge = done.edge();
        if self.tokens.is_awaited(edge) {
            self.sync(edge.consumer())?;
        }
        let waited = self.tokens.wait(done);
        waited.map_err(|reason| self.fault(Fault::Internal(reason)))
    }

    /// Waits for all tokens of a queue up to one, by its [number](Self::told).
    pub fn reach(&mut self, edge: Edge, number: usize) -> Result<(), LowerError> {
        while let Some(done) = self.tokens.before(edge, number) {
            self.wait(done)?;
        }
        Ok(())
    }

    /// The number of the token that was waited for last in a queue.
    pub fn taken(&self, edge: Edge) -> usize {
        let [left, told] = self.tokens.count(edge);
        told - left
    }

    /// The number of the token that was told last in a queue.
    pub fn told(&self, edge: Edge) -> usize {
        self.tokens.count(edge)[1]
    }

    /// Leaves as many tokens in a queue as the next layer finds: the last ones, and some for what wasn't used.
    pub fn leave(&mut self, last: Done) -> Result<(), LowerError> {
        let (edge, count) = (last.edge(), seam::TOKENS as usize);
        self.reach(edge, self.told(edge).saturating_sub(count))?;
        self.settle(edge.consumer())?;
        (self.tokens.count(edge)[0]..count).try_for_each(|_| {
            self.sync(edge.producer())?;
            self.tell(last)
        })
    }

    /// Waits for all outputs of the layer before and tells the load module.
    pub fn hand_on(&mut self) -> Result<(), LowerError> {
        self.wait(Done::LastStored)?;
        self.tell(Done::InMemory)
    }

    /// What a module waits for comes before whatever follows, needed there or not.
    pub fn settle(&mut self, module: Module) -> Result<(), LowerError> {
        if self.tokens.waits(module) {
            self.sync(module)
        } else {
            Ok(())
        }
    }

    /// The flags of the last command of a module so far.
    fn last_of(&mut self, module: Module) -> Option<&mut Deps> {
        let index = self.last[module as usize]?;
        self.commands.get_mut(index).map(|c| c.insn.deps_mut())
    }

    /// A load of a buffer's elements, or of a tensor's tiles. A LOAD steps between its rows alone: columns with a
    /// step are its rows, and rows that don't go on in the same step are a LOAD each.
    pub fn load(&mut self, mem: MemType, from: Transfer) -> Result<(), LowerError> {
        self.load_by(mem, false, from)
    }

    /// The same; the load module may fill accumulators.
    pub fn load_by(
        &mut self,
        mem: MemType,
        preload: bool,
        from: Transfer,
    ) -> Result<(), LowerError> {
        let ([rows, columns], stride, step) = (from.size, from.stride, from.step);
        let (loads, size, stride) = if step == 1 {
            (1, [rows, columns], stride)
        } else if stride == columns * step {
            (1, [rows * columns, 1], step)
        } else {
            (rows, [columns, 1], step)
        };
        for row in 0..loads {
            let dram = from.dram + row * from.stride;
            let load = Load {
                mem,
                preload,
                sram_base: (from.sram + row * columns) as u16,
                dram_base: (from.base.tiles + dram) as u32,
                y_size: size[0] as u16,
                x_size: size[1] as u16,
                x_stride: between(size, stride),
                ..Load::default()
            };
            self.push(load.into(), Symbol::Buffer(from.base.buffer))?;
        }
        Ok(())
    }

    /// A load of inputs in rows, with rows and columns of padding in front and behind.
    pub fn load_padded(
        &mut self,
        from: Transfer,
        [above, beside]: [[usize; 2]; 2],
        pad_value: i8,
    ) -> Result<(), LowerError> {
        let field = Load::FIELDS;
        let load = Load {
            mem: MemType::Inp,
            // The original's word where nothing is padded.
            pad_value: if [above, beside] == [[0; 2]; 2] {
                0
            } else {
                pad_value
            },
            sram_base: from.sram as u16,
            dram_base: (from.base.tiles + from.dram) as u32,
            y_size: from.size[0] as u16,
            x_size: from.size[1] as u16,
            x_stride: between(from.size, from.stride),
            y_pad_0: self.narrow(field.y_pad_0, above[0])? as u8,
            y_pad_1: self.narrow(field.y_pad_1, above[1])? as u8,
            x_pad_0: self.narrow(field.x_pad_0, beside[0])? as u8,
            x_pad_1: self.narrow(field.x_pad_1, beside[1])? as u8,
            ..Load::default()
        };
        self.push(load.into(), Symbol::Buffer(from.base.buffer))
    }

    /// A store to a tensor's tiles.
    pub fn store(
        &mut self,
        to: Transfer,
        requantize: Option<Requantize>,
    ) -> Result<(), LowerError> {
        let store = Store {
            saturate: self.lowering.saturate && requantize.is_none(),
            requantize,
            sram_base: to.sram as u16,
            dram_base: (to.base.tiles + to.dram) as u32,
            y_size: to.size[0] as u16,
            x_size: to.size[1] as u16,
            x_stride: between(to.size, to.stride),
            ..Store::default()
        };
        self.push(store.into(), Symbol::Buffer(to.base.buffer))
    }

    /// An empty command, which only moves tokens.
    pub fn sync(&mut self, module: Module) -> Result<(), LowerError> {
        let load = |mem| Load {
            mem,
            ..Load::default()
        };
        let insn = match module {
            Module::Load => load(MemType::Inp).into(),
            Module::Compute => load(MemType::Acc).into(),
            Module::Store => Store::default().into(),
        };
        self.push(insn, Symbol::None)
    }

    /// A GEMM that multiplies.
    pub fn gemm(&mut self, uops: Vec<Uop>, loops: Loops) -> Result<(), LowerError> {
        let all = 0..uops.len();
        let kernel = self.kernel(uops)?;
        self.gemm_part(kernel, all, loops, Sums::Add)
    }

    /// GEMMs with some micro-ops, of which the first on each tile replaces what it holds, in an instruction of its own.
    /// Others that have the same tile follow it.
    pub fn gemm_anew(&mut self, uops: Vec<Uop>, loops: Loops) -> Result<(), LowerError> {
        let (mut uops, rest) = anew(uops);
        let first = uops.len();
        uops.extend(rest);
        let all = uops.len();
        let kernel = self.kernel(uops)?;
        self.gemm_part(kernel, 0..first, loops, Sums::Set)?;
        if first < all {
            self.gemm_part(kernel, first..all, loops, Sums::Add)?;
        }
        Ok(())
    }

    /// A GEMM that multiplies, with some of a kernel's micro-ops.
    pub fn gemm_part(
        &mut self,
        kernel: KernelId,
        uops: Range<usize>,
        loops: Loops,
        sums: Sums,
    ) -> Result<(), LowerError> {
        let gemm = Gemm {
            overwrite: sums == Sums::Set,
            ..self.looped(uops, loops)?
        };
        self.push(gemm.into(), Symbol::Kernel(kernel))
    }

    /// A DEPTHWISE with a micro-op of a kernel, whose windows have rows, columns, and tiles from row to row.
    pub fn windows(
        &mut self,
        (kernel, at): (KernelId, usize),
        loops: Loops,
        [rows, columns, pitch]: [usize; 3],
        sums: Sums,
    ) -> Result<(), LowerError> {
        let (field, looped) = (Depthwise::FIELDS, self.looped(at..at + 1, loops)?);
        let insn = Depthwise {
            deps: Deps::NONE,
            overwrite: sums == Sums::Set,
            rows: self.narrow(field.rows, rows)? as u8,
            columns: self.narrow(field.columns, columns)? as u8,
            pitch: self.narrow(field.pitch, pitch)?,
            uop_bgn: looped.uop_bgn,
            uop_end: looped.uop_end,
            iter_out: looped.iter_out,
            iter_in: looped.iter_in,
            dst_factor_out: looped.dst_factor_out,
            dst_factor_in: looped.dst_factor_in,
            src_factor_out: looped.src_factor_out,
            src_factor_in: looped.src_factor_in,
        };
        self.push(insn.into(), Symbol::Kernel(kernel))
    }

    /// A GEMM with these loops around some of a kernel's micro-ops.
    fn looped(&self, uops: Range<usize>, loops: Loops) -> Result<Gemm, LowerError> {
        let field = Gemm::FIELDS;
        Ok(Gemm {
            uop_bgn: self.narrow(field.uop_bgn, uops.start)?,
            uop_end: self.narrow(field.uop_end, uops.end)?,
            iter_out: self.narrow(field.iter_out, loops.iter[0])?,
            iter_in: self.narrow(field.iter_in, loops.iter[1])?,
            dst_factor_out: self.narrow(field.dst_factor_out, loops.dst[0])?,
            dst_factor_in: self.narrow(field.dst_factor_in, loops.dst[1])?,
            src_factor_out: self.narrow(field.src_factor_out, loops.src[0])?,
            src_factor_in: self.narrow(field.src_factor_in, loops.src[1])?,
            ..Gemm::default()
        })
    }

    /// An operation of tiles with others, `[dst, src]`.
    pub fn join(
        &mut self,
        op: AluOp,
        pairs: impl IntoIterator<Item = [usize; 2]>,
        loops: Loops,
    ) -> Result<(), LowerError> {
        let pairs = pairs.into_iter();
        let uops = pairs.map(|[dst, src]| uop([dst, src, 0])).collect();
        self.alu(op, AluOperand::Acc, uops, loops)
    }

    fn alu(
        &mut self,
        op: AluOp,
        operand: AluOperand,
        uops: Vec<Uop>,
        loops: Loops,
    ) -> Result<(), LowerError> {
        let field = Alu::FIELDS;
        let end = self.narrow(field.uop_end, uops.len())?;
        let kernel = self.kernel(uops)?;
        let alu = Alu {
            deps: Deps::NONE,
            op,
            operand,
            uop_bgn: 0,
            uop_end: end,
            iter_out: self.narrow(field.iter_out, loops.iter[0])?,
            iter_in: self.narrow(field.iter_in, loops.iter[1])?,
            dst_factor_out: self.narrow(field.dst_factor_out, loops.dst[0])?,
            dst_factor_in: self.narrow(field.dst_factor_in, loops.dst[1])?,
            src_factor_out: self.narrow(field.src_factor_out, loops.src[0])?,
            src_factor_in: self.narrow(field.src_factor_in, loops.src[1])?,
        };
        self.push(alu.into(), Symbol::Kernel(kernel))
    }

    /// An immediate operation on a rectangle of tiles. `src` is the tile of `dst`: the original
    /// RTL takes the operand from there. A left shift is one to the right by a negative amount on
    /// a machine without SHL.
    pub fn immediate(&mut self, op: AluOp, imm: i16, tiles: Rect) -> Result<(), LowerError> {
        let (op, imm) = match op {
            AluOp::Shl if !self.has(Extension::Shl) => (AluOp::Shr, -imm),
            op => (op, imm),
        };
        let uops = vec![uop([tiles.first, tiles.first, 0])];
        self.alu(op, AluOperand::Imm(imm), uops, tiles.loops())
    }

    /// The immediate operations of a list on a rectangle. On a machine without MUL the
    /// rectangle's copy holds a factor for a while.
    pub fn immediates(
        &mut self,
        ops: &[LaneOp],
        tiles: Rect,
        copy: usize,
    ) -> Result<(), LowerError> {
        for op in ops {
            let LaneOperand::Imm(imm) = op.operand else {
                let reason = format!("{op} has several operands, which this operator can't have");
                return Err(self.fault(Fault::Inconsistent(reason)));
            };
            if op.kind == LaneKind::Mul && !self.has(Extension::Mul) {
                self.multiply(imm, tiles, copy)?;
            } else {
                self.immediate(op.kind, imm, tiles)?;
            }
        }
        Ok(())
    }

    /// Whether the machine has an extension.
    pub fn has(&self, extension: Extension) -> bool {
        self.lowering.config.extensions().contains(extension)
    }

    /// Multiplies by shifts and sums: after each binary digit of the factor, from the highest,
    /// the product is doubled, and the value itself, of which a rectangle from `copy` on keeps a
    /// copy, is added for a one. int32 wraps alike on both ways.
    fn multiply(&mut self, factor: i16, tiles: Rect, copy: usize) -> Result<(), LowerError> {
        let digits = match u16::try_from(factor) {
            Ok(0) => return self.clear(tiles),
            Ok(factor) => factor.ilog2(),
            Err(_) => {
                let reason = format!("it multiplies by {factor}");
                return Err(self.fault(Fault::lacks(reason, Extension::Mul)));
            }
        };
        let (loops, [value, kept]) = (tiles.loops(), [tiles.first, copy]);
        let add = |e: &mut Self, pair: [usize; 2]| e.join(AluOp::Add, [pair], loops);
        if factor.count_ones() > 1 {
            if self.has(Extension::Mov) {
                self.join(AluOp::Mov, [[kept, value]], loops)?;
            } else {
                let first = copy;
                self.clear(Rect { first, ..tiles })?;
                add(self, [kept, value])?;
            }
        }
        let mut doublings = 0;
        for digit in (0..digits).rev() {
            doublings += 1;
            let one = factor >> digit & 1 == 1;
            if one || digit == 0 {
                self.immediate(AluOp::Shr, -doublings, tiles)?;
                doublings = 0;
            }
            if one {
                add(self, [value, kept])?;
            }
        }
        Ok(())
    }

    /// Makes every lane of tiles a number, whatever was there.
    pub fn fill(&mut self, value: i16, tiles: Rect) -> Result<(), LowerError> {
        if self.has(Extension::Mov) {
            return self.immediate(AluOp::Mov, value, tiles);
        }
        if self.has(Extension::Clip)
            && let Ok(value) = i8::try_from(value)
        {
            return self.immediate(AluOp::Clip, i16::from_le_bytes([value as u8; 2]), tiles);
        }
        self.immediate(AluOp::Min, i16::MIN, tiles)?;
        self.immediate(AluOp::Max, value, tiles)
    }

    /// Zeroes tiles.
    pub fn clear(&mut self, tiles: Rect) -> Result<(), LowerError> {
        let kernel = self.kernel(vec![uop([tiles.first, 0, 0])])?;
        let loops = Loops {
            src: [0, 0],
            ..tiles.loops()
        };
        let gemm = Gemm {
            reset: true,
            ..self.looped(0..1, loops)?
        };
        self.push(gemm.into(), Symbol::Kernel(kernel))
    }

    /// Whether the tile that comes next is the last before a cut.
    pub fn is_long(&self) -> bool {
        let part = self.lowering.part;
        self.commands.len() - self.first() >= part || self.uops >= part.saturating_mul(4)
    }

    /// The first command since the last cut.
    fn first(&self) -> usize {
        self.cuts.last().map_or(0, |&cut| cut as usize)
    }

    /// How many cuts there are.
    pub fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// Lets a batch end here. The tokens are those of a seam, and what follows finds nothing in the scratchpads, as at
    /// a layer's start.
    pub fn cut(&mut self) -> Result<(), LowerError> {
        self.check_tokens()?;
        self.join_kernels();
        self.cuts.push(self.commands.len() as u32);
        self.last = [None; Module::ALL.len()];
        self.tokens = Tokens::new();
        Ok(())
    }

    fn check_tokens(&self) -> Result<(), LowerError> {
        let fault = self.tokens.fault().map(Fault::Internal);
        fault.map_or(Ok(()), |fault| Err(self.fault(fault)))
    }

    /// Ends the layer.
    pub fn finish(mut self, mut layer: Layer) -> Result<(), LowerError> {
        self.check_tokens()?;
        self.join_kernels();
        (layer.commands, layer.cuts) = (self.commands, self.cuts);
        self.lowering.program.layers.push(layer);
        Ok(())
    }
}

/// The first micro-op on each tile, and the others.
pub(super) fn anew(uops: Vec<Uop>) -> (Vec<Uop>, Vec<Uop>) {
    let mut known = HashSet::new();
    uops.into_iter().partition(|uop| known.insert(uop.dst))
}

/// How many operations have a vector.
pub(super) fn count_vectors<'o>(ops: impl IntoIterator<Item = &'o LaneOp>) -> usize {
    let vectors = ops.into_iter().filter(|op| op.vector().is_some());
    vectors.count()
}
