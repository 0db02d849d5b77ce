//! What suites of the command line share.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

/// Exit status, standard output and standard error of the program, run in the repository on a
/// terminal so wide that no line is broken.
pub fn vta(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("vta").unwrap();
    command.env("COLUMNS", "100000");
    let output = command.current_dir(root()).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Standard output and standard error of a command that succeeds; or else the test says why it
/// didn't.
pub fn succeeds(args: &[&str]) -> (String, String) {
    let (status, out, err) = vta(args);
    assert_eq!(status, 0, "{args:?}: {err}");
    (out, err)
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Writes a file; its path.
pub fn file(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}
