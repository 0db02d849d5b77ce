//! `vta replay FILE.json --device cycle`: programs with the cycles that the hardware took.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use vta_isa::{Config, Insn};
use vta_sim::cycle::{CycleReport, Silent, TimingConfig, simulate};

use crate::files;

/// A file of programs with recorded counters.
#[derive(Deserialize)]
struct File {
    /// Where the instructions lie, in bytes.
    insn_addr: u32,
    programs: Vec<Recorded>,
}

/// One program.
#[derive(Deserialize)]
struct Recorded {
    seed: Option<Value>,
    /// 128-bit words in hexadecimal, most significant digit first.
    insns: Vec<String>,
    rtl_cycles: u64,
    rdreq: u64,
    rdbeats: u64,
    wrreq: u64,
    wrbeats: u64,
}

/// The outcome for one file.
pub struct Outcome {
    /// Programs whose counters are all as recorded.
    pub matched: usize,
    /// Programs of the file.
    pub total: usize,
    /// One line for each program that differs.
    pub differences: Vec<String>,
    /// One object for each program.
    pub rows: Vec<Value>,
}

/// The compared counters, as the file names them.
const KEYS: [&str; 5] = ["cycles", "rdreq", "rdbeats", "wrreq", "wrbeats"];

/// Times every program of the file.
///
/// # Errors
/// A file that isn't of this form, a word that is no instruction. A program that the cycle model
/// refuses counts as a difference.
pub fn replay(path: &Path, timing: &TimingConfig) -> Result<Outcome> {
    let name = path.display().to_string();
    let bytes = files::read_file(path)?;
    let file: File = serde_json::from_slice(&bytes).with_context(|| name.clone())?;
    ensure!(!file.programs.is_empty(), "{name}: there is no program");
    let mut outcome = Outcome {
        matched: 0,
        total: file.programs.len(),
        differences: Vec::new(),
        rows: Vec::new(),
    };
    for (index, program) in file.programs.iter().enumerate() {
        let at = || format!("{name}: program {index}");
        let insns = decode(&program.insns).with_context(at)?;
        let config = Config::default();
        let found = simulate(timing, &config, &insns, file.insn_addr, &mut Silent);
        outcome.add(index, program, found.map_err(|e| e.to_string()));
    }
    Ok(outcome)
}

fn decode(words: &[String]) -> Result<Vec<Insn>> {
    let insn = |(i, text): (usize, &String)| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let word = u128::from_str_radix(digits, 16)
            .with_context(|| format!("instruction {i}: '{text}' is no hexadecimal number"))?;
        Insn::decode(word).with_context(|| format!("instruction {i} ({text})"))
    };
    words.iter().enumerate().map(insn).collect()
}

impl Outcome {
    fn add(&mut self, index: usize, program: &Recorded, found: Result<CycleReport, String>) {
        let expected = [
            program.rtl_cycles,
            program.rdreq,
            program.rdbeats,
            program.wrreq,
            program.wrbeats,
        ];
        let seed = program.seed.clone().unwrap_or(Value::Null);
        let report = match found {
            Ok(report) => report,
            Err(error) => {
                self.differences.push(format!("program {index}: {error}"));
                self.rows.push(
                    json!({"program": index, "seed": seed, "matched": false, "error": error}),
                );
                return;
            }
        };
        let found = [
            report.cycles,
            report.read_requests,
            report.read_beats,
            report.write_requests,
            report.write_beats,
        ];
        let mut row = json!({"program": index, "seed": seed, "matched": found == expected});
        let mut parts = Vec::new();
        for ((key, found), expected) in KEYS.into_iter().zip(found).zip(expected) {
            row[key] = json!(found);
            if found != expected {
                row[format!("recorded_{key}")] = json!(expected);
                parts.push(format!("{key} {found}, recorded {expected}"));
            }
        }
        self.rows.push(row);
        if parts.is_empty() {
            self.matched += 1;
        } else {
            self.differences
                .push(format!("program {index}: {}", parts.join("; ")));
        }
    }
}
