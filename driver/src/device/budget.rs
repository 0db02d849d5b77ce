//! How much work a program may ask for.

use serde::{Deserialize, Serialize};
use vta_isa::tokens::At;
use vta_isa::{Config, Insn};

use crate::Traffic;

/// Limits of one batch: what an executor refuses to begin. A few instructions of a foreign file can
/// ask for days of work; no network comes near the defaults (the largest of the zoo, ResNet-152,
/// takes less than a tenth of each with sixteen images in a batch).
///
/// ```
/// use vta_driver::Budget;
/// use vta_isa::{Config, Gemm};
///
/// let gemm = Gemm { uop_end: 8191, iter_out: 16383, iter_in: 4096, ..Gemm::default() };
/// let error = Budget::default().check_steps(&[gemm.into()]).unwrap_err().to_string();
/// assert!(error.contains("more than its budget of 17179869184 GEMM and ALU steps"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// GEMM and ALU steps, resets among them, that executors of results run.
    pub steps: u64,
    /// Cycles that the cycle model counts.
    pub cycles: u64,
    /// Bytes between DRAM and scratchpads that the cycle model moves.
    pub bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps: 1 << 34,
            cycles: 1 << 40,
            bytes: 1 << 34,
        }
    }
}

/// A batch that asks for more than its [`Budget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: the run takes more than its budget of {limit} {what}")]
pub struct OverBudget {
    /// The first instruction that is too much.
    pub at: Box<At>,
    /// What there is too much of.
    pub what: &'static str,
    /// The budget.
    pub limit: u64,
}

impl Budget {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        steps: u64::MAX,
        cycles: u64::MAX,
        bytes: u64::MAX,
    };

    /// Checks the GEMM and ALU steps of a run, in time linear in its instructions.
    ///
    /// # Errors
    /// [`OverBudget`] at the first instruction that is too much.
    pub fn check_steps(&self, insns: &[Insn]) -> Result<(), OverBudget> {
        let mut steps = StepBudget::new(self.steps);
        let mut all = insns.iter().enumerate();
        all.try_for_each(|(index, insn)| steps.spend(index, insn))
    }

    /// Checks the DRAM bytes of a run, in time linear in its instructions.
    ///
    /// # Errors
    /// [`OverBudget`] at the first instruction that is too much.
    pub fn check_bytes(&self, config: &Config, insns: &[Insn]) -> Result<(), OverBudget> {
        if Traffic::of(insns, config).total_bytes() <= self.bytes {
            return Ok(());
        }
        let mut moved = 0u64;
        for (index, insn) in insns.iter().enumerate() {
            moved = moved.saturating_add(Traffic::of([insn], config).total_bytes());
            if moved > self.bytes {
                let (at, what) = (
                    At { index, insn: *insn },
                    "bytes between DRAM and scratchpads",
                );
                return Err(over(at, what, self.bytes));
            }
        }
        Ok(())
    }

    /// The error of an instruction that ends in a cycle beyond the last.
    pub fn over_cycles(&self, at: At) -> OverBudget {
        over(at, "cycles", self.cycles)
    }
}

fn over(at: At, what: &'static str, limit: u64) -> OverBudget {
    let at = Box::new(at);
    OverBudget { at, what, limit }
}

/// What is spent of a run's GEMM and ALU steps.
#[derive(Clone, Debug)]
pub struct StepBudget {
    limit: u64,
    spent: u64,
}

impl StepBudget {
    /// Nothing yet, of so many steps.
    pub fn new(limit: u64) -> Self {
        Self { limit, spent: 0 }
    }

    /// Spends the steps of the instruction of an index.
    ///
    /// # Errors
    /// [`OverBudget`] when these are too many.
    #[inline]
    pub fn spend(&mut self, index: usize, insn: &Insn) -> Result<(), OverBudget> {
        let steps = match insn {
            Insn::Gemm(gemm) => gemm.steps(),
            Insn::Alu(alu) => alu.steps(),
            Insn::Depthwise(insn) => insn.steps(),
            Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => return Ok(()),
        };
        self.spent = self.spent.saturating_add(steps);
        if self.spent <= self.limit {
            return Ok(());
        }
        let at = At { index, insn: *insn };
        Err(over(at, "GEMM and ALU steps", self.limit))
    }
}

#[cfg(test)]
mod tests;
