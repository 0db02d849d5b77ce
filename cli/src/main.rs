//! vta
fn main() {}
