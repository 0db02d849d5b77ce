//! Listings as comma-separated values: one line a record, and back again.

use std::io::{self, Write};

use csv::StringRecord;
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

impl Listing {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(HEADER.split(','))?;
        out.write_record(["format", "", "", "", "", FORMAT, "", "", ""])?;
        let config: serde_json::Value = serde_json::from_str(&self.config.to_json())?;
        out.write_record(["config", "", "", "", "", &config.to_string(), "", "", ""])?;
        for (index, buffer) in self.buffers.iter().enumerate() {
            let (index, name) = (index.to_string(), printable(&buffer.name));
            let text = serde_json::to_string(buffer)?;
            let dram = format!("0x{:x}..0x{:x}", buffer.start, buffer.start + buffer.bytes);
            out.write_record(["buffer", "", &index, "", &name, &text, "", &dram, ""])?;
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            let (index, name) = (index.to_string(), printable(&tensor.name));
            let text = serde_json::to_string(tensor)?;
            out.write_record(["tensor", "", &index, "", &name, &text, "", "", ""])?;
        }
        for (kernel, uops) in self.kernels.iter().enumerate() {
            for (index, Uop { dst, src, wgt }) in uops.iter().enumerate() {
                let (index, kernel) = (index.to_string(), kernel.to_string());
                let text = format!("dst={dst} src={src} wgt={wgt}");
                out.write_record(["uop", "", &index, "", &kernel, &text, "", "", ""])?;
            }
        }
        let mut number = 0u64;
        for (index, layer) in self.layers.iter().enumerate() {
            let (index, name) = (index.to_string(), printable(&layer.name));
            let (text, kind) = (
                serde_json::to_string(&layer.geometry)?,
                printable(&layer.kind),
            );
            out.write_record(["layer", &index, "", "", &name, &text, &kind, "", ""])?;
            for (listed, columns) in layer.insns.iter().zip(Columns::of(self, layer)) {
                out.write_record([
                    if listed.cut { "cut" } else { "insn" },
                    &index,
                    &number.to_string(),
                    &listed.tile.to_string(),
                    &listed.kernel.map(|k| k.to_string()).unwrap_or_default(),
                    &listed.insn.to_string(),
                    &columns.operands,
                    &columns.dram,
                    &columns.scratchpad,
                ])?;
                number += 1;
            }
        }
        out.flush()
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
        // Of records with too many or too few columns the line is told.
        let mut records = csv::ReaderBuilder::new();
        let records = records.has_headers(false).flexible(true);
        for record in records.from_reader(text.as_bytes()).records() {
            let record = record.map_err(|e| ListingError::Program(e.to_string()))?;
            let line = record.position().map_or(0, |at| at.line() as usize);
            reader
                .record(line, &record)
                .map_err(|reason| ListingError::Line { line, reason })?;
        }
        let (listing, said) = reader.finish()?;
        check_columns(&listing, &said)?;
        Ok(listing)
    }
}

/// A line, and what its last columns say.
type Said = (usize, [String; 3]);

#[derive(Default)]
struct Reader {
    listing: Listing,
    has_config: bool,
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
    fn record(&mut self, line: usize, cells: &StringRecord) -> Result<(), String> {
        let cells: Vec<&str> = cells.iter().collect();
        // The reader takes a quote that nothing closes for a cell with all lines after it.
        if cells.iter().any(|cell| cell.contains('\n')) {
            return Err("a quote doesn't end".to_owned());
        }
        let cells = <[&str; COLUMNS]>::try_from(cells)
            .map_err(|cells| format!("it has {} columns, not {COLUMNS}", cells.len()))?;
        let [record, layer, index, _, name, text, kind, ..] = cells;
        let listing = &mut self.listing;
        match (line, record) {
            (1, _) if cells.join(",") == HEADER => {}
            (1, _) => return Err(format!("it is no listing: the first line isn't {HEADER}")),
            (2, "format") if text == FORMAT => {}
            (2, _) => return Err(format!("the second line doesn't say `{FORMAT}`")),
            (_, "config") if !self.has_config => {
                listing.config = Config::from_json(text).map_err(|e| e.to_string())?;
                self.has_config = true;
            }
            (_, "buffer") => {
                follows(index, listing.buffers.len())?;
                let mut buffer: ListedBuffer = from_json(text)?;
                name.clone_into(&mut buffer.name);
                listing.buffers.push(buffer);
            }
            (_, "tensor") => {
                follows(index, listing.tensors.len())?;
                let mut tensor: ListedTensor = from_json(text)?;
                name.clone_into(&mut tensor.name);
                listing.tensors.push(tensor);
            }
            (_, "uop") => self.uop(name, index, text)?,
            (_, "layer") => {
                follows(layer, listing.layers.len())?;
                listing.layers.push(ListedLayer {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    geometry: from_json(text)?,
                    insns: Vec::new(),
                });
            }
            (_, "insn" | "cut") => self.insn(line, cells)?,
            (_, other) => return Err(format!("'{}' is no record here", printable(other))),
        }
        Ok(())
    }

    fn insn(&mut self, line: usize, cells: [&str; COLUMNS]) -> Result<(), String> {
        let [record, layer, index, tile, kernel, text, columns @ ..] = cells;
        let layers = &mut self.listing.layers;
        let place = layers.len().checked_sub(1);
        let place = place.ok_or("no layer stands before it")?;
        follows(layer, place)?;
        follows(index, self.said.len())?;
        layers[place].insns.push(ListedInsn {
            insn: one_insn(text)?,
            kernel: match kernel {
                "" => None,
                kernel => Some(number(kernel, "kernel")?),
            },
            tile: number(tile, "tile")?,
            cut: record == "cut",
        });
        self.said.push((line, columns.map(str::to_owned)));
        Ok(())
    }

    fn uop(&mut self, kernel: &str, index: &str, text: &str) -> Result<(), String> {
        let kernels = &mut self.listing.kernels;
        let kernel: usize = number(kernel, "kernel")?;
        if kernel == kernels.len() {
            kernels.push(Vec::new());
        }
        let last = kernels.len().checked_sub(1);
        if last != Some(kernel) {
            return Err(format!("kernel {kernel} stands where another follows"));
        }
        let uops = &mut kernels[kernel];
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
        if !self.has_config {
            let missing = "it has no configuration".to_owned();
            return Err(ListingError::Inconsistent(missing));
        }
        check(&self.listing).map_err(ListingError::Inconsistent)?;
        Ok((self.listing, self.said))
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
