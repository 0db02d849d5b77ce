//! A thread's instructions until it synchronises: dependences as the original sets them, and resident micro-ops.

use std::sync::Arc;

use vta_app::device::in_a_row;
use vta_isa::tokens::Edge;
use vta_isa::{Config, Deps, Finish, Insn, Load, MemType, Module, Uop};

use super::kernel::{Kernel, set_uops};
use crate::driver_api::only_tokens;
use crate::error::Failure;

/// The most instructions before they are run without being asked for: 32 MiB, as in the original.
const MOST_INSNS: usize = 1 << 21;
/// The most micro-ops: 32 MiB.
const MOST_UOPS: usize = 1 << 23;

/// What is run.
#[derive(Default)]
pub struct Run {
    /// FINISH is the last. LOADs of micro-ops have their place in `uops` as DRAM base.
    pub insns: Vec<Insn>,
    pub uops: Vec<Uop>,
}

/// Instructions and micro-ops that wait.
#[derive(Default)]
pub struct Queue {
    waiting: Run,
    /// Which tokens each module's next instruction takes.
    pops: [Deps; 3],
    kernels: Vec<Held>,
    /// The first free entry of the scratchpad.
    free: usize,
    /// Runs so far, and how often the scratchpad became empty: what belongs to another run or was there before is
    /// there no more.
    runs: u64,
    emptied: u64,
}

/// A kernel of which micro-ops may wait or be resident.
struct Held {
    kernel: Arc<Kernel>,
    /// Where it lies in the micro-ops of a run.
    queued: Option<(u64, usize)>,
    /// Where it lies in the scratchpad, until that is emptied.
    resident: Option<(u64, u16)>,
}

impl Queue {
    /// Whether there is so much that it must run before more comes.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiting.insns.len() >= MOST_INSNS || self.waiting.uops.len() >= MOST_UOPS
    }

    /// Adds a transfer that `fill` completes, with the tokens that its module takes next.
    ///
    /// # Errors
    /// A number that its field can't hold.
    #[inline]
    pub fn push(&mut self, empty: Insn, fill: impl FnOnce(&mut Insn)) -> Result<(), Failure> {
        self.add(empty, fill);
        match self.waiting.insns.last() {
            Some(last) if !last.fits() => self.refuse(),
            _ => Ok(()),
        }
    }

    /// Takes back the last instruction, which can't be encoded.
    #[cold]
    fn refuse(&mut self) -> Result<(), Failure> {
        let refused = self.waiting.insns.pop().map(|insn| insn.encode());
        refused.transpose()?;
        Ok(())
    }

    /// Adds an instruction that can be encoded once it is complete. It is written where it stays: a copy would wait for
    /// its fields.
    #[inline]
    fn add(&mut self, empty: Insn, fill: impl FnOnce(&mut Insn)) {
        self.waiting.insns.push(empty);
        if let Some(insn) = self.waiting.insns.last_mut() {
            fill(insn);
            let pops = std::mem::take(&mut self.pops[insn.module() as usize]);
            let deps = insn.deps_mut();
            (deps.pop_prev, deps.pop_next) = (pops.pop_prev, pops.pop_next);
        }
    }

    /// Holds a kernel, which has that number from now on.
    pub fn hold(&mut self, kernel: Arc<Kernel>) -> usize {
        self.kernels.push(Held {
            kernel,
            queued: None,
            resident: None,
        });
        self.kernels.len() - 1
    }

    /// Lets go of all kernels. What waits stays as it is.
    pub fn forget_kernels(&mut self) {
        self.kernels.clear();
    }

    /// Adds a kernel that is held: its micro-ops are loaded if they aren't resident.
    ///
    /// # Errors
    /// More micro-ops than the scratchpad has, a number that no kernel has.
    #[inline]
    pub fn push_kernel(&mut self, config: &Config, number: usize) -> Result<(), Failure> {
        let none = || Failure::internal(format!("there is no kernel {number}"));
        let held = self.kernels.get_mut(number).ok_or_else(none)?;
        if let Some((emptied, first)) = held.resident
            && emptied == self.emptied
        {
            let (insn, count) = (held.kernel.insn, held.kernel.uops.len());
            self.add(insn, |insn| set_uops(insn, first, count));
            return Ok(());
        }
        let (depth, count) = (config.depth(MemType::Uop), held.kernel.uops.len());
        if count > depth {
            let text = format!("a kernel of {count} micro-ops; the scratchpad has {depth}");
            return Err(Failure::input(text));
        }
        let uops = &mut self.waiting.uops;
        let queued = match held.queued {
            Some((run, queued)) if run == self.runs => queued,
            _ => {
                uops.extend(&held.kernel.uops);
                uops.len() - count
            }
        };
        held.queued = Some((self.runs, queued));
        // The scratchpad is empty again. LOADs and what reads them run in order in one module.
        if self.free + count > depth {
            (self.free, self.emptied) = (0, self.emptied + 1);
        }
        let first = self.free as u16;
        self.free += count;
        held.resident = Some((self.emptied, first));
        let insn = held.kernel.insn;
        let load = Load {
            mem: MemType::Uop,
            sram_base: first,
            dram_base: queued as u32,
            y_size: 1,
            x_size: count as u16,
            x_stride: count as u16,
            ..Load::default()
        };
        self.add(load.into(), |_| ());
        self.add(insn, |insn| set_uops(insn, first, count));
        Ok(())
    }

    /// The next instruction of `to` waits for a token of `from`.
    ///
    /// # Errors
    /// Modules that share no queue.
    #[inline]
    pub fn pop(&mut self, from: Module, to: Module) -> Result<(), Failure> {
        let edge = queue(from, to)?;
        if std::mem::replace(edge.pop(&mut self.pops[to as usize]), true) {
            // One token an instruction: one that does nothing else takes the first.
            let mut deps = Deps::NONE;
            *edge.pop(&mut deps) = true;
            self.waiting.insns.push(only_tokens(to, deps));
        }
        Ok(())
    }

    /// The last instruction of `from` gives a token to `to`.
    ///
    /// # Errors
    /// As for [`Self::pop`].
    #[inline]
    pub fn push_token(&mut self, from: Module, to: Module) -> Result<(), Failure> {
        let edge = queue(from, to)?;
        // What `from` still has to wait for comes before what it gives.
        self.commit(from);
        if let Some(last) = self.waiting.insns.last_mut()
            && last.module() == from
            && !std::mem::replace(edge.push(last.deps_mut()), true)
        {
            return Ok(());
        }
        let mut deps = Deps::NONE;
        *edge.push(&mut deps) = true;
        self.waiting.insns.push(only_tokens(from, deps));
        Ok(())
    }

    /// An instruction that only waits, if a module has something to wait for.
    #[inline]
    fn commit(&mut self, module: Module) {
        let deps = std::mem::take(&mut self.pops[module as usize]);
        if deps != Deps::NONE {
            self.waiting.insns.push(only_tokens(module, deps));
        }
    }

    /// Everything that waits, and FINISH behind it; nothing waits afterwards. `serial` runs it one instruction
    /// after the other.
    ///
    /// # Errors
    /// None: what a module still waits for is taken by an instruction of its own.
    pub fn finish(&mut self, serial: bool) -> Result<Option<Run>, Failure> {
        if self.waiting.insns.is_empty() && self.pops == [Deps::NONE; 3] {
            return Ok(None);
        }
        if serial {
            let insns = std::mem::take(&mut self.waiting.insns);
            self.waiting.insns = in_a_row(insns.into_iter());
            self.pops = [Deps::NONE; 3];
        } else {
            // FINISH is the compute module's: it comes behind the last STORE and the last LOAD.
            for module in [Module::Store, Module::Load] {
                self.push_token(module, Module::Compute)?;
                self.pop(module, Module::Compute)?;
            }
            self.commit(Module::Compute);
            self.waiting.insns.push(Finish::default().into());
        }
        (self.free, self.runs, self.emptied) = (0, self.runs + 1, self.emptied + 1);
        Ok(Some(std::mem::take(&mut self.waiting)))
    }

    /// Takes back the memory of what ran: `insns` instructions, as many as are expected to come.
    pub fn reuse(&mut self, mut run: Run, insns: usize) {
        run.insns.clear();
        run.insns.reserve(insns);
        run.uops.clear();
        self.waiting = run;
    }
}

/// The queue of tokens between two modules.
#[inline]
fn queue(from: Module, to: Module) -> Result<Edge, Failure> {
    match (from, to) {
        (Module::Load, Module::Compute) => Ok(Edge::LoadToCompute),
        (Module::Compute, Module::Load) => Ok(Edge::ComputeToLoad),
        (Module::Compute, Module::Store) => Ok(Edge::ComputeToStore),
        (Module::Store, Module::Compute) => Ok(Edge::StoreToCompute),
        (Module::Load, Module::Load | Module::Store)
        | (Module::Compute, Module::Compute)
        | (Module::Store, Module::Load | Module::Store) => Err(no_queue(from, to)),
    }
}

#[cold]
fn no_queue(from: Module, to: Module) -> Failure {
    Failure::input(format!(
        "there is no queue of tokens from the {from:?} to the {to:?} module"
    ))
}

#[cfg(test)]
mod tests;
