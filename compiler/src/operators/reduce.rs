//! Operators that take several elements together, in any order or step by step, and those that choose some: the host's.

use super::operator::{Bound, Kind, Operator, Size};
use crate::graph::Element;

const fn places(kind: &'static str) -> Operator {
    Operator::new(kind, Size::Computed(Bound::First), Kind::Is(Element::I64))
}

pub(super) const OPERATORS: &[Operator] = &[
    places("ArgMax"),
    places("ArgMin"),
    Operator::same("CumSum"),
    Operator::new("OneHot", Size::Computed(Bound::Depth), Kind::Third),
    Operator::computed("Range", Bound::Range),
    Operator::new("ConstantOfShape", Size::Computed(Bound::Shape), Kind::Value),
    Operator::same("EyeLike"),
    Operator::fewer("ReduceL1"),
    Operator::fewer("ReduceL2"),
    Operator::fewer("ReduceLogSum"),
    Operator::fewer("ReduceLogSumExp"),
    Operator::fewer("ReduceMax"),
    Operator::fewer("ReduceMin"),
    Operator::fewer("ReduceProd"),
    Operator::fewer("ReduceSum"),
    Operator::fewer("ReduceSumSquare"),
    Operator::fewer("TopK"),
    Operator::same("Trilu"),
    Operator::new("LSTM", Size::States, Kind::First),
    Operator::new("GRU", Size::States, Kind::First),
    Operator::new("RNN", Size::States, Kind::First),
    Operator::new("NonMaxSuppression", Size::Chosen, Kind::Is(Element::I64)),
    Operator::new("NonZero", Size::Chosen, Kind::Is(Element::I64)),
    Operator::new("Compress", Size::Chosen, Kind::First),
    // What a file knows the shape of is a constant instead.
    places("Shape"),
    places("Size"),
    Operator::same("ReverseSequence"),
    Operator::same("RotaryEmbedding"),
    Operator::computed("Attention", Bound::Scores),
    Operator::computed("GridSample", Bound::Grid),
];
