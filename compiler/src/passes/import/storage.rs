//! The integers that files have for activations.

use crate::graph::{Element, Graph, Node, Op, ValueId};
use crate::qgraph::Numbers;

/// The integers of a file. Unsigned ones are read less the half of their range, so that signed ones hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
}

impl Storage {
    /// That of a constant's type; `None` for types that hold no steps.
    pub(crate) const fn of(element: Element) -> Option<Self> {
        match element {
            Element::I8 => Some(Self::Int8),
            Element::U8 => Some(Self::Uint8),
            Element::I16 => Some(Self::Int16),
            Element::U16 => Some(Self::Uint16),
            Element::I32 => Some(Self::Int32),
            Element::F32 | Element::I64 | Element::Bool => None,
        }
    }

    /// The numbers of an activation; `None` for those that none has.
    pub(crate) const fn numbers(self) -> Option<Numbers> {
        match self {
            Self::Int8 | Self::Uint8 => Some(Numbers::Int8),
            Self::Int16 | Self::Uint16 => Some(Numbers::Int16),
            Self::Int32 => None,
        }
    }

    /// What signed values are less.
    pub(crate) const fn offset(self) -> i32 {
        match self {
            Self::Int8 | Self::Int16 | Self::Int32 => 0,
            Self::Uint8 => 1 << 7,
            Self::Uint16 => 1 << 15,
        }
    }

    /// The smallest and the largest.
    pub(crate) fn bounds(self) -> (f64, f64) {
        let (low, high) = match self.numbers() {
            Some(numbers) => {
                let (low, high) = numbers.bounds();
                (i32::from(low), i32::from(high))
            }
            None => (i32::MIN, i32::MAX),
        };
        let offset = f64::from(self.offset());
        (f64::from(low) + offset, f64::from(high) + offset)
    }
}

/// The numbers of a graph's tensors: int16 where any activation is rounded to 16 bits.
pub(crate) fn numbers(graph: &Graph) -> Numbers {
    let data = |id: &ValueId| graph.values[id.0].data.as_ref();
    let rounds = |node: &&Node| {
        let linear = matches!(
            node.op,
            Op::QuantizeLinear { .. } | Op::DequantizeLinear { .. }
        );
        linear && node.inputs.first().is_some_and(|id| data(id).is_none())
    };
    let mut zeros = graph.nodes.iter().filter(rounds);
    let wide = zeros.any(|node| {
        let zero = node.inputs.get(2).and_then(data);
        let storage = zero.and_then(|zero| Storage::of(zero.element()));
        storage.and_then(Storage::numbers) == Some(Numbers::Int16)
    });
    if wide { Numbers::Int16 } else { Numbers::Int8 }
}
