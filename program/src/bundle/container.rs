//! The file around the sections: header, table, checksums.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

use super::error::{BUNDLE_VERSION, BundleError, FORMER_VERSION, HOSTED_VERSION, invalid};

/// The first bytes of every program bundle.
pub const BUNDLE_MAGIC: &[u8; 8] = b"VTAPROG\n";
pub(super) const HEADER_BYTES: usize = 24;
pub(super) const ENTRY_BYTES: usize = 24;
/// Every section starts at a multiple of this, and so does every constant in the data.
pub(super) const ALIGN: usize = 64;
/// Kind and name of each section, in the file's order.
pub(super) const SECTIONS: [(u32, &str); 4] =
    [(1, "meta"), (2, "commands"), (3, "micro-ops"), (4, "data")];
/// What comes after them where the host computes some layers.
const STEPS: (u32, &str) = (5, "steps");

/// Four bytes at an offset that the caller has checked.
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(read_u32(bytes, at)) | u64::from(read_u32(bytes, at + 4)) << 32
}

/// Bytes one after another, of which long ones stay where they are.
pub(super) type Pieces<'a> = Vec<Cow<'a, [u8]>>;

/// What aligns the bytes behind it.
const ZEROS: [u8; ALIGN] = [0; ALIGN];

/// The zeros between an offset and the next multiple of [`ALIGN`].
pub(super) fn padding(offset: usize) -> &'static [u8] {
    &ZEROS[..offset.next_multiple_of(ALIGN) - offset]
}

/// A bundle that is ready to be written. Its constants are those of the program, not copies.
pub struct BundleImage<'a> {
    pieces: Pieces<'a>,
}

impl<'a> BundleImage<'a> {
    /// A bundle from its sections; `steps` come last.
    pub(super) fn assemble(sections: [Pieces<'a>; 4], steps: Option<Pieces<'a>>) -> Self {
        let named = SECTIONS.iter().zip(sections);
        let all: Vec<_> = named.chain(steps.map(|steps| (&STEPS, steps))).collect();
        let version = if all.len() > SECTIONS.len() {
            HOSTED_VERSION
        } else {
            BUNDLE_VERSION
        };
        let mut table = Vec::new();
        let header = HEADER_BYTES + all.len() * ENTRY_BYTES;
        let mut offset = header.next_multiple_of(ALIGN);
        for ((kind, _), pieces) in &all {
            let mut hasher = crc32fast::Hasher::new();
            pieces.iter().for_each(|bytes| hasher.update(bytes));
            let len: usize = pieces.iter().map(|bytes| bytes.len()).sum();
            table.extend_from_slice(&kind.to_le_bytes());
            table.extend_from_slice(&hasher.finalize().to_le_bytes());
            table.extend_from_slice(&(offset as u64).to_le_bytes());
            table.extend_from_slice(&(len as u64).to_le_bytes());
            offset = (offset + len).next_multiple_of(ALIGN);
        }
        let mut first = BUNDLE_MAGIC.to_vec();
        for word in [version, all.len() as u32, crc32fast::hash(&table), 0] {
            first.extend_from_slice(&word.to_le_bytes());
        }
        first.extend_from_slice(&table);
        let mut end = first.len();
        let mut image = vec![Cow::Owned(first)];
        for (_, pieces) in all {
            image.push(Cow::Borrowed(padding(end)));
            let len: usize = pieces.iter().map(|bytes| bytes.len()).sum();
            end = end.next_multiple_of(ALIGN) + len;
            image.extend(pieces);
        }
        Self { pieces: image }
    }

    /// Bytes of the file.
    pub fn size_bytes(&self) -> u64 {
        self.pieces.iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// Writes the bundle.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.pieces
            .iter()
            .try_for_each(|bytes| out.write_all(bytes))
    }

    /// The bundle's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

/// Where a program's sections lie, and the steps if there are any.
pub(super) type Sections = ([Range<usize>; 4], Option<Range<usize>>);

/// Finds the sections of a program, and the steps if there are any, and checks their checksums.
pub(super) fn all_sections(bytes: &[u8]) -> Result<Sections, BundleError> {
    if !bytes.starts_with(BUNDLE_MAGIC) {
        return Err(BundleError::Magic);
    }
    let len = bytes.len() as u64;
    let truncated = |section, start: u64, end: u64| {
        let text = format!("bytes {start}..{end} of a file of {len} bytes");
        invalid(section, text)
    };
    if bytes.len() < HEADER_BYTES {
        return Err(truncated("header", 0, HEADER_BYTES as u64));
    }
    let mut named = SECTIONS.to_vec();
    match read_u32(bytes, 8) {
        BUNDLE_VERSION => {}
        HOSTED_VERSION => named.push(STEPS),
        found @ FORMER_VERSION..HOSTED_VERSION => return Err(BundleError::Former { found }),
        found => return Err(BundleError::Version { found }),
    }
    let count = read_u32(bytes, 12) as usize;
    if count != named.len() {
        let text = format!("{count} sections, not {}", named.len());
        return Err(invalid("header", text));
    }
    let reserved = read_u32(bytes, 20);
    if reserved != 0 {
        let text = format!("the reserved word is {reserved:#x}, not 0");
        return Err(invalid("header", text));
    }
    let table_end = HEADER_BYTES + named.len() * ENTRY_BYTES;
    let table = bytes
        .get(HEADER_BYTES..table_end)
        .ok_or_else(|| truncated("table", HEADER_BYTES as u64, table_end as u64))?;
    // Before any of its offsets is followed.
    checksum("table", table, read_u32(bytes, 16))?;
    let section = |i: usize, (kind, name): (u32, &'static str)| {
        let at = i * ENTRY_BYTES;
        let (found, crc) = (read_u32(table, at), read_u32(table, at + 4));
        let (start, size) = (read_u64(table, at + 8), read_u64(table, at + 16));
        if found != kind {
            let text = format!("section {i} is of kind {found}, not {kind}");
            return Err(invalid("table", text));
        }
        let end = start.saturating_add(size);
        if end > len {
            return Err(truncated(name, start, end));
        }
        let range = start as usize..end as usize;
        checksum(name, &bytes[range.clone()], crc)?;
        Ok(range)
    };
    let mut ranges = [const { 0..0 }; 4];
    for (i, range) in ranges.iter_mut().enumerate() {
        *range = section(i, SECTIONS[i])?;
    }
    let steps = (named.len() > SECTIONS.len()).then(|| section(SECTIONS.len(), STEPS));
    Ok((ranges, steps.transpose()?))
}

fn checksum(section: &'static str, bytes: &[u8], expected: u32) -> Result<(), BundleError> {
    let found = crc32fast::hash(bytes);
    if found == expected {
        Ok(())
    } else {
        let text = format!("checksum {found:08x}, but the file says {expected:08x}");
        Err(invalid(section, text))
    }
}
