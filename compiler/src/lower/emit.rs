//! Emitting commands: micro-op kernels shared by content, tokens counted as they are emitted.

use std::ops::Range;

use vta_isa::{
    Alu, AluOp, AluOperand, Deps, Extension, Field, FieldError, Gemm, Insn, Load, MemType, Module,
    Store, Uop, tokens,
};
use vta_program::{Command, Kernel, KernelId, Layer, Symbol};

use super::places::Place;
use super::{LowerError, Lowering};
use crate::lane::{LaneKind, LaneOp, LaneOperand};

/// The commands of one layer.
pub(super) struct Emitter<'l, 'a> {
    pub lowering: &'l mut Lowering<'a>,
    pub node: String,
    commands: Vec<Command>,
    /// Index of the last command of each module.
    last: [Option<usize>; 3],
}

/// Loops of a GEMM or ALU command.
#[derive(Clone, Copy, Default)]
pub(super) struct Loops {
    pub iter: [usize; 2],
    pub dst: [usize; 2],
    pub src: [usize; 2],
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
            last: [None; 3],
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

    fn push(&mut self, insn: Insn, symbol: Symbol) -> Result<(), LowerError> {
        insn.encode().map_err(|e| self.field(e))?;
        self.last[insn.module() as usize] = Some(self.commands.len());
        self.commands.push(Command { insn, symbol });
        Ok(())
    }

    /// How many commands there are: a position to set flags at later.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// The flags of the first command of a module at or after a position.
    pub fn first_since(&mut self, position: usize, module: Module) -> Option<&mut Deps> {
        let commands = self.commands.get_mut(position..)?.iter_mut();
        let mut commands = commands.filter(|c| c.insn.module() == module);
        commands.next().map(|c| c.insn.deps_mut())
    }

    /// The flags of the last command of a module so far.
    pub fn last_of(&mut self, module: Module) -> Option<&mut Deps> {
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

    /// A command that only moves tokens.
    pub fn sync(&mut self, module: Module, deps: Deps) -> Result<(), LowerError> {
        let insn = match module {
            Module::Load => Insn::from(Load {
                deps,
                mem: MemType::Inp,
                ..Load::default()
            }),
            Module::Compute => Insn::from(Load {
                deps,
                mem: MemType::Acc,
                ..Load::default()
            }),
            Module::Store => Insn::from(Store {
                deps,
                ..Store::default()
            }),
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
        self.check_tokens()?;
        layer.commands = self.commands;
        self.lowering.program.layers.push(layer);
        Ok(())
    }

    /// As many tokens are pushed as popped, in each of the four queues: the layer leaves as many
    /// at its seam as it found.
    fn check_tokens(&self) -> Result<(), LowerError> {
        let mut counts = [0i64; 4];
        for command in &self.commands {
            let deps = command.insn.deps();
            let module = command.insn.module();
            tokens::pops(module, deps).for_each(|edge| counts[edge as usize] -= 1);
            tokens::pushes(module, deps).for_each(|edge| counts[edge as usize] += 1);
        }
        if counts == [0; 4] {
            return Ok(());
        }
        let reason = format!("unbalanced tokens {counts:?}");
        Err(LowerError::Inconsistent {
            node: self.node.clone(),
            reason,
        })
    }
}

/// How many operations have a vector.
pub(super) fn count_vectors<'o>(ops: impl IntoIterator<Item = &'o LaneOp>) -> usize {
    let vectors = ops.into_iter().filter(|op| op.vector().is_some());
    vectors.count()
}
