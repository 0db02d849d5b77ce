//! Output files that are never half written.
//!
//! Whatever a program writes for its user goes through an [`Output`]: the bytes gather in a file
//! that has no name yet (or, where the system has no such files, one beside the target), reach the
//! disk, and only then take the target's place. Until then, and whatever ends the program
//! meanwhile, the file that was there before is whole.

mod error;
mod lock;
mod place;
mod promised;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

pub use error::FileError;
pub use lock::FileLock;
pub use place::is_stdout;
use place::target;
pub(crate) use promised::refuse;
pub use promised::{Promise, promise};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 18;

/// A file that is being written. It takes its place with [`Output::commit`]; one that is dropped
/// before leaves no trace.
///
/// Links are followed: the file that they lead to is replaced, with the permissions (and, where the
/// system allows it, the owner) that it has. A file that may not be written isn't replaced either.
/// What is no file, such as a pipe or a device, is written to as it is; `-` and `/dev/stdout` are
/// the standard output.
///
/// ```
/// use std::io::Write;
/// use vta_files::output::Output;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("listing.txt");
/// let mut out = Output::create(&path)?;
/// writeln!(out, "finish")?;
/// assert!(!path.exists());
/// out.commit()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "finish\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Output {
    /// As the caller named it, for errors.
    path: PathBuf,
    to: To,
}

/// Where bytes go.
#[derive(Debug)]
enum To {
    Stdout(Stdout),
    /// A pipe or a device.
    InPlace(BufWriter<File>),
    /// A file that has no name yet.
    Unnamed {
        out: BufWriter<File>,
        target: PathBuf,
    },
    /// A file beside the target, removed when it is dropped.
    Beside {
        out: BufWriter<NamedTempFile>,
        target: PathBuf,
    },
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// [`FileError`] for a folder, a file that may not be written, or a place where none can be
    /// made.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        Ok(Self {
            path: path.to_owned(),
            to: open(path).map_err(|error| FileError::create(path, &error))?,
        })
    }

    /// Writes out what is gathered and puts the file into its place, from one instant to the next.
    ///
    /// # Errors
    /// [`FileError::Write`]; what was there before stays.
    pub fn commit(self) -> Result<(), FileError> {
        let Self { path, to } = self;
        let done = match to {
            To::Stdout(mut out) => out.flush(),
            To::InPlace(mut out) => out.flush(),
            To::Unnamed { out, target } => replace(out, &target),
            To::Beside { out, target } => whole(out).and_then(|file| {
                file.as_file().sync_all()?;
                file.persist(&target).map_err(|error| error.error)?;
                Ok(())
            }),
        };
        done.map_err(|error| FileError::write(&path, &error))
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.to {
            To::Stdout(out) => out,
            To::InPlace(out) | To::Unnamed { out, .. } => out,
            To::Beside { out, .. } => out,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

/// Writes a whole file with an [`Output`].
///
/// # Errors
/// As for [`Output::create`] and [`Output::commit`].
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
    write_with(path, |out| out.write_all(bytes.as_ref()))
}

/// Has a function write a whole file with an [`Output`].
///
/// # Errors
/// As for [`Output::create`] and [`Output::commit`], and what the function says.
pub fn write_with(
    path: &Path,
    contents: impl FnOnce(&mut Output) -> io::Result<()>,
) -> Result<(), FileError> {
    let mut out = Output::create(path)?;
    contents(&mut out).map_err(|error| FileError::write(path, &error))?;
    out.commit()
}

fn open(path: &Path) -> io::Result<To> {
    if is_stdout(path) {
        return Ok(To::Stdout(io::stdout()));
    }
    let buffered = |file| BufWriter::with_capacity(BUFFER_BYTES, file);
    let Some(target) = target(path)? else {
        let file = OpenOptions::new().append(true).open(path)?;
        return Ok(To::InPlace(buffered(file)));
    };
    if target.file_name().is_none() {
        return Err(io::Error::other("not the name of a file"));
    }
    // Opened for writing, though nothing is written: one may replace what one may write.
    let old = match OpenOptions::new().write(true).open(&target) {
        Ok(file) => Some(file.metadata()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let folder = folder(&target);
    if let Some(file) = unnamed(folder) {
        keep(&file, old.as_ref())?;
        let out = buffered(file);
        return Ok(To::Unnamed { out, target });
    }
    let file = parts().tempfile_in(folder)?;
    keep(file.as_file(), old.as_ref())?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, file);
    Ok(To::Beside { out, target })
}

/// The folder that a file is in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Hidden names of files that are not in their place yet.
fn parts() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".vta-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As for any new file: what the user's mask leaves of it.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

/// Gives a file the permissions of the one that it replaces.
fn keep(file: &File, old: Option<&fs::Metadata>) -> io::Result<()> {
    let Some(old) = old else {
        return Ok(());
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            // Only a privileged user may give files away; the others keep theirs.
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
        }
    }
    file.set_permissions(old.permissions())
}

/// What was written through a buffer, all of it.
fn whole<W: Write>(out: BufWriter<W>) -> io::Result<W> {
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// A file without a name, of which nothing remains when the program is killed; `None` where the
/// system has no such files.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok()?;
    let file = File::from(file);
    // It is named through this folder.
    descriptor(&file).exists().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> Option<File> {
    None
}

/// The name that the system gives an open file.
#[cfg(target_os = "linux")]
fn descriptor(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// Puts a file without a name into the target's place.
#[cfg(target_os = "linux")]
fn replace(out: BufWriter<File>, target: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let file = whole(out)?;
    file.sync_all()?;
    let open = descriptor(&file);
    // Only a new name can be given, so that it takes the target's from another one.
    let named = parts().make_in(folder(target), |name| {
        Ok(linkat(CWD, &open, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
    })?;
    named.persist(target).map_err(|error| error.error)
}

#[cfg(not(target_os = "linux"))]
fn replace(_: BufWriter<File>, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
