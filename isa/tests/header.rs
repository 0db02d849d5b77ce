//! The committed OpenCL header is what the bitfields say.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[test]
fn the_committed_opencl_header_is_fresh() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../hw-opencl/kernels/vta_isa.h"
    );
    let expected = vta_isa::header::opencl_header();
    if std::env::var_os("VTA_UPDATE_HEADER").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is stale: run VTA_UPDATE_HEADER=1 cargo test -p vta-isa --test header"
    );
}
