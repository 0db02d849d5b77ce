//! What can be wrong with a program.

use thiserror::Error;
use vta_isa::resolve::Fault;
use vta_isa::{Extension, FieldError};

/// A program that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A command names a buffer that isn't there.
    #[error("program: there is no buffer {index}")]
    Buffer {
        /// The index.
        index: u32,
    },
    /// A command names a kernel that isn't there.
    #[error("program: there is no micro-op kernel {index}")]
    Kernel {
        /// The index.
        index: u32,
    },
    /// A tensor index that isn't there.
    #[error("program: there is no tensor {index}")]
    Tensor {
        /// The index.
        index: u32,
    },
    /// More tokens between layers than the queues are sure to hold.
    #[error("program: {found} seam tokens, but at most {limit} are allowed")]
    SeamTokens {
        /// How many.
        found: u32,
        /// The most.
        limit: u32,
    },
    /// A layer that isn't there, or whose cut points are out of order.
    #[error("program: layer {index} is missing or its cut points are not ascending")]
    Layer {
        /// The index.
        index: usize,
    },
    /// A kernel is longer than the micro-op scratchpad.
    #[error("program: kernel {index} has {uops} micro-ops, the scratchpad holds {depth}")]
    KernelTooLarge {
        /// The kernel.
        index: u32,
        /// Its length.
        uops: usize,
        /// The scratchpad's depth.
        depth: usize,
    },
    /// A command that can't be.
    #[error("program: layer {layer}, command {command}: {what}")]
    Command {
        /// The layer.
        layer: String,
        /// The command's index in it.
        command: usize,
        /// What is wrong with it.
        what: CommandError,
    },
    /// A field doesn't fit its bits.
    #[error("program: {0}")]
    Field(FieldError),
    /// A buffer's address isn't a multiple of the element.
    #[error("program: address {addr:#x} is not a multiple of the {elem_bytes}-byte element")]
    Alignment {
        /// The address.
        addr: u32,
        /// The element.
        elem_bytes: u32,
    },
    /// An address leaves the 32-bit `dram_base`.
    #[error("program: dram_base {base} from address {addr:#x} exceeds 32 bits")]
    Address {
        /// Elements from the buffer's start.
        base: u32,
        /// The buffer's address.
        addr: u32,
    },
    /// A constant's data and size differ, or a tensor doesn't fit its buffer.
    #[error("program: {name} needs {need} bytes, its buffer has {have}")]
    Size {
        /// Buffer or tensor.
        name: String,
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// A tensor that starts within a tile of its buffer.
    #[error(
        "program: tensor {name} starts at byte {offset_bytes}, which is no multiple of {tile_bytes}"
    )]
    Offset {
        /// The tensor.
        name: String,
        /// Where it starts.
        offset_bytes: u64,
        /// Bytes of a tile.
        tile_bytes: u64,
    },
    /// A tensor's geometry is impossible.
    #[error("program: tensor {name} has an impossible shape or window")]
    Shape {
        /// The tensor.
        name: String,
    },
    /// A tensor is larger than anything that a device or its host should hold.
    #[error("program: tensor {name} has more than {limit} {what}")]
    TensorTooLarge {
        /// The tensor.
        name: String,
        /// `values in an image` or `packed bytes`.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// All buffers or all outputs together exceed a device's memory.
    #[error("program: {what} up to {name} have more than {limit} bytes together")]
    TotalBytes {
        /// `buffers` or `outputs`.
        what: &'static str,
        /// The one that is too many.
        name: String,
        /// The limit.
        limit: u64,
    },
    /// A network output whose packing the host can't undo.
    #[error("program: the output {name} is packed as im2col, not as tiles")]
    OutputPacking {
        /// The tensor.
        name: String,
    },
    /// A network input that would overwrite a constant.
    #[error("program: the input {name} lies in the constant {buffer}")]
    InputInConstant {
        /// The tensor.
        name: String,
        /// The buffer's name.
        buffer: String,
    },
    /// A part of a network over several devices that isn't there, or has no device.
    #[error("program: there is no part {index}, or no device for it")]
    Part {
        /// The index.
        index: usize,
    },
    /// A step of a network over several devices that can't be done.
    #[error("program: step {index}: {reason}")]
    Step {
        /// The step's index; one past the last for the network's ends.
        index: usize,
        /// Why.
        reason: &'static str,
    },
}

/// What is wrong with a command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The program's configuration has no hardware for it.
    #[error("it needs {0}, which its configuration doesn't have")]
    Extension(Extension),
    /// It uses micro-ops beyond its kernel.
    #[error("micro-ops {bgn}..{end} of kernel {kernel}, which has {uops}")]
    UopRange {
        /// The kernel.
        kernel: u32,
        /// First micro-op.
        bgn: u16,
        /// One past the last.
        end: u16,
        /// The kernel's length.
        uops: usize,
    },
    /// It reaches beyond a scratchpad.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Its instruction can't go with its symbol, or compilers never emit it.
    #[error(
        "{insn} can't go with its symbol (buffers: load and store, not of micro-ops; kernels: gemm and alu; no symbol: synchronisation only)"
    )]
    Symbol {
        /// The instruction.
        insn: String,
    },
    /// It reaches beyond its buffer.
    #[error("bytes up to {end} of buffer {buffer}, which has {size_bytes}")]
    Range {
        /// The buffer's name.
        buffer: String,
        /// One past the last byte touched.
        end: u64,
        /// The buffer's size.
        size_bytes: u64,
    },
    /// It is a STORE into a constant.
    #[error("it stores into the constant {0}")]
    StoreToConstant(String),
}
