//! What is found.

use serde::Serialize;
use thiserror::Error;

use crate::listing::LayerForm;

/// What can't be proven or refuted within the limits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CoverageError {
    /// Work or memory.
    #[error(
        "layer {layer}: its instructions take more than {limit} {what}, the most that are followed"
    )]
    Limit {
        /// The layer.
        layer: String,
        /// How many.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
}

/// What is wrong, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A term of an output is never computed.
    Missing,
    /// A term of an output is computed more than once.
    Repeated,
    /// An output has a term that isn't its own.
    Foreign,
    /// Bytes are stored twice.
    StoredTwice,
    /// Bytes of an output are never stored.
    NeverStored,
    /// A STORE beside the layer's output.
    StoredBeside,
    /// DRAM is read that nothing wrote, or that something else has overwritten.
    ReadUnwritten,
    /// DRAM is read that isn't the layer's.
    ReadForeign,
    /// A scratchpad entry is read that nothing wrote.
    Undefined,
    /// An instruction leaves a scratchpad or its kernel.
    Outside,
    /// An output of the network is overwritten.
    Lost,
}

/// All faults of a kind in a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The layer's number.
    pub layer: usize,
    /// Of what kind.
    pub kind: FaultKind,
    /// The instruction of the first one.
    pub insn: Option<u64>,
    /// The first one, in words.
    pub text: String,
    /// How many there are.
    pub count: u64,
}

/// What was found of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LayerCoverage {
    /// The graph's name.
    pub name: String,
    /// The kind.
    pub kind: String,
    /// What outputs were compared by.
    pub proof: &'static str,
    /// Instructions.
    pub insns: u64,
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Tiles of the output, and how many of them lie where they come from.
    pub tiles: [u64; 2],
    /// Steps of the matrix unit with weights.
    pub products: u64,
    /// Tiles that come as they are, by loads to the accumulators or through the matrix unit.
    pub copies: u64,
    /// Faults.
    pub faults: u64,
}

/// What was found of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// By layer.
    pub layers: Vec<LayerCoverage>,
    /// By layer and kind.
    pub faults: Vec<Fault>,
}

impl Coverage {
    /// Whether all was proven.
    pub const fn holds(&self) -> bool {
        self.faults.is_empty()
    }
}

/// What a layer's outputs are compared by.
pub const fn proof(form: &LayerForm) -> &'static str {
    match form {
        LayerForm::Conv(_) => "products",
        LayerForm::Pool(_) => "window",
        LayerForm::Elementwise => "operands",
        LayerForm::Channels(_) => "lanes",
    }
}
