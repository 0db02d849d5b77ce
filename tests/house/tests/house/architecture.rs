//! The invariants of ARCHITECTURE.md that a machine can check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders of all crates.
pub const CRATES: [&str; 21] = [
    "isa",
    "files",
    "program",
    "driver",
    "replay",
    "sim",
    "compiler",
    "app",
    "cli",
    "python",
    "hw-board",
    "capi",
    "hw-opencl",
    "hw-rtl",
    "hw-rtl/tests/double",
    "rt",
    "web",
    "web/bindings",
    "tests",
    "tests/house",
    "tests/instructions",
];

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let names = |p: &serde_json::Value| -> BTreeSet<String> {
        let all = p["dependencies"].as_array().unwrap().iter();
        let normal = all.filter(|d| d["kind"].is_null());
        let names = normal.map(|d| d["name"].as_str().unwrap().to_owned());
        names.filter(|n| n.starts_with("vta")).collect()
    };
    packages
        .map(|p| (p["name"].as_str().unwrap().to_owned(), names(p)))
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let found = dependencies();
    let allowed = [
        ("vta-isa", vec![]),
        ("vta-files", vec![]),
        ("vta-program", vec!["vta-files", "vta-isa"]),
        ("vta-driver", vec!["vta-isa", "vta-program"]),
        ("vta-replay", vec!["vta-driver", "vta-isa"]),
        (
            "vta-sim",
            vec!["vta-driver", "vta-files", "vta-isa", "vta-replay"],
        ),
        ("vta-hw-board", vec!["vta-driver", "vta-files", "vta-isa"]),
        ("vta-hw-opencl", vec!["vta-driver", "vta-files", "vta-isa"]),
        ("vta-hw-rtl", vec!["vta-driver", "vta-files", "vta-isa"]),
        (
            "vta-rtl-double",
            vec!["vta-driver", "vta-files", "vta-isa", "vta-sim"],
        ),
        ("vta-compiler", vec!["vta-files", "vta-isa", "vta-program"]),
        ("vta-rt", vec![]),
        (
            "vta-app",
            vec![
                "vta-compiler",
                "vta-driver",
                "vta-files",
                "vta-hw-board",
                "vta-hw-opencl",
                "vta-hw-rtl",
                "vta-isa",
                "vta-program",
                "vta-replay",
                "vta-sim",
            ],
        ),
        (
            "pyvta",
            vec![
                "vta-app",
                "vta-capi",
                "vta-compiler",
                "vta-driver",
                "vta-files",
                "vta-isa",
                "vta-sim",
            ],
        ),
        ("vta-web", vec!["vta-app"]),
        ("vta-web-bindings", vec![]),
        (
            "vta-capi",
            vec![
                "vta-app",
                "vta-compiler",
                "vta-driver",
                "vta-isa",
                "vta-sim",
            ],
        ),
    ];
    for (name, allowed) in allowed {
        let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
        let extra: Vec<_> = found[name].difference(&allowed).collect();
        assert!(extra.is_empty(), "{name} depends on {extra:?}");
    }
    assert_eq!(
        found.len(),
        CRATES.len(),
        "a new crate needs its place here: {:?}",
        found.keys()
    );
}

pub fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// They name their own fields and functions, which the command line turns into options.
#[test]
fn libraries_know_no_options_of_the_command_line() {
    for name in CRATES
        .iter()
        .filter(|name| **name != "cli" && !name.starts_with("tests"))
    {
        let mut files = Vec::new();
        sources(&root().join(name).join("src"), &mut files);
        // There the names of each front are made.
        for file in files
            .iter()
            .filter(|file| !file.ends_with("options/names.rs"))
        {
            let text = std::fs::read_to_string(file).unwrap();
            let lines = text.lines().enumerate();
            for (i, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
                // Options of cargo and of style sheets begin or stand behind other words.
                let option = line.match_indices("--").any(|(at, _)| {
                    let (before, after) = (&line[..at], &line[at + 2..]);
                    let named = after.starts_with(|c: char| c.is_ascii_lowercase());
                    named && before.ends_with(['"', '\'', '`', ' ', '(']) && before.contains('"')
                });
                let other = ["cargo ", "--heat"].iter().any(|word| line.contains(word));
                assert!(!option || other, "{}:{}: {line}", file.display(), i + 1);
                let command = line.contains("`vta ") && line.contains('"');
                assert!(!command, "{}:{}: {line}", file.display(), i + 1);
            }
        }
    }
}

/// One module knows the library that computes on the host, so that it can be replaced.
#[test]
fn one_module_names_the_engine_of_the_host() {
    let mut naming = Vec::new();
    for name in [
        "program", "driver", "compiler", "app", "cli", "python", "capi",
    ] {
        let mut files = Vec::new();
        sources(&root().join(name).join("src"), &mut files);
        for file in files {
            if std::fs::read_to_string(&file).unwrap().contains("rten::") {
                naming.push(file);
            }
        }
    }
    let [only] = &naming[..] else {
        panic!("{naming:?} name it");
    };
    assert!(
        only.ends_with("compiler/src/engine/library.rs"),
        "{naming:?}"
    );
}

#[test]
fn the_instruction_set_does_no_input_or_output() {
    let mut files = Vec::new();
    sources(&root().join("isa/src"), &mut files);
    assert!(files.len() > 5);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["std::fs", "std::net", "std::io", "std::env", "println!"] {
            assert!(!text.contains(word), "{} uses {word}", file.display());
        }
    }
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let allowed = [
        "program/src/packing/fours.rs",
        "sim/src/kernels/avx2.rs",
        "sim/src/kernels/avx2/direct.rs",
        "sim/src/kernels/avx512.rs",
        "sim/src/kernels/avx512/amx.rs",
        "sim/src/kernels/avx512/amx/permission.rs",
        "sim/src/kernels/avx512/amx/tiles.rs",
        "sim/src/kernels/avx512/blocks.rs",
        "sim/src/kernels/avx512/diagonal.rs",
        "sim/src/kernels/avx512/direct.rs",
        "sim/src/kernels/avx512/ends.rs",
        "sim/src/kernels/avx512/input_sums.rs",
        "sim/src/kernels/avx512/madd.rs",
        "sim/src/kernels/avx512/peak.rs",
        "sim/src/kernels/avx512/staging.rs",
        "sim/src/kernels/avx512/table.rs",
        "sim/src/kernels/avx512/sums.rs",
        "sim/src/kernels/lanes.rs",
        "sim/src/kernels/neon.rs",
        "sim/src/kernels/simd128.rs",
        "sim/src/kernels/product/sheets.rs",
        "sim/src/kernels/shared.rs",
        "sim/src/kernels/source.rs",
        "capi/src/api/describe.rs",
        "capi/src/api/open.rs",
        "capi/src/api/run.rs",
        "capi/src/driver_api/calls.rs",
        "capi/src/runtime_api/calls.rs",
        "capi/src/raw.rs",
        "hw-board/src/map.rs",
        "hw-opencl/src/cl/context.rs",
        "hw-opencl/src/cl/image.rs",
        "hw-opencl/src/cl/queue.rs",
        "hw-opencl/src/cl/staging.rs",
        "hw-rtl/src/library.rs",
        "hw-rtl/src/abort.rs",
        "hw-rtl/tests/double/src/ffi.rs",
        "rt/src/ffi.rs",
        "rt/src/mmio.rs",
    ];
    for name in CRATES {
        let mut files = Vec::new();
        sources(&root().join(name).join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let may = allowed.iter().any(|a| file.ends_with(a));
            let unsafe_code = text.contains("unsafe {") || text.contains("unsafe fn");
            assert!(may || !unsafe_code, "{} has unsafe code", file.display());
            for (at, _) in text.match_indices("unsafe fn ") {
                // The function's own comment and attributes, back to what comes before.
                let before = &text[..at];
                let item = before
                    .rfind("\n\n")
                    .map_or(before, |start| &before[start..]);
                let line = before.lines().count();
                let told = item.contains("# Safety");
                assert!(told, "{}:{line}: no contract", file.display());
            }
        }
    }
    for name in [
        "isa/src/lib.rs",
        "app/src/lib.rs",
        "cli/src/main.rs",
        "python/src/lib.rs",
    ] {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name}");
    }
}

/// What comes before the unit tests of a file.
fn without_tests(text: &str) -> &str {
    let tests = text.find("#[cfg(test)]\nmod tests {");
    tests.map_or(text, |at| &text[..at])
}

#[test]
fn every_file_that_a_user_gets_is_written_whole() {
    let writing = [
        "File::create",
        "fs::write",
        "fs::rename",
        "fs::copy",
        "OpenOptions",
        ".set_len(",
    ];
    // The helper itself; device nodes; rows that are added to the table of a sweep as they are found.
    let may = [
        "hw-board/src/node.rs",
        "files/src/output.rs",
        "files/src/output/lock.rs",
        "sweep/table.rs",
    ];
    let mut searched = 0;
    let folders = std::fs::read_dir(root()).unwrap();
    for folder in folders.map(|e| e.unwrap().path().join("src")) {
        // Every crate, whatever it is called; suites may write what they like.
        if !folder.is_dir() || folder.ends_with("tests/src") {
            continue;
        }
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files.iter().filter(|f| !f.ends_with("tests.rs")) {
            searched += 1;
            if may.iter().any(|m| file.ends_with(m)) {
                continue;
            }
            let text = std::fs::read_to_string(file).unwrap();
            let own = without_tests(&text);
            for word in writing {
                // Not the end of a longer name.
                let ends = |at: usize| own[..at].ends_with(char::is_alphanumeric);
                let mut all = own.match_indices(word).map(|(at, _)| at);
                let found = all.any(|at| word.starts_with('.') || !ends(at));
                let name = file.display();
                assert!(!found, "{name}: {word}; use vta_files::output");
            }
        }
    }
    assert!(searched > 150, "{searched} files");
}

/// Finds names that spell quantise as sentences do.
#[derive(Default)]
struct Misspelt(BTreeSet<String>);

impl<'a> syn::visit::Visit<'a> for Misspelt {
    fn visit_ident(&mut self, name: &'a syn::Ident) {
        let name = name.to_string();
        if name.to_lowercase().contains("quantis") {
            self.0.insert(name);
        }
    }
}

#[test]
fn names_spell_quantize_as_onnx_does() {
    let mut files = Vec::new();
    for name in CRATES {
        for part in ["src", "tests"] {
            let folder = root().join(name).join(part);
            if folder.exists() {
                sources(&folder, &mut files);
            }
        }
    }
    let mut found = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut misspelt = Misspelt::default();
        syn::visit::visit_file(&mut misspelt, &syn::parse_file(&text).unwrap());
        for name in misspelt.0 {
            found += &format!("\n{}: {name}", file.display());
        }
    }
    assert!(found.is_empty(), "names spell quantize with a z:{found}");
}
