//! Lane operations: what happens to every int32 of an accumulator between a sum and its int8.

use std::fmt;
use std::sync::Arc;

use vta_isa::AluOp;

/// One operation on every int32 lane, in the order of execution: `x = kind(x, operand)`. It is
/// one ALU instruction on the device and one int32 operation in the reference interpreter.
///
/// ```
/// use vta_compiler::qgraph::LaneOp;
///
/// let ops = [LaneOp::add(vec![3, 5]), LaneOp::shr(4)];
/// assert_eq!(ops.map(|op| op.to_string()), ["add[2]", "shr 4"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOp {
    /// What is done.
    pub kind: LaneKind,
    /// With what.
    pub operand: LaneOperand,
}

/// What a lane operation does: any operation of the device's ALU.
pub type LaneKind = AluOp;

/// The second operand of a lane operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneOperand {
    /// The same for every lane.
    Imm(i16),
    /// One for each channel of the node's output.
    Vec(Vec<i32>),
    /// One for each value of the node's output, `[C][H][W]`, or one for each position of all channels,
    /// `[H][W]`. Sums, products and element-wise operations alone have such.
    Plane(Arc<[i32]>),
}

impl From<i16> for LaneOperand {
    fn from(imm: i16) -> Self {
        Self::Imm(imm)
    }
}

impl From<Arc<[i32]>> for LaneOperand {
    fn from(by_position: Arc<[i32]>) -> Self {
        Self::Plane(by_position)
    }
}

impl From<Vec<i32>> for LaneOperand {
    fn from(by_channel: Vec<i32>) -> Self {
        Self::Vec(by_channel)
    }
}

impl LaneOperand {
    /// The operand of a channel; `None` when the vector is too short, or a channel has several.
    pub fn of_channel(&self, channel: usize) -> Option<i32> {
        match self {
            Self::Imm(imm) => Some((*imm).into()),
            Self::Vec(by_channel) => by_channel.get(channel).copied(),
            Self::Plane(_) => None,
        }
    }

    /// The operands of a channel that has one for each of its `len` lanes; `None` when there are too few, or
    /// the channel has one operand.
    pub fn of_lanes(&self, channel: usize, len: usize) -> Option<&[i32]> {
        match self {
            // One for each position serves all channels. Of a single channel both forms are the same.
            Self::Plane(all) if all.len() == len => Some(all),
            Self::Plane(all) => all.chunks_exact(len.max(1)).nth(channel),
            Self::Imm(_) | Self::Vec(_) => None,
        }
    }

    /// Whether a rule holds for the operands of all channels.
    pub fn all(&self, rule: impl Fn(i32) -> bool) -> bool {
        match self {
            Self::Imm(imm) => rule((*imm).into()),
            Self::Vec(by_channel) => by_channel.iter().all(|&y| rule(y)),
            Self::Plane(by_position) => by_position.iter().all(|&y| rule(y)),
        }
    }
}

impl LaneOp {
    /// An operation with an immediate or a vector.
    pub fn new(kind: LaneKind, operand: impl Into<LaneOperand>) -> Self {
        let operand = operand.into();
        Self { kind, operand }
    }

    /// `x + y`.
    pub fn add(y: impl Into<LaneOperand>) -> Self {
        Self::new(LaneKind::Add, y)
    }

    /// `x * y`.
    pub fn mul(y: impl Into<LaneOperand>) -> Self {
        Self::new(LaneKind::Mul, y)
    }

    /// `x >> y`.
    pub fn shr(y: impl Into<LaneOperand>) -> Self {
        Self::new(LaneKind::Shr, y)
    }

    /// `x << y`.
    pub fn shl(y: impl Into<LaneOperand>) -> Self {
        Self::new(LaneKind::Shl, y)
    }

    /// `min(x, y)`.
    pub fn min(y: impl Into<LaneOperand>) -> Self {
        Self::new(LaneKind::Min, y)
    }

    /// `max(x, y)`.
    pub fn max(y: impl Into<LaneOperand>) -> Self {
        Self::new(LaneKind::Max, y)
    }

    /// Whether a larger value never becomes a smaller one, as long as nothing wraps.
    pub fn never_decreases(&self) -> bool {
        match self.kind {
            LaneKind::Mul => self.operand.all(|y| y >= 0),
            LaneKind::Add
            | LaneKind::Shr
            | LaneKind::Shl
            | LaneKind::Min
            | LaneKind::Max
            | LaneKind::Clip
            | LaneKind::Mov => true,
        }
    }

    /// The vector, one for each channel; `None` for any other operand.
    pub fn vector(&self) -> Option<&[i32]> {
        match &self.operand {
            LaneOperand::Vec(by_channel) => Some(by_channel),
            LaneOperand::Imm(_) | LaneOperand::Plane(_) => None,
        }
    }

    /// The operands of positions; `None` for any other.
    pub fn plane(&self) -> Option<&[i32]> {
        match &self.operand {
            LaneOperand::Plane(by_position) => Some(by_position),
            LaneOperand::Imm(_) | LaneOperand::Vec(_) => None,
        }
    }
}

impl fmt::Display for LaneOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name();
        match &self.operand {
            LaneOperand::Imm(imm) => write!(f, "{name} {imm}"),
            LaneOperand::Vec(by_channel) => write!(f, "{name}[{}]", by_channel.len()),
            LaneOperand::Plane(all) => write!(f, "{name}[{} values]", all.len()),
        }
    }
}
