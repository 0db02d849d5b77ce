//! Files that this process said it would write: none of them is another's, and none is read.
//!
//! A command reads in many places, some of which only a file names (the external data of a model, a
//! label in a folder). So what it writes is said once, before it reads, and every opening of an input
//! looks whether it is that.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::FileError;
use super::folder;
use super::place::{is_stdout, target};

/// What a process writes, which lasts as long as it does.
static PROMISED: OnceLock<Vec<Identity>> = OnceLock::new();

/// A file that a process is going to write.
#[derive(Clone, Debug)]
pub struct Promise {
    /// Its path.
    pub path: PathBuf,
    /// Whether what is there is continued, and so read: a table that a sweep resumes.
    pub continued: bool,
}

/// Which file it is, however it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    There(Id),
    /// Of a file that isn't there: its folder, and its name.
    New(Id, OsString),
}

#[cfg(unix)]
type Id = (u64, u64);
#[cfg(not(unix))]
type Id = PathBuf;

/// Says what this process is going to write. From now on [`open_input`](crate::open_input) refuses these
/// files, by whatever name or link. Only the first call of a process counts.
///
/// # Errors
/// Two that are one file.
pub fn promise(outputs: &[Promise]) -> Result<(), FileError> {
    let mut all: Vec<Identity> = Vec::new();
    let mut refused = Vec::new();
    for output in outputs {
        let Some(identity) = identity(&output.path) else {
            continue;
        };
        if all.contains(&identity) {
            let twice = io::Error::other("two outputs of this command are this file");
            return Err(FileError::create(&output.path, &twice));
        }
        all.push(identity.clone());
        if !output.continued {
            refused.push(identity);
        }
    }
    let _ = PROMISED.set(refused);
    Ok(())
}

/// Refuses to read what is going to be written.
pub(crate) fn refuse(file: &File, path: &Path) -> io::Result<()> {
    let Some(promised) = PROMISED.get().filter(|all| !all.is_empty()) else {
        return Ok(());
    };
    if promised.contains(&Identity::There(id(&file.metadata()?, path)?)) {
        Err(io::Error::other(
            "an input of this command is its output, too",
        ))
    } else {
        Ok(())
    }
}

/// `None` for what is no file, or can't be one: that is told when it is written.
fn identity(path: &Path) -> Option<Identity> {
    if is_stdout(path) {
        return None;
    }
    let target = target(path).ok()??;
    if let Ok(facts) = fs::metadata(&target) {
        return Some(Identity::There(id(&facts, &target).ok()?));
    }
    let folder = folder(&target);
    let facts = fs::metadata(folder).ok()?;
    let name = target.file_name()?.to_owned();
    Some(Identity::New(id(&facts, folder).ok()?, name))
}

#[cfg(unix)]
fn id(facts: &Metadata, _: &Path) -> io::Result<Id> {
    use std::os::unix::fs::MetadataExt;
    Ok((facts.dev(), facts.ino()))
}

#[cfg(not(unix))]
fn id(_: &Metadata, path: &Path) -> io::Result<Id> {
    fs::canonicalize(path)
}
