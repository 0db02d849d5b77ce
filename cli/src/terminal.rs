//! What standard output can show: how wide it is, whether it has colours and block characters.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use terminal_size::{Width, terminal_size};
use unicode_width::UnicodeWidthStr;
use vta_files::output::{self, FileError};

/// Columns that every output fits, and that are assumed where there is no terminal.
pub const COLUMNS: usize = 80;
/// What continues a line is so much further in.
const HANGING: usize = 2;

/// Columns of standard output: what `COLUMNS` says, else the terminal's, else [`COLUMNS`].
/// Tables don't get narrower than that.
pub fn width() -> usize {
    let told = std::env::var("COLUMNS").ok();
    let told = told.and_then(|columns| columns.trim().parse::<usize>().ok());
    let seen = || {
        let (Width(columns), _) = terminal_size().filter(|_| io::stdout().is_terminal())?;
        Some(usize::from(columns))
    };
    told.or_else(seen).unwrap_or(COLUMNS).max(COLUMNS)
}

/// Whether the terminal is one that only writes lines: no colours, no block characters, no cursor
/// that moves.
pub fn is_plain() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// The text in a colour, by its number, where standard output shows colours.
pub fn paint(code: &str, text: &str) -> String {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if text.is_empty() || refused || is_plain() || !io::stdout().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A share of 1 as up to 24 blocks in eighths, or as up to 24 letters where there are no blocks.
pub fn bar(share: f32) -> String {
    const LONGEST: f32 = 24.0;
    if is_plain() {
        return "#".repeat((share * LONGEST).round() as usize);
    }
    let eighths = (share * LONGEST * 8.0).round() as usize;
    let parts = [
        '\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}',
    ];
    let mut bar = "\u{2588}".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(parts[eighths % 8 - 1]);
    }
    bar
}

/// Prints text for people: lines that are too long are continued below, further in.
pub fn print_text(text: &str) -> Result<()> {
    print_line(&wrapped(&in_letters(text), width()))
}

/// Prints to standard output as it stands; a reader that went away is no error.
pub fn print_line(text: &str) -> Result<()> {
    print_with(|out| writeln!(out, "{text}"))
}

/// Prints an object of JSON for people and programs.
pub fn print_json(object: &Value) -> Result<()> {
    print_line(&serde_json::to_string_pretty(object)?)
}

/// Has a function print to standard output; a reader that went away is no error.
pub fn print_with(print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match print(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.map_err(|e| FileError::write(Path::new("standard output"), &e))?),
    }
}

/// Prints what there is to say of a file that was written: to standard error when the file itself
/// went to standard output.
pub fn say_written(file: &Path, text: &str) -> Result<()> {
    if !output::is_stdout(file) {
        return print_text(text);
    }
    say(text);
    Ok(())
}

/// Says something on standard error. Nobody may read it, or its disk be full: what was done is done, and the
/// status tells.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The text in letters that every terminal has, if this one is plain.
fn in_letters(text: &str) -> String {
    if !is_plain() {
        return text.to_owned();
    }
    let letters = [("\u{202f}", " "), ("\u{d7}", "x"), ("\u{2026}", "..")];
    let mut text = text.to_owned();
    for (sign, letters) in letters {
        text = text.replace(sign, letters);
    }
    text
}

/// The lines, those wider than `width` broken at blanks. A word that is wider stays whole: a path
/// can be copied.
pub fn wrapped(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| broken(line, width)).collect();
    lines.join("\n")
}

fn broken(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut text = " ".repeat(indent);
    let mut column = indent;
    let mut begun = false;
    for word in line.trim_start_matches(' ').split(' ') {
        if begun && column + 1 + word.width() > width {
            column = indent + HANGING;
            text.push('\n');
            text.push_str(&" ".repeat(column));
        } else if begun {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.width();
        begun = true;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks_and_continued_further_in() {
        for (text, expected) in [
            ("", ""),
            ("short", "short"),
            ("1234 5678", "1234 5678"),
            ("1234 56789", "1234\n  56789"),
            ("  ab cd ef", "  ab cd\n    ef"),
            ("a/long/path is", "a/long/path\n  is"),
            ("one\ntwo three four\n", "one\ntwo three\n  four\n"),
            // Signs count as wide as they are shown.
            (
                "\u{6f22}\u{5b57}\u{6f22} abc",
                "\u{6f22}\u{5b57}\u{6f22}\n  abc",
            ),
        ] {
            assert_eq!(wrapped(text, 9), expected, "{text:?}");
        }
    }
}
