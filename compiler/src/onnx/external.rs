//! Data of tensors that lies in files beside the model.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use vta_files::{open_input, printable};

use super::{ReadOptions, proto};

/// The files that a model's tensors lie in.
pub(crate) struct External<'a> {
    options: &'a ReadOptions<'a>,
    files: HashMap<String, Opened>,
}

/// A file that tensors were read from.
struct Opened {
    file: File,
    bytes: u64,
    /// Bytes that its tensors took so far.
    taken: u64,
}

impl<'a> External<'a> {
    pub(crate) fn new(options: &'a ReadOptions<'a>) -> Self {
        let files = HashMap::new();
        Self { options, files }
    }

    /// So many bytes from where a tensor's entries say.
    ///
    /// # Errors
    /// In words: a model that was read from no file, a location outside its folder, a file that is
    /// missing, short, or that its tensors would take more often than once, no room.
    pub(crate) fn read(
        &mut self,
        entries: &[proto::StringEntry],
        count: usize,
    ) -> Result<Vec<u8>, String> {
        let entry = |key: &str| entries.iter().find(|e| e.key == key).map(|e| &e.value[..]);
        let location = entry("location").ok_or("external data without a location")?;
        let shown = printable(location);
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => match text.parse::<u64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("{key} '{}' in {shown}", printable(text))),
            },
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        let count = count as u64;
        if length.is_some_and(|n| n != count) {
            let length = length.unwrap_or(0);
            return Err(format!("{length} bytes in {shown}, its shape has {count}"));
        }
        let opened = self.open(location)?;
        if offset
            .checked_add(count)
            .is_none_or(|end| end > opened.bytes)
        {
            let size = opened.bytes;
            return Err(format!(
                "bytes {offset} to {} of {shown}, which has {size}",
                offset.saturating_add(count)
            ));
        }
        opened.taken += count;
        if opened.taken > opened.bytes.saturating_mul(2) {
            return Err(format!("tensors take {shown} more than twice over"));
        }
        let fail = |e: std::io::Error| format!("{shown}: {e}");
        opened.file.seek(SeekFrom::Start(offset)).map_err(fail)?;
        (self.options.ask)(count)?;
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(count as usize);
        reserved.map_err(|_| format!("no room for its {count} bytes"))?;
        let opened = self.open(location)?;
        opened
            .file
            .by_ref()
            .take(count)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        if bytes.len() as u64 != count {
            return Err(format!("{shown} became shorter while it was read"));
        }
        Ok(bytes)
    }

    fn open(&mut self, location: &str) -> Result<&mut Opened, String> {
        if !self.files.contains_key(location) {
            let opened = open(self.options.folder, location)?;
            self.files.insert(location.to_owned(), opened);
        }
        let opened = self.files.get_mut(location);
        opened.ok_or_else(|| "internal error: an open file is missing".to_owned())
    }
}

/// Opens a file in or below a folder.
fn open(folder: Option<&Path>, location: &str) -> Result<Opened, String> {
    let shown = printable(location);
    let folder = folder.ok_or_else(|| {
        format!("its data is in {shown}, but the model was read from no file beside it")
    })?;
    let path = Path::new(location);
    let below = path
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if location.is_empty() || !below {
        return Err(format!(
            "its data is in '{shown}': only files in the model's folder and below it are read"
        ));
    }
    let fail = |e: std::io::Error| format!("its data is in {shown}: {e}");
    let path = folder.join(path);
    // A link may lead out of the folder.
    let inside = std::fs::canonicalize(&path).map_err(fail)?;
    if !inside.starts_with(std::fs::canonicalize(folder).map_err(fail)?) {
        return Err(format!(
            "its data is in {shown}, a link out of the model's folder"
        ));
    }
    let file = open_input(&inside).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(format!("its data is in {shown}, which is no file"));
    }
    let bytes = metadata.len();
    Ok(Opened {
        file,
        bytes,
        taken: 0,
    })
}
