//! Accumulators: their terms grow by steps of the matrix unit and are joined by the ALU.

use vta_isa::resolve::{AluAccess, DepthwiseAccess, GemmAccess};
use vta_isa::{AluOp, AluOperand, Extension};

use super::expect::Expect;
use super::found::{CoverageError, FaultKind};
use super::machine::{Inp, MAX_STEPS, MAX_TERMS, Machine, Wgt};
use super::term::Term;

impl Machine<'_> {
    pub(super) fn set(&mut self, entry: usize, term: Option<Term>) {
        let acc = &mut self.acc[entry];
        self.live -= acc.terms.len() as u64;
        acc.known = true;
        acc.most = None;
        acc.terms.clear();
        acc.terms.extend(term);
        self.live += acc.terms.len() as u64;
    }

    /// Takes an instruction's steps from those that are left.
    fn take(&mut self, trips: [u16; 2], uops: usize) -> Result<(), CoverageError> {
        let trips = trips.map(u64::from);
        self.steps = self.steps.saturating_add(trips[0] * trips[1] * uops as u64);
        if self.steps > MAX_STEPS {
            Err(self.limit(MAX_STEPS, "steps"))
        } else {
            Ok(())
        }
    }

    pub(super) fn gemm(&mut self, access: &GemmAccess<'_>) -> Result<(), CoverageError> {
        let Some([inp, wgt]) = access.operands else {
            for run in access.dst.set().runs() {
                run.for_each(|entry| self.set(entry, None));
            }
            return Ok(());
        };
        let trips = access.dst.loops.trips;
        self.take(trips, access.uops.known.len())?;
        let factors = [access.dst, inp, wgt].map(|tiles| tiles.loops.factors.map(usize::from));
        for i in 0..usize::from(trips[0]) {
            for j in 0..usize::from(trips[1]) {
                let [d, s, w] = factors.map(|f| i * f[0] + j * f[1]);
                for uop in access.uops.known {
                    let dst = d + usize::from(uop.dst);
                    let (src, wgt) = (s + usize::from(uop.src), w + usize::from(uop.wgt));
                    let term = self.product(src, wgt, Term::product);
                    if access.gemm.overwrite {
                        if let Some(term) = term {
                            self.set(dst, term);
                        }
                    } else {
                        self.add(dst, term);
                    }
                }
            }
            if self.live > MAX_TERMS {
                return Err(self.limit(MAX_TERMS, "terms"));
            }
        }
        Ok(())
    }

    /// Products of windows, tap by tap.
    pub(super) fn depthwise(&mut self, access: &DepthwiseAccess<'_>) -> Result<(), CoverageError> {
        let (taps, block) = (access.insn.taps(), self.listing.config.block() as u64);
        self.take(access.dst.loops.trips, access.uops.known.len() * taps)?;
        for [dst, src, wgt, tap] in access.products() {
            let dst = dst as usize;
            if tap == 0 && access.insn.overwrite {
                self.set(dst, None);
            }
            let of = |wgt, inp| Term::tap(wgt * block + tap, inp);
            let term = self.product(src as usize, wgt as usize, of);
            self.add(dst, term);
            if self.live > MAX_TERMS {
                return Err(self.limit(MAX_TERMS, "terms"));
            }
        }
        Ok(())
    }

    /// The term of an input and a weight tile, none of zeros; `None` where one of them isn't known, which is a fault.
    fn product(
        &mut self,
        src: usize,
        wgt: usize,
        of: impl Fn(u64, u64) -> Term,
    ) -> Option<Option<Term>> {
        match (self.inp[src], self.wgt[wgt]) {
            (Inp::Nothing, _) => {
                self.undefined(&format!("inp[{src}]"));
                None
            }
            (_, Wgt::Nothing) => {
                self.undefined(&format!("wgt[{wgt}]"));
                None
            }
            (Inp::Padding, _) | (_, Wgt::Padding) => Some(None),
            (Inp::Tile(tile), Wgt::Identity) => {
                self.count().copies += 1;
                Some(Some(Term::copy(tile.into())))
            }
            (Inp::Tile(tile), Wgt::Tile(wgt)) => {
                self.count().products += 1;
                Some(Some(of(wgt.into(), tile.into())))
            }
        }
    }

    /// Adds a term to a sum, if both are known.
    fn add(&mut self, dst: usize, term: Option<Option<Term>>) {
        let acc = &mut self.acc[dst];
        match term {
            None => {}
            Some(_) if !acc.known => self.undefined(&format!("acc[{dst}]")),
            Some(None) => {}
            Some(Some(term)) => {
                acc.most = None;
                acc.terms.push(term);
                self.live += 1;
            }
        }
    }

    pub(super) fn undefined(&mut self, entry: &str) {
        self.fault(FaultKind::Undefined, self.at, |_| {
            format!("it reads {entry}, which nothing in the layer has written")
        });
    }

    pub(super) fn alu(
        &mut self,
        expects: &[Expect<'_>],
        access: &AluAccess<'_>,
    ) -> Result<(), CoverageError> {
        let op = access.alu.op;
        if let AluOperand::Imm(imm) = access.alu.operand {
            for run in access.dst.set().runs() {
                for entry in run {
                    self.immediate(op, imm, entry);
                }
            }
            return Ok(());
        }
        self.take(access.dst.loops.trips, access.uops.known.len())?;
        let reads_dst = access.alu.tiles_read() > 1;
        let scales = expects.iter().any(|expect| expect.geometry.reads_twice())
            || !self.listing.config.extensions().contains(Extension::Mul);
        for (dst, src) in access.steps() {
            let (dst, src) = (dst as usize, src as usize);
            for (entry, read) in [(dst, reads_dst), (src, true)] {
                if read && !self.acc[entry].known {
                    self.undefined(&format!("acc[{entry}]"));
                }
            }
            if dst == src {
                // With itself a value has the terms that it had.
                self.acc[dst].most = None;
                continue;
            }
            let mut own = std::mem::take(&mut self.acc[dst].terms);
            let before = own.len() as u64;
            if !reads_dst {
                own.clear();
            }
            join(&mut own, &mut self.acc[src].terms, op, scales);
            self.live = self.live + own.len() as u64 - before;
            self.acc[dst].terms = own;
            self.acc[dst].known = true;
            self.acc[dst].most = None;
            if self.live > MAX_TERMS {
                return Err(self.limit(MAX_TERMS, "terms"));
            }
        }
        Ok(())
    }

    /// An immediate operation leaves terms as they are, but a MIN and then a MAX that is no less make a number of
    /// anything, in one step or two.
    fn immediate(&mut self, op: AluOp, imm: i16, entry: usize) {
        let acc = &mut self.acc[entry];
        match (op, acc.most) {
            (AluOp::Min, most) => acc.most = Some(most.map_or(imm, |most| most.min(imm))),
            (AluOp::Max, Some(most)) if imm >= most => self.set(entry, None),
            (AluOp::Mov, _) => self.set(entry, None),
            (AluOp::Clip, _) if is_number(imm) => self.set(entry, None),
            (AluOp::Max | AluOp::Add | AluOp::Shr | AluOp::Shl | AluOp::Mul | AluOp::Clip, _) => {
                acc.most = None;
                if !acc.known {
                    self.undefined(&format!("acc[{entry}]"));
                }
            }
        }
    }
}

/// Whether CLIP's bounds leave one number.
fn is_number(imm: i16) -> bool {
    let [low, high] = AluOp::clip_bounds(imm.into());
    low >= high
}

/// Joins the terms of two operands: a maximum or minimum has those of both, and what both have once; anything
/// else has both. A value and a multiple of it are a multiple of it, where layers make such sums.
fn join(dst: &mut Vec<Term>, src: &mut [Term], op: AluOp, scales: bool) {
    dst.sort_unstable();
    src.sort_unstable();
    match op {
        AluOp::Max | AluOp::Min => {
            let own = std::mem::take(dst);
            dst.reserve(own.len() + src.len());
            let (mut a, mut b) = (own.iter().peekable(), src.iter().peekable());
            while let Some(&least) = a.peek().into_iter().chain(b.peek()).min() {
                dst.push(*least);
                a.next_if_eq(&least);
                b.next_if_eq(&least);
            }
        }
        AluOp::Add if scales && dst == src => {}
        AluOp::Add | AluOp::Shr | AluOp::Shl | AluOp::Mul | AluOp::Clip | AluOp::Mov => {
            dst.extend_from_slice(src)
        }
    }
}
