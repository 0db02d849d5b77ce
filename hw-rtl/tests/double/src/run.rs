//! One run: instructions with their effects, on what the bus brought.

use vta_driver::DeviceMemory;
use vta_isa::{Alu, AluOp, AluOperand, Config, Deps, Finish, Insn, Module};
use vta_sim::{Executor, Oracle};

use crate::options::Fault;

/// Cycles that a late instruction takes too long.
const LATE_CYCLES: i64 = 3;

/// Which instruction is at fault: in every run the same, though others may be in front of it.
#[derive(Clone, Copy, Debug)]
pub struct Culprit {
    insn: Insn,
    /// Equal instructions before it.
    before: usize,
}

impl Culprit {
    /// The instruction of the first run at an index, if it has as many.
    pub fn at(insns: &[Insn], index: usize) -> Option<Self> {
        let insn = alone(insns.get(index)?);
        let before = insns[..index]
            .iter()
            .filter(|other| alone(other) == insn)
            .count();
        Some(Self { insn, before })
    }

    /// Where it stands in a run.
    pub fn find(&self, insns: &[Insn]) -> Option<usize> {
        let equal = |(_, insn): &(usize, &Insn)| alone(insn) == self.insn;
        insns
            .iter()
            .enumerate()
            .filter(equal)
            .nth(self.before)
            .map(|(index, _)| index)
    }
}

/// An instruction without tokens.
fn alone(insn: &Insn) -> Insn {
    let mut insn = *insn;
    *insn.deps_mut() = Deps::NONE;
    insn
}

/// What the instructions of a run do.
pub struct Effects {
    config: Config,
    insns: Vec<Insn>,
    /// The bytes that the run loads, as the bus brought them, and stores.
    pub shadow: DeviceMemory,
    /// The instruction that computes wrong.
    wrong: Option<usize>,
    /// Cycles that the run takes too long.
    pub late_cycles: i64,
    /// Whether right shifts are logical.
    logical: bool,
    /// The first instruction whose right shift was logical and shouldn't have been.
    pub shifted: Option<usize>,
}

impl Effects {
    /// Of a run; `None` if its memory can't be had.
    pub fn new(
        config: &Config,
        insns: Vec<Insn>,
        fault: Fault,
        culprit: Option<Culprit>,
    ) -> Option<Self> {
        let spans = insns
            .iter()
            .filter_map(|insn| Some(insn.dram_rows(config)?.span()));
        // Whole beats, of which one more may be touched: a burst may begin in the middle of one.
        let span = spans.map(|span| span.start & !7..span.end.next_multiple_of(8) + 8);
        let whole = span.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let mut shadow = DeviceMemory::new();
        if let Some(whole) = whole {
            shadow
                .map(u32::try_from(whole.start).ok()?, whole.end - whole.start)
                .ok()?;
        }
        let found = culprit.and_then(|culprit| culprit.find(&insns));
        let early = insns.iter().filter(|insn| gives_early(insn)).count();
        Some(Self {
            config: config.clone(),
            insns,
            shadow,
            wrong: found.filter(|_| matches!(fault, Fault::Byte(_))),
            late_cycles: match fault {
                Fault::Late(_) if found.is_some() => LATE_CYCLES,
                Fault::Early => -(early as i64),
                _ => 0,
            },
            logical: fault == Fault::Shift,
            shifted: None,
        })
    }

    /// An instruction has its effect; whether it could.
    pub fn of(&mut self, oracle: &mut Oracle, index: usize) -> bool {
        let insn = alone(&self.insns[index]);
        let wrong = self.wrong == Some(index);
        let first = insn.dram_rows(&self.config).map(|rows| rows.span().start);
        match insn {
            Insn::Load(_) if wrong => {
                self.flip(first) && self.execute(oracle, insn) && self.flip(first)
            }
            Insn::Store(_) if wrong => self.execute(oracle, insn) && self.flip(first),
            Insn::Gemm(gemm) if wrong => {
                self.execute(oracle, insn) && self.execute(oracle, more(gemm.uop_bgn))
            }
            Insn::Alu(alu) if wrong => {
                self.execute(oracle, insn) && self.execute(oracle, more(alu.uop_bgn))
            }
            Insn::Alu(Alu {
                op: AluOp::Shr,
                operand: AluOperand::Imm(by @ 1..32),
                ..
            }) if self.logical => {
                let before = oracle.accumulators().to_vec();
                let ran = self.execute(oracle, insn);
                if shift_logically(&before, oracle.accumulators(), by) {
                    self.shifted.get_or_insert(index);
                }
                ran
            }
            Insn::Store(_)
            | Insn::Load(_)
            | Insn::Gemm(_)
            | Insn::Alu(_)
            | Insn::Depthwise(_)
            | Insn::Finish(_) => self.execute(oracle, insn),
        }
    }

    /// Whether an instruction gives its token a cycle early, if LOADs do.
    pub fn is_early(&self, index: usize) -> bool {
        gives_early(&self.insns[index])
    }

    /// Changes the lowest bit of a byte that is moved.
    fn flip(&mut self, addr: Option<u64>) -> bool {
        let Some(addr) = addr else { return true };
        self.shadow.write(addr, 1).map(|byte| byte[0] ^= 1).is_ok()
    }

    fn execute(&mut self, oracle: &mut Oracle, insn: Insn) -> bool {
        let insns = [insn, Finish::default().into()];
        oracle.run(&insns, &[], &mut self.shadow).is_ok()
    }
}

fn gives_early(insn: &Insn) -> bool {
    insn.module() == Module::Load && insn.deps().push_next
}

/// Makes arithmetic shifts of negative values logical; whether there was one. A value that the shift left as it was,
/// -1, can't be told from one that wasn't shifted, and stays.
fn shift_logically(before: &[i32], after: &mut [i32], by: i16) -> bool {
    let mut shifted = false;
    for (before, after) in before.iter().zip(after.iter_mut()) {
        if *before < 0 && before != after {
            *after = (*before as u32 >> by) as i32;
            shifted = true;
        }
    }
    shifted
}

/// Adds to the first tile that a micro-op names what no clamp and no shift hides.
fn more(uop_bgn: u16) -> Insn {
    let alu = Alu {
        deps: Deps::NONE,
        op: AluOp::Add,
        operand: AluOperand::Imm(0x4001),
        uop_bgn,
        uop_end: uop_bgn + 1,
        iter_out: 1,
        iter_in: 1,
        dst_factor_out: 0,
        dst_factor_in: 0,
        src_factor_out: 0,
        src_factor_in: 0,
    };
    alu.into()
}
