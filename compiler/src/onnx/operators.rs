//! What is known of operators that are kept as a file has them: how large their outputs are, and of
//! which type. What isn't listed here isn't read, unless it is computed from constants alone.

use super::proto;
use crate::graph::{Element, OnnxAttribute, OnnxOp};

/// An operator.
pub(super) struct Known {
    /// ONNX's name.
    pub kind: &'static str,
    /// The operator set that it is of; empty for ONNX's own.
    pub domain: &'static str,
    /// How large its outputs are.
    pub size: Size,
    /// The type of its first output.
    pub element: Kind,
}

/// How large an operator's outputs are.
#[derive(Clone, Copy)]
pub(super) enum Size {
    /// As its first input.
    First,
    /// As its inputs together, each dimension the largest of theirs.
    Broadcast,
    /// As a product of matrices.
    Product,
    /// As a window over the second dimension and those behind it gives.
    Window(WindowKind),
    /// What computing it says, with at most as many elements as the bound.
    Computed(Bound),
}

/// What goes over a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowKind {
    /// A convolution, whose weights are its second input.
    Conv,
    /// A transposed one.
    ConvTranspose,
    /// A pool.
    Pool,
    /// A pool over everything.
    Global,
}

/// The most elements of each output, which are counted before it is computed.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    /// As the first input has.
    First,
    /// As all inputs have together.
    Sum,
    /// The first input's for each of the second's.
    Index,
    /// As a constant input or an attribute says.
    Stated(Stated),
}

/// Where the sizes of an output stand.
#[derive(Clone, Copy)]
pub(super) enum Stated {
    /// ConstantOfShape: the shape itself.
    Shape,
    /// Expand: a shape that the first input is broadcast with.
    Expand,
    /// Tile: a factor for each dimension.
    Repeats,
    /// Pad: elements before and behind each dimension.
    Pads,
    /// Resize: sizes or factors.
    Resize,
    /// Range: start, limit and step.
    Range,
    /// OneHot: how many classes.
    Depth,
    /// Einsum: sizes of the letters.
    Letters,
}

/// The type of an output.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// As the first input.
    First,
    /// As the second.
    Second,
    /// As the third.
    Third,
    /// Always this.
    Is(Element),
    /// What the attribute `to` says.
    To,
    /// That of the tensor in the attribute `value`.
    Value,
}

use Bound::{Index, Stated as At, Sum};
use Kind::{First as Like, Is};
use Size::{Broadcast, Computed, First as Same, Product, Window};

const FLOAT: Kind = Is(Element::F32);
const TRUTH: Kind = Is(Element::Bool);
const LONG: Kind = Is(Element::I64);
/// At most as many elements as the first input, of its type.
const FEWER: (Size, Kind) = (Computed(Bound::First), Like);

/// ONNX's own operators.
const TABLE: &[(&str, Size, Kind)] = &[
    ("Abs", Same, Like),
    ("Acos", Same, Like),
    ("Acosh", Same, Like),
    ("Add", Broadcast, Like),
    ("And", Broadcast, TRUTH),
    ("ArgMax", Computed(Bound::First), LONG),
    ("ArgMin", Computed(Bound::First), LONG),
    ("Asin", Same, Like),
    ("Asinh", Same, Like),
    ("Atan", Same, Like),
    ("Atanh", Same, Like),
    ("AveragePool", Window(WindowKind::Pool), Like),
    ("BatchNormalization", Same, Like),
    ("Cast", Same, Kind::To),
    ("CastLike", Same, Kind::Second),
    ("Ceil", Same, Like),
    ("Celu", Same, Like),
    ("Clip", Same, Like),
    ("Concat", Computed(Sum), Like),
    ("ConstantOfShape", Computed(At(Stated::Shape)), Kind::Value),
    ("Conv", Window(WindowKind::Conv), Like),
    ("ConvTranspose", Window(WindowKind::ConvTranspose), Like),
    ("Cos", Same, Like),
    ("Cosh", Same, Like),
    ("CumSum", Same, Like),
    ("DepthToSpace", FEWER.0, FEWER.1),
    ("DequantizeLinear", Same, FLOAT),
    ("Div", Broadcast, Like),
    ("Dropout", Same, Like),
    ("Einsum", Computed(At(Stated::Letters)), Like),
    ("Elu", Same, Like),
    ("Equal", Broadcast, TRUTH),
    ("Erf", Same, Like),
    ("Exp", Same, Like),
    ("Expand", Computed(At(Stated::Expand)), Like),
    ("EyeLike", Same, Like),
    ("Flatten", FEWER.0, FEWER.1),
    ("Floor", Same, Like),
    ("Gather", Computed(Index), Like),
    ("GatherElements", Computed(Index), Like),
    ("GatherND", Computed(Index), Like),
    ("Gelu", Same, Like),
    ("Gemm", Product, Like),
    ("GlobalAveragePool", Window(WindowKind::Global), Like),
    ("GlobalMaxPool", Window(WindowKind::Global), Like),
    ("Greater", Broadcast, TRUTH),
    ("GreaterOrEqual", Broadcast, TRUTH),
    ("GroupNormalization", Same, Like),
    ("HardSigmoid", Same, Like),
    ("HardSwish", Same, Like),
    ("Identity", Same, Like),
    ("InstanceNormalization", Same, Like),
    ("IsInf", Same, TRUTH),
    ("IsNaN", Same, TRUTH),
    ("LRN", Same, Like),
    ("LayerNormalization", Same, Like),
    ("LeakyRelu", Same, Like),
    ("Less", Broadcast, TRUTH),
    ("LessOrEqual", Broadcast, TRUTH),
    ("Log", Same, Like),
    ("LogSoftmax", Same, Like),
    ("LpNormalization", Same, Like),
    ("MatMul", Product, Like),
    ("Max", Broadcast, Like),
    ("MaxPool", Window(WindowKind::Pool), Like),
    ("Mean", Broadcast, Like),
    ("Min", Broadcast, Like),
    ("Mish", Same, Like),
    ("Mod", Broadcast, Like),
    ("Mul", Broadcast, Like),
    ("Neg", Same, Like),
    ("Not", Same, TRUTH),
    ("OneHot", Computed(At(Stated::Depth)), Kind::Third),
    ("Or", Broadcast, TRUTH),
    ("PRelu", Broadcast, Like),
    ("Pad", Computed(At(Stated::Pads)), Like),
    ("Pow", Broadcast, Like),
    ("QuantizeLinear", Same, Kind::Third),
    ("RMSNormalization", Same, Like),
    ("Range", Computed(At(Stated::Range)), Like),
    ("Reciprocal", Same, Like),
    ("ReduceL1", FEWER.0, FEWER.1),
    ("ReduceL2", FEWER.0, FEWER.1),
    ("ReduceLogSum", FEWER.0, FEWER.1),
    ("ReduceLogSumExp", FEWER.0, FEWER.1),
    ("ReduceMax", FEWER.0, FEWER.1),
    ("ReduceMean", FEWER.0, FEWER.1),
    ("ReduceMin", FEWER.0, FEWER.1),
    ("ReduceProd", FEWER.0, FEWER.1),
    ("ReduceSum", FEWER.0, FEWER.1),
    ("ReduceSumSquare", FEWER.0, FEWER.1),
    ("Relu", Same, Like),
    ("Reshape", FEWER.0, FEWER.1),
    ("Resize", Computed(At(Stated::Resize)), Like),
    ("Round", Same, Like),
    ("ScatterElements", Same, Like),
    ("ScatterND", Same, Like),
    ("Selu", Same, Like),
    ("Sigmoid", Same, Like),
    ("Sign", Same, Like),
    ("Sin", Same, Like),
    ("Sinh", Same, Like),
    ("Slice", FEWER.0, FEWER.1),
    ("Softmax", Same, Like),
    ("Softplus", Same, Like),
    ("Softsign", Same, Like),
    ("Split", FEWER.0, FEWER.1),
    ("Sqrt", Same, Like),
    ("Squeeze", FEWER.0, FEWER.1),
    ("Sub", Broadcast, Like),
    ("Sum", Broadcast, Like),
    ("Swish", Same, Like),
    ("Tan", Same, Like),
    ("Tanh", Same, Like),
    ("Tile", Computed(At(Stated::Repeats)), Like),
    ("TopK", FEWER.0, FEWER.1),
    ("Transpose", FEWER.0, FEWER.1),
    ("Trilu", Same, Like),
    ("Unsqueeze", FEWER.0, FEWER.1),
    ("Where", Broadcast, Kind::Second),
    ("Xor", Broadcast, TRUTH),
];

/// The type that values of one of ONNX's types are read as; floats become float32.
///
/// # Errors
/// A type that isn't supported, in words.
pub(super) fn element(data_type: i32) -> Result<Element, String> {
    Ok(match data_type {
        proto::FLOAT | proto::FLOAT16 | proto::BFLOAT16 | proto::DOUBLE => Element::F32,
        proto::INT8 => Element::I8,
        proto::UINT8 => Element::U8,
        proto::INT32 => Element::I32,
        proto::INT64 => Element::I64,
        proto::BOOL => Element::Bool,
        other => {
            return Err(format!(
                "data type {other} is not supported (floats, int8, uint8, int32, int64 and bool are)"
            ));
        }
    })
}

/// The operator of a name; `None` for one that isn't known.
pub(super) fn known(domain: &str, op_type: &str) -> Option<Known> {
    if !domain.is_empty() && domain != "ai.onnx" {
        return None;
    }
    let at = TABLE
        .binary_search_by(|(kind, ..)| (*kind).cmp(op_type))
        .ok()?;
    let (kind, size, element) = TABLE[at];
    Some(Known {
        kind,
        domain: "",
        size,
        element,
    })
}

impl Known {
    /// The type of an output, of operators that have a second one, too.
    ///
    /// # Errors
    /// An attribute that says none, in words.
    pub(super) fn output(&self, op: &OnnxOp, inputs: &[Element]) -> Result<Element, String> {
        // What stands beside maxima, and chosen values, is where they were.
        if op.output == 1 && matches!(op.kind, "MaxPool" | "TopK") {
            return Ok(Element::I64);
        }
        if op.output == 1 && op.kind == "Dropout" {
            return Ok(Element::Bool);
        }
        let input = |argument: usize| {
            let at = op.place(argument).and_then(|at| inputs.get(at));
            at.copied()
                .ok_or_else(|| format!("its input {argument} is missing"))
        };
        match self.element {
            Kind::First => input(0),
            Kind::Second => input(1),
            // QuantizeLinear without a zero point makes uint8.
            Kind::Third if op.kind == "QuantizeLinear" => Ok(input(2).unwrap_or(Element::U8)),
            Kind::Third => input(2),
            Is(element) => Ok(element),
            Kind::To => element(op.int("to", 0) as i32),
            Kind::Value => match op.attribute("value") {
                Some(OnnxAttribute::Tensor { data, .. }) => Ok(data.element()),
                _ => Ok(Element::F32),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_by_their_names() {
        assert!(TABLE.is_sorted_by(|(a, ..), (b, ..)| a < b));
        for (kind, ..) in TABLE {
            assert_eq!(known("", kind).map(|k| k.kind), Some(*kind));
        }
        assert!(known("", "NonMaxSuppression").is_none());
        assert!(known("com.example", "Add").is_none());
    }
}
