//! What `scripts/install-c` installs is found by pkg-config and CMake, and by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a line of a shell in a folder; what it prints.
fn shell(folder: &Path, line: &str) -> String {
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", line])
        .current_dir(folder);
    let output = bash.output().unwrap();
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let text = of(&output.stdout) + &of(&output.stderr);
    assert!(output.status.success(), "{line}: {text}");
    text
}

/// Installs the libraries that cargo made beside this test.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().display().to_string();
    let script = root().join("scripts/install-c");
    let line = format!("BUILT={built} {} prefix", script.display());
    shell(folder.path(), &line);
    let example = root().join("capi/examples/classify.c");
    std::fs::copy(example, folder.path().join("classify.c")).unwrap();
    folder
}

const CAT: &str = "3: 3 cat (";

#[test]
fn the_example_of_the_page_is_built_with_pkg_config_and_by_hand() {
    let folder = installed();
    for licence in ["LICENSE", "THIRD-PARTY.txt"] {
        let file = folder.path().join("prefix/share/licenses/vta");
        assert!(file.join(licence).is_file(), "{licence}");
    }
    let path = "export PKG_CONFIG_PATH=$PWD/prefix/lib/pkgconfig;";
    let native = std::fs::read_to_string(folder.path().join("prefix/lib/pkgconfig/vta-static.pc"));
    let native = native.unwrap();
    let native = native.split("libvta.a ").nth(1).unwrap().trim();
    for (line, needs) in [
        (
            "gcc -O2 classify.c $(pkg-config --cflags --libs vta) -Wl,-rpath,$PWD/prefix/lib"
                .to_owned(),
            true,
        ),
        (
            "gcc -O2 classify.c $(pkg-config --cflags --libs vta-static)".to_owned(),
            false,
        ),
        (
            format!("gcc classify.c -Iprefix/include prefix/lib/libvta.a {native}"),
            false,
        ),
    ] {
        let text = shell(
            folder.path(),
            &format!("{path} {line} -o classify; ./classify"),
        );
        assert!(text.contains(CAT), "{line}: {text}");
        let dynamic = shell(folder.path(), "readelf -d classify");
        assert_eq!(
            dynamic.contains("[libvta.so.1]"),
            needs,
            "{line}: {dynamic}"
        );
    }
}

#[test]
fn a_prefix_that_pkg_config_cannot_name_is_refused() {
    let script = root().join("scripts/install-c");
    for args in [&["a b"][..], &["--prefix"], &[], &["a", "b"]] {
        let output = Command::new(&script).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

/// CMake is no part of what CI installs: the machine that has it says so.
#[test]
fn a_project_of_cmake_links_both_libraries() {
    let cmake = std::env::var("CMAKE").unwrap_or_else(|_| "cmake".to_owned());
    if Command::new(&cmake).arg("--version").output().is_err() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED a_project_of_cmake_links_both_libraries: no {cmake}"
        );
        return;
    }
    let folder = installed();
    let project = "cmake_minimum_required(VERSION 3.10)\nproject(first C)\nfind_package(vta 0.1 REQUIRED)\n\
                   add_executable(shared classify.c)\ntarget_link_libraries(shared vta::vta)\n\
                   add_executable(whole classify.c)\ntarget_link_libraries(whole vta::vta_static)\n";
    std::fs::write(folder.path().join("CMakeLists.txt"), project).unwrap();
    // A folder that is moved is still found.
    shell(folder.path(), "mv prefix moved");
    let line = format!("{cmake} -B build -DCMAKE_PREFIX_PATH=$PWD/moved && {cmake} --build build");
    shell(folder.path(), &line);
    for (program, needs) in [("shared", true), ("whole", false)] {
        let text = shell(folder.path(), &format!("build/{program}"));
        assert!(text.contains(CAT), "{program}: {text}");
        let dynamic = shell(folder.path(), &format!("readelf -d build/{program}"));
        assert_eq!(
            dynamic.contains("[libvta.so.1]"),
            needs,
            "{program}: {dynamic}"
        );
    }
}
