//! Runs of the original runtime.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;
use vta_isa::Config;
use vta_isa::original::Layout;

use super::case::{
    Case, DramBytes, MAX_CASE_BYTES, MAX_FILE_BYTES, ReplayError, decode, list, read, words,
};
use super::original::with_uops;
use vta_driver::PhysAddr;

const FILES: [&str; 5] = [
    "insns.bin",
    "dram_map.json",
    "dram_before.bin",
    "dram_after.bin",
    "config.json",
];

/// Who packed a run's instructions and micro-ops.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Packed {
    /// The original runtime, for the run's configuration.
    #[default]
    Original,
    /// This project, which has one layout for all.
    Vta,
}

#[derive(Deserialize)]
struct DramMap {
    #[serde(default)]
    layout: Packed,
    insn_phys_addr: u32,
    insn_count: usize,
    before: Vec<MapRegion>,
    after_changed: Vec<MapRegion>,
    allocations: Vec<(u32, u64)>,
}

#[derive(Deserialize)]
struct MapRegion {
    phys_addr: u32,
    size: usize,
    offset: usize,
}

type Files = BTreeMap<&'static str, Vec<u8>>;

/// Every run of an archive, read in memory.
pub(super) fn from_archive(path: &Path) -> Result<Vec<Case>, ReplayError> {
    let name = path.display().to_string();
    let io = |error| ReplayError::new(path, error);
    let file = File::open(path).map_err(io)?;
    // A bound on what is unpacked keeps a small file from filling the memory.
    let mut archive = tar::Archive::new(GzDecoder::new(file).take(MAX_CASE_BYTES));
    let mut runs: BTreeMap<String, Files> = BTreeMap::new();
    for entry in archive.entries().map_err(io)? {
        let mut entry = entry.map_err(io)?;
        let inside = entry.path().map_err(io)?.into_owned();
        let folder = inside
            .parent()
            .map(|p| p.display().to_string())
            .unwrap_or_default();
        let known = FILES
            .iter()
            .find(|f| inside.file_name().is_some_and(|n| n == **f));
        let (Some(known), true) = (known, entry.header().entry_type().is_file()) else {
            continue;
        };
        if entry.size() > MAX_FILE_BYTES {
            let path = format!("{name}: {}", inside.display());
            return Err(ReplayError::too_large(path, MAX_FILE_BYTES));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(io)?;
        runs.entry(folder).or_default().insert(known, bytes);
    }
    if runs.is_empty() {
        let expected = "an archive with run folders that hold insns.bin and dram_map.json";
        return Err(ReplayError::no_case(path, expected));
    }
    runs.into_iter()
        .map(|(folder, files)| case(&folder, &files))
        .collect()
}

/// A run's folder, or a folder of such folders.
pub(super) fn from_folder(path: &Path) -> Result<Vec<Case>, ReplayError> {
    let files = list(path)?;
    if files.contains("insns.bin") {
        return Ok(vec![one(path)?]);
    }
    let runs = files
        .iter()
        .map(|f| path.join(f))
        .filter(|p| p.join("insns.bin").is_file());
    let cases: Vec<Case> = runs.map(|p| one(&p)).collect::<Result<_, _>>()?;
    if cases.is_empty() {
        let expected = "insns.bin, folders with insns.bin, or instructions*.bin";
        return Err(ReplayError::no_case(path, expected));
    }
    Ok(cases)
}

fn one(path: &Path) -> Result<Case, ReplayError> {
    let mut files = Files::new();
    for name in FILES {
        files.insert(name, read(&path.join(name))?);
    }
    case(&path.display().to_string(), &files)
}

fn case(name: &str, files: &Files) -> Result<Case, ReplayError> {
    let path = |file: &str| format!("{name}/{file}");
    let invalid = |file: &str, reason: String| ReplayError::new(path(file), reason);
    let get = |file: &'static str| {
        files
            .get(file)
            .ok_or_else(|| invalid(file, "the file is missing".to_owned()))
    };
    let map: DramMap = serde_json::from_slice(get("dram_map.json")?)
        .map_err(|e| invalid("dram_map.json", e.to_string()))?;
    let text = String::from_utf8_lossy(get("config.json")?);
    let config = Config::from_json(&text).map_err(|e| invalid("config.json", e.to_string()))?;
    let layout = match map.layout {
        Packed::Vta => None,
        Packed::Original => {
            let layout = Layout::of(&config).map_err(|e| invalid("config.json", e.to_string()))?;
            Some(layout).filter(|layout| !layout.is_ours())
        }
    };
    let mut words = words(&path("insns.bin"), get("insns.bin")?)?;
    if let Some(layout) = &layout {
        words
            .iter_mut()
            .for_each(|word| *word = layout.to_ours(*word));
    }
    let insns = decode(&path("insns.bin"), &words)?;
    if words.len() != map.insn_count {
        let reason = format!(
            "{} instructions, the map says {}",
            words.len(),
            map.insn_count
        );
        return Err(invalid("insns.bin", reason));
    }
    let total = map
        .allocations
        .iter()
        .try_fold(0u64, |n, (_, size)| n.checked_add(*size));
    if total.is_none_or(|n| n > MAX_CASE_BYTES) {
        let path = path("dram_map.json: allocations");
        return Err(ReplayError::too_large(path, MAX_CASE_BYTES));
    }
    let regions = |list: &[MapRegion], file: &'static str| -> Result<Vec<DramBytes>, ReplayError> {
        let data = get(file)?;
        let region = |r: &MapRegion| {
            let bytes = r
                .offset
                .checked_add(r.size)
                .and_then(|end| data.get(r.offset..end));
            let bytes = bytes.ok_or_else(|| {
                invalid(
                    file,
                    format!("{} bytes at {} of {}", r.size, r.offset, data.len()),
                )
            })?;
            Ok(DramBytes {
                addr: PhysAddr(r.phys_addr),
                bytes: bytes.to_vec(),
            })
        };
        list.iter().map(region).collect()
    };
    let case = Case {
        name: name.to_owned(),
        config,
        words,
        insns,
        insn_addr: PhysAddr(map.insn_phys_addr),
        allocations: map
            .allocations
            .iter()
            .map(|&(a, n)| (PhysAddr(a), n))
            .collect(),
        before: regions(&map.before, "dram_before.bin")?,
        after: regions(&map.after_changed, "dram_after.bin")?,
        complete: true,
    };
    let case = match &layout {
        Some(layout) => with_uops(case, layout)?,
        None => case,
    };
    // What was recorded of memory are the data alone.
    Ok(case.with_words())
}
