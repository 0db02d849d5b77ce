//! The files of every crate stand in layers: none uses another that uses it back.

use std::path::Path;

use vta_tests::imports::Imports;

#[test]
fn files_stand_in_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = String::new();
    for folder in [
        "isa",
        "files",
        "program",
        "driver",
        "replay",
        "sim",
        "hw-board",
        "hw-opencl",
        "hw-rtl",
        "hw-rtl/tests/double",
        "compiler",
        "app",
        "cli",
        "python",
        "capi",
        "rt",
        "tests",
    ] {
        let file = ["lib.rs", "main.rs"].map(|f| root.join(folder).join("src").join(f));
        for file in file.iter().filter(|file| file.exists()) {
            for circle in Imports::read(file).circles() {
                let name = |path: &&Path| {
                    let path = path.strip_prefix(&root).unwrap_or(path);
                    path.display().to_string()
                };
                let names: Vec<String> = circle.iter().map(name).collect();
                found += &format!("\n{}", names.join(", "));
            }
        }
    }
    assert!(found.is_empty(), "files use each other in circles:{found}");
}
