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
    kind: Kind,
    loops: Vec<Loop>,
    pub uops: Vec<Uop>,
}

/// A kernel while its callback runs.
#[derive(Debug, Default)]
pub struct Recording {
    kind: Option<Kind>,
    loops: Vec<Loop>,
    open: usize,
    uops: Vec<Uop>,
    /// The first thing that went wrong: the callback can't be told.
    wrong: Option<Failure>,
}

impl Recording {
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

    /// A micro-op, `most` of them at most.
    pub fn push(&mut self, kind: Kind, indices: [u32; 3], most: usize) {
        if self.open != self.loops.len() {
            return self.fail("a micro-op stands behind a loop that has ended");
        }
        if self.kind.is_some_and(|known| known != kind) {
            return self.fail("a kernel's micro-ops differ in what they do");
        }
        if self.uops.len() == most {
            return self.fail(format!(
                "a kernel has more than the {most} micro-ops of the scratchpad"
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
    /// What went wrong, a loop that is open, no micro-op, one of the other kind.
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
            let (mode, call) = match is_gemm {
                true => ("1 (ALU)", "VTAPushGEMMOp"),
                false => ("0 (GEMM)", "VTAPushALUOp"),
            };
            let text = format!("micro-ops of mode {mode} came through {call}");
            return Err(Failure::input(text));
        }
        Ok(Kernel {
            kind,
            loops: self.loops,
            uops: self.uops,
        })
    }
}

impl Kernel {
    /// The instruction that runs its micro-ops, which lie in the scratchpad from an index on.
    ///
    /// # Errors
    /// A number that its field can't hold.
    pub fn insn(&self, first: usize) -> Result<Insn, Failure> {
        let once = Loop {
            extent: 1,
            ..Loop::default()
        };
        // One loop is GEMM's outer and ALU's inner, as the original has it.
        let [outer, inner] = match (&self.loops[..], self.kind) {
            ([], _) => [once, once],
            ([one], Kind::Gemm { .. }) => [*one, once],
            ([one], Kind::Alu { .. }) => [once, *one],
            ([outer, inner, ..], _) => [*outer, *inner],
        };
        let narrow = |name: &str, value: u32| {
            let wide = |_| Failure::input(format!("{name} {value} has over 16 bits"));
            u16::try_from(value).map_err(wide)
        };
        let mut gemm = Gemm {
            // Below the depth of the scratchpad, which has few bits.
            uop_bgn: first as u16,
            uop_end: (first + self.uops.len()) as u16,
            iter_out: narrow("extent", outer.extent)?,
            iter_in: narrow("extent", inner.extent)?,
            dst_factor_out: narrow("dst_factor", outer.dst)?,
            dst_factor_in: narrow("dst_factor", inner.dst)?,
            src_factor_out: narrow("src_factor", outer.src)?,
            src_factor_in: narrow("src_factor", inner.src)?,
            ..Gemm::default()
        };
        Ok(match self.kind {
            Kind::Gemm { reset } => {
                gemm.reset = reset;
                gemm.wgt_factor_out = narrow("wgt_factor", outer.wgt)?;
                gemm.wgt_factor_in = narrow("wgt_factor", inner.wgt)?;
                gemm.into()
            }
            Kind::Alu { op, operand } => {
                // Its loops have the fields of GEMM's.
                let same = |field: &Field| {
                    let found = gemm.values().find(|(known, _)| known.name == field.name);
                    let none = || Failure::internal(format!("GEMM has no field {}", field.name));
                    found.map(|(_, value)| value).ok_or_else(none)
                };
                Alu::build(Deps::NONE, op, operand, same)?.into()
            }
        })
    }
}

#[cfg(test)]
mod tests;
