//! Emitting commands: micro-op kernels shared by content, fields checked, tokens by name.

use std::ops::Range;

use vta_isa::{
    Alu, AluOp, AluOperand, Deps, Extension, Field, FieldError, Gemm, Insn, Load, MemType, Module,
    Store, Uop,
};
use vta_program::{Command, Kernel, KernelId, Layer, Symbol};

use super::places::Place;
use super::tokens::{Done, Tokens};
use super::{LowerError, Lowering};
use crate::qgraph::lane::{LaneKind, LaneOp, LaneOperand};

/// The commands of one layer.
pub(super) struct Emitter<'l, 'a> {
    pub lowering: &'l mut Lowering<'a>,
    pub node: String,
    commands: Vec<Command>,
    /// Index of the last command of each module.
    last: [Option<usize>; Module::ALL.len()],
    tokens: Tokens,
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

impl<'l, 'a> Emitter<'l, 'a> {
    pub fn new(lowering: &'l mut Lowering<'a>, node: &str) -> Self {
        Self {
            lowering,
            node: node.to_owned(),
            commands: Vec::new(),
            last: [None; Module::ALL.len()],
            tokens: Tokens::new(),
        }
    }

    fn field(&self, source: FieldError) -> LowerError {
        LowerError::Field {
            node: self.node.clone(),
            source,
        }
    }

    /// A size as a field of at most 16 bits.
    fn narrow(&self, field: Field, value: usize) -> Result<u16, LowerError> {
        let fits = field.put(value as u64);
        fits.map(|_| value as u16).map_err(|e| self.field(e))
    }

    fn push(&mut self, mut insn: Insn, symbol: Symbol) -> Result<(), LowerError> {
        let module = insn.module();
        self.tokens.pops(module, insn.deps_mut());
        insn.encode().map_err(|e| self.field(e))?;
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
        waited.map_err(|reason| self.internal(reason))
    }

    /// Waits for all outputs of the layer before and tells the load module.
    pub fn hand_on(&mut self) -> Result<(), LowerError> {
        self.wait(Done::LastStored)?;
        self.tell(Done::InMemory)
    }

    /// What a module waits for comes before whatever follows, needed there or not.
    pub fn settle(&mut self, module: Module) -> Result<(), LowerError> {
        match self.tokens.waits(module) {
            true => self.sync(module),
            false => Ok(()),
        }
    }

    /// The flags of the last command of a module so far.
    fn last_of(&mut self, module: Module) -> Option<&mut Deps> {
        let index = self.last[module as usize]?;
        self.commands.get_mut(index).map(|c| c.insn.deps_mut())
    }

    /// A kernel of these micro-ops, shared with every other of the same content.
    pub fn kernel(&mut self, uops: Vec<Uop>) -> Result<KernelId, LowerError> {
        let depth = self.lowering.config.depth(MemType::Uop);
        if uops.len() > depth {
            let reason = format!("{} micro-ops, the scratchpad holds {depth}", uops.len());
            return Err(LowerError::NoTile {
                node: self.node.clone(),
                reason,
            });
        }
        for uop in &uops {
            uop.encode().map_err(|e| self.field(e))?;
        }
        let kernel = Kernel { uops };
        let next = KernelId(self.lowering.program.kernels.len() as u32);
        let id = *self.lowering.kernels.entry(kernel.clone()).or_insert(next);
        if id == next {
            self.lowering.program.kernels.push(kernel);
        }
        Ok(id)
    }

    /// A load of a buffer's elements, or of a tensor's tiles.
    pub fn load(&mut self, from: impl Into<Place>, mut load: Load) -> Result<(), LowerError> {
        let from = from.into();
        load.dram_base += from.tiles as u32;
        self.push(load.into(), Symbol::Buffer(from.buffer))
    }

    /// A store to a tensor's tiles.
    pub fn store(&mut self, to: Place, mut store: Store) -> Result<(), LowerError> {
        store.dram_base += to.tiles as u32;
        self.push(store.into(), Symbol::Buffer(to.buffer))
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

    pub fn gemm(&mut self, reset: bool, uops: Vec<Uop>, loops: Loops) -> Result<(), LowerError> {
        let all = 0..uops.len();
        let kernel = self.kernel(uops)?;
        self.push_gemm(reset, kernel, all, loops)
    }

    /// A GEMM that multiplies, with some of a kernel's micro-ops.
    pub fn gemm_part(
        &mut self,
        kernel: KernelId,
        uops: Range<usize>,
        loops: Loops,
    ) -> Result<(), LowerError> {
        self.push_gemm(false, kernel, uops, loops)
    }

    fn push_gemm(
        &mut self,
        reset: bool,
        kernel: KernelId,
        uops: Range<usize>,
        loops: Loops,
    ) -> Result<(), LowerError> {
        let field = Gemm::FIELDS;
        let gemm = Gemm {
            reset,
            uop_bgn: self.narrow(field.uop_bgn, uops.start)?,
            uop_end: self.narrow(field.uop_end, uops.end)?,
            iter_out: self.narrow(field.iter_out, loops.iter[0])?,
            iter_in: self.narrow(field.iter_in, loops.iter[1])?,
            dst_factor_out: self.narrow(field.dst_factor_out, loops.dst[0])?,
            dst_factor_in: self.narrow(field.dst_factor_in, loops.dst[1])?,
            src_factor_out: self.narrow(field.src_factor_out, loops.src[0])?,
            src_factor_in: self.narrow(field.src_factor_in, loops.src[1])?,
            ..Gemm::default()
        };
        self.push(gemm.into(), Symbol::Kernel(kernel))
    }

    pub fn alu(
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
        let dst = self.narrow(Uop::DST, tiles.first)?;
        let uops = vec![Uop {
            dst,
            src: dst,
            wgt: 0,
        }];
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
                return Err(self.inconsistent(reason));
            };
            if op.kind == LaneKind::Mul && !self.has(Extension::Mul) {
                self.multiply(imm, tiles, copy)?;
            } else {
                self.immediate(op.kind.alu(), imm, tiles)?;
            }
        }
        Ok(())
    }

    /// Whether the machine has an extension.
    pub fn has(&self, extension: Extension) -> bool {
        self.lowering.config.extensions().contains(extension)
    }

    /// What the node's parts contradict each other in.
    pub fn inconsistent(&self, reason: String) -> LowerError {
        LowerError::Inconsistent {
            node: self.node.clone(),
            reason,
        }
    }

    /// What no network can cause, at the node.
    fn internal(&self, reason: String) -> LowerError {
        LowerError::Internal {
            node: self.node.clone(),
            reason,
        }
    }

    /// Multiplies by shifts and sums: after each binary digit of the factor, from the highest,
    /// the product is doubled, and the value itself, of which a rectangle from `copy` on keeps a
    /// copy, is added for a one. int32 wraps alike on both ways.
    fn multiply(&mut self, factor: i16, tiles: Rect, copy: usize) -> Result<(), LowerError> {
        let digits = match u16::try_from(factor) {
            Ok(0) => return self.clear(tiles),
            Ok(factor) => factor.ilog2(),
            Err(_) => {
                return Err(LowerError::Lacks {
                    node: self.node.clone(),
                    reason: format!("it multiplies by {factor}"),
                    extension: Extension::Mul,
                    hint: "",
                });
            }
        };
        let (loops, [value, kept]) = (tiles.loops(), [tiles.first, copy]);
        let add = |e: &mut Self, [dst, src]: [usize; 2]| {
            let uop = Uop {
                dst: e.narrow(Uop::DST, dst)?,
                src: e.narrow(Uop::SRC, src)?,
                wgt: 0,
            };
            e.alu(AluOp::Add, AluOperand::Acc, vec![uop], loops)
        };
        if factor.count_ones() > 1 {
            let first = copy;
            self.clear(Rect { first, ..tiles })?;
            add(self, [kept, value])?;
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

    /// Zeroes tiles.
    pub fn clear(&mut self, tiles: Rect) -> Result<(), LowerError> {
        let uop = Uop {
            dst: self.narrow(Uop::DST, tiles.first)?,
            src: 0,
            wgt: 0,
        };
        let loops = Loops {
            src: [0, 0],
            ..tiles.loops()
        };
        self.gemm(true, vec![uop], loops)
    }

    /// Ends the layer.
    pub fn finish(self, mut layer: Layer) -> Result<(), LowerError> {
        if let Some(reason) = self.tokens.fault() {
            return Err(self.internal(reason));
        }
        layer.commands = self.commands;
        self.lowering.program.layers.push(layer);
        Ok(())
    }
}

/// How many operations have a vector.
pub(super) fn count_vectors<'o>(ops: impl IntoIterator<Item = &'o LaneOp>) -> usize {
    let vectors = ops.into_iter().filter(|op| op.vector().is_some());
    vectors.count()
}
