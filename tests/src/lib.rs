//! What the suites over all crates share: recorded data and random legal programs.

pub mod cifar;
pub mod convolutions;
pub mod fuzzing;
pub mod opencl;
pub mod programs;
pub mod repeats;
mod tables;

use vta_isa::{Config, Extension, Extensions};

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The machine of a `vta_config.json` with some of the extensions that none has by default: each bit of a number
/// says whether it has one, so that 512 numbers have each alone, in pairs, and all, and fewer have some of each. The largest
/// number has all.
///
/// # Panics
/// When the text is no configuration.
pub fn extended(keys: &str, number: u64) -> Config {
    let config = Config::from_json(keys).expect("the configurations are legal");
    let others = Extension::ALL.into_iter().filter(|e| !e.is_default());
    // An odd factor brings numbers in a row to all bits.
    let number = number.wrapping_add(1).wrapping_mul(203).wrapping_sub(1);
    let some = (0..).zip(others).filter(|(bit, _)| number >> bit & 1 == 1);
    let has = some.fold(Extensions::DEFAULT, |has, (_, e)| has.with(e));
    config.with_extensions(has)
}

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
