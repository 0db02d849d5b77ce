//! Files with limits: models, texts, raw instructions.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use vta_files::open_input;
use vta_isa::original::Layout;
use vta_isa::{INSN_BYTES, Insn};

use crate::error::{Context, Result, ensure_input as ensure};

/// Models larger than this are refused: no protobuf message can be.
const MAX_FILE_BYTES: u64 = 2 << 30;
/// The largest text that is read: configurations, boards, tables, assembly.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Reads a model or raw instructions, up to 2 GiB.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    read_bounded(path, MAX_FILE_BYTES).with_context(|| path.display().to_string())
}

/// Reads a text, up to 64 MiB.
pub fn read_text(path: &Path) -> Result<String> {
    let name = || path.display().to_string();
    let bytes = read_bounded(path, MAX_TEXT_BYTES).with_context(name)?;
    String::from_utf8(bytes).with_context(|| format!("{}: not a text file", name()))
}

/// Files, and pipes that the process was given. Of these, which don't tell their size, no more than
/// the limit is read.
fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open_input(path)?;
    let size = file.metadata()?.len();
    ensure!(
        size <= limit,
        "{size} bytes; files up to {limit} bytes are read"
    );
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(size as usize);
    reserved.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    file.take(limit + 1).read_to_end(&mut bytes)?;
    ensure!(
        bytes.len() as u64 <= limit,
        "files up to {limit} bytes are read"
    );
    Ok(bytes)
}

/// Opens a file that can be read more than once: no pipe either that this process was given.
///
/// # Errors
/// Anything but a regular file, what the system says; each names the path.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let name = || path.display().to_string();
    let file = open_input(path).with_context(name)?;
    let regular = file.metadata().with_context(name)?.is_file();
    ensure!(regular, "{}: a pipe, not a file", name());
    Ok(file)
}

/// Raw words of a file, in this project's layout or the original's.
pub fn read_words(path: &Path, layout: Option<&Layout>) -> Result<Vec<u128>> {
    let bytes = read_file(path)?;
    let (len, name) = (bytes.len(), path.display());
    ensure!(
        len.is_multiple_of(INSN_BYTES),
        "{name}: {len} bytes, not a multiple of the {INSN_BYTES} bytes of an instruction"
    );
    let words = bytes.as_chunks::<INSN_BYTES>().0.iter();
    let words = words.map(|word| u128::from_le_bytes(*word));
    let ours = |word| layout.map_or(word, |layout| layout.to_ours(word));
    Ok(words.map(ours).collect())
}

/// The instructions of raw words; errors name the file.
pub fn decode(path: &Path, words: &[u128]) -> Result<Vec<Insn>> {
    let insn = |(i, word): (usize, &u128)| {
        Insn::decode(*word)
            .with_context(|| format!("{}: instruction {i} ({word:#034x})", path.display()))
    };
    words.iter().enumerate().map(insn).collect()
}

/// The last part of a path, which names the file however the path is spelled; other names as they
/// are.
pub fn name(path: &str) -> String {
    let name = Path::new(path).file_name();
    name.map_or_else(|| path.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// Whether the path has one of the extensions.
pub fn is(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|e| extensions.iter().any(|x| e == *x))
}
