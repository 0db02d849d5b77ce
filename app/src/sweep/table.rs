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
use super::row::{Line, Row, head, line, read};
use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};
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
    /// The table of a sweep's shard, or of some: its rows say which point of the grid they are. See
    /// [`merge`](super::merge::merge).
    ///
    /// # Errors
    /// As for [`open`](Self::open); another grid is another sweep.
    pub fn of_shards(path: &Path, model: &str, grid: &Grid) -> Result<Self> {
        Self::with(path, Labels::numbered(model, grid), grid)
    }

    /// Opens or makes the table. Rows that are there count as finished; a last line without its
    /// end, from a run that was stopped, is dropped.
    ///
    /// # Errors
    /// A file that can't be read or written, is the table of another sweep, has a row that isn't as it
    /// was written or two results for a point, or is being written by another process.
    pub fn open(path: &Path, model: &str, grid: &Grid) -> Result<Self> {
        Self::with(path, Labels::whole(model, grid), grid)
    }

    fn with(path: &Path, labels: Labels, grid: &Grid) -> Result<Self> {
        let name = || path.display().to_string();
        let other = std::fs::metadata(path).is_ok_and(|facts| !facts.is_file());
        ensure!(
            !other,
            "{}: not a file, so that rows can't be kept in it",
            name()
        );
        let head = head(grid.keys())?;
        let lock = FileLock::now(path)?;
        let mut bytes = match path.exists() {
            true => files::read_file(path)?,
            false => Vec::new(),
        };
        // A torn line may end within a character.
        let whole = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |end| end + 1);
        let torn = bytes.split_off(whole);
        let rows = match bytes.is_empty() {
            true if head.as_bytes().starts_with(&torn) => HashMap::new(),
            true => bail!("{}: {ANOTHER}", name()),
            false => rows(path, &bytes, &labels, grid)?,
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
        let in_grid: Vec<Row> = grid
            .points()
            .filter_map(|p| self.rows.remove(&p.values))
            .collect();
        let mut others: Vec<Row> = self.rows.into_values().collect();
        others.sort_by(|a, b| a.values.cmp(&b.values));
        for row in in_grid.iter().chain(&others) {
            // Those that were read or added have labels.
            if let Some(label) = self.labels.of(&row.values) {
                self.head += &line(row, &label)?;
            }
        }
        output::write(&self.path, self.head)?;
        Ok(in_grid)
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
mod tests {
    use vta_isa::Config;
    use vta_sim::cycle::TimingConfig;

    use super::*;
    use crate::sweep::row::tests::row;

    fn grid() -> Grid {
        let vary = ["LOG_BLOCK=4,5".to_owned(), "tags=1,2".to_owned()];
        Grid::new(&vary, &Config::default(), &TimingConfig::pynq()).unwrap()
    }

    #[test]
    fn a_stopped_sweep_goes_on_and_ends_in_the_grids_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut table = Table::open(&path, "demo", &grid()).unwrap();
        table.append(row(&["5", "2"], Ok(52))).unwrap();
        table
            .append(row(&["4", "1"], Err("too, \"wide\"\n")))
            .unwrap();
        drop(table);
        // The writer was stopped within a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all("4,2,77,\u{00e9}".as_bytes().split_last().unwrap().1)
            .unwrap();
        let mut table = Table::open(&path, "demo", &grid()).unwrap();
        let second = Table::open(&path, "demo", &grid()).err().unwrap();
        let busy = "another process is writing this file";
        assert!(second.to_string().ends_with(busy), "{second}");
        let done = |a: &str, b: &str| table.has(&[a.to_owned(), b.to_owned()]);
        assert!(done("5", "2") && done("4", "1") && !done("4", "2") && !done("5", "1"));
        table.append(row(&["5", "1"], Ok(51))).unwrap();
        table.append(row(&["4", "2"], Ok(42))).unwrap();
        let rows = table.finish(&grid()).unwrap();
        let cycles = |r: &Row| r.outcome.as_ref().ok().map(|m| m.cycles);
        let found: Vec<_> = rows.iter().map(cycles).collect();
        assert_eq!(found, [None, Some(42), Some(51), Some(52)]);
        assert_eq!(rows[0].outcome, Err("too, \"wide\" ".to_owned()));
        assert_eq!(rows[1], row(&["4", "2"], Ok(42)));
        let text = std::fs::read_to_string(&path).unwrap();
        let head = "LOG_BLOCK,tags,cycles,images,bound_cycles,pass_ms,macs,utilization,dram_bytes,\
                    energy_uj,area_mm2,error,sweep,check\n4,1,,,,,,,,,,\"too, \"\"wide\"\" \",\"demo, base ";
        assert!(text.starts_with(head), "{text}");
        assert_eq!(text.lines().count(), 1 + 4);
    }

    #[test]
    fn rows_that_cannot_be_are_refused_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut table = Table::open(&path, "demo", &grid()).unwrap();
        table.append(row(&["4", "1"], Ok(1622))).unwrap();
        table.append(row(&["4", "2"], Ok(42))).unwrap();
        table.finish(&grid()).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = Table::open(&path, "demo", &grid())
                .err()
                .unwrap()
                .to_string();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            error.replace(&format!("{}/", folder.path().display()), "")
        };
        let error = refused(&good.replace(",1622,", ",7,"));
        assert!(
            error.starts_with("t.csv:2: the row isn't as it was written"),
            "{error}"
        );
        // A point twice: once as it is, once by another sweep of the same name that was as honest.
        let second = folder.path().join("u.csv");
        let mut table = Table::open(&second, "demo", &grid()).unwrap();
        table.append(row(&["4", "1"], Ok(1623))).unwrap();
        table.finish(&grid()).unwrap();
        let other = std::fs::read_to_string(&second).unwrap();
        assert_eq!(
            refused(&(good.clone() + other.lines().last().unwrap() + "\n")),
            "t.csv:4: another result for the point of t.csv:2: cycles is '1623', not '1622'"
        );
        let twice = good.clone() + good.lines().last().unwrap() + "\n";
        std::fs::write(&path, twice).unwrap();
        let table = Table::open(&path, "demo", &grid()).unwrap();
        assert_eq!(table.finish(&grid()).unwrap().len(), 2);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), good);
    }

    #[test]
    fn another_sweeps_table_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut table = Table::open(&path, "demo", &grid()).unwrap();
        table.append(row(&["4", "1"], Ok(41))).unwrap();
        drop(table);
        let text = std::fs::read_to_string(&path).unwrap();
        let error = Table::open(&path, "zoo:resnet18", &grid()).err().unwrap();
        assert!(
            error
                .to_string()
                .contains("t.csv:2: not the table of this sweep")
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        for text in ["a,b\n1,2\n", "notes without an end"] {
            std::fs::write(&path, text).unwrap();
            assert!(Table::open(&path, "demo", &grid()).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
