//! Arrays of npy and npz files, read as streams.

use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};
use zip::{CompressionMethod, ZipArchive};

use crate::error::{Context, Error, Result, bail_input as bail, ensure_input as ensure};
use crate::files;

/// The largest header of an array, in bytes.
const MAX_HEADER: u64 = 1 << 16;

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
struct Place {
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
    place: Place,
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
        let place = Place {
            store: Store::File(path.to_owned()),
            start: 0,
            packed_bytes: bytes,
            bytes,
            deflated: false,
            crc: None,
        };
        Self::read(place).with_context(|| path.display().to_string())
    }

    /// Reads the header.
    fn read(place: Place) -> Result<Self> {
        let mut data = place.open()?;
        // The length that a header states is believed up to a limit.
        let header = NpyHeader::from_reader((&mut data).take(MAX_HEADER));
        let header = header.map_err(|e| Error::input(format!("not a .npy file: {e}")))?;
        let header_bytes = place.bytes - data.left;
        let element = Element::of(&header.dtype())?;
        let mut shape = Vec::new();
        let mut bytes = element.bytes as u64;
        for &side in header.shape() {
            bytes = bytes.saturating_mul(side);
            shape.push(usize::try_from(side)?);
        }
        ensure!(
            bytes <= data.left,
            "an array of shape {shape:?} and type {} needs {bytes} bytes, the file has {}",
            element.name,
            data.left
        );
        Ok(Self {
            place,
            header_bytes,
            shape,
            element,
            fortran: header.order() == Order::Fortran,
        })
    }

    /// The values from the first.
    ///
    /// # Errors
    /// When the file can't be read any more.
    pub fn values(&self) -> Result<Stream> {
        let mut data = self.place.open()?;
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
    let mut places = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(no_archive)?;
        let Some(name) = npyz::npz::array_name_from_file_name(entry.name()) else {
            continue;
        };
        let deflated = match entry.compression() {
            CompressionMethod::Stored => Ok(false),
            CompressionMethod::Deflated => Ok(true),
            other => Err(format!(
                "compressed by {other}; stored and deflated arrays are read"
            )),
        };
        let place = deflated.map(|deflated| Place {
            store: store.clone(),
            start: entry.data_start(),
            packed_bytes: entry.compressed_size(),
            bytes: entry.size(),
            deflated,
            crc: Some(entry.crc32()),
        });
        places.push((name.to_owned(), place));
    }
    let open = |(name, place): (String, Result<Place, String>)| {
        let array = place.map_err(Error::input).and_then(Array::read);
        (name, array)
    };
    Ok(places.into_iter().map(open).collect())
}

impl Place {
    fn open(&self) -> Result<Stream> {
        let mut file = self.store.open()?;
        file.seek(SeekFrom::Start(self.start))?;
        let packed = BufReader::with_capacity(1 << 16, file.take(self.packed_bytes));
        let data: Box<dyn Read + Send> = match self.deflated {
            true => Box::new(BufReader::new(DeflateDecoder::new(packed))),
            false => Box::new(packed),
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
    fn of(dtype: &DType) -> Result<Self> {
        let name = dtype.descr().trim_matches('\'').to_owned();
        let known = match dtype {
            DType::Plain(plain) => {
                let kind = match plain.type_char() {
                    TypeChar::Uint => Some(Kind::Unsigned),
                    TypeChar::Int => Some(Kind::Signed),
                    TypeChar::Float => Some(Kind::Float),
                    _ => None,
                };
                let big_endian = plain.endianness() == Endianness::Big;
                kind.zip(plain.num_bytes())
                    .map(|(kind, bytes)| (kind, bytes, big_endian))
            }
            _ => None,
        };
        match known {
            Some((Kind::Unsigned | Kind::Signed, 1 | 2 | 4 | 8, _)) => {}
            Some((Kind::Float, 2 | 4 | 8, _)) => {}
            _ => bail!(
                "elements of type {name}; integers of 8 to 64 bits (pixels) and floats of 16 to \
                 64 bits (already preprocessed) are read"
            ),
        }
        let (kind, bytes, big_endian) = known.context("no element")?;
        Ok(Self {
            kind,
            bytes,
            big_endian,
            name,
        })
    }

    /// Whether it is a float.
    pub fn is_float(&self) -> bool {
        self.kind == Kind::Float
    }

    /// An element's bits, from the lowest.
    fn bits(&self, element: &[u8]) -> u64 {
        let step = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
        match self.big_endian {
            true => element.iter().fold(0, step),
            false => element.iter().rev().fold(0, step),
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

    /// The floats of an array's bytes.
    pub fn floats(&self, bytes: &[u8]) -> impl Iterator<Item = f64> {
        bytes.chunks_exact(self.bytes).map(move |element| {
            let bits = self.bits(element);
            match self.bytes {
                2 => f64::from(half(bits as u16)),
                4 => f64::from(f32::from_bits(bits as u32)),
                _ => f64::from_bits(bits),
            }
        })
    }
}

/// An IEEE 754 half-precision float.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        // Subnormal: steps of 2^-24, all of which a float has.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_are_those_of_the_standard() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 1.0 / 16_777_216.0),
            (0x0400, 1.0 / 16384.0),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), value, "{bits:#06x}");
        }
        assert!(half(0x7e00).is_nan());
        assert!(half(0x8000).is_sign_negative());
        // Larger bits are larger values, up to infinity.
        assert!((0..0x7c00).all(|bits| half(bits) < half(bits + 1)));
    }

    #[test]
    fn elements_of_every_type_are_read() {
        let element = |name: &str| Element::of(&DType::Plain(name.parse().unwrap()));
        let one = |name: &str, bytes: &[u8]| {
            let element = element(name).unwrap();
            match element.is_float() {
                true => element.floats(bytes).next().unwrap(),
                false => element.integers(bytes).next().unwrap() as f64,
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
