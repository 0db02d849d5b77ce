//! The table of a sweep: a CSV file to which every finished point is added at once.
//!
//! The first line has the columns' names, every other one a point: the axes' values, figures, an
//! error in their place, and in the last column which sweep it belongs to. There are no other
//! lines, so that any reader of CSV takes the file as it is.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vta_files::output::{self, FileError, FileLock};

use super::grid::Grid;
use super::labels::Labels;
use crate::error::{Context, Result, ensure_input as ensure};
use crate::files;

/// What a point took.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Of one pass.
    pub cycles: u64,
    /// Images of a pass.
    pub images: u64,
    /// The sum of the layers' bounds.
    pub bound_cycles: u64,
    /// Useful multiply-adds of a pass.
    pub macs: u64,
    /// Useful multiply-adds as a share of what the matrix unit could do.
    pub utilization: f64,
    /// Read and written.
    pub dram_bytes: u64,
    /// An estimate, in microjoules of a pass.
    pub energy_uj: f64,
    /// An estimate, in square millimetres.
    pub area_mm2: f64,
}

impl Measured {
    /// Multiply-adds that the matrix unit could have done.
    pub(super) fn most_macs(&self) -> f64 {
        match self.utilization > 0.0 {
            true => self.macs as f64 / self.utilization,
            false => 0.0,
        }
    }

    /// To compare machines that run several images at once.
    pub fn cycles_per_image(&self) -> f64 {
        self.cycles as f64 / self.images.max(1) as f64
    }
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// A value for each axis.
    pub values: Vec<String>,
    /// What it took, or why it has no result.
    pub outcome: Result<Measured, String>,
}

impl Row {
    /// The row's cells as the table has them, without the last one, which names the sweep: numbers, and
    /// null for what there isn't. See [`columns`].
    pub fn json(&self) -> Vec<Value> {
        let mut cells: Vec<Value> = self.values.iter().map(|v| number(v)).collect();
        match &self.outcome {
            Ok(m) => cells.extend([
                json!(m.cycles),
                json!(m.images),
                json!(m.bound_cycles),
                json!(m.macs),
                json!(m.utilization),
                json!(m.dram_bytes),
                json!(m.energy_uj),
                json!(m.area_mm2),
                Value::Null,
            ]),
            Err(error) => {
                cells.extend([const { Value::Null }; FIGURES]);
                cells.push(json!(error));
            }
        }
        cells
    }
}

/// A value of an axis: a number, also one that JSON writes otherwise, such as `.5`, or a layer's name.
fn number(text: &str) -> Value {
    let whole = text.parse::<i64>().map(Value::from);
    let number = || text.parse::<f64>().ok().filter(|n| n.is_finite());
    whole.unwrap_or_else(|_| number().map_or_else(|| text.into(), Value::from))
}

/// The names of [`Row::json`]'s cells.
pub fn columns(grid: &Grid) -> Vec<&str> {
    let figures = COLUMNS.iter().copied().filter(|name| *name != "sweep");
    grid.keys().chain(figures).collect()
}

/// Behind the axes.
pub(super) const COLUMNS: [&str; 10] = [
    "cycles",
    "images",
    "bound_cycles",
    "macs",
    "utilization",
    "dram_bytes",
    "energy_uj",
    "area_mm2",
    "error",
    "sweep",
];
/// Columns of figures.
const FIGURES: usize = 8;

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
    /// A file that can't be read or written, is the table of another sweep, or is being written by
    /// another process.
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
        let head = head(grid);
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
        let text = String::from_utf8(bytes);
        let mut text = text.with_context(|| format!("{}: not a text file", name()))?;
        let another = || {
            format!(
                "{}: not the table of this sweep: give another file or remove it",
                name()
            )
        };
        let keys = grid.keys().count();
        let mut rows = HashMap::new();
        if text.is_empty() {
            ensure!(head.as_bytes().starts_with(&torn), "{}", another());
        } else if let Some(body) = text.strip_prefix(&old_head(&head, &labels.sweep))
            && labels.numbers.is_none()
        {
            rows = parse(body, keys, None).with_context(name)?;
            text = head.clone() + &lines(rows.values(), &labels);
            output::write(path, &text)?;
        } else {
            let body = text.strip_prefix(&head).with_context(another)?;
            rows = parse(body, keys, Some(&labels)).with_context(name)?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .with_context(name)?;
        file.set_len(text.len() as u64).with_context(name)?;
        if text.is_empty() {
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
        let written = self.file.write_all(line(&row, &label).as_bytes());
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
        let lines = lines(in_grid.iter().chain(&others), &self.labels);
        output::write(&self.path, self.head + &lines)?;
        Ok(in_grid)
    }
}

/// The column names.
fn head(grid: &Grid) -> String {
    let keys: Vec<&str> = grid.keys().chain(COLUMNS).collect();
    keys.join(",") + "\n"
}

/// How tables of version 0.1 begin: the sweep stands in a comment, and no row names it.
fn old_head(head: &str, sweep: &str) -> String {
    format!("# vta sweep of {sweep}\n{}", head.replace(",sweep\n", "\n"))
}

/// The lines of rows; those that were read or added have labels.
fn lines<'r>(rows: impl Iterator<Item = &'r Row>, labels: &Labels) -> String {
    let line = |row: &Row| Some(line(row, &labels.of(&row.values)?));
    rows.filter_map(line).collect()
}

/// A row as a line that ends with which sweep it belongs to.
pub(super) fn line(row: &Row, sweep: &str) -> String {
    let mut cells = row.values.clone();
    match &row.outcome {
        Ok(m) => cells.extend([
            m.cycles.to_string(),
            m.images.to_string(),
            m.bound_cycles.to_string(),
            m.macs.to_string(),
            m.utilization.to_string(),
            m.dram_bytes.to_string(),
            m.energy_uj.to_string(),
            m.area_mm2.to_string(),
            String::new(),
        ]),
        Err(error) => {
            cells.extend(std::iter::repeat_n(String::new(), FIGURES));
            let text = error.replace(['\n', '\r'], " ").replace('"', "'");
            cells.push(format!("\"{text}\""));
        }
    }
    cells.push(format!("\"{sweep}\""));
    cells.join(",") + "\n"
}

/// The rows; with `labels`, each must have its own.
fn parse(body: &str, keys: usize, labels: Option<&Labels>) -> Result<HashMap<Vec<String>, Row>> {
    let columns = keys + COLUMNS.len() - usize::from(labels.is_none());
    let mut rows = HashMap::new();
    for (i, line) in body.lines().enumerate() {
        let cells = cells(line);
        let at = || format!("row {}", i + 1);
        ensure!(cells.len() == columns, "{}: {} cells", at(), cells.len());
        let (values, rest) = cells.split_at(keys);
        let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
        let label = labels.map(|labels| labels.of(&values));
        let named = label.is_none_or(|label| label.as_deref() == cells.last().copied());
        ensure!(
            named,
            "not the table of this sweep ({}): give another file or remove it",
            at()
        );
        let row = Row {
            values,
            outcome: outcome(rest).with_context(at)?,
        };
        rows.insert(row.values.clone(), row);
    }
    Ok(rows)
}

/// The cells of a line; commas between quotes are part of one. No cell has quotes in it.
pub(super) fn cells(line: &str) -> Vec<&str> {
    let mut quoted = false;
    let ends = |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    };
    line.split(ends)
        .map(|cell| cell.trim_matches('"'))
        .collect()
}

/// What the cells behind the axes say.
pub(super) fn outcome(cells: &[&str]) -> Result<Result<Measured, String>> {
    let error = cells[FIGURES];
    if !error.is_empty() {
        return Ok(Err(error.to_owned()));
    }
    let whole = |i: usize| {
        let wrong = || format!("{} is '{}'", COLUMNS[i], cells[i]);
        cells[i].parse::<u64>().with_context(wrong)
    };
    let real = |i: usize| {
        let wrong = || format!("{} is '{}'", COLUMNS[i], cells[i]);
        cells[i].parse::<f64>().with_context(wrong)
    };
    Ok(Ok(Measured {
        cycles: whole(0)?,
        images: whole(1)?,
        bound_cycles: whole(2)?,
        macs: whole(3)?,
        utilization: real(4)?,
        dram_bytes: whole(5)?,
        energy_uj: real(6)?,
        area_mm2: real(7)?,
    }))
}

#[cfg(test)]
mod tests {
    use vta_isa::Config;
    use vta_sim::cycle::TimingConfig;

    use super::*;
    use crate::sweep::labels::sweep;

    fn grid() -> Grid {
        let vary = ["LOG_BLOCK=4,5".to_owned(), "tags=1,2".to_owned()];
        Grid::new(&vary, &Config::default(), &TimingConfig::pynq()).unwrap()
    }

    fn row(a: &str, b: &str, outcome: Result<u64, &str>) -> Row {
        let measured = |cycles| Measured {
            cycles,
            images: 2,
            bound_cycles: 3,
            macs: 4,
            utilization: 0.5,
            dram_bytes: 6,
            energy_uj: 7.25,
            area_mm2: 8.5,
        };
        Row {
            values: vec![a.to_owned(), b.to_owned()],
            outcome: outcome.map(measured).map_err(str::to_owned),
        }
    }

    #[test]
    fn a_stopped_sweep_goes_on_and_ends_in_the_grids_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut table = Table::open(&path, "demo", &grid()).unwrap();
        table.append(row("5", "2", Ok(52))).unwrap();
        table.append(row("4", "1", Err("too, \"wide\"\n"))).unwrap();
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
        table.append(row("5", "1", Ok(51))).unwrap();
        table.append(row("4", "2", Ok(42))).unwrap();
        let rows = table.finish(&grid()).unwrap();
        let cycles = |r: &Row| r.outcome.as_ref().ok().map(|m| m.cycles);
        let found: Vec<_> = rows.iter().map(cycles).collect();
        assert_eq!(found, [None, Some(42), Some(51), Some(52)]);
        assert_eq!(rows[0].outcome, Err("too, 'wide' ".to_owned()));
        assert_eq!(rows[1], row("4", "2", Ok(42)));
        let text = std::fs::read_to_string(&path).unwrap();
        let sweep = sweep("demo", &grid());
        let last = format!("5,2,52,2,3,4,0.5,6,7.25,8.5,,\"{sweep}\"\n");
        assert!(text.ends_with(&last), "{text}");
        assert_eq!(text.lines().count(), 1 + 4);
    }

    #[test]
    fn every_line_is_a_row_of_numbers_under_the_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut table = Table::open(&path, "gemm:8,64,64", &grid()).unwrap();
        table.append(row("4", "1", Ok(41))).unwrap();
        table.append(row("4", "2", Err("no, \"really\""))).unwrap();
        table.finish(&grid()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(cells);
        let names = lines.next().unwrap();
        assert_eq!(names[..3], ["LOG_BLOCK", "tags", "cycles"]);
        let rows: Vec<_> = lines.collect();
        assert_eq!(rows.len(), 2);
        for row in &rows {
            assert_eq!(row.len(), names.len());
            for (name, cell) in names.iter().zip(row) {
                let words = ["error", "sweep"].contains(name);
                let number = cell.parse::<f64>().is_ok() || cell.is_empty();
                assert!(words || number, "{name}: {cell}");
            }
            let (sweep, error) = (row[row.len() - 1], row[row.len() - 2]);
            assert!(sweep.starts_with("gemm:8,64,64, base "), "{sweep}");
            assert_eq!(error.is_empty(), row[2] == "41");
        }
    }

    #[test]
    fn tables_of_older_versions_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let old = format!(
            "# vta sweep of demo, base {}\n\
            LOG_BLOCK,tags,cycles,images,bound_cycles,macs,utilization,dram_bytes,energy_uj,area_mm2,error\n\
            5,2,52,2,3,4,0.5,6,7.25,8.5,\n\
            4,1,,,,,,,,,\"too, wide\"\n",
            grid().fingerprint()
        );
        std::fs::write(&path, format!("{old}4,2,7")).unwrap();
        drop(Table::open(&path, "demo", &grid()).unwrap());
        let table = Table::open(&path, "demo", &grid()).unwrap();
        let rows = table.finish(&grid()).unwrap();
        let known = [row("4", "1", Err("too, wide")), row("5", "2", Ok(52))];
        assert_eq!(rows, known);
        std::fs::write(&path, old).unwrap();
        let other = Table::open(&path, "zoo:resnet18", &grid()).err().unwrap();
        assert!(
            other.to_string().contains("not the table of this sweep"),
            "{other}"
        );
    }

    #[test]
    fn another_sweeps_table_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut table = Table::open(&path, "demo", &grid()).unwrap();
        table.append(row("4", "1", Ok(41))).unwrap();
        drop(table);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(Table::open(&path, "zoo:resnet18", &grid()).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        for text in ["a,b\n1,2\n", "notes without an end"] {
            std::fs::write(&path, text).unwrap();
            assert!(Table::open(&path, "demo", &grid()).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn damaged_rows_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let (head, sweep) = (head(&grid()), sweep("demo", &grid()));
        for (line, part) in [
            ("4,1,x,1,1,1,1,1,1,1,", "cycles is 'x'"),
            ("4,1,2", "row 1"),
        ] {
            std::fs::write(&path, format!("{head}{line},\"{sweep}\"\n")).unwrap();
            let error = format!("{:#}", Table::open(&path, "demo", &grid()).err().unwrap());
            assert!(error.contains(part), "{error}");
        }
    }
}
