//! Arrays of npy and npz files, read as streams.

use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use half::f16;
use zip::{CompressionMethod, ZipArchive};

use super::header::Header;
use crate::error::{Context, Error, Result, bail_input as bail, ensure_input as ensure};
use crate::files;

/// What holds arrays.
#[derive(Clone, Debug)]
pub enum Store {
    /// An npy or npz file.
    File(PathBuf),
    /// An npz file in memory.
    Memory(&'static [u8]),
}

/// What both kinds of stores give.
trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

impl Store {
    fn open(&self) -> Result<Box<dyn Bytes>> {
        Ok(match self {
            Self::File(path) => Box::new(files::open_regular(path)?),
            Self::Memory(bytes) => Box::new(Cursor::new(*bytes)),
        })
    }
}

/// Where an array lies.
#[derive(Clone, Debug)]
struct Location {
    store: Store,
    /// Of its first byte.
    start: u64,
    /// Bytes that it takes there.
    packed_bytes: u64,
    /// Bytes of header and values.
    bytes: u64,
    deflated: bool,
    /// Of header and values, where the archive says it.
    crc: Option<u32>,
}

/// An array of a file: what its header says, and where its values are.
#[derive(Clone, Debug)]
pub struct Array {
    location: Location,
    header_bytes: u64,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// What its elements are.
    pub element: Element,
    /// The first index runs fastest, not the last.
    pub fortran: bool,
}

impl Array {
    /// The array of an npy file.
    ///
    /// # Errors
    /// No regular file, no array, or one of an element that isn't read; each names the file.
    pub fn of_npy(path: &Path) -> Result<Self> {
        let bytes = files::open_regular(path)?.metadata();
        let bytes = bytes.with_context(|| path.display().to_string())?.len();
        let location = Location {
            store: Store::File(path.to_owned()),
            start: 0,
            packed_bytes: bytes,
            bytes,
            deflated: false,
            crc: None,
        };
        Self::read(location).with_context(|| path.display().to_string())
    }

    /// Reads the header.
    fn read(location: Location) -> Result<Self> {
        let mut data = location.open()?;
        let header = Header::read(&mut data);
        let header = header.map_err(|e| Error::input(e).at("not a .npy file"))?;
        let header_bytes = location.bytes - data.left;
        let element = Element::of(&header.descr)?;
        let mut shape = Vec::new();
        let mut bytes = element.bytes as u64;
        for side in header.shape {
            bytes = bytes.saturating_mul(side);
            shape.push(usize::try_from(side)?);
        }
        // Found before room is made for the values: a header may promise anything.
        ensure!(
            bytes <= data.left,
            "an array of shape {shape:?} and type {} needs {bytes} bytes, the file has {}",
            element.name,
            data.left
        );
        Ok(Self {
            location,
            header_bytes,
            shape,
            element,
            fortran: header.fortran,
        })
    }

    /// The values from the first.
    ///
    /// # Errors
    /// When the file can't be read any more.
    pub fn values(&self) -> Result<Stream> {
        let mut data = self.location.open()?;
        skip(&mut data, self.header_bytes).map_err(Error::input)?;
        Ok(data)
    }
}

/// Reads bytes to forget them.
///
/// # Errors
/// What the system says; fewer bytes.
pub fn skip(from: &mut impl Read, bytes: u64) -> io::Result<()> {
    match io::copy(&mut from.take(bytes), &mut io::sink())? {
        skipped if skipped < bytes => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn no_archive(error: zip::result::ZipError) -> Error {
    Error::input(error).at("not an .npz file")
}

/// The arrays of an npz file, each with its name, or why it isn't read.
///
/// # Errors
/// No regular file, no archive.
pub fn arrays(store: &Store) -> Result<Vec<(String, Result<Array>)>> {
    let mut archive = ZipArchive::new(BufReader::new(store.open()?)).map_err(no_archive)?;
    // An entry borrows the archive, and streams of values outlive both.
    let mut locations = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(no_archive)?;
        let Some(name) = entry.name().strip_suffix(".npy") else {
            continue;
        };
        let deflated = match entry.compression() {
            CompressionMethod::Stored => Ok(false),
            CompressionMethod::Deflated => Ok(true),
            other => Err(format!(
                "compressed by {other}; stored and deflated arrays are read"
            )),
        };
        let location = deflated.map(|deflated| Location {
            store: store.clone(),
            start: entry.data_start(),
            packed_bytes: entry.compressed_size(),
            bytes: entry.size(),
            deflated,
            crc: Some(entry.crc32()),
        });
        locations.push((name.to_owned(), location));
    }
    let open = |(name, location): (String, Result<Location, String>)| {
        let array = location.map_err(Error::input).and_then(Array::read);
        (name, array)
    };
    Ok(locations.into_iter().map(open).collect())
}

impl Location {
    fn open(&self) -> Result<Stream> {
        let mut file = self.store.open()?;
        file.seek(SeekFrom::Start(self.start))?;
        let packed = BufReader::with_capacity(1 << 16, file.take(self.packed_bytes));
        let data: Box<dyn Read + Send> = if self.deflated {
            Box::new(BufReader::new(DeflateDecoder::new(packed)))
        } else {
            Box::new(packed)
        };
        Ok(Stream {
            data,
            left: self.bytes,
            hasher: crc32fast::Hasher::new(),
            crc: self.crc,
        })
    }
}

/// Bytes of an array, in order. One that ends early, or whose checksum is another, is an error.
pub struct Stream {
    data: Box<dyn Read + Send>,
    left: u64,
    hasher: crc32fast::Hasher,
    crc: Option<u32>,
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let room = bytes
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if room == 0 {
            return Ok(0);
        }
        let read = self.data.read(&mut bytes[..room])?;
        if read == 0 {
            let early = "the array ends before its last value";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, early));
        }
        self.left -= read as u64;
        // zip's own reader checks it, but not where entries are read by their place.
        if let Some(crc) = self.crc {
            self.hasher.update(&bytes[..read]);
            if self.left == 0 && self.hasher.clone().finalize() != crc {
                let damaged = "the array's checksum is wrong; the file is damaged";
                return Err(io::Error::new(io::ErrorKind::InvalidData, damaged));
            }
        }
        Ok(read)
    }
}

/// What the elements of an array are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    kind: Kind,
    /// Of one element.
    pub bytes: usize,
    big_endian: bool,
    /// As numpy writes it.
    name: String,
}

/// Kinds of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
}

impl Element {
    /// Of the type that a header names, such as `<f4`.
    fn of(name: &str) -> Result<Self> {
        let known = match name.split_at_checked(2) {
            Some((kind, bytes)) => match (kind.as_bytes(), bytes) {
                ([b'<' | b'>' | b'|', b'u'], "1" | "2" | "4" | "8") => Some(Kind::Unsigned),
                ([b'<' | b'>' | b'|', b'i'], "1" | "2" | "4" | "8") => Some(Kind::Signed),
                ([b'<' | b'>', b'f'], "2" | "4" | "8") => Some(Kind::Float),
                _ => None,
            },
            None => None,
        };
        let Some(kind) = known else {
            bail!(
                "elements of type {name}; integers of 8 to 64 bits (pixels) and floats of 16 to \
                 64 bits (already preprocessed) are read"
            );
        };
        Ok(Self {
            kind,
            bytes: name[2..].parse()?,
            big_endian: name.starts_with('>'),
            name: name.to_owned(),
        })
    }

    /// Whether it is a float.
    pub fn is_float(&self) -> bool {
        self.kind == Kind::Float
    }

    /// An element's bits, from the lowest.
    fn bits(&self, element: &[u8]) -> u64 {
        let step = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
        if self.big_endian {
            element.iter().fold(0, step)
        } else {
            element.iter().rev().fold(0, step)
        }
    }

    /// The integers of an array's bytes.
    pub fn integers(&self, bytes: &[u8]) -> impl Iterator<Item = i128> {
        let unused = 64 - 8 * self.bytes as u32;
        bytes.chunks_exact(self.bytes).map(move |element| {
            let bits = self.bits(element);
            match self.kind {
                Kind::Signed => i128::from((bits << unused).cast_signed() >> unused),
                Kind::Unsigned | Kind::Float => i128::from(bits),
            }
        })
    }

    /// The floats of an array's bytes in 32 bits, infinite where they don't fit.
    pub fn reals(&self, bytes: &[u8]) -> Vec<f32> {
        if self.bytes == 4 && !self.big_endian {
            let values = bytes.as_chunks().0.iter();
            return values.map(|&value| f32::from_le_bytes(value)).collect();
        }
        self.floats(bytes).map(|value| value as f32).collect()
    }

    /// The floats of an array's bytes.
    pub fn floats(&self, bytes: &[u8]) -> impl Iterator<Item = f64> {
        bytes.chunks_exact(self.bytes).map(move |element| {
            let bits = self.bits(element);
            match self.bytes {
                2 => f16::from_bits(bits as u16).to_f64(),
                4 => f64::from(f32::from_bits(bits as u32)),
                _ => f64::from_bits(bits),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type_are_read() {
        let element = Element::of;
        let one = |name: &str, bytes: &[u8]| {
            let element = element(name).unwrap();
            if element.is_float() {
                let value = element.floats(bytes).next().unwrap();
                assert_eq!(element.reals(bytes)[0].to_bits(), (value as f32).to_bits());
                value
            } else {
                element.integers(bytes).next().unwrap() as f64
            }
        };
        assert_eq!(one("|u1", &[200]), 200.0);
        assert_eq!(one("|i1", &[200]), -56.0);
        assert_eq!(one("<i2", &[0xfe, 0xff]), -2.0);
        assert_eq!(one(">u2", &[1, 2]), 258.0);
        assert_eq!(one("<u4", &[255; 4]), 4_294_967_295.0);
        assert_eq!(one(">i8", &[255; 8]), -1.0);
        assert_eq!(one("<f2", &[0, 0xc0]), -2.0);
        assert_eq!(one(">f4", &1.5f32.to_be_bytes()), 1.5);
        assert_eq!(one("<f8", &(-0.25f64).to_le_bytes()), -0.25);
        for name in ["|b1", "<c8", "<U3", "|O", "<f16"] {
            let error = element(name).unwrap_err().to_string();
            assert!(error.starts_with("elements of type "), "{error}");
        }
    }
}
