//! `vta replay FILE.json --device cycle` or `rtl:LIB.so`: programs with the cycles that the hardware took.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use vta_driver::{Budget, PAGE_BYTES, PhysAddr};
use vta_isa::resolve::merge;
use vta_isa::{INSN_BYTES, Insn, check};
use vta_replay::Case;
use vta_sim::cycle::{CycleReport, Run, Silent, simulate_within};
use vta_sim::hazards::{self, UopSource};
use vta_sim::{Board, Core};

use crate::device::setup::Setup;
use crate::error::{Context, Result, ensure_input as ensure};
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
    /// How the run ended; finished, where it isn't said.
    #[serde(default)]
    rtl: End,
    rtl_cycles: Option<u64>,
    rdreq: Option<u64>,
    rdbeats: Option<u64>,
    wrreq: Option<u64>,
    wrbeats: Option<u64>,
}

/// How a recorded run ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum End {
    /// With FINISH, after the cycles that are recorded.
    #[default]
    Finishes,
    /// Never.
    Hangs,
    /// By an assertion of the RTL.
    Aborts,
}

/// What was found of one file.
pub struct Replayed {
    /// Programs whose counters are all as recorded.
    pub matched: usize,
    /// Programs of the file.
    pub total: usize,
    /// One line for each program that differs.
    pub differences: Vec<String>,
    /// One object for each program.
    pub rows: Vec<Value>,
}

/// What a program of a design may have of memory.
const MAX_MEMORY_BYTES: u64 = 1 << 30;

/// The compared counters; a design says its cycles alone.
type Counts = [Option<u64>; KEYS.len()];

/// The compared counters, as the file names them.
const KEYS: [&str; 5] = ["cycles", "rdreq", "rdbeats", "wrreq", "wrbeats"];

/// Times every program of the file on a board; by `design`'s counter, if there is one. On one with the original RTL a program that needs
/// what it lacks, hangs or aborts there is refused, and a count of 0 is what it is there. A program
/// that is refused matches if it is recorded not to finish.
///
/// # Errors
/// A file that isn't of this form, a word that is no instruction. A program that the cycle model
/// refuses, though it is recorded to finish, counts as a difference.
pub fn replay(
    path: &Path,
    board: &Board,
    budget: &Budget,
    design: Option<&Setup>,
) -> Result<Replayed> {
    let name = path.display().to_string();
    let bytes = files::read_file(path)?;
    let file: File = serde_json::from_slice(&bytes).with_context(|| name.clone())?;
    ensure!(!file.programs.is_empty(), "{name}: there is no program");
    let mut outcome = Replayed {
        matched: 0,
        total: file.programs.len(),
        differences: Vec::new(),
        rows: Vec::new(),
    };
    for (index, program) in file.programs.iter().enumerate() {
        let at = || format!("{name}: program {index}");
        let insns = decode(&program.insns).with_context(at)?;
        let found = match design {
            None => time(board, budget, &insns, file.insn_addr).map(counts),
            Some(setup) => measure(setup, board, insns, file.insn_addr),
        };
        outcome.add(index, program, found);
    }
    Ok(outcome)
}

/// The counters of a program on a board, or in words why it doesn't come to its end there.
fn time(
    board: &Board,
    budget: &Budget,
    insns: &[Insn],
    insn_addr: u32,
) -> Result<CycleReport, String> {
    let Board { config, timing, .. } = board;
    check::extensions(config, insns).map_err(|e| e.to_string())?;
    let mut insns = insns.to_vec();
    if board.core == Core::Rtl {
        let deviations = hazards::deviations(config, &insns, UopSource::Unknown);
        if let Some(edge) = deviations.iter().find(|edge| !edge.what.finishes()) {
            return Err(edge.to_string());
        }
        insns
            .iter_mut()
            .for_each(|insn| *insn = hazards::counts_on_rtl(insn));
        if let Some(hazard) = hazards::first_alu_hazard(config, &insns, UopSource::Unknown) {
            return Err(format!("the RTL aborts: {hazard}"));
        }
    }
    let run = Run {
        insns: &insns,
        insn_addr,
    };
    let found = simulate_within(budget, timing, config, run, &mut Silent);
    found.map_err(|e| e.to_string())
}

fn counts(report: CycleReport) -> Counts {
    let found = [
        report.cycles,
        report.read_requests,
        report.read_beats,
        report.write_requests,
        report.write_beats,
    ];
    found.map(Some)
}

/// The cycles of a program on a design, whose memory is zero but for the instructions; a fresh design each time, since
/// one that fails isn't run again.
fn measure(
    setup: &Setup,
    board: &Board,
    insns: Vec<Insn>,
    insn_addr: u32,
) -> Result<Counts, String> {
    let words: Result<Vec<u128>, _> = insns.iter().map(Insn::encode).collect();
    let words = words.map_err(|error| error.to_string())?;
    let rows = insns
        .iter()
        .filter_map(|insn| insn.dram_rows(&board.config));
    let first = u64::from(insn_addr);
    let fetched = first..first + (words.len() * INSN_BYTES) as u64;
    let mut bytes: Vec<_> = rows.flat_map(|rows| rows.apart()).collect();
    bytes.push(fetched);
    let pages = |bytes: &mut Range<u64>| {
        *bytes = bytes.start / PAGE_BYTES * PAGE_BYTES..bytes.end.next_multiple_of(PAGE_BYTES);
    };
    bytes.iter_mut().for_each(pages);
    merge(&mut bytes);
    let size: u64 = bytes.iter().map(|bytes| bytes.end - bytes.start).sum();
    if size > MAX_MEMORY_BYTES
        || bytes
            .last()
            .is_some_and(|last| last.end > u64::from(u32::MAX))
    {
        return Err(format!(
            "its memory has {size} bytes: a program may have {MAX_MEMORY_BYTES} below 4 GiB"
        ));
    }
    let allocations = bytes
        .iter()
        .map(|bytes| (PhysAddr(bytes.start as u32), bytes.end - bytes.start));
    let case = Case {
        name: "program".to_owned(),
        config: board.config.clone(),
        words,
        insns,
        insn_addr: PhysAddr(insn_addr),
        allocations: allocations.collect(),
        before: Vec::new(),
        after: Vec::new(),
        complete: false,
    };
    let device = setup
        .device(&board.config, 1)
        .map_err(|error| error.to_string())?;
    let ran =
        vta_replay::run_case(&case.with_words(), &*device).map_err(|error| error.to_string())?;
    Ok([ran.run.cycles, None, None, None, None])
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

impl Replayed {
    fn add(&mut self, index: usize, program: &Recorded, found: Result<Counts, String>) {
        let expected = [
            program.rtl_cycles,
            program.rdreq,
            program.rdbeats,
            program.wrreq,
            program.wrbeats,
        ];
        let mut row = json!({"program": index, "seed": program.seed});
        let mut parts = Vec::new();
        let ends = program.rtl == End::Finishes;
        match &found {
            Ok(_) if ends => {}
            Ok(_) => parts.push("it ends, recorded not to".to_owned()),
            Err(error) => {
                row["matched"] = json!(!ends);
                row[if ends { "error" } else { "refused" }] = json!(error);
                parts.extend(ends.then(|| error.clone()));
            }
        }
        let found = found.unwrap_or_default();
        for ((key, found), expected) in KEYS.into_iter().zip(found).zip(expected) {
            let Some(found) = found else { continue };
            row[key] = json!(found);
            // A count that isn't recorded is none to compare.
            let Some(expected) = expected else { continue };
            if found != expected {
                row[format!("recorded_{key}")] = json!(expected);
                parts.push(format!("{key} {found}, recorded {expected}"));
            }
        }
        row["matched"] = json!(parts.is_empty());
        self.rows.push(row);
        if parts.is_empty() {
            self.matched += 1;
        } else {
            self.differences
                .push(format!("program {index}: {}", parts.join("; ")));
        }
    }
}
