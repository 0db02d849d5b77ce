//! What the suites over all crates share: recorded data and random legal programs.

pub mod cifar;
pub mod convolutions;
pub mod fuzzing;
pub mod opencl;
pub mod programs;
pub mod repeats;

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folder of recorded runs and models: `VTA_SHARED`, or `../shared` beside the workspace.
/// Without it a suite says loudly what it skips.
///
/// # Panics
/// When the folder is missing and `CI` is set: there a skipped suite must not pass.
pub fn shared(what: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let path = std::env::var_os("VTA_SHARED").map_or(beside, PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    let text = format!(
        "{what}: no test data at {} (set VTA_SHARED)",
        path.display()
    );
    assert!(std::env::var_os("CI").is_none(), "{text}");
    let _ = writeln!(std::io::stderr(), "SKIPPED {text}");
    None
}
