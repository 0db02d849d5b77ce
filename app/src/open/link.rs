//! Programs as links to the playground: JSON, deflated, in the address's fragment (`web/site/src/link.ts`).

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::json;

use super::Source;
use crate::error::{Context, Result, ensure_input as ensure};
use crate::files;

/// The most characters of a program that the playground takes.
const MOST_CHARACTERS: usize = 1 << 18;
/// Digits of base64url, by value.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The link to a program, behind the address of the playground.
///
/// # Errors
/// A file that can't be read, the first line that is neither an instruction nor data, a program that is too long.
pub fn playground(file: &Path, base: &str) -> Result<String> {
    let text = files::read_text(file)?;
    let name = || file.display().to_string();
    Source::parse(&text).with_context(name)?;
    let count = text.chars().count();
    ensure!(
        count <= MOST_CHARACTERS,
        "{}: {count} characters; the playground takes {MOST_CHARACTERS}",
        name()
    );
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::best());
    deflated.write_all(json!({"asm": text}).to_string().as_bytes())?;
    Ok(format!(
        "{base}#/program/{}",
        base64url(&deflated.finish()?)
    ))
}

/// Without padding.
fn base64url(bytes: &[u8]) -> String {
    let digits = |three: &[u8]| -> String {
        let word = (0..3).fold(0, |word, i| {
            word << 8 | u32::from(three.get(i).copied().unwrap_or(0))
        });
        let digit = |i: usize| char::from(DIGITS[(word >> (18 - 6 * i) & 63) as usize]);
        (0..=three.len()).map(digit).collect()
    };
    bytes.chunks(3).map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64url(bytes.as_bytes()), text);
        }
        assert_eq!(base64url(&[0xfb, 0xff, 0xfe]), "-__-");
    }
}
