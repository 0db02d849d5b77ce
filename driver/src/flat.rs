//! A program as a flat image: what a controller without an operating system runs, encoded ahead.
//!
//! docs/bare-metal.md has the format, `rt` reads it. Instructions address one space of two parts, constants
//! (weights, micro-ops) from 0 on, and the network's buffers from 2^30 on; the reader moves each to where it is.

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;
use vta_isa::{INSN_BYTES, Insn, MemType, UOP_BYTES};

use crate::{
    BufferKind, CommandQueue, DramPlan, DriverError, FlushReason, Layer, NullDevice, Packing,
    PhysAddr, Program, ProgramError, QueueLimits, RecordedBatch, TensorSpec,
};

/// The first bytes of every flat image.
pub const FLAT_MAGIC: &[u8; 8] = b"VTAFLAT\n";
/// The version of flat images.
pub const FLAT_VERSION: u32 = 1;

const HEADER_BYTES: usize = 128;
const BATCH_BYTES: usize = 56;
const TENSOR_BYTES: usize = 72;
/// Where instructions find the network's buffers; as much is below, and may be above.
const WORK_AT: u64 = 1 << 30;

/// Where a pass through a flat image's network is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlatCut {
    /// Behind every layer, so that each has counts of its own.
    Layers,
    /// Nowhere, unless a queue of the accelerator's memory overflows: layers overlap.
    Nowhere,
}

/// A program that no flat image can hold.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FlatError {
    /// It can't be encoded.
    #[error("flat image: {0}")]
    Program(#[from] DriverError),
    /// The format has no room for it.
    #[error("flat image: {0}")]
    Unfit(String),
}

/// A program as a flat image. The same program gives the same bytes on every machine.
///
/// ```
/// use vta_driver::{FLAT_MAGIC, FlatCut, Program, flat_image};
///
/// let image = flat_image(&Program::default(), FlatCut::Layers)?;
/// assert!(image.starts_with(FLAT_MAGIC));
/// # Ok::<(), vta_driver::FlatError>(())
/// ```
///
/// # Errors
/// [`FlatError::Program`] for an inconsistent program or a part of a layer that no queue holds,
/// the others for what the format has no room for.
pub fn flat_image(program: &Program, cut: FlatCut) -> Result<Vec<u8>, FlatError> {
    program.validate().map_err(DriverError::from)?;
    let (batch, block) = (program.config.batch(), program.config.block());
    if batch.max(block) > 256 {
        let text = format!("BATCH {batch} and BLOCK {block}, of which each may be 256 at most");
        return Err(FlatError::Unfit(text));
    }
    let int8 = program.config.int8("a flat image");
    int8.map_err(|e| FlatError::Unfit(e.to_string()))?;
    let mut memory = Memory::of(program)?;
    let device = Arc::new(NullDevice::with_config(program.config.clone()));
    let shared = Arc::new(program.clone());
    let (addresses, limits) = (memory.addresses.clone(), QueueLimits::default());
    let mut queue = CommandQueue::of_checked(shared, device, addresses, limits)?;
    let recording = queue.encode(cut == FlatCut::Layers, FlushReason::Synchronize)?;
    let mut tables = Tables::default();
    let mut layers = program.layers.iter();
    for batch in &recording.batches {
        let micro_ops = memory.micro_ops(&batch.uop_bytes)?;
        tables.add_batch(batch, &mut layers);
        tables.add_insns(batch, queue.uop_addr(), micro_ops)?;
    }
    for index in program.inputs.iter().chain(&program.outputs) {
        let tensor = program.tensor(*index).map_err(DriverError::from)?;
        tables.add_tensor(tensor, program, &memory)?;
    }
    for &index in &program.outputs {
        let tensor = program.tensor(index).map_err(DriverError::from)?;
        if tensor.packing != Packing::Tiles {
            return Err(no_output(tensor));
        }
    }
    memory.image(program, tables)
}

/// What is where.
struct Memory {
    /// What all but instructions begins at multiples of.
    align: u64,
    constants: Vec<u8>,
    /// Where micro-ops of earlier batches are among them.
    known: HashMap<Vec<u8>, u64>,
    /// Of each buffer, as instructions find it.
    addresses: Vec<PhysAddr>,
    /// Bytes of the network's buffers.
    work: u64,
}

impl Memory {
    fn of(program: &Program) -> Result<Self, FlatError> {
        let plan = DramPlan::of(program);
        let mut memory = Self {
            align: program.config.max_elem_bytes().max(64),
            constants: Vec::new(),
            known: HashMap::new(),
            addresses: Vec::new(),
            work: within("buffers", plan.scratch_bytes)?,
        };
        for (index, buffer) in program.buffers.iter().enumerate() {
            let address = match (&buffer.kind, plan.offsets.get(index)) {
                (BufferKind::Constant(bytes), _) => memory.constant(bytes)?,
                (_, Some(&Some(offset))) => WORK_AT + offset,
                _ => {
                    let offset = memory.work.next_multiple_of(memory.align);
                    let end = offset.saturating_add(buffer.size_bytes);
                    memory.work = within("buffers", end)?;
                    WORK_AT + offset
                }
            };
            // Both parts end below 2^31.
            memory.addresses.push(PhysAddr(address as u32));
        }
        Ok(memory)
    }

    /// Where some constants are.
    fn constant(&mut self, bytes: &[u8]) -> Result<u64, FlatError> {
        let start = self.constants.len().next_multiple_of(self.align as usize);
        within("constants", start as u64 + bytes.len() as u64)?;
        self.constants.resize(start, 0);
        self.constants.extend_from_slice(bytes);
        Ok(start as u64)
    }

    /// Where a batch's micro-ops are.
    fn micro_ops(&mut self, bytes: &[u8]) -> Result<u64, FlatError> {
        if let Some(&start) = self.known.get(bytes) {
            return Ok(start);
        }
        let start = self.constant(bytes)?;
        self.known.insert(bytes.to_vec(), start);
        Ok(start)
    }

    /// Puts everything together.
    fn image(self, program: &Program, tables: Tables) -> Result<Vec<u8>, FlatError> {
        let config = &program.config;
        let insns_at = HEADER_BYTES as u64;
        let batches_at = insns_at + tables.insns.len() as u64;
        let tensors_at = batches_at + tables.batches.len() as u64;
        let names_at = tensors_at + tables.tensors.len() as u64;
        let tables_end = names_at + tables.names.len() as u64;
        let constants_at = tables_end.next_multiple_of(self.align);
        let size = constants_at + self.constants.len() as u64;
        if size > u64::from(u32::MAX) {
            return Err(too_large("the image", size, u32::MAX.into()));
        }
        let log = |n: usize| u64::from(n.ilog2());
        let fields = [
            size,
            constants_at,
            self.constants.len() as u64,
            self.work,
            insns_at,
            (tables.insns.len() / INSN_BYTES) as u64,
            batches_at,
            (tables.batches.len() / BATCH_BYTES) as u64,
            tensors_at,
            program.inputs.len() as u64,
            program.outputs.len() as u64,
            log(config.batch()),
            log(config.block()),
            self.align,
            names_at,
            tables.names.len() as u64,
        ];
        // All that the checksum of the tables covers, which comes before it.
        let mut head = crc32fast::hash(&self.constants).to_le_bytes().to_vec();
        // They are offsets and sizes within the image.
        put(&mut head, &fields.map(|field| field as u32));
        head.resize(HEADER_BYTES - 16, 0);
        let parts = [
            &tables.insns,
            &tables.batches,
            &tables.tensors,
            &tables.names,
        ];
        parts.iter().for_each(|part| head.extend_from_slice(part));
        head.resize(constants_at as usize - 16, 0);
        let mut image = FLAT_MAGIC.to_vec();
        put(&mut image, &[FLAT_VERSION, crc32fast::hash(&head)]);
        image.extend(head);
        image.extend(self.constants);
        Ok(image)
    }
}

/// What an image's tables hold.
#[derive(Default)]
struct Tables {
    insns: Vec<u8>,
    batches: Vec<u8>,
    tensors: Vec<u8>,
    names: Vec<u8>,
}

impl Tables {
    /// Describes a batch, whose layers are the next.
    fn add_batch<'l>(
        &mut self,
        batch: &RecordedBatch,
        layers: &mut (impl Iterator<Item = &'l Layer> + Clone),
    ) {
        let marks = &batch.batch.marks;
        let mut macs = 0u64;
        for mark in marks {
            // A layer that an earlier batch began is none of those that are left.
            let mut next = layers.clone();
            if let Some(layer) = next.find(|layer| layer.name == mark.name) {
                macs = macs.saturating_add(layer.macs);
                *layers = next;
            }
        }
        let name = marks.first().map_or("", |mark| &mark.name);
        let first = self.insns.len() / INSN_BYTES;
        let counts = [first, batch.batch.insns.len()];
        let name = self.name(name);
        put(&mut self.batches, &counts.map(|n| n as u32));
        put(&mut self.batches, &[name, marks.len() as u32]);
        let traffic = &batch.traffic;
        let stored = traffic.bytes[MemType::Out.index()];
        let counts = [
            traffic.total_bytes() - stored,
            stored,
            traffic.gemm_steps.saturating_add(traffic.reset_steps),
            traffic.alu_steps,
            macs,
        ];
        for count in counts {
            self.batches.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// Instructions, with the micro-ops where this image has them.
    fn add_insns(
        &mut self,
        batch: &RecordedBatch,
        queue: PhysAddr,
        start: u64,
    ) -> Result<(), FlatError> {
        let elem = UOP_BYTES as u32;
        for insn in &batch.batch.insns {
            let mut insn = *insn;
            if let Insn::Load(load) = &mut insn
                && load.mem == MemType::Uop
                && !load.is_sync()
            {
                load.dram_base = load.dram_base - queue.0 / elem + start as u32 / elem;
            }
            let word = insn.encode().map_err(ProgramError::Field);
            let word = word.map_err(DriverError::from)?;
            self.insns.extend_from_slice(&word.to_le_bytes());
        }
        within("instructions", self.insns.len() as u64)?;
        Ok(())
    }

    fn add_tensor(
        &mut self,
        tensor: &TensorSpec,
        program: &Program,
        memory: &Memory,
    ) -> Result<(), FlatError> {
        let lost = || no_output(tensor);
        let start = u64::from(tensor.address(&memory.addresses).0);
        let offset = start.checked_sub(WORK_AT).ok_or_else(lost)?;
        let bytes = tensor.packed_bytes(&program.config).ok_or_else(lost)?;
        let name = self.name(&tensor.name);
        put(&mut self.tensors, &[name, offset as u32, bytes as u32]);
        put(&mut self.tensors, &tensor.chw);
        let zero = u32::from(tensor.zero as u8);
        let (form, window) = match tensor.packing {
            Packing::Tiles => (zero, [0; 10]),
            Packing::Im2col {
                kernel: [kh, kw],
                stride: [sh, sw],
                dilation: [dh, dw],
                pads: [top, left, bottom, right],
            } => (
                1 << 8 | zero,
                [kh, kw, sh, sw, dh, dw, top, left, bottom, right],
            ),
        };
        put(&mut self.tensors, &[tensor.scale.to_bits(), form]);
        put(&mut self.tensors, &window);
        debug_assert!(self.tensors.len().is_multiple_of(TENSOR_BYTES));
        Ok(())
    }

    /// Where a name is, with a zero behind it.
    fn name(&mut self, name: &str) -> u32 {
        let start = self.names.len() as u32;
        self.names.extend(name.bytes().filter(|&b| b != 0));
        self.names.push(0);
        start
    }
}

fn put(bytes: &mut Vec<u8>, words: &[u32]) {
    words
        .iter()
        .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

/// What fits a part.
fn within(what: &'static str, bytes: u64) -> Result<u64, FlatError> {
    if bytes < WORK_AT {
        Ok(bytes)
    } else {
        Err(too_large(what, bytes, WORK_AT - 1))
    }
}

fn too_large(what: &str, bytes: u64, limit: u64) -> FlatError {
    FlatError::Unfit(format!(
        "{bytes} bytes of {what}, of which it holds at most {limit}"
    ))
}

fn no_output(tensor: &TensorSpec) -> FlatError {
    let name = &tensor.name;
    FlatError::Unfit(format!(
        "output {name} is no tensor that a run writes as tiles"
    ))
}
