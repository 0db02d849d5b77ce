//! What a layer computes, in blocks of channels, whatever its instructions do: the compiler says it of the
//! network's nodes, and the proof of [`crate::coverage`] holds the instructions against it.

use serde::{Deserialize, Serialize};
use vta_isa::MemType;

/// What a layer's constant is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Weight tiles `[O][I][KH][KW][part]`, of a grouped convolution the input blocks from each output block's first on.
    Weights,
    /// The same in 4 bits each.
    Weights4,
    /// The input tile that the bias's digits are multiplied with.
    BiasInput,
    /// Digits of the bias, weight tiles `[O][region][step]`.
    Bias,
    /// Accumulator tiles `[list][O]`: a value for each channel.
    Vectors,
    /// Diagonal weight tiles for a residual, `[O][step]`, or `[step]` where all channels have the same.
    Diagonals,
    /// A weight tile that leaves input tiles as they are.
    Identity,
    /// Weight tiles that take lanes of input blocks.
    Selection,
    /// Accumulator tiles `[O][H][W]`, or `[H][W]` for all blocks.
    Constants,
    /// Accumulator tiles `[O][word]`: how STOREs round, or `[word]` for all blocks.
    Roundings,
}

impl Role {
    /// What its elements are loaded as.
    pub const fn mem(self) -> MemType {
        match self {
            Self::Weights | Self::Bias | Self::Diagonals | Self::Identity | Self::Selection => {
                MemType::Wgt
            }
            Self::Weights4 => MemType::Wgt4,
            Self::BiasInput => MemType::Inp,
            Self::Vectors | Self::Constants | Self::Roundings => MemType::Acc,
        }
    }

    /// The end of the constant's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weights | Self::Weights4 => "weights",
            Self::BiasInput => "bias input",
            Self::Bias => "bias",
            Self::Vectors => "vectors",
            Self::Diagonals => "diagonals",
            Self::Identity => "identity",
            Self::Selection => "selection",
            Self::Constants => "constants",
            Self::Roundings => "roundings",
        }
    }
}

/// A window; rows come before columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowGeometry {
    /// Taps.
    pub kernel: [u32; 2],
    /// Positions from output to output.
    pub stride: [u32; 2],
    /// Positions from tap to tap.
    pub dilation: [u32; 2],
    /// Padding above and on the left.
    pub before: [u32; 2],
}

impl WindowGeometry {
    /// The input position of a tap of an output, if it isn't padding.
    pub fn input(&self, axis: usize, out: u32, tap: u32, size: u32) -> Option<u32> {
        let [out, tap] = [(out, self.stride[axis]), (tap, self.dilation[axis])]
            .map(|(at, step)| u64::from(at) * u64::from(step));
        // In u64: a position times a stride may be beyond u32. Below 0 is padding.
        let at = (out + tap).checked_sub(u64::from(self.before[axis]))?;
        u32::try_from(at).ok().filter(|at| *at < size)
    }

    /// Taps.
    pub fn area(&self) -> u64 {
        u64::from(self.kernel[0]) * u64::from(self.kernel[1])
    }
}

/// How a residual comes to the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResidualBy {
    /// There is none.
    None,
    /// Loaded into the accumulators.
    Load,
    /// Added by the STOREs.
    Store,
    /// Multiplied with diagonal tiles, digit by digit.
    Product {
        /// Diagonal tiles for each of its tiles.
        steps: u32,
        /// All channels have the same.
        uniform: bool,
    },
}

/// Outputs with a bias of their own: rows and columns, each from one to before another.
pub type Region = [[u32; 2]; 2];

/// A convolution or a dense layer, perhaps with a max pool behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvGeometry {
    /// Over the input as it lies in memory: 1x1 where the host gathers patches.
    pub window: WindowGeometry,
    /// Rows and columns of outputs, before the pool.
    pub output: [u32; 2],
    /// Groups of channels.
    pub group: u32,
    /// Weights that are added up.
    pub parts: u32,
    /// Weight tiles of parts after the first that are all zeros, which no step visits.
    pub blank: Vec<u32>,
    /// Steps of the matrix unit that add the bias; 0 where it is a vector, or there is none.
    pub bias_steps: u32,
    /// Outputs with a bias of their own.
    pub regions: Vec<Region>,
    /// The second input.
    pub residual: ResidualBy,
    /// Kernel rows whose taps a weight tile holds, where DEPTHWISE multiplies; 0 where GEMM does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_rows: u32,
    /// A max pool over the sums.
    pub pool: Option<WindowGeometry>,
}

const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Channels that are taken from inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelsGeometry {
    /// Input and channel for each output channel of each phase; `None` is a channel of zeros.
    pub map: Vec<Option<[u32; 2]>>,
    /// Output rows and columns for each of the inputs'.
    pub up: [u32; 2],
    /// Rows and columns that are left out in front.
    pub skip: [u32; 2],
    /// Rows and columns from one that is taken to the next.
    pub step: [u32; 2],
    /// Output blocks that lie where they come from, whole and unchanged, and aren't stored.
    pub kept: Vec<u32>,
    /// What each selection tile takes: pairs of an output block's lane and the input block's.
    pub tiles: Vec<Vec<[u32; 2]>>,
}

/// What outputs are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerForm {
    /// Sums of products.
    Conv(ConvGeometry),
    /// Of a window's inputs in the same block.
    Pool(WindowGeometry),
    /// Of the same place of each input; of one without rows and columns, of the same block.
    Elementwise,
    /// Of lanes of input blocks.
    Channels(ChannelsGeometry),
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// What it computes.
    pub form: LayerForm,
    /// Tensors that it reads.
    pub inputs: Vec<u32>,
    /// The tensor that it writes.
    pub output: u32,
    /// Its constants, by what they are for.
    pub constants: Vec<(Role, u32)>,
    /// A factor of its operations is 0 on a machine that clears sums for that: outputs needn't have terms.
    pub zero_factor: bool,
    /// What the layer computes in turns with it, which it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Geometry>>,
}

impl Geometry {
    /// It, and what the layer computes in turns with it.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |one| one.before.as_deref())
    }

    /// Whether a tensor is read as several operands.
    pub(crate) fn reads_twice(&self) -> bool {
        let inputs = &self.inputs;
        (1..inputs.len()).any(|at| inputs[..at].contains(&inputs[at]))
    }

    /// The constant with a role.
    pub fn constant(&self, role: Role) -> Option<u32> {
        let of = self.constants.iter().find(|(own, _)| *own == role);
        of.map(|(_, buffer)| *buffer)
    }
}
