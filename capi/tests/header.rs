//! The header that C includes is what cbindgen makes of the sources.

use std::path::Path;

/// `VTA_UPDATE_GENERATED=1 cargo test -p vta-capi --test header` writes it.
#[test]
fn vta_h_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in [
        "failure",
        "last",
        "tensor",
        "options",
        "session",
        "counters",
        "api/open",
        "api/describe",
        "api/run",
    ] {
        builder = builder.with_src(root.join("src").join(file).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/vta.h");
    if std::env::var_os("VTA_UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(
        found == made,
        "include/vta.h is stale: write it with VTA_UPDATE_GENERATED=1 cargo test -p vta-capi --test header"
    );
}

/// The linker's name for the shared library says which interface it has.
#[test]
fn the_librarys_name_has_the_version_of_the_interface() {
    let build = include_str!("../build.rs");
    let of_build = format!("const ABI: u32 = {};", vta::VTA_ABI_VERSION);
    assert!(build.contains(&of_build), "{of_build}");
}
