//! The command queue: resolves addresses, keeps micro-ops resident, fills one batch.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use vta_isa::{Finish, Insn, Load, MemType, UOP_BYTES};

use crate::{
    Batch, Command, Counters, Device, DriverError, FlushReason, KernelId, Layer, LayerMark,
    PhysAddr, Program, ProgramError, Symbol, Ticket, Traffic, Work,
};

/// Sizes of the two queues in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Instructions in one batch, FINISH included.
    pub insns: usize,
    /// Micro-ops in one batch.
    pub uops: usize,
}

impl Default for QueueLimits {
    /// 4 MiB of each, the size of the original runtime's transfers.
    fn default() -> Self {
        Self {
            insns: 1 << 18,
            uops: 1 << 20,
        }
    }
}

/// One submitted batch with what has to lie in device memory before it runs.
#[derive(Clone, Debug)]
pub struct RecordedBatch {
    /// The instructions.
    pub batch: Arc<Batch>,
    /// Encoded instructions for `batch.insn_addr`.
    insn_bytes: Arc<[u8]>,
    /// Micro-ops for the micro-op queue.
    uop_bytes: Arc<[u8]>,
    /// Why it was submitted.
    reason: FlushReason,
}

/// The batches of one pass over a program, ready to be submitted again without encoding.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In order of submission.
    pub batches: Vec<RecordedBatch>,
}

/// Which kernels are in the micro-op scratchpad, placed as in a ring.
///
/// The compute module runs LOAD UOP, GEMM and ALU strictly in order, so overwriting an evicted
/// kernel can't disturb an instruction before it.
#[derive(Debug)]
struct UopCache {
    depth: usize,
    cursor: usize,
    resident: HashMap<KernelId, Range<usize>>,
}

impl UopCache {
    fn new(depth: usize) -> Self {
        Self {
            depth,
            cursor: 0,
            resident: HashMap::new(),
        }
    }

    /// Where the kernel lies now, and whether it must be loaded there first.
    fn place(&mut self, kernel: KernelId, len: usize) -> (usize, bool) {
        if let Some(range) = self.resident.get(&kernel) {
            return (range.start, false);
        }
        if self.cursor + len > self.depth {
            self.cursor = 0;
        }
        let range = self.cursor..self.cursor + len;
        self.resident
            .retain(|_, r| r.end <= range.start || range.end <= r.start);
        self.cursor = range.end;
        self.resident.insert(kernel, range.clone());
        (range.start, true)
    }
}

/// Appends layers to one batch and submits it for counted reasons only.
///
/// The scratchpads mean nothing at the start of a run, so every batch starts with an empty
/// micro-op cache. Batches are cut only where the program allows it (see [`Layer::cuts`]).
pub struct CommandQueue {
    program: Arc<Program>,
    device: Arc<dyn Device>,
    addresses: Vec<PhysAddr>,
    limits: QueueLimits,
    insn_addr: PhysAddr,
    uop_addr: PhysAddr,
    cache: UopCache,
    insns: Vec<Insn>,
    words: Vec<u128>,
    marks: Vec<LayerMark>,
    uops: Vec<u8>,
    /// Where in `uops` a kernel starts, in micro-ops.
    arena: HashMap<KernelId, usize>,
    recording: Recording,
    tickets: Vec<Box<dyn Ticket>>,
    counters: Counters,
}

impl CommandQueue {
    /// Allocates the two queues in device memory. `addresses[i]` is where buffer `i` lies.
    ///
    /// # Errors
    /// When device memory is exhausted.
    pub fn new(
        program: Arc<Program>,
        device: Arc<dyn Device>,
        addresses: Vec<PhysAddr>,
        limits: QueueLimits,
    ) -> Result<Self, DriverError> {
        let insn_addr = device.alloc((limits.insns.max(1) * vta_isa::INSN_BYTES) as u64)?;
        let uop_addr = device.alloc((limits.uops.max(1) * UOP_BYTES) as u64)?;
        let depth = program.config.depth(MemType::Uop);
        Ok(Self {
            program,
            device,
            addresses,
            limits,
            insn_addr,
            uop_addr,
            cache: UopCache::new(depth),
            insns: Vec::new(),
            words: Vec::new(),
            marks: Vec::new(),
            uops: Vec::new(),
            arena: HashMap::new(),
            recording: Recording::default(),
            tickets: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Queues a layer of the program; submits only when a queue overflows.
    ///
    /// # Errors
    /// [`DriverError::SegmentTooLarge`] when commands that can't be cut don't fit an empty
    /// queue, [`DriverError::Program`] when an address or a field doesn't fit.
    pub fn push_layer(&mut self, index: usize) -> Result<(), DriverError> {
        let program = Arc::clone(&self.program);
        let layer = program
            .layers
            .get(index)
            .ok_or(ProgramError::Layer { index })?;
        let mut start = 0;
        for end in layer
            .cuts
            .iter()
            .map(|&c| c as usize)
            .chain([layer.commands.len()])
        {
            let commands = layer
                .commands
                .get(start..end)
                .ok_or(ProgramError::Layer { index })?;
            self.push_segment(layer, commands)?;
            start = end;
        }
        Ok(())
    }

    fn push_segment(&mut self, layer: &Layer, commands: &[Command]) -> Result<(), DriverError> {
        if commands.is_empty() {
            return Ok(());
        }
        self.make_room(layer, commands)?;
        if self.marks.last().is_none_or(|mark| mark.name != layer.name) {
            let mark = LayerMark {
                name: layer.name.clone(),
                first_insn: self.insns.len(),
            };
            self.marks.push(mark);
        }
        for command in commands {
            self.push_command(command)?;
        }
        Ok(())
    }

    /// Submits what is queued when the segment might not fit behind it. The bound counts a
    /// micro-op load for every command that has a kernel.
    fn make_room(&mut self, layer: &Layer, commands: &[Command]) -> Result<(), DriverError> {
        let kernels = commands
            .iter()
            .filter(|c| matches!(c.symbol, Symbol::Kernel(_)))
            .count();
        let insns = commands.len() + kernels + 1;
        let too_large = |what, need, limit| {
            Err(DriverError::SegmentTooLarge {
                layer: layer.name.clone(),
                what,
                need,
                limit,
            })
        };
        if insns > self.limits.insns {
            return too_large("instructions", insns, self.limits.insns);
        }
        if self.insns.len() + insns > self.limits.insns {
            self.submit(FlushReason::InsnOverflow)?;
        }
        let queued = self.uops.len() / UOP_BYTES;
        if queued + self.new_uops(commands, true) > self.limits.uops {
            let need = self.new_uops(commands, false);
            if need > self.limits.uops {
                return too_large("micro-ops", need, self.limits.uops);
            }
            self.submit(FlushReason::UopOverflow)?;
        }
        Ok(())
    }

    /// Micro-ops of the commands' distinct kernels, optionally without those already queued.
    fn new_uops(&self, commands: &[Command], skip_queued: bool) -> usize {
        let mut seen = std::collections::HashSet::new();
        let mut total = 0;
        for command in commands {
            let Symbol::Kernel(id) = command.symbol else {
                continue;
            };
            let queued = skip_queued && self.arena.contains_key(&id);
            if !queued && seen.insert(id) {
                total += self
                    .program
                    .kernels
                    .get(id.0 as usize)
                    .map_or(0, |k| k.uops.len());
            }
        }
        total
    }

    fn push_command(&mut self, command: &Command) -> Result<(), DriverError> {
        let insn = match command.symbol {
            Symbol::None => command.insn,
            Symbol::Buffer(id) => {
                let addr = self
                    .addresses
                    .get(id.0 as usize)
                    .ok_or(ProgramError::Buffer { index: id.0 })?;
                self.relocate(command.insn, *addr)?
            }
            Symbol::Kernel(id) => self.bind_kernel(command.insn, id)?,
        };
        self.append(insn)
    }

    fn relocate(&self, mut insn: Insn, addr: PhysAddr) -> Result<Insn, DriverError> {
        let (mem, base) = match &mut insn {
            Insn::Load(load) => (load.mem, &mut load.dram_base),
            Insn::Store(store) => (MemType::Out, &mut store.dram_base),
            Insn::Gemm(_) | Insn::Alu(_) | Insn::Finish(_) => {
                return Err(ProgramError::Symbol {
                    insn: format!("{insn:?}"),
                }
                .into());
            }
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

    fn bind_kernel(&mut self, mut insn: Insn, id: KernelId) -> Result<Insn, DriverError> {
        let program = Arc::clone(&self.program);
        let kernel = program
            .kernels
            .get(id.0 as usize)
            .ok_or(ProgramError::Kernel { index: id.0 })?;
        let depth = self.cache.depth;
        if kernel.uops.len() > depth {
            let error = ProgramError::KernelTooLarge {
                index: id.0,
                uops: kernel.uops.len(),
                depth,
            };
            return Err(error.into());
        }
        let (position, load) = self.cache.place(id, kernel.uops.len());
        if load {
            let start = self.queue_uops(id)?;
            let dram_base = self.uop_addr.0 / UOP_BYTES as u32 + start as u32;
            self.append(Insn::Load(Load {
                mem: MemType::Uop,
                sram_base: position as u16,
                dram_base,
                y_size: 1,
                x_size: kernel.uops.len() as u16,
                x_stride: kernel.uops.len() as u16,
                ..Load::default()
            }))?;
            self.counters.kernel_misses += 1;
        } else {
            self.counters.kernel_hits += 1;
        }
        let (bgn, end) = match &mut insn {
            Insn::Gemm(gemm) => (&mut gemm.uop_bgn, &mut gemm.uop_end),
            Insn::Alu(alu) => (&mut alu.uop_bgn, &mut alu.uop_end),
            Insn::Load(_) | Insn::Store(_) | Insn::Finish(_) => {
                return Err(ProgramError::Symbol {
                    insn: format!("{insn:?}"),
                }
                .into());
            }
        };
        if usize::from(*end) > kernel.uops.len() || bgn > end {
            let (bgn, end, uops) = (*bgn, *end, kernel.uops.len());
            return Err(ProgramError::UopRange {
                index: id.0,
                bgn,
                end,
                uops,
            }
            .into());
        }
        *bgn += position as u16;
        *end += position as u16;
        Ok(insn)
    }

    /// Puts the kernel's micro-ops into this batch's micro-op queue once; its first index there.
    fn queue_uops(&mut self, id: KernelId) -> Result<usize, DriverError> {
        if let Some(&start) = self.arena.get(&id) {
            return Ok(start);
        }
        let start = self.uops.len() / UOP_BYTES;
        for uop in &self.program.kernels[id.0 as usize].uops {
            let word = uop.encode().map_err(ProgramError::Field)?;
            self.uops.extend_from_slice(&word.to_le_bytes());
        }
        self.arena.insert(id, start);
        Ok(start)
    }

    fn append(&mut self, insn: Insn) -> Result<(), DriverError> {
        self.words.push(insn.encode().map_err(ProgramError::Field)?);
        self.insns.push(insn);
        Ok(())
    }

    /// Submits what is queued, if anything, and counts the reason.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn submit(&mut self, reason: FlushReason) -> Result<(), DriverError> {
        if self.insns.is_empty() {
            return Ok(());
        }
        self.append(Insn::Finish(Finish::default()))?;
        let words = std::mem::take(&mut self.words);
        let insn_bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let batch = Batch {
            words,
            insns: std::mem::take(&mut self.insns),
            insn_addr: self.insn_addr,
            marks: std::mem::take(&mut self.marks),
        };
        let recorded = RecordedBatch {
            batch: Arc::new(batch),
            insn_bytes: insn_bytes.into(),
            uop_bytes: std::mem::take(&mut self.uops).into(),
            reason,
        };
        self.arena.clear();
        self.cache = UopCache::new(self.cache.depth);
        self.counters.encoded_batches += 1;
        self.send(&recorded, Upload::Always)?;
        self.recording.batches.push(recorded);
        Ok(())
    }

    fn send(&mut self, recorded: &RecordedBatch, upload: Upload) -> Result<(), DriverError> {
        if upload == Upload::Always {
            for (addr, data) in [
                (self.uop_addr, &recorded.uop_bytes),
                (self.insn_addr, &recorded.insn_bytes),
            ] {
                if !data.is_empty() {
                    let work = Work::Write {
                        addr,
                        data: Arc::clone(data),
                    };
                    self.tickets.push(self.device.submit(work)?);
                }
            }
        }
        self.tickets
            .push(self.device.submit(Work::Run(Arc::clone(&recorded.batch)))?);
        self.counters.submissions += 1;
        self.counters.flushes[recorded.reason as usize] += 1;
        self.counters
            .traffic
            .add(&Traffic::of(&recorded.batch.insns, &self.program.config));
        Ok(())
    }

    /// Takes the recording of everything submitted since the last call.
    pub fn take_recording(&mut self) -> Recording {
        std::mem::take(&mut self.recording)
    }

    /// Submits a recording again: nothing is encoded. A recording of one batch finds its
    /// instructions and micro-ops still in device memory.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn replay(&mut self, recording: &Recording) -> Result<(), DriverError> {
        let single = recording.batches.len() == 1;
        let upload = if single {
            Upload::Resident
        } else {
            Upload::Always
        };
        for recorded in &recording.batches {
            self.send(recorded, upload)?;
            self.counters.replayed_batches += 1;
        }
        Ok(())
    }

    /// The tickets of all work submitted since the last call, in order.
    pub fn take_tickets(&mut self) -> Vec<Box<dyn Ticket>> {
        std::mem::take(&mut self.tickets)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Frees the two queues in device memory.
    pub(crate) fn release(&mut self) {
        // A device that is gone has nothing left to free.
        let _ = self.device.free(self.insn_addr);
        let _ = self.device.free(self.uop_addr);
    }
}

/// Whether a batch's instructions and micro-ops must be copied to device memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upload {
    Always,
    Resident,
}
