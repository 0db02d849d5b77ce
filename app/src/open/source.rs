//! Programs written by hand: assembly text with the data that it runs on.
//!
//! ```text
//! .inp 0  1*16            # element 0 of inp in DRAM: sixteen ones
//! .wgt 0  1..16 0*240     # 1 to 16, then zeros
//! .uop 0  dst=0 src=0 wgt=0
//! .out 0  136 0*15        # what STORE must have written
//! load.uop y_size=1 x_size=1 x_stride=1
//! ...
//! ```
//!
//! A line that begins with `.MEM` gives values to elements of that memory type in DRAM, from an
//! index on, or with `+` from where the last line of that type ended. What no line gives is zero.
//! `dram_base` counts in the same elements: every memory type has a space of its own.

use std::collections::BTreeMap;
use std::path::Path;

use vta_isa::{Config, Insn, MemType, Uop, asm};
use vta_program::packing::halves;
use vta_replay::spaces::{INSN_ADDR, SPACE_BYTES, address, moved, reach};
use vta_replay::{Case, DramBytes};

use crate::error::{Context, Result, bail_input as bail, ensure_input as ensure};
use crate::files;

/// Allocations are whole pages.
const PAGE_BYTES: u64 = 4096;

/// Assembly text with its data.
pub(crate) struct Source {
    /// As written: `dram_base` counts from the start of each space.
    pub insns: Vec<Insn>,
    /// The line of each, from 1.
    pub insn_lines: Vec<usize>,
    /// Whether there is any data.
    pub has_data: bool,
    lines: Vec<DataLine>,
}

/// One line of data.
struct DataLine {
    number: usize,
    mem: MemType,
    /// First element; `None` goes on behind the line before.
    element: Option<u64>,
    /// Numbers, or a micro-op's word.
    values: Vec<i32>,
}

impl DataLine {
    /// As DRAM has it.
    fn bytes(&self, config: &Config) -> Result<Vec<u8>> {
        let (low, high) = config.bounds(self.mem);
        let wrong = self.values.iter().find(|v| !(low..=high).contains(*v));
        if let Some(wrong) = wrong {
            bail!(
                "line {}: '{wrong}' is no number from {low} to {high} (.{} takes V, V*N and A..B)",
                self.number,
                self.mem
            );
        }
        let width = config.width(self.mem).div_ceil(8);
        let bytes = self
            .values
            .iter()
            .flat_map(|v| v.to_le_bytes().into_iter().take(width));
        let bytes = bytes.collect::<Vec<u8>>();
        Ok(match self.mem {
            MemType::Wgt4 => halves(&bytes),
            _ => bytes,
        })
    }
}

/// Whether a path is assembly text by its extension.
pub fn is_assembly(path: &Path) -> bool {
    files::is(path, &["asm", "s", "txt"])
}

/// The instructions of assembly text, whose data is left out.
///
/// # Errors
/// A file that can't be read, the first line that is neither an instruction nor data.
pub fn assembly(path: &Path) -> Result<Vec<Insn>> {
    Ok(Source::read(path)?.insns)
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that can't be read, the first line that is neither an instruction nor data.
    pub fn read(path: &Path) -> Result<Self> {
        let text = files::read_text(path)?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads text.
    ///
    /// # Errors
    /// The first line that is neither an instruction nor data, with its number.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut lines, mut code) = (Vec::new(), String::with_capacity(text.len()));
        let mut insn_lines = Vec::new();
        let mut total = 0;
        for (index, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default().trim();
            if words.starts_with('.') {
                let at = || format!("line {}", index + 1);
                let data = data_line(index + 1, words, SPACE_BYTES - total).with_context(at)?;
                total += data.values.len() as u64 * least_bytes(data.mem);
                lines.push(data);
            } else {
                code.push_str(line);
                insn_lines.extend((!words.is_empty()).then_some(index + 1));
            }
            // Lines of data stay as blank ones, so that the assembler counts right.
            code.push('\n');
        }
        Ok(Self {
            insns: asm::parse(&code)?,
            insn_lines,
            has_data: !lines.is_empty(),
            lines,
        })
    }

    /// A message about instructions of [`Self::case`], with `dram_base` as the file has it.
    pub fn as_written(&self, message: &str, case: &Case) -> String {
        let mut text = message.to_owned();
        for (written, moved) in self.insns.iter().zip(&case.insns) {
            if written != moved && text.contains("dram_base=") {
                text = text.replace(&moved.to_string(), &written.to_string());
            }
        }
        text
    }

    /// Looks whether a machine has the numbers of the data.
    ///
    /// # Errors
    /// The first that it hasn't, with its line.
    pub fn check_data(&self, config: &Config) -> Result<()> {
        self.lines
            .iter()
            .try_for_each(|line| line.bytes(config).map(drop))
    }

    /// The program as a run over device memory: its spaces laid side by side, the instructions
    /// moved along. `after` holds what is expected.
    ///
    /// # Errors
    /// Data or transfers beyond a space.
    pub fn case(&self, name: &str, config: &Config) -> Result<Case> {
        let mut ends: BTreeMap<MemType, u64> = BTreeMap::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut next: BTreeMap<MemType, u64> = BTreeMap::new();
        for line in &self.lines {
            let elem = config.elem_bytes(line.mem) as u64;
            let behind = next.get(&line.mem).copied().unwrap_or(0);
            let first = line.element.map_or(behind, |element| element * elem);
            let at = || format!("line {}: .{}", line.number, line.mem);
            let bytes = line.bytes(config)?;
            let end = first + bytes.len() as u64;
            inside(end).with_context(at)?;
            next.insert(line.mem, end);
            grow(&mut ends, line.mem, end);
            let region = DramBytes {
                addr: address(line.mem, first),
                bytes,
            };
            match line.mem {
                MemType::Out => after.push(region),
                _ => before.push(region),
            }
        }
        let (mut insns, mut words) = (Vec::new(), Vec::new());
        for (index, insn) in self.insns.iter().enumerate() {
            let at = || format!("instruction {index} ({insn})");
            if let Some((mem, end)) = reach(*insn, config) {
                inside(end).with_context(at)?;
                grow(&mut ends, mem, end);
            }
            let insn = moved(*insn, config);
            words.push(insn.encode().with_context(at)?);
            insns.push(insn);
        }
        let space = |mem: MemType| {
            let end = ends.get(&mem)?;
            Some((address(mem, 0), end.next_multiple_of(PAGE_BYTES)))
        };
        let case = Case {
            name: name.to_owned(),
            config: config.clone(),
            words,
            insns,
            insn_addr: INSN_ADDR,
            allocations: MemType::ALL.into_iter().filter_map(space).collect(),
            before,
            after,
            complete: false,
        };
        Ok(case.with_words())
    }
}

fn inside(end: u64) -> Result<()> {
    ensure!(
        end <= SPACE_BYTES,
        "reaches byte {end}; each memory type has {SPACE_BYTES}"
    );
    Ok(())
}

fn grow(ends: &mut BTreeMap<MemType, u64>, mem: MemType, end: u64) {
    let known = ends.entry(mem).or_default();
    // A transfer of nothing still has an address.
    *known = end.max(*known).max(1);
}

/// `.MEM INDEX VALUE..` or `.MEM + VALUE..`; up to `room` bytes.
fn data_line(number: usize, words: &str, room: u64) -> Result<DataLine> {
    let mut words = words.split_whitespace();
    let name = words.next().unwrap_or_default();
    let mem = MemType::ALL.into_iter().find(|m| name[1..] == *m.name());
    let mem = mem.with_context(|| {
        let all = MemType::ALL.map(|m| format!(".{}", m.name()));
        format!("there is no '{name}' (there are {})", all.join(", "))
    })?;
    let index = words.next().with_context(|| {
        format!("{name}: write {name} INDEX VALUE.., or + to go on behind the last {name}")
    })?;
    let element = match index {
        "+" => None,
        index => {
            let wrong = || format!("{name}: '{index}' is neither + nor the index of an element");
            Some(u64::from(unsigned(index).with_context(wrong)?))
        }
    };
    let values = match mem {
        MemType::Uop => vec![uop(words)?.encode()? as i32],
        _ => numbers(mem, words, room)?,
    };
    ensure!(!values.is_empty(), "{name} {index}: no value");
    Ok(DataLine {
        number,
        mem,
        element,
        values,
    })
}

fn unsigned(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// One micro-op: `dst=N src=N wgt=N`, zero where left out.
fn uop<'a>(words: impl Iterator<Item = &'a str>) -> Result<Uop> {
    let mut fields: [Option<u16>; 3] = [None; 3];
    let names = ["dst", "src", "wgt"];
    for word in words {
        let form = || format!(".uop: '{word}' is none of dst=N, src=N, wgt=N");
        let (name, value) = word.split_once('=').with_context(form)?;
        let at = names.iter().position(|n| *n == name).with_context(form)?;
        ensure!(fields[at].is_none(), ".uop: {name} stands twice");
        let number = unsigned(value).and_then(|n| u16::try_from(n).ok());
        fields[at] = Some(number.with_context(form)?);
    }
    let [dst, src, wgt] = fields.map(Option::unwrap_or_default);
    Ok(Uop { dst, src, wgt })
}

/// Bytes that a number of the memory type takes on any machine.
const fn least_bytes(mem: MemType) -> u64 {
    match mem {
        MemType::Acc | MemType::Uop => 4,
        _ => 1,
    }
}

/// Values: `V`, `V*N` (N times V), `A..B` (from A to B, both included).
fn numbers<'a>(mem: MemType, words: impl Iterator<Item = &'a str>, room: u64) -> Result<Vec<i32>> {
    let (low, high) = (i32::MIN, i32::MAX);
    let mut values = Vec::new();
    for word in words {
        let value = |text: &str| -> Result<i32> {
            text.parse().with_context(|| {
                format!("'{text}' is no number from {low} to {high} (.{mem} takes V, V*N and A..B)")
            })
        };
        let (first, last, times) = if let Some((text, count)) = word.split_once('*') {
            let count: u64 = count
                .parse()
                .with_context(|| format!("'{word}': '{count}' is no count"))?;
            (value(text)?, value(text)?, count)
        } else if let Some((from, to)) = word.split_once("..") {
            (value(from)?, value(to)?, 1)
        } else {
            (value(word)?, value(word)?, 1)
        };
        let count = (u64::from(first.abs_diff(last)) + 1).saturating_mul(times);
        // A count may be anything up to 2^64.
        let end = (values.len() as u64).saturating_add(count);
        if end.saturating_mul(least_bytes(mem)) > room {
            bail!("'{word}': more than {SPACE_BYTES} bytes of data");
        }
        for _ in 0..times {
            if first <= last {
                values.extend(first..=last);
            } else {
                values.extend((last..=first).rev());
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_beyond_a_space_is_an_error_that_names_line_and_limit() {
        for line in [
            ".inp 0 0*18446744073709551615",
            ".out 0 34 0*18446744073709551615",
            ".acc 0 1 2..1000 7*4611686018427387904",
            ".acc 0 -2147483648..2147483647",
            ".inp 0 1*16777217",
            ".wgt 0 5*16777216 5",
        ] {
            let text = format!("# data\n{line}\nfinish\n");
            let error = Source::parse(&text).err();
            let error = error.map(|e| format!("{e:#}")).unwrap_or_default();
            assert!(error.starts_with("line 2: "), "{line}: {error}");
            assert!(error.contains("16777216 bytes"), "{line}: {error}");
        }
        let range = ".inp 0 -9000000000000000000..9000000000000000000\nfinish";
        let error = Source::parse(range).err().map(|e| format!("{e:#}"));
        let error = error.unwrap_or_default();
        assert!(
            error.starts_with("line 1: ") && error.contains("from -2147483648 to 2147483647"),
            "{error}"
        );
        let range = Source::parse(".out 0 1\n.inp 0 7 -129..3\nfinish").unwrap();
        let error = range.case("", &Config::default()).err().unwrap();
        assert_eq!(
            format!("{error:#}"),
            "line 2: '-129' is no number from -128 to 127 (.inp takes V, V*N and A..B)"
        );
    }

    #[test]
    fn data_fills_a_space_to_its_last_byte() {
        let source = Source::parse(".inp 0 1*16777215 2\nfinish").unwrap();
        assert_eq!(source.lines[0].values.len() as u64, SPACE_BYTES);
    }
}
