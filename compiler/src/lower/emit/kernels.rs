//! Kernels of micro-ops: shared by content, and one for all of a layer where that is loaded sooner.

use std::collections::HashMap;

use vta_isa::{Extension, Insn, MemType, Uop};
use vta_program::{Kernel, KernelId, Symbol};

use super::super::{Fault, LowerError};
use super::Emitter;

impl Emitter<'_, '_> {
    /// A kernel of these micro-ops, shared with every other of the same content.
    pub fn kernel(&mut self, uops: Vec<Uop>) -> Result<KernelId, LowerError> {
        let depth = self.lowering.config.depth(MemType::Uop);
        if uops.len() > depth {
            let reason = format!("{} micro-ops, the scratchpad holds {depth}", uops.len());
            return Err(self.fault(Fault::NoTile(reason)));
        }
        for uop in &uops {
            uop.encode().map_err(|e| self.fault(e))?;
        }
        let count = uops.len();
        let id = self.lowering.kernel(Kernel { uops });
        if self.kernels.insert(id) {
            self.uops += count;
        }
        Ok(id)
    }

    /// Where STOREs round, makes the kernels since the last cut one, so that all are loaded at once: a LOAD of micro-ops waits until the
    /// bus carries nothing else.
    pub(super) fn join_kernels(&mut self) {
        let most = self.lowering.config.depth(MemType::Uop) / 2;
        if self.has(Extension::Requant) && (1..=most).contains(&self.uops) {
            let first = self.first();
            let (mut starts, mut uops) = (HashMap::new(), Vec::with_capacity(self.uops));
            for command in &mut self.commands[first..] {
                let Symbol::Kernel(id) = command.symbol else {
                    continue;
                };
                let start = *starts.entry(id).or_insert_with(|| {
                    let kernel = &self.lowering.program.kernels[id.0 as usize];
                    let start = uops.len() as u16;
                    uops.extend_from_slice(&kernel.uops);
                    start
                });
                let (bgn, end) = match &mut command.insn {
                    Insn::Gemm(gemm) => (&mut gemm.uop_bgn, &mut gemm.uop_end),
                    Insn::Alu(alu) => (&mut alu.uop_bgn, &mut alu.uop_end),
                    Insn::Depthwise(insn) => (&mut insn.uop_bgn, &mut insn.uop_end),
                    Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => continue,
                };
                *bgn += start;
                *end += start;
            }
            self.lowering.forget_kernels(self.known);
            let all = Symbol::Kernel(self.lowering.kernel(Kernel { uops }));
            let symbols = self.commands[first..].iter_mut().map(|c| &mut c.symbol);
            let kernels = symbols.filter(|symbol| matches!(symbol, Symbol::Kernel(_)));
            kernels.for_each(|symbol| *symbol = all);
        }
        self.kernels.clear();
        (self.uops, self.known) = (0, self.lowering.program.kernels.len());
    }
}
