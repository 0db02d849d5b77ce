//! Headers of npy files: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use std::io::{self, Read};

/// How a file begins.
const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Values begin at a multiple of so many bytes.
const ALIGN: usize = 64;

/// The largest header that is read, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// What a header says of the array behind it.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of an element as numpy writes it, such as `<f4`.
    pub descr: String,
    /// The first index runs fastest, not the last.
    pub fortran: bool,
    /// Dimensions.
    pub shape: Vec<u64>,
}

impl Header {
    /// Reads up to the first value.
    ///
    /// # Errors
    /// What isn't as numpy writes it.
    pub fn read(data: &mut impl Read) -> io::Result<Self> {
        let mut start = [0; 8];
        data.read_exact(&mut start)?;
        let [m @ .., version, _] = start;
        if m != *MAGIC {
            return Err(invalid("it begins otherwise"));
        }
        let len = match version {
            1 => u64::from(u16::from_le_bytes(bytes(data)?)),
            2 | 3 => u64::from(u32::from_le_bytes(bytes(data)?)),
            _ => return Err(invalid(&format!("format version {version}"))),
        };
        if len > MAX_BYTES {
            return Err(invalid(&format!(
                "a header of {len} bytes, of which {MAX_BYTES} are read"
            )));
        }
        let mut text = String::new();
        if data.take(len).read_to_string(&mut text)? as u64 != len {
            return Err(invalid("it ends in its header"));
        }
        Self::parse(&text).ok_or_else(|| invalid(&format!("its header is {}", text.trim())))
    }

    /// Reads a dictionary as Python writes it.
    fn parse(text: &str) -> Option<Self> {
        let entries = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        for entry in parts(entries) {
            let (key, value) = entry.split_once(':')?;
            let value = value.trim();
            match key.trim().trim_matches(['\'', '"']) {
                "descr" => descr = Some(value.trim_matches(['\'', '"']).to_owned()),
                "fortran_order" => {
                    fortran = Some(match value {
                        "True" => true,
                        "False" => false,
                        _ => return None,
                    });
                }
                "shape" => {
                    let sides = value.strip_prefix('(')?.strip_suffix(')')?;
                    let sides = parts(sides).map(|side| side.trim_end_matches('L').parse());
                    shape = Some(sides.collect::<Result<_, _>>().ok()?);
                }
                _ => return None,
            }
        }
        Some(Self {
            descr: descr?,
            fortran: fortran?,
            shape: shape?,
        })
    }

    /// The file up to the first value.
    pub fn bytes(&self) -> Vec<u8> {
        let order = if self.fortran { "True" } else { "False" };
        let mut shape: String = self.shape.iter().map(|side| format!("{side}, ")).collect();
        if self.shape.len() > 1 {
            shape.truncate(shape.len() - 2);
        }
        let (descr, shape) = (&self.descr, shape.trim_end());
        let text =
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
        // The version is the smallest that has room.
        let head = |version: u8, size: usize| (version, MAGIC.len() + 2 + size);
        let (version, fixed) = match text.len() + ALIGN {
            0..=0xffff => head(1, 2),
            _ => head(2, 4),
        };
        let len = (fixed + text.len() + 1).next_multiple_of(ALIGN) - fixed;
        let mut file = MAGIC.to_vec();
        file.extend([version, 0]);
        file.extend(&(len as u32).to_le_bytes()[..fixed - MAGIC.len() - 2]);
        file.extend(format!("{text:<width$}\n", width = len - 1).bytes());
        file
    }
}

/// What commas outside of brackets and quotation marks part; the last part may be empty.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quote) = (0, None);
    let all = text.split(move |c| {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            ('(' | '[', None) => depth += 1,
            (')' | ']', None) => depth -= 1,
            (_, None) => return c == ',' && depth == 0,
        }
        false
    });
    all.map(str::trim).filter(|part| !part.is_empty())
}

fn bytes<const N: usize>(data: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    data.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, fortran: bool, shape: &[u64]) -> Header {
        Header {
            descr: descr.to_owned(),
            fortran,
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn another_reader_understands_what_is_written() {
        for shape in [&[][..], &[7], &[2, 3], &[1; 30], &[1 << 20; 3], &[0, 5]] {
            for fortran in [false, true] {
                let written = header("<f4", fortran, shape).bytes();
                assert_eq!(written.len() % ALIGN, 0);
                let read = npyz::NpyHeader::from_reader(&written[..]).unwrap();
                assert_eq!(read.shape(), shape);
                assert_eq!(read.order() == npyz::Order::Fortran, fortran);
                assert_eq!(read.dtype().descr(), "'<f4'");
                let again = Header::read(&mut &written[..]).unwrap();
                assert_eq!(again, header("<f4", fortran, shape));
            }
        }
    }

    #[test]
    fn dictionaries_of_other_writers_are_read() {
        for (text, expected) in [
            (
                "{'shape':(3,),'fortran_order':False,'descr':'|u1'}",
                header("|u1", false, &[3]),
            ),
            (
                "{\"descr\": \"<f8\", \"fortran_order\": True, \"shape\": (2L, 3L)}  ",
                header("<f8", true, &[2, 3]),
            ),
            (
                "{'descr': [('a', '<f4'), ('b', '<i2')], 'fortran_order': False, 'shape': (), }",
                header("[('a', '<f4'), ('b', '<i2')]", false, &[]),
            ),
        ] {
            assert_eq!(Header::parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "{",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': 1, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': 3}",
            "{'more': 1, 'descr': '<f4', 'fortran_order': True, 'shape': ()}",
        ] {
            assert_eq!(Header::parse(text), None, "{text}");
        }
    }
}
