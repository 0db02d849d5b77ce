//! Tables of shards as the one table that the whole sweep would have written.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use vta_files::output;

use super::labels::split;
use super::row::{Line, head, line, read, whole_lines};
use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};
use crate::files;

/// A row of the table to be.
struct Kept {
    line: Line,
    /// Of its point, from 1, where a shard says it.
    number: Option<usize>,
}

/// The rows of all tables so far.
#[derive(Default)]
struct Rows<'a> {
    /// The axes' keys, and whose they are.
    keys: Option<(Vec<String>, &'a Path)>,
    /// What was swept, and the place of a row that says so.
    sweep: Option<(String, String)>,
    /// How many points the grid has, which grid it is, and the place of a row that says so.
    grid: Option<(usize, String, String)>,
    rows: Vec<Kept>,
    by_values: HashMap<Vec<String>, usize>,
    /// Indices into `rows` by the point's number, in the grid's order.
    by_number: BTreeMap<usize, usize>,
}

/// Writes the rows of all tables as one: those of shards in the order of their grid, without their
/// numbers, so that the table of all shards is that of the whole sweep, byte for byte, and
/// [`sweep`](super::sweep) goes on with it; then others, as they come. Equal rows of a point are one.
/// Gives the number of rows, and the points of the grid without a row, from 1; none where no table says which
/// grid it is of.
///
/// # Errors
/// A file that can't be read or is no table of a sweep, a row that is damaged, tables of different
/// sweeps or grids, rows of a point that differ; each names file and line, and nothing is written.
pub fn merge(tables: &[PathBuf], path: &Path) -> Result<(usize, Vec<usize>)> {
    let mut rows = Rows::default();
    for file in tables {
        rows.read(file)?;
    }
    let Some((sweep, _)) = &rows.sweep else {
        let names: Vec<_> = tables.iter().map(|t| t.display().to_string()).collect();
        bail!("no row to merge in any table ({})", names.join(", "));
    };
    let points = rows.grid.as_ref().map_or(0, |(points, ..)| *points);
    let has = |number: &usize| rows.by_number.contains_key(number);
    let missing: Vec<usize> = (1..=points).filter(|number| !has(number)).collect();
    let numbered = rows.by_number.values().map(|at| &rows.rows[*at]);
    let others = rows.rows.iter().filter(|kept| kept.number.is_none());
    let keys = rows.keys.iter().flat_map(|(keys, _)| keys);
    let mut text = head(keys.map(String::as_str))?;
    for kept in numbered.chain(others) {
        text += &line(&kept.line.row, sweep)?;
    }
    output::write(path, text)?;
    Ok((rows.rows.len(), missing))
}

impl<'a> Rows<'a> {
    /// Adds a table's rows.
    fn read(&mut self, file: &'a Path) -> Result<()> {
        let text = files::read_file(file)?;
        let whole = whole_lines(&text);
        let (keys, lines) = read(file, &text[..whole])?;
        let (first, of) = self.keys.get_or_insert_with(|| (keys.clone(), file));
        ensure!(
            *first == keys,
            "{}:1: other headings than those of {}",
            file.display(),
            of.display()
        );
        for line in lines {
            let place = line.place.clone();
            self.add(line).with_context(|| place)?;
        }
        ensure!(
            whole == text.len(),
            "{}: the last row has no end: the sweep hasn't finished it",
            file.display()
        );
        Ok(())
    }

    fn add(&mut self, line: Line) -> Result<()> {
        let (sweep, number) = split(&line.label);
        let new = || (sweep.to_owned(), line.place.clone());
        let (first, of) = self.sweep.get_or_insert_with(new);
        ensure!(
            first == sweep,
            "a row of the sweep '{sweep}'; that of {of} is '{first}'"
        );
        // A row of a whole sweep's table has no number, and so no place in the grid's order.
        let Some((number, points, grid)) = number else {
            return self.row(line).map(drop);
        };
        let new = || (points, grid.to_owned(), line.place.clone());
        let (size, first, of) = self.grid.get_or_insert_with(new);
        ensure!(
            *size == points && first == grid,
            "a shard of another grid, or by another version of vta, than that of {of}"
        );
        let at = self.row(line)?;
        let kept = &mut self.rows[at];
        let known = *kept.number.get_or_insert(number);
        ensure!(
            known == number,
            "point {number}, which {} says is {known}",
            kept.line.place
        );
        let other = *self.by_number.entry(number).or_insert(at);
        ensure!(
            other == at,
            "another point {number} than that of {}",
            self.rows[other].line.place
        );
        Ok(())
    }

    /// The index of a point's row, which is new or equals the one that is known.
    fn row(&mut self, line: Line) -> Result<usize> {
        if let Some(&at) = self.by_values.get(&line.row.values) {
            line.agrees(&self.rows[at].line)?;
            return Ok(at);
        }
        let values = line.row.values.clone();
        self.by_values.insert(values, self.rows.len());
        self.rows.push(Kept { line, number: None });
        Ok(self.rows.len() - 1)
    }
}

#[cfg(test)]
mod tests;
