//! Where an output goes.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Symbolic links that are followed to a target.
const MAX_LINKS: usize = 40;

/// Whether a path names the standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// The file that a path leads to through links, whether it exists or not; `None` for what is
/// written in place.
///
/// # Errors
/// A folder, and what the system says of the path.
pub(super) fn target(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(facts) if facts.is_dir() => return Err(io::Error::other("a folder, not a file")),
        Ok(facts) if !facts.is_file() => return Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&path) else {
            return Ok(Some(path));
        };
        // A file that a process has open, such as /dev/stderr: its writers don't look for another.
        if path.starts_with("/proc") {
            return Ok(None);
        }
        path = match path.parent() {
            Some(folder) => folder.join(next),
            None => next,
        };
    }
    Err(io::Error::other("too many symbolic links"))
}
