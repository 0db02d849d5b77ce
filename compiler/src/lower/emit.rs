//! Emitting commands: micro-op kernels shared by content, tokens counted as they are emitted.

use vta_driver::{BufferId, Command, Kernel, KernelId, Layer, Symbol};
use vta_isa::{
    Alu, AluOp, AluOperand, Deps, FieldError, Gemm, Insn, Load, MemType, Module, Store, Uop,
};

use super::{LowerError, Lowering};
use crate::qgraph::LaneOp;

/// Tokens in load->compute, compute->load, compute->store, store->compute.
type Tokens = [i64; 4];

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

    /// A size as a field of at most 16 bits; narrower fields are checked when encoding.
    fn narrow(&self, field: &'static str, value: usize) -> Result<u16, LowerError> {
        u16::try_from(value).map_err(|_| {
            self.field(FieldError {
                field,
                value: value as u64,
                bits: 16,
            })
        })
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

    fn kernel(&mut self, uops: Vec<Uop>) -> Result<KernelId, LowerError> {
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

    pub fn load(&mut self, buffer: BufferId, load: Load) -> Result<(), LowerError> {
        self.push(load.into(), Symbol::Buffer(buffer))
    }

    pub fn store(&mut self, buffer: BufferId, store: Store) -> Result<(), LowerError> {
        self.push(store.into(), Symbol::Buffer(buffer))
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
        let end = self.narrow("uop_end", uops.len())?;
        let kernel = self.kernel(uops)?;
        let gemm = Gemm {
            reset,
            uop_end: end,
            iter_out: self.narrow("iter_out", loops.iter[0])?,
            iter_in: self.narrow("iter_in", loops.iter[1])?,
            dst_factor_out: self.narrow("dst_factor_out", loops.dst[0])?,
            dst_factor_in: self.narrow("dst_factor_in", loops.dst[1])?,
            src_factor_out: self.narrow("src_factor_out", loops.src[0])?,
            src_factor_in: self.narrow("src_factor_in", loops.src[1])?,
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
        let end = self.narrow("uop_end", uops.len())?;
        let kernel = self.kernel(uops)?;
        let alu = Alu {
            deps: Deps::NONE,
            op,
            operand,
            uop_bgn: 0,
            uop_end: end,
            iter_out: self.narrow("iter_out", loops.iter[0])?,
            iter_in: self.narrow("iter_in", loops.iter[1])?,
            dst_factor_out: self.narrow("dst_factor_out", loops.dst[0])?,
            dst_factor_in: self.narrow("dst_factor_in", loops.dst[1])?,
            src_factor_out: self.narrow("src_factor_out", loops.src[0])?,
            src_factor_in: self.narrow("src_factor_in", loops.src[1])?,
        };
        self.push(alu.into(), Symbol::Kernel(kernel))
    }

    /// An immediate operation on a rectangle of tiles: `rows` times `cols`, `pitch` apart.
    pub fn immediate(
        &mut self,
        op: AluOp,
        imm: i16,
        first: usize,
        [rows, cols]: [usize; 2],
        pitch: usize,
    ) -> Result<(), LowerError> {
        let dst = self.narrow("dst", first)?;
        // Rows without gaps are one row.
        let (iter, step) = if pitch == cols {
            ([1, rows * cols], [0, 1])
        } else {
            ([rows, cols], [pitch, 1])
        };
        let uops = vec![Uop {
            dst,
            src: dst,
            wgt: 0,
        }];
        let loops = Loops {
            iter,
            dst: step,
            src: step,
        };
        self.alu(op, AluOperand::Imm(imm), uops, loops)
    }

    /// The immediate operations of a list on a rectangle.
    pub fn immediates(
        &mut self,
        ops: &[LaneOp],
        first: usize,
        size: [usize; 2],
        pitch: usize,
    ) -> Result<(), LowerError> {
        for op in ops {
            let Some((op, imm)) = immediate(op) else {
                let reason = format!("{op} is a vector, which only convolutions have");
                return Err(LowerError::Inconsistent {
                    node: self.node.clone(),
                    reason,
                });
            };
            self.immediate(op, imm, first, size, pitch)?;
        }
        Ok(())
    }

    /// Ends the layer: the load module waits for the last store, so that the next layer reads
    /// what this one wrote. The last store must not push a token of its own.
    pub fn finish(mut self, mut layer: Layer) -> Result<(), LowerError> {
        match self.last_of(Module::Store) {
            Some(deps) => deps.push_prev = true,
            None => {
                let reason = "it stores nothing".to_owned();
                return Err(LowerError::Inconsistent {
                    node: self.node,
                    reason,
                });
            }
        }
        self.sync(
            Module::Compute,
            Deps {
                pop_next: true,
                push_prev: true,
                ..Deps::NONE
            },
        )?;
        self.sync(
            Module::Load,
            Deps {
                pop_next: true,
                ..Deps::NONE
            },
        )?;
        self.check_tokens()?;
        layer.commands = self.commands;
        self.lowering.program.layers.push(layer);
        Ok(())
    }

    /// As many tokens are pushed as popped, in each of the four queues.
    fn check_tokens(&self) -> Result<(), LowerError> {
        let mut tokens: Tokens = [0; 4];
        for command in &self.commands {
            let deps = command.insn.deps();
            let [pop_prev, pop_next, push_prev, push_next] = match command.insn.module() {
                Module::Load => [None, Some(1), None, Some(0)],
                Module::Compute => [Some(0), Some(3), Some(1), Some(2)],
                Module::Store => [Some(2), None, Some(3), None],
            };
            let flags = [
                (deps.pop_prev, pop_prev, -1),
                (deps.pop_next, pop_next, -1),
                (deps.push_prev, push_prev, 1),
                (deps.push_next, push_next, 1),
            ];
            for (_, queue, step) in flags.into_iter().filter(|f| f.0) {
                let queue: Option<usize> = queue;
                tokens[queue.unwrap_or(0)] += step;
            }
        }
        if tokens == [0; 4] {
            return Ok(());
        }
        let reason = format!("unbalanced tokens {tokens:?}");
        Err(LowerError::Inconsistent {
            node: self.node.clone(),
            reason,
        })
    }
}

/// The ALU operation of an immediate lane operation.
pub(super) fn immediate(op: &LaneOp) -> Option<(AluOp, i16)> {
    Some(match op {
        LaneOp::AddImm(imm) => (AluOp::Add, *imm),
        LaneOp::MulImm(imm) => (AluOp::Mul, *imm),
        LaneOp::ShrImm(n) => (AluOp::Shr, (*n).into()),
        LaneOp::ShlImm(n) => (AluOp::Shl, (*n).into()),
        LaneOp::MinImm(imm) => (AluOp::Min, *imm),
        LaneOp::MaxImm(imm) => (AluOp::Max, *imm),
        LaneOp::AddVec(_)
        | LaneOp::MulVec(_)
        | LaneOp::ShrVec(_)
        | LaneOp::MinVec(_)
        | LaneOp::MaxVec(_) => return None,
    })
}

/// The ALU operation and the vector of a vector lane operation.
pub(super) fn vector(op: &LaneOp) -> Option<(AluOp, &[i32])> {
    match op {
        LaneOp::AddVec(v) => Some((AluOp::Add, v)),
        LaneOp::MulVec(v) => Some((AluOp::Mul, v)),
        LaneOp::ShrVec(v) => Some((AluOp::Shr, v)),
        LaneOp::MinVec(v) => Some((AluOp::Min, v)),
        LaneOp::MaxVec(v) => Some((AluOp::Max, v)),
        _ => None,
    }
}
