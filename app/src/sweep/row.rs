//! A point of a sweep as a line of its table: the axes' values, figures, an error in their place, which
//! sweep it belongs to, and a check of all that.

use std::path::Path;

use crc32fast::Hasher;
use csv::{ReaderBuilder, StringRecord, Writer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};

/// What a point took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of one pass.
    pub cycles: u64,
    /// Images of a pass.
    pub images: u64,
    /// The sum of the layers' bounds.
    pub bound_cycles: u64,
    /// Milliseconds of a pass, by the point's clock.
    pub pass_ms: f64,
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
    /// The figures by their names in tables, in order.
    pub fn figures(&self) -> Map<String, Value> {
        match json!(self) {
            Value::Object(figures) => figures,
            _ => Map::new(),
        }
    }

    /// Multiply-adds that the matrix unit could have done.
    pub(super) fn most_macs(&self) -> f64 {
        if self.utilization > 0.0 {
            self.macs as f64 / self.utilization
        } else {
            0.0
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
    /// The cells of the figures and of the error.
    fn cells(&self) -> Vec<String> {
        let (figures, error) = match &self.outcome {
            Ok(measured) => (measured.figures(), String::new()),
            // A line of the file is a row, so that a torn one is found.
            Err(error) => (Map::new(), error.replace(['\n', '\r'], " ")),
        };
        let cell = |name| figures.get(name).map_or_else(String::new, Value::to_string);
        let names = Measured::default().figures();
        names.keys().map(cell).chain([error]).collect()
    }
}

/// A row of a table that was read.
pub(super) struct Line {
    /// The file and the line, which counts from 1.
    pub place: String,
    pub row: Row,
    /// Which sweep the row belongs to, as its cell says.
    pub label: String,
}

impl Line {
    /// Whether another row of the same point says the same.
    ///
    /// # Errors
    /// The first cell that differs, and the other row's place.
    pub fn agrees(&self, first: &Self) -> Result<()> {
        let (ours, theirs) = (self.row.cells(), first.row.cells());
        let Some(at) = (0..ours.len()).find(|&at| ours[at] != theirs[at]) else {
            return Ok(());
        };
        bail!(
            "another result for the point of {}: {} is '{}', not '{}'",
            first.place,
            columns()[at],
            ours[at],
            theirs[at]
        )
    }
}

/// The columns behind the axes.
fn columns() -> Vec<String> {
    let figures = Measured::default().figures();
    let behind = ["error", "sweep", "check"].map(str::to_owned);
    figures
        .into_iter()
        .map(|(name, _)| name)
        .chain(behind)
        .collect()
}

/// The line of headings.
pub(super) fn head<'k>(keys: impl Iterator<Item = &'k str>) -> Result<String> {
    written(keys.map(str::to_owned).chain(columns()).collect())
}

/// A row as a line that ends with which sweep it belongs to, and the check.
pub(super) fn line(row: &Row, label: &str) -> Result<String> {
    let mut cells = row.values.clone();
    cells.extend(row.cells());
    cells.push(label.to_owned());
    cells.push(check(cells.iter().map(String::as_str)));
    written(cells)
}

fn written(cells: Vec<String>) -> Result<String> {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(cells)?;
    let bytes = writer
        .into_inner()
        .map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8(bytes)?)
}

/// CRC-32 of cells, none of which has a line's end in it.
fn check<'c>(cells: impl Iterator<Item = &'c str>) -> String {
    let mut hasher = Hasher::new();
    for cell in cells {
        hasher.update(cell.as_bytes());
        hasher.update(b"\n");
    }
    format!("{:08x}", hasher.finalize())
}

/// Bytes of the lines that have their end.
pub(super) fn whole_lines(text: &[u8]) -> usize {
    let last = text.iter().rposition(|byte| *byte == b'\n');
    last.map_or(0, |end| end + 1)
}

/// The keys of a table's axes, and its rows.
///
/// # Errors
/// No table of a sweep, a row that isn't as it was written; each names file and line.
pub(super) fn read(file: &Path, text: &[u8]) -> Result<(Vec<String>, Vec<Line>)> {
    let mut reader = ReaderBuilder::new()
        .flexible(true)
        .has_headers(false)
        .from_reader(text);
    let mut records = reader.records();
    let place = |line| format!("{}:{line}", file.display());
    let head = records.next().transpose().with_context(|| place(1))?;
    let keys = keys(&head.unwrap_or_default()).with_context(|| place(1))?;
    let mut lines = Vec::new();
    for record in records {
        let record = record.with_context(|| file.display())?;
        let place = place(record.position().map_or(0, csv::Position::line));
        let (row, label) = parse(&record, keys.len()).with_context(|| &place)?;
        lines.push(Line { place, row, label });
    }
    Ok((keys, lines))
}

/// The axes' keys of headings.
fn keys(head: &StringRecord) -> Result<Vec<String>> {
    let (columns, head): (_, Vec<&str>) = (columns(), head.iter().collect());
    let old = head
        .first()
        .is_some_and(|cell| cell.starts_with("# vta sweep of "));
    let unchecked = head.contains(&"bound_cycles") && !head.contains(&"check");
    ensure!(
        !old && !unchecked,
        "a table by an older version of vta, whose rows have no check: give another file, or remove \
         this one, and its points are computed again"
    );
    let keys = head.len().saturating_sub(columns.len());
    ensure!(
        head[keys..] == columns,
        "not the table of a sweep: its headings end otherwise"
    );
    Ok(head[..keys].iter().map(|key| (*key).to_owned()).collect())
}

/// A row and its label.
fn parse(record: &StringRecord, keys: usize) -> Result<(Row, String)> {
    let cells: Vec<&str> = record.iter().collect();
    let expected = keys + columns().len();
    ensure!(
        cells.len() == expected,
        "{} cells, not {expected}",
        cells.len()
    );
    let (values, rest) = cells.split_at(keys);
    let (figures, [error, label, told]) = rest.split_at(rest.len() - 3) else {
        bail!("{} cells, not {expected}", cells.len());
    };
    let found = check(cells[..expected - 1].iter().copied());
    ensure!(
        *told == found,
        "the row isn't as it was written: its check is '{told}', and its cells give {found}; remove the \
         line, and the point is computed again"
    );
    let outcome = if error.is_empty() {
        Ok(StringRecord::from(figures.to_vec()).deserialize(None)?)
    } else {
        Err((*error).to_owned())
    };
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Ok((Row { values, outcome }, (*label).to_owned()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures that no other `cycles` have.
    pub fn measured(cycles: u64) -> Measured {
        Measured {
            cycles,
            images: 2,
            bound_cycles: 3,
            pass_ms: 0.125,
            macs: 4,
            utilization: 0.1 + 0.2,
            dram_bytes: 6,
            energy_uj: 7.25e-9,
            area_mm2: 8.0,
        }
    }

    /// A row of a point.
    pub fn row(values: &[&str], outcome: Result<u64, &str>) -> Row {
        Row {
            values: values.iter().map(|v| (*v).to_owned()).collect(),
            outcome: outcome.map(measured).map_err(str::to_owned),
        }
    }

    fn table(lines: &[String]) -> Vec<u8> {
        (head(["LOG_BLOCK", "tags"].into_iter()).unwrap() + &lines.concat()).into_bytes()
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let rows = [
            row(&["4", "1"], Ok(41)),
            row(&["4", "2"], Err("too, \"wide\"\nby 3")),
            row(&["conv, \"a\"", ".5"], Ok(u64::MAX)),
        ];
        let lines = rows.each_ref().map(|row| line(row, "net, base f").unwrap());
        assert!(lines.iter().all(|line| line.matches('\n').count() == 1));
        let (keys, found) = read(Path::new("t.csv"), &table(&lines)).unwrap();
        assert_eq!(keys, ["LOG_BLOCK", "tags"]);
        let [one, two, three] = &found[..] else {
            panic!("three rows")
        };
        assert_eq!((&one.row, &three.row), (&rows[0], &rows[2]));
        assert_eq!(two.row.outcome, Err("too, \"wide\" by 3".to_owned()));
        assert_eq!((&*three.place, &*three.label), ("t.csv:4", "net, base f"));
    }

    #[test]
    fn every_change_of_a_row_is_found() {
        let good = line(&row(&["4", "1"], Ok(41)), "net, base f").unwrap();
        let told = |text: &str| {
            let lines = table(&[line(&row(&["4", "2"], Ok(7)), "").unwrap(), text.to_owned()]);
            read(Path::new("t.csv"), &lines).err().unwrap().to_string()
        };
        for (from, to) in [
            ("4,1,41,", "4,1,7,"),
            ("4,1,", "5,1,"),
            ("4,1,41,2,3,", "4,14,1,2,3,"),
            ("8.0,,", "8.0,no,"),
            ("base f", "base e"),
            (",8.0,", ",8,"),
        ] {
            assert!(good.contains(from), "{from} in {good}");
            let error = told(&good.replace(from, to));
            assert!(
                error.starts_with("t.csv:3: the row isn't as it was written: its check is '"),
                "{error}"
            );
        }
        let check = good.trim_end().rsplit(',').next().unwrap();
        assert!(told(&good.replace(check, "00000000")).contains("its check is '00000000'"));
        assert_eq!(told("4,1,41\n"), "t.csv:3: 3 cells, not 14");
        assert!(told(&good.replace("4,1,", "\"4,1,")).starts_with("t.csv:3: "));
    }

    #[test]
    fn tables_without_a_check_say_what_to_do() {
        let head =
            "tags,cycles,images,bound_cycles,macs,utilization,dram_bytes,energy_uj,area_mm2,error";
        for text in [
            format!("{head},sweep\n1,2,1,2,3,0.5,6,7.25,8.5,,\"demo, base 00000000000000ff\"\n"),
            format!("# vta sweep of demo, base 00000000000000ff\n{head}\n"),
        ] {
            let error = read(Path::new("t.csv"), text.as_bytes())
                .err()
                .unwrap()
                .to_string();
            let part = "t.csv:1: a table by an older version of vta, whose rows have no check: give another";
            assert!(error.starts_with(part), "{error}");
        }
        for text in ["", "a,b\n1,2\n", "\u{fffd}", "notes"] {
            let error = read(Path::new("t.csv"), text.as_bytes())
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.starts_with("t.csv:1: not the table of a sweep"),
                "{error}"
            );
        }
    }
}
