//! The files of every crate stand in layers: none uses another that uses it back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vta_house::Imports;

use crate::architecture::{CRATES, root, sources};

#[test]
fn files_stand_in_layers() {
    let root = root();
    let mut found = String::new();
    for folder in CRATES {
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

/// More files than that aren't taken in at a glance.
#[test]
fn a_floor_has_at_most_sixteen_files() {
    let mut full = String::new();
    for name in CRATES {
        let mut floors = BTreeMap::<PathBuf, usize>::new();
        let mut files = Vec::new();
        sources(&root().join(name), &mut files);
        for file in files {
            *floors.entry(file.parent().unwrap().into()).or_default() += 1;
        }
        for (floor, files) in floors.iter().filter(|(_, files)| **files > 16) {
            full += &format!("\n{}: {files}", floor.display());
        }
    }
    assert!(full.is_empty(), "folders with too many files:{full}");
}
