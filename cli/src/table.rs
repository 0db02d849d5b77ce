//! Tables that fit the terminal.

use unicode_width::UnicodeWidthStr;

use crate::terminal::{self, wrapped};

/// Blanks between columns.
const GAP: usize = 2;
/// Columns that may shrink keep so much.
const LEAST: usize = 12;

/// What a column does when the table is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It keeps its width.
    Fixed,
    /// It is left out, before the columns on its left.
    Optional,
    /// Its cells are cut in the middle.
    Cut,
    /// Its cells go on below.
    Wrapped,
}

/// A column: its heading, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    right: bool,
    room: Room,
}

impl Column {
    /// Words, on the left.
    pub const fn words(name: &'static str) -> Self {
        Self {
            name,
            right: false,
            room: Room::Fixed,
        }
    }

    /// Numbers, on the right.
    pub const fn number(name: &'static str) -> Self {
        Self {
            right: true,
            ..Self::words(name)
        }
    }

    /// Names, cut in the middle where there is no room for them.
    pub const fn name(name: &'static str) -> Self {
        Self {
            room: Room::Cut,
            ..Self::words(name)
        }
    }

    /// Words that go on below where there is no room for them.
    pub const fn text(name: &'static str) -> Self {
        Self {
            room: Room::Wrapped,
            ..Self::words(name)
        }
    }

    /// The column where there is room for it; of several, the last ones are left out first.
    pub const fn optional(self) -> Self {
        Self {
            room: Room::Optional,
            ..self
        }
    }
}

/// Rows of cells under headings.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The lines for standard output, each with its end, and what is left out of them.
    pub fn text(&self) -> String {
        let (mut text, missing) = self.fitting(terminal::width());
        if !missing.is_empty() {
            let missing = missing.join(", ");
            let note = format!("({missing}: in a wider terminal, or with --json)");
            text.push_str(&wrapped(&note, terminal::width()));
            text.push('\n');
        }
        text
    }

    /// All of it as a table of Markdown.
    pub fn markdown(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|c| c.name.to_owned()).collect();
        let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(names.len()));
        line(&names) + &rule + &self.rows.iter().map(line).collect::<String>()
    }

    /// The lines within `width` columns, and the names of the columns that are left out.
    pub fn fitting(&self, width: usize) -> (String, Vec<&'static str>) {
        let natural = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].width());
            let all = cells.chain([self.columns[index].name.width()]);
            all.max().unwrap_or(0)
        };
        let mut shown: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|i| (i, natural(i))).collect();
        let total = |shown: &[(usize, usize)]| -> usize {
            shown
                .iter()
                .map(|(_, wide)| wide + GAP)
                .sum::<usize>()
                .saturating_sub(GAP)
        };
        let mut missing = Vec::new();
        while total(&shown) > width {
            let optional = |(i, _): &(usize, usize)| self.columns[*i].room == Room::Optional;
            let Some(last) = shown.iter().rposition(optional) else {
                break;
            };
            missing.insert(0, self.columns[shown.remove(last).0].name);
        }
        // What is still too wide comes off the columns that can take it, the widest first.
        while total(&shown) > width {
            let shrinks = |(i, wide): &(usize, usize)| {
                matches!(self.columns[*i].room, Room::Cut | Room::Wrapped) && *wide > LEAST
            };
            let widest = shown.iter_mut().filter(|c| shrinks(c)).max_by_key(|c| c.1);
            let Some((_, wide)) = widest else { break };
            *wide -= 1;
        }
        let mut text = String::new();
        let names: Vec<String> = self.columns.iter().map(|c| c.name.to_owned()).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            self.lines(row, &shown, &mut text);
        }
        (text, missing)
    }

    /// Adds the lines of one row.
    fn lines(&self, row: &[String], shown: &[(usize, usize)], text: &mut String) {
        let cells: Vec<Vec<String>> = shown
            .iter()
            .map(|&(i, wide)| match self.columns[i].room {
                Room::Wrapped => chunks(&wrapped(&row[i], wide), wide),
                Room::Cut => vec![cut(&row[i], wide)],
                Room::Fixed | Room::Optional => vec![row[i].clone()],
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for line in 0..height {
            let mut whole = String::new();
            for (&(i, wide), cell) in shown.iter().zip(&cells) {
                let cell = cell.get(line).map_or("", String::as_str);
                let blanks = " ".repeat(wide.saturating_sub(cell.width()));
                let gap = " ".repeat(GAP);
                whole += &if self.columns[i].right {
                    format!("{blanks}{cell}{gap}")
                } else {
                    format!("{cell}{blanks}{gap}")
                };
            }
            text.push_str(whole.trim_end());
            text.push('\n');
        }
    }
}

/// The lines, those of one long word broken behind one of its parts, or anywhere: a column has no
/// room beside it.
fn chunks(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut chunk = String::new();
        for letter in line.chars() {
            let wide = chunk.width() + letter.to_string().width();
            if wide > width && !chunk.is_empty() {
                let part = chunk.rfind(['-', '/', '_', '.', ',']).map(|at| at + 1);
                let rest = chunk.split_off(part.unwrap_or(chunk.len()));
                lines.push(std::mem::replace(&mut chunk, rest));
            }
            chunk.push(letter);
        }
        lines.push(chunk);
    }
    lines
}

/// A name with its middle left out, so that both ends can be told.
fn cut(name: &str, width: usize) -> String {
    const GONE: &str = "..";
    if name.width() <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(GONE.len());
    let take = |letters: &mut dyn Iterator<Item = char>, room: usize| -> Vec<char> {
        let mut left = room;
        letters
            .take_while(|letter| {
                let wide = letter.to_string().width();
                let fits = wide <= left;
                left = left.saturating_sub(wide);
                fits
            })
            .collect()
    };
    let start = take(&mut name.chars(), kept.div_ceil(2));
    let end = take(&mut name.chars().rev(), kept / 2);
    let start: String = start.into_iter().collect();
    let end: String = end.into_iter().rev().collect();
    format!("{start}{GONE}{end}")
}

#[cfg(test)]
mod tests;
