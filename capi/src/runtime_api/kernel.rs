//! Kernels: micro-ops in up to two loops, as a callback records them.

use vta_isa::{Alu, AluOp, AluOperand, Deps, Field, Gemm, Insn, Uop};

use crate::error::Failure;

/// The deepest nest: an instruction has two loops.
const MOST_LOOPS: usize = 2;

/// What the micro-ops of a kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Products, or zeros.
    Gemm { reset: bool },
    /// An operation on accumulators.
    Alu { op: AluOp, operand: AluOperand },
}

/// A loop around the micro-ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loop {
    pub extent: u32,
    pub dst: u32,
    pub src: u32,
    pub wgt: u32,
}

/// A finished kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Runs the micro-ops from the first of the scratchpad on.
    pub insn: Insn,
    pub uops: Vec<Uop>,
}

/// A kernel while its callback runs.
#[derive(Debug, Default)]
pub struct Recording {
    kind: Option<Kind>,
    loops: Vec<Loop>,
    open: usize,
    uops: Vec<Uop>,
    /// The most micro-ops.
    most: usize,
    /// The first thing that went wrong: the callback can't be told.
    wrong: Option<Failure>,
}

impl Recording {
    /// A kernel of so many micro-ops at most.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Opens a loop. All loops come before the first micro-op.
    pub fn begin(&mut self, new: Loop) {
        if self.loops.len() == MOST_LOOPS {
            return self.fail(format!("a kernel has at most {MOST_LOOPS} loops"));
        }
        if !self.uops.is_empty() || self.open != self.loops.len() {
            return self.fail("a loop begins behind a micro-op or a loop that has ended");
        }
        self.loops.push(new);
        self.open += 1;
    }

    /// Closes the loop that was opened last.
    pub fn end(&mut self) {
        match self.open.checked_sub(1) {
            Some(open) => self.open = open,
            None => self.fail("a loop ends that hasn't begun"),
        }
    }

    /// A micro-op.
    pub fn push(&mut self, kind: Kind, indices: [u32; 3]) {
        if self.open != self.loops.len() {
            return self.fail("a micro-op stands behind a loop that has ended");
        }
        if self.kind.is_some_and(|known| known != kind) {
            return self.fail("a kernel's micro-ops differ in what they do");
        }
        if self.uops.len() == self.most {
            return self.fail(format!(
                "a kernel has more than the {} micro-ops of the scratchpad",
                self.most
            ));
        }
        let [dst, src, wgt] = indices.map(u16::try_from);
        let (Ok(dst), Ok(src), Ok(wgt)) = (dst, src, wgt) else {
            return self.fail(format!(
                "a micro-op's indices {indices:?} have over 16 bits"
            ));
        };
        let uop = Uop { dst, src, wgt };
        if let Err(error) = uop.encode() {
            return self.fail(format!("micro-op {}: {error}", self.uops.len()));
        }
        self.kind = Some(kind);
        self.uops.push(uop);
    }

    /// Notes what went wrong.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.wrong.get_or_insert(Failure::input(text.into()));
    }

    /// The kernel, for an instruction of a kind.
    ///
    /// # Errors
    /// What went wrong, a loop that is open, no micro-op, one of the other kind, a number that its field can't hold.
    pub fn finish(self, is_gemm: bool) -> Result<Kernel, Failure> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let Some(kind) = self.kind else {
            return Err(Failure::input("the kernel has no micro-op"));
        };
        if self.open != 0 {
            return Err(Failure::input("a loop of the kernel doesn't end"));
        }
        if matches!(kind, Kind::Gemm { .. }) != is_gemm {
            let (mode, call) = if is_gemm {
                ("1 (ALU)", "VTAPushGEMMOp")
            } else {
                ("0 (GEMM)", "VTAPushALUOp")
            };
            let text = format!("micro-ops of mode {mode} came through {call}");
            return Err(Failure::input(text));
        }
        let insn = insn(kind, &self.loops, self.uops.len())?;
        let uops = self.uops;
        Ok(Kernel { insn, uops })
    }
}

/// Has an instruction run so many micro-ops from one of the scratchpad on.
#[inline]
pub fn set_uops(insn: &mut Insn, first: u16, count: usize) {
    let end = first + count as u16;
    match insn {
        Insn::Gemm(gemm) => (gemm.uop_bgn, gemm.uop_end) = (first, end),
        Insn::Alu(alu) => (alu.uop_bgn, alu.uop_end) = (first, end),
        Insn::Depthwise(insn) => (insn.uop_bgn, insn.uop_end) = (first, end),
        Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {}
    }
}

/// The instruction that runs so many micro-ops, the first of the scratchpad.
///
/// # Errors
/// A number that its field can't hold.
fn insn(kind: Kind, loops: &[Loop], uops: usize) -> Result<Insn, Failure> {
    let once = Loop {
        extent: 1,
        ..Loop::default()
    };
    // One loop is GEMM's outer and ALU's inner, as the original has it.
    let [outer, inner] = match (loops, kind) {
        ([], _) => [once, once],
        ([one], Kind::Gemm { .. }) => [*one, once],
        ([one], Kind::Alu { .. }) => [once, *one],
        ([outer, inner, ..], _) => [*outer, *inner],
    };
    // GEMM and the ALU have the same loops.
    let value = |field: &Field| {
        let value = match field.name {
            "uop_bgn" => 0,
            "uop_end" => uops as u64,
            "iter_out" => outer.extent.into(),
            "iter_in" => inner.extent.into(),
            "dst_factor_out" => outer.dst.into(),
            "dst_factor_in" => inner.dst.into(),
            "src_factor_out" => outer.src.into(),
            "src_factor_in" => inner.src.into(),
            "wgt_factor_out" => outer.wgt.into(),
            "wgt_factor_in" => inner.wgt.into(),
            "overwrite" => 0,
            "reset" => (kind == Kind::Gemm { reset: true }).into(),
            name => return Err(Failure::internal(format!("kernels have no field {name}"))),
        };
        field.put(value)?;
        Ok(value)
    };
    Ok(match kind {
        Kind::Gemm { .. } => Gemm::build(Deps::NONE, value)?.into(),
        Kind::Alu { op, operand } => Alu::build(Deps::NONE, op, operand, value)?.into(),
    })
}

#[cfg(test)]
mod tests;
