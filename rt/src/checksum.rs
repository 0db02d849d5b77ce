//! CRC-32 as in Ethernet and zip files, half a byte at a time: a table of 64 bytes.

const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLE: [u32; 16] = table();

const fn table() -> [u32; 16] {
    let mut table = [0; 16];
    let mut index = 0;
    while index < 16 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 4 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// The checksum of some bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 4 ^ TABLE[(crc & 15) as usize];
    !bytes
        .iter()
        .fold(!0, |crc, &byte| step(step(crc ^ u32::from(byte))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
