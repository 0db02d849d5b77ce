//! The compiled program: commands against symbols, not addresses.

use std::collections::BTreeMap;

use vta_isa::{Config, Insn, Uop};

use crate::Bytes;

/// Index into [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Index into [`Program::kernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u32);

/// What a buffer in device memory is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// Packed weights, biases, multipliers: bytes known when compiled.
    Constant(Bytes),
    /// Written by the host before each run.
    Input,
    /// Read by the host after each run.
    Output,
    /// Produced and consumed on the device.
    Scratch,
}

/// One buffer in device memory, placed on 4 KiB pages by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// For listings and errors.
    pub name: String,
    /// Size in bytes; a constant's data has exactly this length.
    pub size_bytes: u64,
    /// What it is for.
    pub kind: BufferKind,
}

/// A micro-op sequence that GEMM and ALU commands name; the driver keeps it in DRAM, loads it
/// into the micro-op scratchpad when it isn't resident, and patches `uop_bgn` and `uop_end`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The micro-ops, at most the micro-op scratchpad's depth.
    pub uops: Vec<Uop>,
}

/// What the driver adds to a command's instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Nothing: a synchronisation.
    None,
    /// LOAD and STORE: `dram_base` counts elements from the start of this buffer.
    Buffer(BufferId),
    /// GEMM and ALU: `uop_bgn..uop_end` counts micro-ops from the start of this kernel.
    Kernel(KernelId),
}

/// One instruction against a symbol.
///
/// Compilers never emit LOAD UOP or FINISH: the driver inserts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// The instruction, relative to the symbol.
    pub insn: Insn,
    /// What it is relative to.
    pub symbol: Symbol,
}

/// The commands of one layer. A layer starts and ends with every token queue empty and every
/// scratchpad free (its contents, micro-ops apart, mean nothing to the next layer).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Layer {
    /// The graph node's name.
    pub name: String,
    /// The kind, for tables: `conv`, `dense`, `add`, `maxpool`, `avgpool`, `eltwise`.
    pub kind: String,
    /// In program order.
    pub commands: Vec<Command>,
    /// Ascending positions in `commands` where a batch may be cut: every token queue is empty
    /// and no scratchpad content (micro-ops apart) is needed later. The end of the layer is
    /// always one and isn't listed.
    pub cuts: Vec<u32>,
    /// Multiply-adds of the mathematical operation (padding of channels not counted).
    pub macs: u64,
    /// Index into [`Program::tensors`] of what the layer writes.
    pub output: u32,
}

/// How an NCHW int8 tensor lies in its device buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// `[ceil(C/BLOCK)][H][W][BATCH][BLOCK]`, channels beyond C zero.
    Tiles,
    /// The patches of a convolution, gathered by the host:
    /// `[ceil(C*KH*KW/BLOCK)][OH][OW][BATCH][BLOCK]`, where column `(c*KH + kh)*KW + kw` of output
    /// position `(oh, ow)` holds `x[c][oh*stride_h + kh*dilation_h - pad_top][..]`, zero outside.
    Im2col {
        /// KH, KW.
        kernel: [u32; 2],
        /// Rows, columns.
        stride: [u32; 2],
        /// Rows, columns.
        dilation: [u32; 2],
        /// Top, left, bottom, right.
        pads: [u32; 4],
    },
}

/// A tensor of the program: a layer's output, the input, the output.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The graph's name.
    pub name: String,
    /// Where it lies.
    pub buffer: BufferId,
    /// Channels, rows, columns of one image (`[C, 1, 1]` for vectors).
    pub chw: [u32; 3],
    /// Real value of one step: `real = scale * int8`.
    pub scale: f32,
    /// Layout in the buffer.
    pub packing: Packing,
}

/// A compiled network. The default is an empty one for the default configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The VTA instance it was compiled for.
    pub config: Config,
    /// Device buffers.
    pub buffers: Vec<Buffer>,
    /// Micro-op kernels.
    pub kernels: Vec<Kernel>,
    /// All named tensors.
    pub tensors: Vec<TensorSpec>,
    /// Layers in execution order.
    pub layers: Vec<Layer>,
    /// Network inputs, indices into `tensors`.
    pub inputs: Vec<u32>,
    /// Network outputs, indices into `tensors`.
    pub outputs: Vec<u32>,
    /// Free key-value facts: `model`, `preprocess`, `labels` (JSON text) and so on.
    pub metadata: BTreeMap<String, String>,
}
