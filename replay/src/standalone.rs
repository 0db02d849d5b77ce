//! Raw binaries of the standalone toolchain: one address space for each memory type.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use vta_isa::{Config, Insn, MemType};

use super::case::{Case, DramBytes, ReplayError, decode, read, words};
use super::spaces::{INSN_ADDR, SPACE_BYTES, address, moved, reach};
use vta_driver::PhysAddr;

/// Bases of the single cases' files, which their CSV leaves open.
const BASES: [(MemType, &str, u64); 4] = [
    (MemType::Inp, "input.bin", 0x1000),
    (MemType::Wgt, "weight.bin", 0x2000),
    (MemType::Uop, "uop.bin", 0x4000),
    (MemType::Acc, "accumulator.bin", 0x5000),
];

/// Files of one case: memory type, file name, base.
type Placed = Vec<(MemType, String, u64)>;

/// The cases of a folder: one, or one for each layer.
pub(super) fn load(path: &Path, files: &BTreeSet<String>) -> Result<Vec<Case>, ReplayError> {
    if files.contains("instructions.bin") {
        let placed: Placed = BASES
            .iter()
            .filter(|(_, f, _)| files.contains(*f))
            .map(|(m, f, b)| (*m, (*f).to_owned(), *b))
            .collect();
        return Ok(vec![case(
            path,
            "instructions.bin",
            &placed,
            "expected_out.bin",
        )?]);
    }
    let layer = |f: &String| {
        f.strip_prefix("instructions_L")?
            .strip_suffix(".bin")?
            .parse::<usize>()
            .ok()
    };
    let mut layers: Vec<usize> = files.iter().filter_map(layer).collect();
    layers.sort_unstable();
    layers
        .into_iter()
        .map(|n| layer_case(path, files, n))
        .collect()
}

fn layer_case(path: &Path, files: &BTreeSet<String>, n: usize) -> Result<Case, ReplayError> {
    let csv = format!("base_addr_L{n}.csv");
    let bases = bases(path, &csv)?;
    let base = |key: &str| {
        let missing = || ReplayError::new(path.join(&csv), format!("no line '{key},0x...'"));
        bases.get(key).copied().ok_or_else(missing)
    };
    // A layer reads its own input file, or what the layer before it left.
    let previous = n.saturating_sub(1);
    let candidates = [
        format!("inpL{n}.bin"),
        format!("outL{previous}.bin"),
        "input.bin".to_owned(),
    ];
    let first = |list: &[String]| list.iter().find(|f| files.contains(*f)).cloned();
    let missing =
        |what: &[String]| ReplayError::new(path, format!("none of {} is there", what.join(", ")));
    let input = first(&candidates).ok_or_else(|| missing(&candidates))?;
    let expected = [format!("outL{n}_test.bin"), format!("outL{n}.bin")];
    let expected = first(&expected).ok_or_else(|| missing(&expected))?;
    let mut placed = vec![
        (MemType::Inp, input, base("inp")?),
        (MemType::Wgt, format!("weight_L{n}.bin"), base("wgt")?),
        (MemType::Uop, format!("uop_L{n}.bin"), base("uop")?),
    ];
    let acc = format!("accumulator_L{n}.bin");
    if files.contains(&acc) {
        placed.push((MemType::Acc, acc, base("acc")?));
    }
    case(path, &format!("instructions_L{n}.bin"), &placed, &expected)
}

/// Lines `key,0xADDRESS`.
fn bases(path: &Path, csv: &str) -> Result<BTreeMap<String, u64>, ReplayError> {
    let path = path.join(csv);
    let text = String::from_utf8_lossy(&read(&path)?).into_owned();
    let mut bases = BTreeMap::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty())
    {
        let parsed = line.split_once(',').and_then(|(key, value)| {
            let digits = value.trim().strip_prefix("0x")?;
            Some((key.trim().to_owned(), u64::from_str_radix(digits, 16).ok()?))
        });
        let (key, value) = parsed.ok_or_else(|| {
            let reason = format!("line {}: '{line}' is not 'key,0x...'", number + 1);
            ReplayError::new(&path, reason)
        })?;
        bases.insert(key, value);
    }
    Ok(bases)
}

fn case(path: &Path, insns: &str, placed: &Placed, expected: &str) -> Result<Case, ReplayError> {
    let config = Config::default();
    let file = path.join(insns);
    let name = file.display().to_string();
    let mut decoded = decode(&name, &words(&name, &read(&file)?)?)?;
    let mut before = Vec::new();
    for (mem, file, base) in placed {
        let file = path.join(file);
        let bytes = read(&file)?;
        inside(&file, *base, bytes.len() as u64)?;
        before.push(DramBytes {
            addr: address(*mem, *base),
            bytes,
        });
    }
    move_all(&name, &mut decoded, &config)?;
    let words = decoded.iter().map(Insn::encode).collect::<Result<_, _>>();
    let words = words.map_err(|error| ReplayError::new(&file, error))?;
    let after = expectations(&path.join(expected), &stores(&decoded, &config))?;
    let allocations = MemType::ALL
        .map(|mem| (address(mem, 0), SPACE_BYTES))
        .to_vec();
    let case = Case {
        name,
        config,
        words,
        insns: decoded,
        insn_addr: INSN_ADDR,
        allocations,
        before,
        after,
        complete: false,
    };
    Ok(case.with_words())
}

fn inside(path: &Path, base: u64, len: u64) -> Result<(), ReplayError> {
    if base.saturating_add(len) <= SPACE_BYTES {
        return Ok(());
    }
    let reason = format!("{len} bytes at {base:#x} leave the {SPACE_BYTES}-byte space");
    Err(ReplayError::new(path, reason))
}

/// Moves instructions into the spaces of their memory types.
fn move_all(name: &str, insns: &mut [Insn], config: &Config) -> Result<(), ReplayError> {
    for (index, insn) in insns.iter_mut().enumerate() {
        if let Some((_, end)) = reach(*insn, config)
            && end > SPACE_BYTES
        {
            let reason =
                format!("instruction {index} reaches byte {end:#x} of a space of {SPACE_BYTES:#x}");
            return Err(ReplayError::new(name, reason));
        }
        *insn = moved(*insn, config);
    }
    Ok(())
}

/// The bytes of every stored row, in program order.
fn stores(insns: &[Insn], config: &Config) -> Vec<Range<u64>> {
    let rows = insns.iter().filter_map(|insn| match insn {
        Insn::Store(store) => store.dram_rows(config),
        Insn::Load(_) | Insn::Gemm(_) | Insn::Alu(_) | Insn::Depthwise(_) | Insn::Finish(_) => None,
    });
    rows.flat_map(|rows| rows.iter()).collect()
}

/// The stored rows, counted from the lowest address, are the expected file's.
fn expectations(path: &Path, stored: &[Range<u64>]) -> Result<Vec<DramBytes>, ReplayError> {
    let bytes = read(path)?;
    let lowest = stored.iter().map(|row| row.start).min().unwrap_or(0);
    let region = |row: &Range<u64>| {
        let [from, to] = [row.start, row.end].map(|byte| (byte - lowest) as usize);
        let part = bytes.get(from..to).ok_or_else(|| {
            let reason = format!("{} bytes, but the program stores up to {to}", bytes.len());
            ReplayError::new(path, reason)
        })?;
        Ok(DramBytes {
            // Inside the space of what is stored.
            addr: PhysAddr(row.start as u32),
            bytes: part.to_vec(),
        })
    };
    stored.iter().map(region).collect()
}
