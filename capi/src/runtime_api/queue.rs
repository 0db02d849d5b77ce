//! A thread's instructions until it synchronises: dependences as the original sets them, and resident micro-ops.

use std::collections::HashMap;
use std::sync::Arc;

use vta_app::device::in_a_row;
use vta_isa::{Config, Deps, Finish, Insn, Load, MemType, Module, Store, Uop};

use super::kernel::Kernel;
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

/// Which tokens a module's next instruction takes.
#[derive(Clone, Copy, Debug, Default)]
struct Pops {
    prev: bool,
    next: bool,
}

/// Instructions and micro-ops that wait.
#[derive(Default)]
pub struct Queue {
    insns: Vec<Insn>,
    pops: [Pops; 3],
    uops: Vec<Uop>,
    /// Where kernels lie in `uops` and in the scratchpad, by their address.
    places: HashMap<usize, Place>,
    /// Kernels that `places` names, so that none gets the address of one that is gone.
    kept: Vec<Arc<Kernel>>,
    /// The first free entry of the scratchpad.
    free: usize,
}

#[derive(Clone, Copy)]
struct Place {
    queued: usize,
    resident: Option<usize>,
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
        insn.encode().map_err(|e| Failure::input(e.to_string()))?;
        let pops = std::mem::take(&mut self.pops[insn.module() as usize]);
        let deps = insn.deps_mut();
        (deps.pop_prev, deps.pop_next) = (pops.prev, pops.next);
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
        kernel
            .insn(0)?
            .encode()
            .map_err(|e| Failure::input(e.to_string()))?;
        let key = Arc::as_ptr(kernel).addr();
        if !self.places.contains_key(&key) {
            let place = Place {
                queued: self.uops.len(),
                resident: None,
            };
            self.uops.extend(&kernel.uops);
            self.places.insert(key, place);
            self.kept.push(Arc::clone(kernel));
        }
        let place = self.places[&key];
        let first = match place.resident {
            Some(first) => first,
            None => {
                if self.free + count > depth {
                    self.evict();
                }
                let first = self.free;
                self.free += count;
                let load = Load {
                    mem: MemType::Uop,
                    sram_base: first as u16,
                    dram_base: place.queued as u32,
                    y_size: 1,
                    x_size: count as u16,
                    x_stride: count as u16,
                    ..Load::default()
                };
                self.push(load.into())?;
                let resident = Some(first);
                self.places.insert(key, Place { resident, ..place });
                first
            }
        };
        self.push(kernel.insn(first)?)
    }

    /// The scratchpad is empty again. LOADs and what reads them run in order in one module.
    fn evict(&mut self) {
        self.free = 0;
        self.places
            .values_mut()
            .for_each(|place| place.resident = None);
    }

    /// The next instruction of `to` waits for a token of `from`.
    ///
    /// # Errors
    /// Modules that share no queue.
    pub fn pop(&mut self, from: Module, to: Module) -> Result<(), Failure> {
        share(from, to)?;
        let pops = &mut self.pops[to as usize];
        let flag = match from < to {
            true => &mut pops.prev,
            false => &mut pops.next,
        };
        if std::mem::replace(flag, true) {
            // One token an instruction: one that does nothing else takes the first.
            let deps = Deps {
                pop_prev: from < to,
                pop_next: from > to,
                ..Deps::NONE
            };
            self.insns.push(nothing(to, deps));
        }
        Ok(())
    }

    /// The last instruction of `from` gives a token to `to`.
    ///
    /// # Errors
    /// As for [`Self::pop`].
    pub fn push_token(&mut self, from: Module, to: Module) -> Result<(), Failure> {
        share(from, to)?;
        // What `from` still has to wait for comes before what it gives.
        self.commit(from);
        if let Some(last) = self.insns.last_mut()
            && last.module() == from
        {
            let deps = last.deps_mut();
            let flag = match from < to {
                true => &mut deps.push_next,
                false => &mut deps.push_prev,
            };
            if !std::mem::replace(flag, true) {
                return Ok(());
            }
        }
        let deps = Deps {
            push_prev: from > to,
            push_next: from < to,
            ..Deps::NONE
        };
        self.insns.push(nothing(from, deps));
        Ok(())
    }

    /// An instruction that only waits, if a module has something to wait for.
    fn commit(&mut self, module: Module) {
        let pops = std::mem::take(&mut self.pops[module as usize]);
        if pops.prev || pops.next {
            let deps = Deps {
                pop_prev: pops.prev,
                pop_next: pops.next,
                ..Deps::NONE
            };
            self.insns.push(nothing(module, deps));
        }
    }

    /// Everything that waits, and FINISH behind it; nothing waits afterwards. `serial` runs it one instruction
    /// after the other.
    ///
    /// # Errors
    /// None: what a module still waits for is taken by an instruction of its own.
    pub fn finish(&mut self, serial: bool) -> Result<Option<Run>, Failure> {
        let mut all = std::mem::take(self);
        if all.insns.is_empty() && all.pops.iter().all(|pops| !pops.prev && !pops.next) {
            return Ok(None);
        }
        let insns = match serial {
            true => in_a_row(std::mem::take(&mut all.insns).into_iter()),
            false => {
                // FINISH is the compute module's: it comes behind the last STORE and the last LOAD.
                all.push_token(Module::Store, Module::Compute)?;
                all.push_token(Module::Load, Module::Compute)?;
                all.pop(Module::Store, Module::Compute)?;
                all.pop(Module::Load, Module::Compute)?;
                all.commit(Module::Compute);
                all.insns.push(Finish::default().into());
                std::mem::take(&mut all.insns)
            }
        };
        Ok(Some(Run {
            insns,
            uops: std::mem::take(&mut all.uops),
        }))
    }
}

fn share(from: Module, to: Module) -> Result<(), Failure> {
    match (from, to) {
        (Module::Load | Module::Store, Module::Compute)
        | (Module::Compute, Module::Load | Module::Store) => Ok(()),
        _ => Err(Failure::input(format!(
            "there is no queue of tokens from the {from:?} to the {to:?} module"
        ))),
    }
}

/// An instruction of a module that only takes and gives tokens.
fn nothing(module: Module, deps: Deps) -> Insn {
    let mem = match module {
        Module::Load => MemType::Inp,
        Module::Compute => MemType::Uop,
        Module::Store => {
            return Store {
                deps,
                ..Store::default()
            }
            .into();
        }
    };
    let load = Load {
        deps,
        mem,
        ..Load::default()
    };
    load.into()
}

#[cfg(test)]
mod tests;
