//! What comes from foreign files: which are opened, and how their names are shown.

use std::borrow::Cow;
use std::fs::{File, FileType};
use std::io;
use std::path::Path;

use crate::output;

/// Opens a file to read. Special files are refused before they are opened, which might wait for
/// ever: named pipes, sockets, devices. A pipe that this process was given (`/dev/stdin`,
/// `/dev/fd/N`, which shells write for `<(command)`) is open already and is taken.
///
/// # Errors
/// A folder or a special file, by what it is; what this process said it would write
/// ([`output::promise`]); whatever the system says.
pub fn open_input(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() || (is_pipe(&kind) && was_given(path)) {
        let file = File::open(path)?;
        output::refuse(&file, path)?;
        return Ok(file);
    }
    let what = if kind.is_dir() {
        "a folder, not a file"
    } else {
        special(&kind)
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Whether a path names a stream that this process has open.
fn was_given(path: &Path) -> bool {
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"]
        .iter()
        .any(|given| path.starts_with(given))
}

#[cfg(unix)]
fn is_pipe(kind: &FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(kind)
}

#[cfg(unix)]
fn special(kind: &FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "a named pipe, not a file"
    } else if kind.is_socket() {
        "a socket, not a file"
    } else {
        "a device of the system, not a file"
    }
}

#[cfg(not(unix))]
fn is_pipe(_: &FileType) -> bool {
    false
}

#[cfg(not(unix))]
fn special(_: &FileType) -> &'static str {
    "a special file"
}

/// A foreign text as it may be shown: control characters, and those that turn the direction of
/// writing, as escapes. Names of models and bundles pass through here when they are read, so that
/// no table, dump, report or error can move a terminal's cursor.
///
/// ```
/// use vta_files::printable;
///
/// assert_eq!(printable("conv1/weights"), "conv1/weights");
/// assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if hidden(c) {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

fn hidden(c: char) -> bool {
    // These aren't control characters, but a terminal shows what follows them in another order.
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || turns || breaks
}

/// Characters of a text's line that an error shows at most.
const MAX_SHOWN: usize = 60;

/// What is wrong with a TOML text, in one line: where, then what.
///
/// `message` is the reader's own, `at` the byte where it saw it.
pub fn toml_message(text: &str, message: &str, at: Option<usize>) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(before) = at.and_then(|at| text.get(..at)) else {
        return format!("TOML parse error: {message}");
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    let words = text.lines().nth(line - 1).unwrap_or_default().trim();
    let shown: String = words.chars().take(MAX_SHOWN).collect();
    let shown = if shown.is_empty() {
        String::new()
    } else {
        format!(" in '{}'", printable(&shown))
    };
    format!("TOML parse error at line {line}, column {column}{shown}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_is_escaped_and_nothing_else() {
        for (text, shown) in [
            ("plain name_1:0", "plain name_1:0"),
            ("\u{e9}\u{4e2d}", "\u{e9}\u{4e2d}"),
            ("\r\n\t\0", "\\r\\n\\t\\u{0}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}gnp", "\\u{202e}gnp"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(shown), shown);
        }
    }

    #[test]
    fn toml_messages_are_one_line() {
        let text = "a = 1\nb = [\n";
        assert_eq!(
            toml_message(text, "expected\n a value", Some(8)),
            "TOML parse error at line 2, column 3 in 'b = [': expected a value"
        );
        assert_eq!(toml_message(text, "empty", None), "TOML parse error: empty");
        assert_eq!(
            toml_message(text, "late", Some(99)),
            "TOML parse error: late"
        );
    }

    #[cfg(unix)]
    #[test]
    fn special_files_are_refused_without_opening_them() {
        use std::os::unix::net::UnixListener;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for (path, says) in [
            (folder.path(), "a folder"),
            (&socket, "a socket"),
            (&pipe, "a named pipe"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = open_input(path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        open_input(&file).unwrap();
    }
}
