//! Turns of processes that change the same file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::place::target;

/// The right to change a file, which one process at a time has. It is released when it is dropped,
/// or when the process ends, however that comes.
///
/// The lock is a file of its own, `.NAME.lock` beside the target, since the target is replaced
/// while the lock is held; its last holder removes it.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// Waits until nobody else has the right to change `path`.
    ///
    /// # Errors
    /// [`FileError::Create`] when the lock can't be made.
    pub fn wait(path: &Path) -> Result<Self, FileError> {
        take(path, File::lock).map_err(|error| FileError::create(path, &error))
    }

    /// The right to change `path`, unless somebody has it.
    ///
    /// # Errors
    /// [`FileError::Locked`] when somebody has it, [`FileError::Create`] when the lock can't be
    /// made.
    pub fn now(path: &Path) -> Result<Self, FileError> {
        let lock = |file: &File| file.try_lock().map_err(io::Error::from);
        take(path, lock).map_err(|error| FileError::create(path, &error))
    }
}

fn take(path: &Path, lock: impl Fn(&File) -> io::Result<()>) -> io::Result<FileLock> {
    let target = target(path)?.unwrap_or_else(|| path.to_owned());
    let name = target.file_name();
    let name = name.ok_or_else(|| io::Error::other("not the name of a file"))?;
    let mut own = std::ffi::OsString::from(".");
    own.push(name);
    own.push(".lock");
    let path = target.with_file_name(own);
    loop {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        match lock(&file) {
            // A file system without locks: others may be faster, but no file is torn.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            locked => locked?,
        }
        // The holder before may have removed the file that was waited for.
        if is_at(&file, &path) {
            return Ok(FileLock { file, path });
        }
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let there = fs::metadata(path).ok().map(id);
    there.is_some() && there == file.metadata().ok().map(id)
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A lock file that stays does no harm.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}
