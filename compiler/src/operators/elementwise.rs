//! Operators of one element of each input: those that only the host computes.

use super::operator::{Kind, Operator, Size};
use crate::graph::Element;

const TRUTH: Kind = Kind::Is(Element::Bool);

const fn compares(kind: &'static str) -> Operator {
    Operator::new(kind, Size::Broadcast, TRUTH)
}

const fn asks(kind: &'static str) -> Operator {
    Operator::new(kind, Size::First, TRUTH)
}

pub(super) const OPERATORS: &[Operator] = &[
    Operator::same("Abs"),
    Operator::same("Acos"),
    Operator::same("Acosh"),
    Operator::same("Asin"),
    Operator::same("Asinh"),
    Operator::same("Atan"),
    Operator::same("Atanh"),
    Operator::same("Ceil"),
    Operator::same("Cos"),
    Operator::same("Cosh"),
    Operator::same("Erf"),
    Operator::same("Exp"),
    Operator::same("Floor"),
    Operator::same("Log"),
    Operator::same("Neg"),
    Operator::same("Reciprocal"),
    Operator::same("Round"),
    Operator::same("Sign"),
    Operator::same("Sin"),
    Operator::same("Sinh"),
    Operator::same("Sqrt"),
    Operator::same("Tan"),
    Operator::broadcast("BitShift"),
    Operator::broadcast("BitwiseAnd"),
    Operator::same("BitwiseNot"),
    Operator::broadcast("BitwiseOr"),
    Operator::broadcast("BitwiseXor"),
    Operator::broadcast("Max"),
    Operator::broadcast("Mean"),
    Operator::broadcast("Min"),
    Operator::broadcast("Mod"),
    Operator::broadcast("Pow"),
    Operator::broadcast("Sum"),
    Operator::new("Where", Size::Broadcast, Kind::Second),
    compares("And"),
    compares("Equal"),
    compares("Greater"),
    compares("GreaterOrEqual"),
    compares("Less"),
    compares("LessOrEqual"),
    compares("Or"),
    compares("Xor"),
    asks("IsInf"),
    asks("IsNaN"),
    asks("Not"),
];

/// The shape of two operands' elements: aligned at the last dimension, sizes are equal or 1.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let size =
        |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let join = |i: usize| match (size(a, i), size(b, i)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    let all: Option<Vec<usize>> = (0..rank).map(join).collect();
    all.ok_or_else(|| format!("shapes {a:?} and {b:?} differ"))
}
