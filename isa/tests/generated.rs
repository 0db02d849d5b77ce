//! What is generated from the declarations and committed is what they say.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vta_isa::{header, reference};

/// Compares a file of the repository with its text, or writes it, if `VTA_UPDATE_GENERATED` is set.
fn fresh(file: &str, expected: impl Fn(&str) -> String) {
    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&found);
    if std::env::var_os("VTA_UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        found == expected,
        "{file} is stale: run VTA_UPDATE_GENERATED=1 cargo test -p vta-isa --test generated"
    );
}

#[test]
fn the_opencl_header_is_fresh() {
    fresh("hw-opencl/kernels/vta_isa.h", |_| header::opencl_header());
}

#[test]
fn the_tables_of_the_documentation_are_fresh() {
    let (begin, end) = ("<!-- generated: tables -->\n", "<!-- end of generated -->");
    fresh("docs/isa.md", |found| {
        let (before, rest) = found.split_once(begin).unwrap();
        let (_, after) = rest.split_once(end).unwrap();
        format!("{before}{begin}{}{end}{after}", reference::tables())
    });
}
