//! Tables of shards as the one table that the whole sweep would have written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vta_files::output;

use super::labels::split;
use super::table::{COLUMNS, Row, cells, line, outcome};
use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};
use crate::files;

/// What was merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Rows of the table.
    pub rows: usize,
    /// Points of the grid without a row, from 1; none where no table says which grid it is of.
    pub missing: Vec<usize>,
}

/// Where a row stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a Path,
    /// From 1.
    line: usize,
}

impl Place<'_> {
    fn name(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}

/// A row of the table to be.
struct Kept<'a> {
    row: Row,
    place: Place<'a>,
    /// Of its point, from 1, where a shard says it.
    number: Option<usize>,
}

/// The rows of all tables so far.
#[derive(Default)]
struct Rows<'a> {
    /// The headings, and whose they are.
    head: Option<(String, &'a Path)>,
    /// What was swept, and a row that says so.
    sweep: Option<(String, Place<'a>)>,
    /// How many points the grid has and which grid it is, and a row that says so.
    grid: Option<((usize, String), Place<'a>)>,
    rows: Vec<Kept<'a>>,
    by_values: HashMap<Vec<String>, usize>,
    /// Indices into `rows` by the point's number.
    by_number: HashMap<usize, usize>,
}

/// Writes the rows of all tables as one: those of shards in the order of their grid, without their
/// numbers, so that the table of all shards is that of the whole sweep, byte for byte, and
/// [`sweep`](super::sweep) goes on with it; then others, as they come. Equal rows of a point are one.
///
/// # Errors
/// A file that can't be read or is no table of a sweep, a row that is damaged, tables of different
/// sweeps or grids, rows of a point that differ; each names file and line, and nothing is written.
pub fn merge(tables: &[PathBuf], path: &Path) -> Result<Merged> {
    let mut rows = Rows::default();
    for file in tables {
        rows.read(file, &files::read_text(file)?)?;
    }
    let Some((sweep, _)) = &rows.sweep else {
        let names: Vec<_> = tables.iter().map(|t| t.display().to_string()).collect();
        bail!("no row to merge in any table ({})", names.join(", "));
    };
    let points = rows.grid.as_ref().map_or(0, |((points, _), _)| *points);
    let mut order: Vec<usize> = Vec::with_capacity(rows.rows.len());
    let mut missing = Vec::new();
    for number in 1..=points {
        match rows.by_number.get(&number) {
            Some(at) => order.push(*at),
            None => missing.push(number),
        }
    }
    let others = (0..rows.rows.len()).filter(|at| rows.rows[*at].number.is_none());
    order.extend(others);
    let head = rows.head.as_ref().map_or("", |(head, _)| head);
    let lines = order.iter().map(|at| line(&rows.rows[*at].row, sweep));
    let text: String = std::iter::once(format!("{head}\n")).chain(lines).collect();
    output::write(path, text)?;
    Ok(Merged {
        rows: order.len(),
        missing,
    })
}

impl<'a> Rows<'a> {
    /// Adds a table's rows.
    fn read(&mut self, file: &'a Path, text: &str) -> Result<()> {
        let (head, body) = text.split_once('\n').unwrap_or((text, ""));
        let place = Place { file, line: 1 };
        let columns = format!(",{}", COLUMNS.join(","));
        let keys = head.strip_suffix(&columns).with_context(|| {
            format!(
                "{}: not the table of a sweep: its headings end otherwise",
                place.name()
            )
        })?;
        let keys = keys.split(',').count();
        match &self.head {
            Some((first, of)) => ensure!(
                first == head,
                "{}: other headings than those of {}",
                place.name(),
                of.display()
            ),
            None => self.head = Some((head.to_owned(), file)),
        }
        let lines = body.split_inclusive('\n');
        for (i, text) in lines.enumerate() {
            let place = Place { file, line: i + 2 };
            let whole = text.strip_suffix('\n').with_context(|| {
                format!(
                    "{}: a row without its end: the sweep hasn't finished it",
                    place.name()
                )
            })?;
            self.add(keys, whole, place).with_context(|| place.name())?;
        }
        Ok(())
    }

    fn add(&mut self, keys: usize, text: &str, place: Place<'a>) -> Result<()> {
        let cells = cells(text);
        let expected = keys + COLUMNS.len();
        ensure!(
            cells.len() == expected,
            "{} cells, not {expected}",
            cells.len()
        );
        let (values, rest) = cells.split_at(keys);
        let row = Row {
            values: values.iter().map(|v| (*v).to_owned()).collect(),
            outcome: outcome(rest)?,
        };
        let (sweep, number) = split(rest[COLUMNS.len() - 1]);
        match &self.sweep {
            Some((first, of)) => ensure!(
                first == sweep,
                "a row of the sweep '{sweep}'; that of {} is '{first}'",
                of.name()
            ),
            None => self.sweep = Some((sweep.to_owned(), place)),
        }
        let at = self.row(row, place)?;
        let Some((number, points, grid)) = number else {
            return Ok(());
        };
        match &self.grid {
            Some((first, of)) => ensure!(
                first.0 == points && first.1 == grid,
                "a shard of another grid, or by another version of vta, than that of {}",
                of.name()
            ),
            None => self.grid = Some(((points, grid.to_owned()), place)),
        }
        let kept = &mut self.rows[at];
        let known = *kept.number.get_or_insert(number);
        ensure!(
            known == number,
            "point {number}, which {} says is {known}",
            kept.place.name()
        );
        let other = *self.by_number.entry(number).or_insert(at);
        ensure!(
            other == at,
            "another point {number} than that of {}",
            self.rows[other].place.name()
        );
        Ok(())
    }

    /// The index of a point's row, which is new or equals the one that is known.
    fn row(&mut self, row: Row, place: Place<'a>) -> Result<usize> {
        if let Some(&at) = self.by_values.get(&row.values) {
            let Kept {
                row: known, place, ..
            } = &self.rows[at];
            ensure!(
                *known == row,
                "another result for the point of {}",
                place.name()
            );
            return Ok(at);
        }
        self.by_values.insert(row.values.clone(), self.rows.len());
        let number = None;
        self.rows.push(Kept { row, place, number });
        Ok(self.rows.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "tags,cycles,images,bound_cycles,macs,utilization,dram_bytes,energy_uj,area_mm2,error,sweep\n";
    const GRID: &str = "0123456789abcdef";

    fn row(tags: u64, number: usize) -> String {
        whole(tags).replace(
            "f\"\n",
            &format!("f, point {number} of 4 in grid {GRID}\"\n"),
        )
    }

    fn whole(tags: u64) -> String {
        format!(
            "{tags},{},1,2,3,0.5,6,7.25,8.5,,\"demo, base 00000000000000ff\"\n",
            tags * 10
        )
    }

    fn table(tags: &[u64]) -> String {
        HEAD.to_owned() + &tags.iter().map(|t| whole(*t)).collect::<String>()
    }

    fn merged(tables: &[String]) -> Result<(Merged, String), String> {
        let folder = tempfile::tempdir().unwrap();
        let name = |i| folder.path().join(format!("{i}.csv"));
        for (i, text) in tables.iter().enumerate() {
            std::fs::write(name(i), format!("{HEAD}{text}")).unwrap();
        }
        let (paths, all) = (
            (0..tables.len()).map(name).collect::<Vec<_>>(),
            folder.path().join("all"),
        );
        let found = merge(&paths, &all);
        assert_eq!(found.is_ok(), all.exists());
        let folder = format!("{}/", folder.path().display());
        let found = found.map_err(|e| e.to_string().replace(&folder, ""))?;
        Ok((found, std::fs::read_to_string(all).unwrap()))
    }

    #[test]
    fn rows_are_in_the_grids_order_whatever_the_tables() {
        // Not ascending: the grid is 9, 3, 7, 5.
        let (a, b) = (row(9, 1) + &row(7, 3), row(3, 2) + &row(5, 4));
        for tables in [[a.clone(), b.clone()], [b, a]] {
            let (found, text) = merged(&tables).unwrap();
            assert_eq!((found.rows, found.missing), (4, vec![]));
            assert_eq!(text, table(&[9, 3, 7, 5]));
        }
        let some = [row(5, 4), whole(8), row(9, 1) + &row(5, 4), whole(9)];
        let (found, text) = merged(&some).unwrap();
        assert_eq!((found.rows, found.missing), (3, vec![2, 3]));
        assert_eq!(text, table(&[9, 5, 8]));
        let (found, text) = merged(&[whole(8) + &whole(2), whole(4) + &whole(2)]).unwrap();
        assert_eq!((found.rows, found.missing.len()), (3, 0));
        assert_eq!(text, table(&[8, 2, 4]));
    }

    #[test]
    fn what_does_not_fit_names_file_and_line_and_writes_nothing() {
        let other =
            "1.csv:2: a shard of another grid, or by another version of vta, than that of 0.csv:2";
        let sweep = |name: &str| {
            let base = "demo, base 00000000000000ff";
            format!("1.csv:2: a row of the sweep '{name}'; that of 0.csv:2 is '{base}'")
        };
        let (net, base) = (
            sweep("net, base 00000000000000ff"),
            sweep("demo, base 00000000000000fe"),
        );
        for (second, error) in [
            (row(9, 2), "1.csv:2: point 2, which 0.csv:2 says is 1"),
            (row(3, 1), "1.csv:2: another point 1 than that of 0.csv:2"),
            (
                row(9, 1).replace("90", "91"),
                "1.csv:2: another result for the point of 0.csv:2",
            ),
            (row(3, 2).replace("demo", "net"), &net),
            (row(3, 2).replace("ff,", "fe,"), &base),
            (row(3, 2).replace(GRID, "f123456789abcdef"), other),
            (row(3, 2).replace("of 4", "of 5"), other),
            (
                row(3, 2) + "5,1",
                "1.csv:3: a row without its end: the sweep hasn't finished it",
            ),
            (row(3, 2) + "5,1\n", "1.csv:3: 2 cells, not 11"),
            (row(3, 2) + "\n", "1.csv:3: 1 cells, not 11"),
            (
                row(3, 2).replace("30", "x"),
                "1.csv:2: cycles is 'x': invalid digit found in string",
            ),
        ] {
            assert_eq!(merged(&[row(9, 1), second]).unwrap_err(), error);
        }
        let error = merged(&[String::new(), String::new()]).unwrap_err();
        assert_eq!(error.matches(".csv").count(), 2, "{error}");
    }

    #[test]
    fn numbers_that_no_grid_has_are_part_of_the_sweeps_name() {
        for wrong in ["0 of 4", "5 of 4", "1 of 100001", "-1 of 4", "x of 4", "1"] {
            let text = row(3, 2).replace("2 of 4", wrong);
            let error = merged(&[row(9, 1), text]).unwrap_err();
            assert!(error.contains(&format!("point {wrong} in grid")), "{error}");
        }
    }

    #[test]
    fn other_files_are_no_tables() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, all] = ["a.csv", "b.csv", "all"].map(|name| folder.path().join(name));
        std::fs::write(&a, table(&[1])).unwrap();
        for (text, part) in [
            ("", "b.csv:1: not the table of a sweep"),
            ("a,b\n1,2\n", "b.csv:1: not the table of a sweep"),
            (
                &HEAD.replace("tags", "LOG_BLOCK"),
                "b.csv:1: other headings than those of",
            ),
        ] {
            std::fs::write(&b, text).unwrap();
            let error = merge(&[a.clone(), b.clone()], &all).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let gone = merge(&[a, folder.path().join("gone.csv")], &all).unwrap_err();
        assert!(gone.to_string().contains("gone.csv"), "{gone}");
        assert!(merge(&[], &all).is_err() && !all.exists());
    }
}
