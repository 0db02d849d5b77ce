//! A thread's instructions until it synchronises: dependences as the original sets them, and resident micro-ops.

use std::collections::HashMap;
use std::sync::Arc;

use vta_app::device::in_a_row;
use vta_isa::tokens::Edge;
use vta_isa::{Config, Deps, Finish, Insn, Load, MemType, Module, Uop};

use super::kernel::Kernel;
use crate::driver_api::only_tokens;
use crate::error::Failure;

/// The most instructions before they are run without being asked for: 32 MiB, as in the original.
const MOST_INSNS: usize = 1 << 21;
/// The most micro-ops: 32 MiB.
const MOST_UOPS: usize = 1 << 23;

/// What is run.
pub struct Run {
    /// FINISH is the last. LOADs of micro-ops have their place in `uops` as DRAM base.
    pub insns: Vec<Insn>,
    pub uops: Vec<Uop>,
}

/// Instructions and micro-ops that wait.
#[derive(Default)]
pub struct Queue {
    insns: Vec<Insn>,
    /// Which tokens each module's next instruction takes.
    pops: [Deps; 3],
    uops: Vec<Uop>,
    /// Where kernels lie in `uops` and in the scratchpad, by their address.
    places: HashMap<usize, KernelPlace>,
    /// The first free entry of the scratchpad.
    free: usize,
}

struct KernelPlace {
    queued: usize,
    resident: Option<usize>,
    /// Kept, so that no other kernel gets its address.
    _kernel: Arc<Kernel>,
}

impl Queue {
    /// Whether there is so much that it must run before more comes.
    pub fn is_full(&self) -> bool {
        self.insns.len() >= MOST_INSNS || self.uops.len() >= MOST_UOPS
    }

    /// Adds an instruction, with the tokens that its module takes next.
    ///
    /// # Errors
    /// A number that its field can't hold.
    pub fn push(&mut self, mut insn: Insn) -> Result<(), Failure> {
        insn.encode()?;
        let pops = std::mem::take(&mut self.pops[insn.module() as usize]);
        let deps = insn.deps_mut();
        (deps.pop_prev, deps.pop_next) = (pops.pop_prev, pops.pop_next);
        self.insns.push(insn);
        Ok(())
    }

    /// Adds a kernel: its micro-ops are loaded if they aren't resident.
    ///
    /// # Errors
    /// More micro-ops than the scratchpad has, a number that a field can't hold.
    pub fn push_kernel(&mut self, config: &Config, kernel: &Arc<Kernel>) -> Result<(), Failure> {
        let (depth, count) = (config.depth(MemType::Uop), kernel.uops.len());
        if count > depth {
            let text = format!("a kernel of {count} micro-ops; the scratchpad has {depth}");
            return Err(Failure::input(text));
        }
        // Wrong numbers are found before anything changes.
        kernel.insn(0)?.encode()?;
        let key = Arc::as_ptr(kernel).addr();
        let place = self.places.entry(key).or_insert_with(|| {
            let queued = self.uops.len();
            self.uops.extend(&kernel.uops);
            KernelPlace {
                queued,
                resident: None,
                _kernel: Arc::clone(kernel),
            }
        });
        let (queued, resident) = (place.queued, place.resident);
        let first = match resident {
            Some(first) => first,
            None => {
                // The scratchpad is empty again. LOADs and what reads them run in order in one module.
                if self.free + count > depth {
                    self.free = 0;
                    let places = self.places.values_mut();
                    places.for_each(|place| place.resident = None);
                }
                let first = self.free;
                self.free += count;
                let load = Load {
                    mem: MemType::Uop,
                    sram_base: first as u16,
                    dram_base: queued as u32,
                    y_size: 1,
                    x_size: count as u16,
                    x_stride: count as u16,
                    ..Load::default()
                };
                self.push(load.into())?;
                if let Some(place) = self.places.get_mut(&key) {
                    place.resident = Some(first);
                }
                first
            }
        };
        self.push(kernel.insn(first)?)
    }

    /// The next instruction of `to` waits for a token of `from`.
    ///
    /// # Errors
    /// Modules that share no queue.
    pub fn pop(&mut self, from: Module, to: Module) -> Result<(), Failure> {
        let edge = queue(from, to)?;
        if std::mem::replace(edge.pop(&mut self.pops[to as usize]), true) {
            // One token an instruction: one that does nothing else takes the first.
            let mut deps = Deps::NONE;
            *edge.pop(&mut deps) = true;
            self.insns.push(only_tokens(to, deps));
        }
        Ok(())
    }

    /// The last instruction of `from` gives a token to `to`.
    ///
    /// # Errors
    /// As for [`Self::pop`].
    pub fn push_token(&mut self, from: Module, to: Module) -> Result<(), Failure> {
        let edge = queue(from, to)?;
        // What `from` still has to wait for comes before what it gives.
        self.commit(from);
        if let Some(last) = self.insns.last_mut()
            && last.module() == from
            && !std::mem::replace(edge.push(last.deps_mut()), true)
        {
            return Ok(());
        }
        let mut deps = Deps::NONE;
        *edge.push(&mut deps) = true;
        self.insns.push(only_tokens(from, deps));
        Ok(())
    }

    /// An instruction that only waits, if a module has something to wait for.
    fn commit(&mut self, module: Module) {
        let deps = std::mem::take(&mut self.pops[module as usize]);
        if deps != Deps::NONE {
            self.insns.push(only_tokens(module, deps));
        }
    }

    /// Everything that waits, and FINISH behind it; nothing waits afterwards. `serial` runs it one instruction
    /// after the other.
    ///
    /// # Errors
    /// None: what a module still waits for is taken by an instruction of its own.
    pub fn finish(&mut self, serial: bool) -> Result<Option<Run>, Failure> {
        let mut all = std::mem::take(self);
        if all.insns.is_empty() && all.pops == [Deps::NONE; 3] {
            return Ok(None);
        }
        if serial {
            all.insns = in_a_row(all.insns.into_iter());
        } else {
            // FINISH is the compute module's: it comes behind the last STORE and the last LOAD.
            for module in [Module::Store, Module::Load] {
                all.push_token(module, Module::Compute)?;
                all.pop(module, Module::Compute)?;
            }
            all.commit(Module::Compute);
            all.insns.push(Finish::default().into());
        }
        let Self { insns, uops, .. } = all;
        Ok(Some(Run { insns, uops }))
    }
}

/// The queue of tokens between two modules.
fn queue(from: Module, to: Module) -> Result<Edge, Failure> {
    let mut all = Edge::ALL.into_iter();
    let found = all.find(|edge| (edge.producer(), edge.consumer()) == (from, to));
    found.ok_or_else(|| {
        Failure::input(format!(
            "there is no queue of tokens from the {from:?} to the {to:?} module"
        ))
    })
}

#[cfg(test)]
mod tests;
