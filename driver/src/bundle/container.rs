//! The file around the sections: header, table, checksums.

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

/// A bundle's bytes from its sections' bytes; those of `steps` come last.
pub(super) fn assemble(sections: [&[u8]; 4], steps: Option<&[u8]>) -> Vec<u8> {
    let named = SECTIONS.iter().zip(sections);
    let all: Vec<_> = named.chain(steps.map(|steps| (&STEPS, steps))).collect();
    let mut table = Vec::new();
    let mut offset = (HEADER_BYTES + all.len() * ENTRY_BYTES).next_multiple_of(ALIGN);
    for ((kind, _), bytes) in &all {
        table.extend_from_slice(&kind.to_le_bytes());
        table.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        table.extend_from_slice(&(offset as u64).to_le_bytes());
        table.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        offset = (offset + bytes.len()).next_multiple_of(ALIGN);
    }
    let version = match steps {
        None => BUNDLE_VERSION,
        Some(_) => HOSTED_VERSION,
    };
    let mut out = Vec::with_capacity(offset);
    out.extend_from_slice(BUNDLE_MAGIC);
    for word in [version, all.len() as u32, crc32fast::hash(&table), 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&table);
    for (_, bytes) in all {
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        out.extend_from_slice(bytes);
    }
    out
}

/// Where a program's sections lie, and the steps if there are any.
pub(super) type Sections = ([Range<usize>; 4], Option<Range<usize>>);

/// Finds the sections of a program, and the steps if there are any, and checks their checksums.
pub(super) fn all_sections(bytes: &[u8]) -> Result<Sections, BundleError> {
    if !bytes.starts_with(BUNDLE_MAGIC) {
        return Err(BundleError::Magic);
    }
    let len = bytes.len() as u64;
    let truncated = |section, start, end| BundleError::Truncated {
        section,
        start,
        end,
        len,
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
        Err(BundleError::Checksum {
            section,
            found,
            expected,
        })
    }
}
