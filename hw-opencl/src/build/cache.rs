//! Kernel binaries on disk, by content and device.
//!
//! A file holds a checked header, the key in full and the binary. Whatever else is found there
//! is as good as nothing: a damaged, foreign or truncated file is ignored and written again.

use std::fs;
use std::path::{Path, PathBuf};

use vta_files::output;

/// First bytes of every file; the last one counts layouts.
const MAGIC: [u8; 8] = *b"VTAOCL\0\x01";
/// Larger files are ignored.
const MAX_BYTES: u64 = 1 << 30;

/// A folder of binaries.
#[derive(Clone, Debug)]
pub(crate) struct BinaryCache {
    folder: PathBuf,
}

impl BinaryCache {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// `$XDG_CACHE_HOME/vta/opencl`, or `~/.cache/vta/opencl`; `None` where neither is known.
    pub fn default_folder() -> Option<PathBuf> {
        let set = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        // The specification says that a relative path is to be ignored.
        let cache = set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let cache = cache.or_else(|| set("HOME").map(|home| home.join(".cache")));
        cache.map(|path| path.join("vta/opencl"))
    }

    fn path(&self, key: &str) -> PathBuf {
        // Only a name: the key inside decides.
        let name = crc32fast::hash(key.as_bytes());
        self.folder.join(format!("{name:08x}.bin"))
    }

    /// The binary that was stored for a key.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key);
        if fs::metadata(&path).ok()?.len() > MAX_BYTES {
            return None;
        }
        let file = fs::read(&path).ok()?;
        let binary = parse(&file, key);
        if binary.is_none() {
            tracing::warn!(path = %path.display(), "ignoring a damaged file of the cache");
        }
        binary
    }

    /// Stores a binary. A cache that can't be written is only slower, so that is a warning.
    pub fn put(&self, key: &str, binary: &[u8]) {
        let path = self.path(key);
        if let Err(error) = write(&self.folder, &path, key, binary) {
            tracing::warn!(path = %path.display(), %error, "storing a file of the cache");
        }
    }
}

fn parse(file: &[u8], key: &str) -> Option<Vec<u8>> {
    let word = |at: usize| -> Option<u32> {
        let bytes = file.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if file.get(..8)? != MAGIC {
        return None;
    }
    let (crc, key_len, len) = (word(8)?, word(12)? as usize, word(16)? as usize);
    let body = file.get(20..)?;
    let fits = key_len.checked_add(len) == Some(body.len());
    if !fits || crc32fast::hash(body) != crc || &body[..key_len] != key.as_bytes() {
        return None;
    }
    Some(body[key_len..].to_vec())
}

fn write(folder: &Path, path: &Path, key: &str, binary: &[u8]) -> std::io::Result<()> {
    let size = |n: usize| u32::try_from(n).map_err(std::io::Error::other);
    let mut body = key.as_bytes().to_vec();
    body.extend_from_slice(binary);
    let mut file = MAGIC.to_vec();
    let words = [
        crc32fast::hash(&body),
        size(key.len())?,
        size(binary.len())?,
    ];
    words.iter().for_each(|w| file.extend(w.to_le_bytes()));
    file.extend(body);
    fs::create_dir_all(folder)?;
    // Another process may read or write the same file: it takes its place when it is whole.
    output::write(path, file).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_found_by_its_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BinaryCache::new(folder.path().join("new/folder"));
        assert_eq!(cache.get("a"), None);
        cache.put("a", b"binary");
        cache.put("b", b"");
        assert_eq!(cache.get("a").as_deref(), Some(&b"binary"[..]));
        assert_eq!(cache.get("b").as_deref(), Some(&b""[..]));
        assert_eq!(cache.get("c"), None);
        cache.put("a", b"other");
        assert_eq!(cache.get("a").as_deref(), Some(&b"other"[..]));
    }

    #[test]
    fn damaged_files_are_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BinaryCache::new(folder.path().to_owned());
        cache.put("key", b"binary");
        let path = cache.path("key");
        let good = fs::read(&path).unwrap();
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).unwrap();
            assert_eq!(cache.get("key"), None, "cut to {cut}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            fs::write(&path, &bad).unwrap();
            assert_eq!(cache.get("key"), None, "byte {at}");
        }
        cache.put("key", b"binary");
        assert_eq!(cache.get("key").as_deref(), Some(&b"binary"[..]));
    }

    #[test]
    fn a_key_of_another_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BinaryCache::new(folder.path().to_owned());
        cache.put("one", b"binary");
        fs::rename(cache.path("one"), cache.path("two")).unwrap();
        assert_eq!(cache.get("two"), None);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = BinaryCache::new(file.path().join("below a file"));
        cache.put("key", b"binary");
        assert_eq!(cache.get("key"), None);
    }
}
