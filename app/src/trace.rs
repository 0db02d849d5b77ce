//! The file behind `--trace`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use vta_sim::views::TraceWriter;

use crate::error::{Context, Result};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Begins a trace in a new file; events go to it as they arise.
///
/// # Errors
/// When the file can't be made.
pub fn create(path: &Path, title: &str) -> Result<TraceWriter<Box<dyn Write + Send>>> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let out: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(BUFFER_BYTES, file));
    Ok(TraceWriter::new(out, title))
}
