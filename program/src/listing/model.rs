//! What a listing is.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vta_isa::{Config, Insn, MemType, Uop};

use super::geometry::Geometry;

/// A listing that can't be made or read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListingError {
    /// A program that has no listing.
    #[error("{0}")]
    Program(String),
    /// A line that isn't one of a listing.
    #[error("line {line}: {reason}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// What contradicts itself as a whole.
    #[error("the listing contradicts itself: {0}")]
    Inconsistent(String),
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferUse {
    /// The host writes it before.
    Constant,
    /// Has network inputs, which the host writes.
    Input,
    /// Has network outputs.
    Output,
    /// Between layers; may share bytes with others of the kind.
    Scratch,
}

/// A piece of DRAM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedBuffer {
    /// The graph's name.
    #[serde(skip)]
    pub name: String,
    /// What it is for.
    pub kind: BufferUse,
    /// Its first byte.
    pub start: u64,
    /// Its size.
    pub bytes: u64,
}

/// A tensor in blocks of channels: `[blocks][rows][cols]` tiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedTensor {
    /// The graph's name.
    #[serde(skip)]
    pub name: String,
    /// Where it lies.
    pub buffer: u32,
    /// Its first byte, in DRAM.
    pub start: u64,
    /// Channels.
    pub channels: u32,
    /// Blocks, rows and columns as they lie in memory.
    pub tiles: [u32; 3],
    /// The host writes it.
    pub input: bool,
    /// The host reads it in the end.
    pub output: bool,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedInsn {
    /// With `dram_base` in elements from address 0 on, and micro-ops from the start of the kernel on.
    pub insn: Insn,
    /// The kernel of a GEMM or ALU instruction.
    pub kernel: Option<u32>,
    /// Which of its layer's tiles: one ends with the STOREs that write its outputs.
    pub tile: u32,
    /// A batch may end before it: what scratchpads hold is lost.
    pub cut: bool,
}

/// A layer.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedLayer {
    /// The graph's name.
    pub name: String,
    /// The kind, for tables.
    pub kind: String,
    /// What it computes.
    pub geometry: Geometry,
    /// In program order.
    pub insns: Vec<ListedInsn>,
}

/// A compiled network with what each of its layers computes. The default is an empty one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The machine.
    pub config: Config,
    /// Pieces of DRAM.
    pub buffers: Vec<ListedBuffer>,
    /// Tensors.
    pub tensors: Vec<ListedTensor>,
    /// Micro-ops of each kernel.
    pub kernels: Vec<Vec<Uop>>,
    /// In execution order.
    pub layers: Vec<ListedLayer>,
}

impl Listing {
    /// Instructions in all.
    pub fn len(&self) -> usize {
        self.layers.iter().map(|layer| layer.insns.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the first weight tile of 4 bits: those of 8 bits count from the address 0 on, and these behind them
    /// all. So a number is a tile.
    pub(crate) fn first_wgt4(&self) -> u64 {
        let ends = self.buffers.iter().map(|b| b.start + b.bytes);
        ends.max().unwrap_or(0) / self.config.elem_bytes(MemType::Wgt) as u64 + 1
    }
}
