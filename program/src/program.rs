//! The compiled program: commands against symbols, not addresses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use vta_isa::{Config, Deps, Insn, Load, MemType, Store, Uop};

use crate::{Bytes, NodeInfo, ProgramError};

/// Index into [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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

/// GEMM steps of a layer by what they are for; clearing accumulators isn't among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GemmSteps {
    /// Of the mathematical operation: a step for each block of inputs, kernel tap and tile of
    /// outputs, whether the tap falls on padding or not. The same for every schedule.
    pub dense: u64,
    /// Products that the layer issues: those of `dense` that don't fall on padding.
    pub products: u64,
    /// Steps that add a bias.
    pub bias: u64,
    /// Steps that add a residual.
    pub residual: u64,
}

impl GemmSteps {
    /// Adds another layer's.
    pub const fn add(&mut self, other: &Self) {
        self.dense += other.dense;
        self.products += other.products;
        self.bias += other.bias;
        self.residual += other.residual;
    }
}

/// The commands of one layer. What the scratchpads hold at its start, micro-ops apart, means
/// nothing to it.
///
/// A layer starts and ends with [`Program::seam_tokens`] tokens in each of the queues
/// compute->load and store->compute, and the other two queues empty. Without any, it is over
/// before the next one starts. With some, modules that are done with a layer start the next one:
/// the tokens that its last instructions leave say which scratchpad tiles and which of its
/// outputs it is done with, in an order that the compiler and the layer agree on. The driver adds
/// them at the start of a batch, when nothing is in use, and takes them at its end.
///
/// Bundles have it in this form, but of the commands their number.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Layer {
    /// The graph node's name.
    pub name: String,
    /// The kind, for tables: `conv`, `dense`, `add`, `maxpool`, `avgpool`, `eltwise`.
    pub kind: String,
    /// In program order.
    #[serde(serialize_with = "number", skip_deserializing)]
    pub commands: Vec<Command>,
    /// Ascending positions in `commands` where a batch may be cut: the token queues are as at
    /// the layer's end, and no scratchpad content (micro-ops apart) is needed later. The end of
    /// the layer is always one and isn't listed.
    pub cuts: Vec<u32>,
    /// Multiply-adds of the mathematical operation (padding of channels not counted).
    pub macs: u64,
    /// What its GEMM steps are for.
    #[serde(default)]
    pub steps: GemmSteps,
    /// Index into [`Program::tensors`] of what the layer writes.
    pub output: u32,
    /// The network's nodes that it computes, in their order: one, or a convolution and the pool
    /// that joined it. None where nothing is known of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeInfo>,
}

/// What bundles have of a layer's commands, which lie in a section of their own.
fn number<S: Serializer>(commands: &[Command], to: S) -> Result<S::Ok, S::Error> {
    commands.len().serialize(to)
}

impl Layer {
    /// The name with what the layer computes, for errors: `conv1 (conv 3x32x32 to 16x32x32)`.
    pub fn described(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        match nodes[..] {
            [] => self.name.clone(),
            _ => format!("{} ({})", self.name, nodes.join(", ")),
        }
    }
}

/// How an NCHW int8 tensor lies in its device buffer; in bundles the window, `null` for tiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Packing {
    /// `[ceil(C/BLOCK)][H][W][BATCH][BLOCK]`, channels beyond C zero.
    #[default]
    Tiles,
    /// The patches of a convolution, gathered by the host:
    /// `[ceil(C*KH*KW/BLOCK)][OH][OW][BATCH][BLOCK]`, where column `(c*KH + kh)*KW + kw` of output
    /// position `(oh, ow)` holds `x[c][oh*stride_h + kh*dilation_h - pad_top][..]`, the tensor's zero
    /// point outside.
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

/// A tensor of the program: a layer's output, the input, the output. Bundles have it in this form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// The graph's name.
    pub name: String,
    /// Where it lies.
    pub buffer: BufferId,
    /// Where it starts there: a whole number of tiles. Tensors whose channels others have may lie
    /// in one buffer, beside or within each other.
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset_bytes: u64,
    /// Channels, rows, columns of one image (`[C, 1, 1]` for vectors).
    pub chw: [u32; 3],
    /// Real value of one step: `real = scale * (value - zero)`.
    #[serde(rename = "scale_bits", with = "scale_bits")]
    pub scale: f32,
    /// The zero point: what stands for a real 0, and for padding. Bundles before there were others
    /// than 0 have none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub zero: i16,
    /// Layout in the buffer.
    #[serde(rename = "im2col", default)]
    pub packing: Packing,
}

/// Whether bundles leave a value out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The bits of an f32, so that nothing is lost in decimal.
mod scale_bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(scale: &f32, to: S) -> Result<S::Ok, S::Error> {
        scale.to_bits().serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<f32, D::Error> {
        u32::deserialize(from).map(f32::from_bits)
    }
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
    /// Tokens that every layer finds and leaves (see [`Layer`]), at most 16.
    pub seam_tokens: u32,
    /// Network inputs, indices into `tensors`.
    pub inputs: Vec<u32>,
    /// Network outputs, indices into `tensors`.
    pub outputs: Vec<u32>,
    /// Free key-value facts: `model`, `preprocess`, `labels` (JSON text) and so on.
    pub metadata: BTreeMap<String, String>,
}

impl Program {
    /// Values of an image: of all inputs together.
    ///
    /// # Errors
    /// [`ProgramError::Tensor`] for an input that isn't there.
    pub fn input_len(&self) -> Result<usize, ProgramError> {
        let lens = self.inputs.iter().map(|&index| self.tensor(index));
        lens.map(|tensor| Ok(tensor?.image_len())).sum()
    }

    /// Instructions before the first layer of a batch: they leave the tokens that it expects.
    /// Nothing is in use.
    pub fn opening(&self) -> Vec<Insn> {
        let deps = Deps {
            push_prev: true,
            ..Deps::NONE
        };
        let store = Store {
            deps,
            ..Store::default()
        };
        // The one before store is compute, and the one before compute is load: each gets its tokens from
        // behind.
        let both = [store.into(), synchronise(MemType::Acc, deps)];
        (0..self.seam_tokens).flat_map(|_| both).collect()
    }

    /// Instructions after the last layer of a batch, before FINISH: they take the tokens that it
    /// left, so that all modules are done.
    pub fn closing(&self) -> Vec<Insn> {
        let deps = Deps {
            pop_next: true,
            ..Deps::NONE
        };
        let all = |mem| (0..self.seam_tokens).map(move |_| synchronise(mem, deps));
        all(MemType::Inp).chain(all(MemType::Acc)).collect()
    }
}

/// A LOAD that only moves tokens: of the load module for INP, of the compute module for ACC.
fn synchronise(mem: MemType, deps: Deps) -> Insn {
    Insn::Load(Load {
        deps,
        mem,
        ..Load::default()
    })
}
