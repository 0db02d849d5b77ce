//! How many inputs operators have.

/// Fewest and most inputs of an operator that devices may have; `None` for any other.
pub(super) fn input_counts(op_type: &str) -> Option<(usize, usize)> {
    Some(match op_type {
        "Relu" | "MaxPool" | "AveragePool" | "GlobalAveragePool" | "GlobalMaxPool" | "Flatten"
        | "Identity" | "Cast" | "LeakyRelu" | "HardSigmoid" | "HardSwish" => (1, 1),
        "ReduceMean" | "Squeeze" | "Unsqueeze" | "Upsample" | "Reshape" => (1, 2),
        "Dropout" | "Clip" => (1, 3),
        "Resize" | "Pad" => (1, 4),
        "Add" | "Mul" | "Sub" | "Div" | "PRelu" | "MatMul" => (2, 2),
        "Conv" | "Gemm" | "QuantizeLinear" | "DequantizeLinear" => (2, 3),
        "BatchNormalization" => (5, 5),
        _ => return None,
    })
}
