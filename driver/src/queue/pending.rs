//! The batch that a command queue fills: commands become instructions with addresses.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use vta_isa::{Insn, Load, MemType, UOP_BYTES};

use super::uop_cache::UopCache;
use crate::{
    Command, Counters, DriverError, KernelId, Layer, LayerMark, PhysAddr, Program, ProgramError,
    Symbol,
};
use vta_program::At;

/// What is queued and not submitted.
pub(super) struct Pending {
    program: Arc<Program>,
    /// Where each buffer of the program lies.
    addresses: Vec<PhysAddr>,
    /// Where the micro-ops of a batch lie.
    uop_addr: PhysAddr,
    cache: UopCache,
    filled: Filled,
    /// Where in its micro-ops a kernel starts, in micro-ops.
    arena: FxHashMap<KernelId, usize>,
}

/// What a batch is made of.
#[derive(Default)]
pub(super) struct Filled {
    pub insns: Vec<Insn>,
    pub words: Vec<u128>,
    pub marks: Vec<LayerMark>,
    /// Encoded micro-ops.
    pub uops: Vec<u8>,
}

impl Pending {
    /// Nothing yet, of a program that was checked.
    pub(super) fn new(program: Arc<Program>, addresses: Vec<PhysAddr>, uop_addr: PhysAddr) -> Self {
        let depth = program.config.depth(MemType::Uop);
        Self {
            program,
            addresses,
            uop_addr,
            cache: UopCache::new(depth),
            filled: Filled::default(),
            arena: FxHashMap::default(),
        }
    }

    /// How many instructions there are.
    pub(super) fn insns(&self) -> usize {
        self.filled.insns.len()
    }

    /// How many micro-ops there are.
    pub(super) fn uops(&self) -> usize {
        self.filled.uops.len() / UOP_BYTES
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.take();
    }

    /// Takes everything out; the next batch starts with an empty micro-op cache.
    pub(super) fn take(&mut self) -> Filled {
        self.arena.clear();
        self.cache.clear();
        std::mem::take(&mut self.filled)
    }

    /// Appends commands of a layer, of which `first` is the first.
    pub(super) fn push(
        &mut self,
        layer: &Layer,
        first: usize,
        commands: &[Command],
        counters: &mut Counters,
    ) -> Result<(), DriverError> {
        let opens = self.filled.insns.is_empty();
        if self
            .filled
            .marks
            .last()
            .is_none_or(|mark| mark.name != layer.name)
        {
            let mark = LayerMark {
                name: layer.name.clone(),
                first_insn: self.filled.insns.len(),
            };
            self.filled.marks.push(mark);
        }
        if opens {
            self.append_all(self.program.opening())?;
        }
        for (index, command) in commands.iter().enumerate() {
            let at = first + index;
            self.push_command(At { layer, at }, command, counters)?;
        }
        Ok(())
    }

    /// Micro-ops of the commands' distinct kernels that aren't queued yet.
    pub(super) fn new_uops(&self, commands: &[Command]) -> usize {
        self.uops_of(commands, |id| !self.arena.contains_key(&id))
    }

    /// Micro-ops of all of the commands' distinct kernels.
    pub(super) fn all_uops(&self, commands: &[Command]) -> usize {
        self.uops_of(commands, |_| true)
    }

    fn uops_of(&self, commands: &[Command], counts: impl Fn(KernelId) -> bool) -> usize {
        let kernel = |command: &Command| match command.symbol {
            Symbol::Kernel(id) => Some(id),
            Symbol::None | Symbol::Buffer(_) => None,
        };
        let kernels: FxHashSet<KernelId> = commands.iter().filter_map(kernel).collect();
        let counted = kernels.into_iter().filter(|&id| counts(id));
        let kernels = counted.filter_map(|id| self.program.kernels.get(id.0 as usize));
        kernels.map(|kernel| kernel.uops.len()).sum()
    }

    fn push_command(
        &mut self,
        at: At<'_>,
        command: &Command,
        counters: &mut Counters,
    ) -> Result<(), DriverError> {
        let insn = match command.symbol {
            Symbol::None => command.insn,
            Symbol::Buffer(id) => {
                let addr = self
                    .addresses
                    .get(id.0 as usize)
                    .ok_or(ProgramError::Buffer { index: id.0 })?;
                self.relocate(at, command.insn, *addr)?
            }
            Symbol::Kernel(id) => self.bind_kernel(at, command.insn, id, counters)?,
        };
        self.append(insn)
    }

    /// Counts `dram_base` from the start of memory instead of the buffer's.
    fn relocate(&self, at: At<'_>, mut insn: Insn, addr: PhysAddr) -> Result<Insn, DriverError> {
        let Some((mem, base)) = insn.dram_base_mut() else {
            return Err(at.wrong_symbol(&insn).into());
        };
        let elem = self.program.config.elem_bytes(mem) as u32;
        if !addr.0.is_multiple_of(elem) {
            return Err(ProgramError::Alignment {
                addr: addr.0,
                elem_bytes: elem,
            }
            .into());
        }
        *base = base
            .checked_add(addr.0 / elem)
            .ok_or(ProgramError::Address {
                base: *base,
                addr: addr.0,
            })?;
        Ok(insn)
    }

    /// Makes the kernel resident and the instruction's micro-op range absolute.
    fn bind_kernel(
        &mut self,
        at: At<'_>,
        mut insn: Insn,
        id: KernelId,
        counters: &mut Counters,
    ) -> Result<Insn, DriverError> {
        let program = Arc::clone(&self.program);
        let kernel = program.kernel_of(at, &insn, id)?;
        let (bgn, end) = match &mut insn {
            Insn::Gemm(gemm) => (&mut gemm.uop_bgn, &mut gemm.uop_end),
            Insn::Alu(alu) => (&mut alu.uop_bgn, &mut alu.uop_end),
            Insn::Depthwise(insn) => (&mut insn.uop_bgn, &mut insn.uop_end),
            Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => return Ok(insn),
        };
        if bgn == end {
            // No micro-op runs. Moved along, an empty range at the scratchpad's end wouldn't fit
            // `uop_bgn`.
            (*bgn, *end) = (0, 0);
            return Ok(insn);
        }
        let len = kernel.uops.len();
        let (position, load) = self.cache.place(id, len);
        // The kernel fits the scratchpad, whose depth fits `uop_end`.
        *bgn += position as u16;
        *end += position as u16;
        if load {
            let start = self.queue_uops(id)?;
            self.append(Insn::Load(Load {
                mem: MemType::Uop,
                sram_base: position as u16,
                dram_base: self.uop_addr.0 / UOP_BYTES as u32 + start as u32,
                y_size: 1,
                x_size: len as u16,
                x_stride: len as u16,
                ..Load::default()
            }))?;
            counters.kernel_misses += 1;
        } else {
            counters.kernel_hits += 1;
        }
        Ok(insn)
    }

    /// Puts the kernel's micro-ops into this batch's micro-op queue once; its first index there.
    fn queue_uops(&mut self, id: KernelId) -> Result<usize, DriverError> {
        if let Some(&start) = self.arena.get(&id) {
            return Ok(start);
        }
        let start = self.filled.uops.len() / UOP_BYTES;
        let kernel = self.program.kernels.get(id.0 as usize);
        for uop in &kernel.ok_or(ProgramError::Kernel { index: id.0 })?.uops {
            let word = uop.encode().map_err(ProgramError::Field)?;
            self.filled.uops.extend_from_slice(&word.to_le_bytes());
        }
        self.arena.insert(id, start);
        Ok(start)
    }

    /// Appends instructions as they are.
    pub(super) fn append_all(
        &mut self,
        insns: impl IntoIterator<Item = Insn>,
    ) -> Result<(), DriverError> {
        insns.into_iter().try_for_each(|insn| self.append(insn))
    }

    fn append(&mut self, insn: Insn) -> Result<(), DriverError> {
        self.filled
            .words
            .push(insn.encode().map_err(ProgramError::Field)?);
        self.filled.insns.push(insn);
        Ok(())
    }
}
