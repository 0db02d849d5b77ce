//! Operators that take several elements together, in any order or step by step, and those that choose some: the host's.

use super::operator::{Bound, Kind, Operator, Size, Stated};
use crate::graph::Element;

const fn places(kind: &'static str) -> Operator {
    Operator::new(kind, Size::Computed(Bound::First), Kind::Is(Element::I64))
}

const fn stated(kind: &'static str, at: Stated) -> Operator {
    Operator::new(kind, Size::Computed(Bound::Stated(at)), Kind::First)
}

pub(super) const OPERATORS: &[Operator] = &[
    places("ArgMax"),
    places("ArgMin"),
    Operator::same("CumSum"),
    Operator::new(
        "OneHot",
        Size::Computed(Bound::Stated(Stated::Depth)),
        Kind::Third,
    ),
    Operator::new(
        "Range",
        Size::Computed(Bound::Stated(Stated::Range)),
        Kind::First,
    ),
    Operator::new(
        "ConstantOfShape",
        Size::Computed(Bound::Stated(Stated::Shape)),
        Kind::Value,
    ),
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
    stated("LSTM", Stated::States),
    stated("GRU", Stated::States),
    // How many there are depends on the values: of constants alone.
    Operator::new(
        "NonZero",
        Size::Computed(Bound::Stated(Stated::Found)),
        Kind::Is(Element::I64),
    ),
    Operator::same("ReverseSequence"),
    Operator::same("RotaryEmbedding"),
    stated("Attention", Stated::Scores),
    stated("GridSample", Stated::Grid),
];
