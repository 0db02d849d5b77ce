//! Layers without a matrix product: sums, element-wise operations, pooling. int8 tiles come into
//! the accumulators (`stage`), the ALU works, STORE writes.

mod elementwise;
pub(super) mod lanes;
mod pool;
pub(super) mod tiles;
