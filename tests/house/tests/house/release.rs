//! What `scripts/release` refuses before it builds anything.

use std::path::Path;
use std::process::{Command, Output};

use crate::architecture::root;

const CHANGELOG: &str =
    "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-01\n\n### Added\n\n- All of it.\n";

fn git(folder: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
    let git = Command::new("git")
        .args(identity)
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(git.status.success(), "git {args:?}: {git:?}");
}

/// A repository of version 1.2.3 and its tag, with a script of CI that fails by a name of its own.
fn repository(folder: &Path, changelog: &str) {
    let manifest = "[workspace.package]\nversion = \"1.2.3\"\n";
    std::fs::create_dir_all(folder.join("scripts")).unwrap();
    std::fs::create_dir_all(folder.join(".ci")).unwrap();
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(folder.join("CHANGELOG.md"), changelog).unwrap();
    std::fs::write(folder.join(".ci/run"), "echo CI has begun >&2; exit 1\n").unwrap();
    std::fs::copy(
        root().join("scripts/release"),
        folder.join("scripts/release"),
    )
    .unwrap();
    git(folder, &["init", "--quiet"]);
    git(folder, &["add", "."]);
    git(folder, &["update-index", "--chmod=+x", ".ci/run"]);
    git(folder, &["commit", "--quiet", "--message", "all"]);
    git(folder, &["reset", "--quiet", "--hard"]);
    git(folder, &["tag", "v1.2.3"]);
}

fn release(folder: &Path, args: &[&str]) -> Output {
    Command::new(folder.join("scripts/release"))
        .args(args)
        .output()
        .unwrap()
}

/// The release fails with these words and leaves no folder.
fn refused(folder: &Path, tag: &str, words: &str) {
    let to = folder.parent().unwrap().join("to");
    let output = release(folder, &[tag, to.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains(words),
        "{words}: {error}"
    );
    let parent = std::fs::read_dir(folder.parent().unwrap()).unwrap();
    assert_eq!(parent.count(), 1, "{words}: something was left");
}

#[test]
fn a_release_needs_its_tag_its_section_and_a_clean_tree() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("all");
    repository(&folder, CHANGELOG);
    refused(
        &folder,
        "v1.2.4",
        "v1.2.4 is not the workspace's version, which is 1.2.3",
    );
    std::fs::write(folder.join("new"), "").unwrap();
    refused(&folder, "v1.2.3", "changes or untracked files");
    std::fs::remove_file(folder.join("new")).unwrap();
    // Nothing is left where a check fails, either.
    refused(&folder, "v1.2.3", "CI has begun");
    git(
        &folder,
        &["commit", "--quiet", "--allow-empty", "--message", "more"],
    );
    refused(&folder, "v1.2.3", "the checkout is not v1.2.3");

    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("none");
    repository(
        &folder,
        &CHANGELOG.replace("## [1.2.3] - 2026-01-01", "### More"),
    );
    refused(
        &folder,
        "v1.2.3",
        "CHANGELOG.md has no section '## [1.2.3]'",
    );
}
