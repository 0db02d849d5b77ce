//! `vta replay`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vta_app::device::{self, Setup, is_rtl};
use vta_app::files::is;
use vta_app::options::names::{BOARD, TIMING};
use vta_app::{Target, run};
use vta_files::printable;
use vta_replay::CaseReport;

use crate::args::{ReplayArgs, TimingArgs};
use crate::terminal::{print_json, print_text};

/// Replays recorded runs; whether all match.
pub fn replay(args: &ReplayArgs) -> Result<bool> {
    let target = Target {
        device: args.device.clone(),
        bitstream: args.bitstream.clone(),
        budget: args.limits.budget(),
        ..args.timing.target(None)
    };
    let setup = Setup::new(&target, "replay")?;
    let (mut matched, mut total, mut compared) = (0, 0, 0);
    let mut rows = Vec::new();
    for path in &args.cases {
        if is(path, &["json"]) {
            let (m, t) = replay_counters(args, path, &setup, &mut rows)?;
            (matched, total) = (matched + m, total + t);
            continue;
        }
        for case in vta_replay::load(path)? {
            let device = setup.device(&case.config, 1)?;
            let report =
                vta_replay::run_case(&case, &*device).with_context(|| case.name.clone())?;
            total += 1;
            compared += report.bytes_compared;
            matched += usize::from(report.bytes_different == 0);
            let leftover: u32 = report.run.leftover_tokens.iter().sum();
            rows.push(json!({
                "case": case.name, "insns": case.insns.len(),
                "bytes_compared": report.bytes_compared,
                "bytes_different": report.bytes_different, "leftover_tokens": leftover,
            }));
            if !args.json {
                print_text(&text(&case.name, &report, leftover))?;
            }
        }
    }
    if args.json {
        let object = json!({
            "device": args.device, "matched": matched, "total": total,
            "bytes_compared": compared, "cases": rows,
        });
        print_json(&object)?;
    } else {
        let bytes = match compared {
            0 => String::new(),
            n => format!(", {n} bytes compared"),
        };
        print_text(&format!("{matched} of {total} runs match{bytes}"))?;
    }
    Ok(matched == total)
}

/// A run in a line, and its first bytes that differ.
fn text(name: &str, report: &CaseReport, leftover: u32) -> String {
    let verdict = if report.bytes_different == 0 {
        "ok  "
    } else {
        "FAIL"
    };
    let (name, bytes) = (printable(name), report.bytes_compared);
    let tokens = match leftover {
        0 => String::new(),
        n => format!(", {n} leftover token(s)"),
    };
    let mut text = format!("{verdict} {name} ({bytes} bytes{tokens})");
    for m in &report.mismatches {
        text.push_str(&format!(
            "\n       {:#x}: {:#04x}, recorded {:#04x}",
            m.addr, m.found, m.expected
        ));
    }
    text
}

/// Programs with recorded cycles; how many match, and how many there are.
fn replay_counters(
    args: &ReplayArgs,
    path: &Path,
    setup: &Setup,
    rows: &mut Vec<serde_json::Value>,
) -> Result<(usize, usize)> {
    let name = path.display();
    let design = is_rtl(&args.device);
    ensure!(
        args.device == "cycle" || design,
        "{name}: cycles are only counted with --device cycle or rtl:LIB.so, not {}",
        args.device
    );
    // The counters are those of hardware: a timing is that of its board here.
    let TimingArgs { board, timing } = &args.timing;
    let named = match (&board.board, timing) {
        (Some(name), _) => device::board(BOARD, name)?,
        (None, Some(name)) => device::board(TIMING, name)?,
        (None, None) => device::board(BOARD, "pynq")?,
    };
    let budget = args.limits.budget();
    let outcome = run::replay(path, &named, &budget, design.then_some(setup))?;
    let board = &named.name;
    if !args.json {
        let counts = if design {
            "cycles"
        } else {
            "cycles, requests and beats"
        };
        print_text(&format!(
            "{name} on {board}: {} of {} programs match in {counts}",
            outcome.matched, outcome.total
        ))?;
        for line in outcome.differences.iter().take(10) {
            print_text(&format!("  {}", line))?;
        }
        if let Some(more) = outcome.differences.len().checked_sub(11) {
            print_text(&format!("  and {} more", more + 1))?;
        }
    }
    rows.extend(outcome.rows);
    Ok((outcome.matched, outcome.total))
}
