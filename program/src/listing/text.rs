//! Listings as comma-separated values: one line a record, and back again.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use vta_isa::{Config, Insn, Uop, asm};

use super::check::check;
use super::columns::Columns;
use super::model::{ListedBuffer, ListedInsn, ListedLayer, ListedTensor, Listing, ListingError};
use vta_files::printable;

/// The columns.
pub const HEADER: &str = "record,layer,index,tile,name,text,operands,dram,scratchpad";

/// Columns.
const COLUMNS: usize = 9;
/// What the first record says.
const FORMAT: &str = "vta listing 1";
/// The most bytes of a listing.
const MAX_BYTES: usize = 1 << 30;

/// A cell that may have commas, quotes or line ends.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn json<T: Serialize>(value: &T) -> io::Result<String> {
    Ok(cell(&serde_json::to_string(value)?))
}

impl Listing {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADER}")?;
        writeln!(out, "format,,,,,{FORMAT},,,")?;
        let config: serde_json::Value = serde_json::from_str(&self.config.to_json())?;
        writeln!(out, "config,,,,,{},,,", json(&config)?)?;
        for (index, buffer) in self.buffers.iter().enumerate() {
            let (name, text) = (cell(&printable(&buffer.name)), json(buffer)?);
            let dram = format!("0x{:x}..0x{:x}", buffer.start, buffer.start + buffer.bytes);
            writeln!(out, "buffer,,{index},,{name},{text},,{dram},")?;
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            let (name, text) = (cell(&printable(&tensor.name)), json(tensor)?);
            writeln!(out, "tensor,,{index},,{name},{text},,,")?;
        }
        for (kernel, uops) in self.kernels.iter().enumerate() {
            for (index, uop) in uops.iter().enumerate() {
                let Uop { dst, src, wgt } = uop;
                writeln!(
                    out,
                    "uop,,{index},,{kernel},dst={dst} src={src} wgt={wgt},,,"
                )?;
            }
        }
        let mut number = 0u64;
        for (index, layer) in self.layers.iter().enumerate() {
            let (name, text) = (cell(&printable(&layer.name)), json(&layer.geometry)?);
            let kind = cell(&printable(&layer.kind));
            writeln!(out, "layer,{index},,,{name},{text},{kind},,")?;
            let columns = Columns::of(self, layer);
            for (insn, columns) in layer.insns.iter().zip(columns) {
                writeln!(out, "{}", line(index, number, insn, &columns))?;
                number += 1;
            }
        }
        Ok(())
    }

    /// Reads what [`Self::write`] wrote. What the columns say of an instruction must be what it does.
    ///
    /// # Errors
    /// [`ListingError`] with the line, or what contradicts itself.
    pub fn read(text: &str) -> Result<Self, ListingError> {
        if text.len() > MAX_BYTES {
            let limit = format!("it has {} bytes, at most {MAX_BYTES} are read", text.len());
            return Err(ListingError::Program(limit));
        }
        let mut reader = Reader::default();
        for (at, record) in text.lines().enumerate() {
            let record = cells(record).and_then(|cells| reader.record(at, &cells));
            record.map_err(|reason| ListingError::Line {
                line: at + 1,
                reason,
            })?;
        }
        let (listing, said) = reader.finish()?;
        check_columns(&listing, &said)?;
        Ok(listing)
    }
}

/// An instruction's line.
fn line(layer: usize, number: u64, listed: &ListedInsn, columns: &Columns) -> String {
    let kernel = listed.kernel.map(|k| k.to_string()).unwrap_or_default();
    let record = if listed.cut { "cut" } else { "insn" };
    let mut line = format!("{record},{layer},{number},{},{kernel},", listed.tile);
    let _ = write!(
        line,
        "{},{}",
        cell(&listed.insn.to_string()),
        columns.line()
    );
    line
}

impl Columns {
    fn line(&self) -> String {
        let all = [&self.operands, &self.dram, &self.scratchpad];
        all.map(|text| cell(text)).join(",")
    }
}

/// The cells of a line.
fn cells(line: &str) -> Result<Vec<String>, String> {
    let mut cells = vec![String::new()];
    let mut chars = line.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        let Some(last) = cells.last_mut() else { break };
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                last.push('"');
            }
            ('"', true) => quoted = false,
            ('"', false) if last.is_empty() => quoted = true,
            (',', false) => {
                if cells.len() == COLUMNS {
                    return Err(format!("it has more than {COLUMNS} columns"));
                }
                cells.push(String::new());
            }
            (c, _) => last.push(c),
        }
    }
    if quoted {
        return Err("a quote doesn't end".to_owned());
    }
    match cells.len() {
        COLUMNS => Ok(cells),
        n => Err(format!("it has {n} columns, not {COLUMNS}")),
    }
}

/// A line, and what its last columns say.
type Said = (usize, [String; 3]);

#[derive(Default)]
struct Reader {
    config: Option<Config>,
    buffers: Vec<ListedBuffer>,
    tensors: Vec<ListedTensor>,
    kernels: Vec<Vec<Uop>>,
    layers: Vec<ListedLayer>,
    insns: u64,
    /// What the columns of each instruction say, with its line.
    said: Vec<Said>,
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    let parsed = text.parse();
    parsed.map_err(|_| format!("{what} '{}' is no number that it may be", printable(text)))
}

/// A record's place among its kind.
fn follows(text: &str, at: usize) -> Result<(), String> {
    let found: u64 = number(text, "index")?;
    if found == at as u64 {
        Ok(())
    } else {
        Err(format!("index {found} stands where {at} follows"))
    }
}

impl Reader {
    fn record(&mut self, at: usize, cells: &[String]) -> Result<(), String> {
        let [
            record,
            layer,
            index,
            tile,
            name,
            text,
            operands,
            dram,
            scratchpad,
        ] = cells
        else {
            return Err("columns are missing".to_owned());
        };
        match (at, record.as_str()) {
            (0, _) => {
                if cells.join(",") == HEADER {
                    Ok(())
                } else {
                    Err(format!("it is no listing: the first line isn't {HEADER}"))
                }
            }
            (1, "format") if text == FORMAT => Ok(()),
            (1, _) => Err(format!("the second line doesn't say `{FORMAT}`")),
            (_, "config") if self.config.is_none() => {
                self.config = Some(Config::from_json(text).map_err(|e| e.to_string())?);
                Ok(())
            }
            (_, "buffer") => {
                follows(index, self.buffers.len())?;
                let mut buffer: ListedBuffer = from_json(text)?;
                buffer.name.clone_from(name);
                self.buffers.push(buffer);
                Ok(())
            }
            (_, "tensor") => {
                follows(index, self.tensors.len())?;
                let mut tensor: ListedTensor = from_json(text)?;
                tensor.name.clone_from(name);
                self.tensors.push(tensor);
                Ok(())
            }
            (_, "uop") => self.uop(name, index, text),
            (_, "layer") => {
                follows(layer, self.layers.len())?;
                self.layers.push(ListedLayer {
                    name: name.clone(),
                    kind: operands.clone(),
                    geometry: from_json(text)?,
                    insns: Vec::new(),
                });
                Ok(())
            }
            (_, "insn" | "cut") => {
                let place = self.layers.len().checked_sub(1);
                follows(layer, place.ok_or("no layer stands before it")?)?;
                follows(index, self.insns as usize)?;
                self.insns += 1;
                let listed = ListedInsn {
                    insn: one_insn(text)?,
                    kernel: match name.as_str() {
                        "" => None,
                        name => Some(number(name, "kernel")?),
                    },
                    tile: number(tile, "tile")?,
                    cut: record == "cut",
                };
                if let Some(layer) = self.layers.last_mut() {
                    layer.insns.push(listed);
                }
                let columns = [operands, dram, scratchpad].map(String::clone);
                self.said.push((at + 1, columns));
                Ok(())
            }
            (_, other) => Err(format!("'{}' is no record here", printable(other))),
        }
    }

    fn uop(&mut self, kernel: &str, index: &str, text: &str) -> Result<(), String> {
        let kernel: usize = number(kernel, "kernel")?;
        if kernel == self.kernels.len() {
            self.kernels.push(Vec::new());
        }
        let last = self.kernels.len().checked_sub(1);
        if last != Some(kernel) {
            return Err(format!("kernel {kernel} stands where another follows"));
        }
        let uops = &mut self.kernels[kernel];
        follows(index, uops.len())?;
        let mut fields = text.split(' ');
        let mut field = |name: &str| {
            let text = fields.next().and_then(|word| word.strip_prefix(name));
            number(text.ok_or_else(|| format!("{name} is missing"))?, name)
        };
        let uop = Uop {
            dst: field("dst=")?,
            src: field("src=")?,
            wgt: field("wgt=")?,
        };
        uop.encode().map_err(|e| e.to_string())?;
        uops.push(uop);
        Ok(())
    }

    fn finish(self) -> Result<(Listing, Vec<Said>), ListingError> {
        let missing = || ListingError::Inconsistent("it has no configuration".to_owned());
        let listing = Listing {
            config: self.config.ok_or_else(missing)?,
            buffers: self.buffers,
            tensors: self.tensors,
            kernels: self.kernels,
            layers: self.layers,
        };
        check(&listing).map_err(ListingError::Inconsistent)?;
        Ok((listing, self.said))
    }
}

fn one_insn(text: &str) -> Result<Insn, String> {
    let insns = asm::parse(text).map_err(|e| e.kind.to_string())?;
    let [insn] = insns[..] else {
        return Err(format!("{} instructions, not one", insns.len()));
    };
    insn.encode().map_err(|e| e.to_string())?;
    Ok(insn)
}

/// What was said of each instruction must be what it does.
fn check_columns(listing: &Listing, said: &[Said]) -> Result<(), ListingError> {
    let mut said = said.iter();
    for layer in &listing.layers {
        let columns = Columns::of(listing, layer);
        for (does, (line, said)) in columns.into_iter().zip(said.by_ref()) {
            let does = [does.operands, does.dram, does.scratchpad];
            let names = ["operands", "dram", "scratchpad"];
            let wrong = (0..3).find(|&i| said[i] != does[i]);
            if let Some(i) = wrong {
                return Err(ListingError::Line {
                    line: *line,
                    reason: format!(
                        "column {} says '{}', but the instruction's is '{}'",
                        names[i],
                        printable(&said[i]),
                        does[i]
                    ),
                });
            }
        }
    }
    Ok(())
}
