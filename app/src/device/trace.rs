//! The file behind `--trace`.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use vta_files::output::{FileError, Output};
use vta_sim::views::TraceWriter;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A trace that is being written: events go to it as they arise, and the file takes its place
/// when the run has ended.
pub struct TraceFile {
    path: PathBuf,
    out: Shared,
}

/// The file, until it is finished; the trace's writer has the other end.
#[derive(Clone)]
struct Shared(Arc<Mutex<Option<Output>>>);

impl TraceFile {
    /// Begins a file.
    ///
    /// # Errors
    /// When the file can't be made.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let out = Output::create(path)?;
        Ok(Self {
            path: path.to_owned(),
            out: Shared(Arc::new(Mutex::new(Some(out)))),
        })
    }

    /// What writes events to the file.
    pub fn writer(&self, title: &str) -> TraceWriter<Box<dyn Write + Send>> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, self.out.clone());
        TraceWriter::new(Box::new(out), title)
    }

    /// Puts the file into its place when the writer is closed.
    ///
    /// # Errors
    /// The first fault since the file began.
    pub fn finish(&self, close: impl FnOnce() -> io::Result<()>) -> Result<(), FileError> {
        close().map_err(|error| FileError::write(&self.path, &error))?;
        self.out.take().map_or(Ok(()), Output::commit)
    }
}

impl Shared {
    fn take(&self) -> Option<Output> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(out) => out.write(bytes),
            None => Err(io::Error::other("the trace is finished")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(out) => out.flush(),
            None => Ok(()),
        }
    }
}
