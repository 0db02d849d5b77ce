//! The table of a sweep: a CSV file to which every finished point is added at once.
//!
//! The first line has the columns' names, every other one is a [`row`](super::row). There are no other
//! lines, so that any reader of CSV takes the file as it is.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use vta_files::output::{self, FileError, FileLock};

use super::grid::Grid;
use super::labels::Labels;
use super::row::{Line, Row, head, line, read, whole_lines};
use super::shard::Shard;
use crate::error::{Context, Result, ensure_input as ensure};
use crate::files;

const ANOTHER: &str = "not the table of this sweep: give another file or remove it";

/// The file and the rows in it.
pub struct Table {
    path: PathBuf,
    head: String,
    labels: Labels,
    file: File,
    /// Two sweeps of one file would lose each other's rows.
    _lock: FileLock,
    rows: HashMap<Vec<String>, Row>,
}

impl Table {
    /// Opens or makes the table of a sweep. Rows that are there count as finished; a last line without its
    /// end, from a run that was stopped, is dropped. Those of a shard say which point of the grid they are:
    /// see [`merge`](super::merge::merge).
    ///
    /// # Errors
    /// A file that can't be read or written, is the table of another sweep, of shards another grid's, has a
    /// row that isn't as it was written or two results for a point, or is being written by another process.
    pub fn open(path: &Path, model: &str, grid: &Grid, shard: Option<Shard>) -> Result<Self> {
        let labels = Labels::new(model, grid, shard);
        let name = || path.display().to_string();
        let other = std::fs::metadata(path).is_ok_and(|facts| !facts.is_file());
        ensure!(
            !other,
            "{}: not a file, so that rows can't be kept in it",
            name()
        );
        let head = head(grid.keys())?;
        let lock = FileLock::now(path)?;
        let mut bytes = if path.exists() {
            files::read_file(path)?
        } else {
            Vec::new()
        };
        // A torn line may end within a character.
        let whole = whole_lines(&bytes);
        let torn = bytes.split_off(whole);
        let rows = if bytes.is_empty() {
            let begun = head.as_bytes().starts_with(&torn);
            ensure!(begun, "{}: {ANOTHER}", name());
            HashMap::new()
        } else {
            rows(path, &bytes, &labels, grid)?
        };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .with_context(name)?;
        file.set_len(whole as u64).with_context(name)?;
        if bytes.is_empty() {
            let written = file.write_all(head.as_bytes());
            written.map_err(|e| FileError::write(path, &e))?;
        }
        let path = path.to_owned();
        Ok(Self {
            path,
            head,
            labels,
            file,
            _lock: lock,
            rows,
        })
    }

    /// Whether a point has a result.
    pub fn has(&self, values: &[String]) -> bool {
        self.rows.contains_key(values)
    }

    /// The points that have a result, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Adds a row with a single write.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn append(&mut self, row: Row) -> Result<()> {
        let label = self.labels.of(&row.values);
        let label =
            label.with_context(|| format!("{}: a point of another grid", self.path.display()))?;
        let written = self.file.write_all(line(&row, &label)?.as_bytes());
        written.map_err(|e| FileError::write(&self.path, &e))?;
        self.rows.insert(row.values.clone(), row);
        Ok(())
    }

    /// Puts the rows into the grid's order, so that the file doesn't depend on which point was
    /// ready first, and gives those of the grid. Rows of other points stay behind them.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn finish(mut self, grid: &Grid) -> Result<Vec<Row>> {
        let rows = self.rows.into_values();
        let mut rows: Vec<(Option<usize>, Row)> =
            rows.map(|row| (grid.index_of(&row.values), row)).collect();
        rows.sort_by(|(i, a), (j, b)| {
            let others = i.is_none().cmp(&j.is_none());
            others.then(i.cmp(j)).then_with(|| a.values.cmp(&b.values))
        });
        for (_, row) in &rows {
            // Those that were read or added have labels.
            if let Some(label) = self.labels.of(&row.values) {
                self.head += &line(row, &label)?;
            }
        }
        output::write(&self.path, self.head)?;
        rows.retain(|(index, _)| index.is_some());
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

/// The rows of a table of this sweep by their values.
fn rows(
    path: &Path,
    text: &[u8],
    labels: &Labels,
    grid: &Grid,
) -> Result<HashMap<Vec<String>, Row>> {
    let (keys, lines) = read(path, text)?;
    let same = keys.iter().eq(grid.keys());
    ensure!(same, "{}: {ANOTHER}", path.display());
    let mut known: HashMap<&[String], &Line> = HashMap::new();
    for line in &lines {
        let label = labels.of(&line.row.values);
        ensure!(
            label.is_some_and(|label| label == line.label),
            "{}: {ANOTHER}",
            line.place
        );
        let first = known.entry(&line.row.values).or_insert(line);
        line.agrees(first).with_context(|| &line.place)?;
    }
    let rows = lines.into_iter().map(|line| line.row);
    Ok(rows.map(|row| (row.values.clone(), row)).collect())
}

#[cfg(test)]
mod tests;
