//! `vta exec`: a bundle like `vta run`, or a program written by hand.

use std::path::Path;

use anyhow::{Result, ensure};
use vta_app::Watch;
use vta_app::open::is_assembly;
use vta_app::run::Done;

use super::run;
use crate::args::RunArgs;
use crate::bar::Bar;
use crate::report;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_text};

/// Stored elements that are printed at most; JSON has all.
const MAX_SHOWN: usize = 64;
/// Instructions whose cycles are printed at most; JSON has all.
const MAX_TIMED: usize = 200;
/// Wrong values that are named at most.
const MAX_WRONG: usize = 10;

/// Runs a bundle like `vta run`, or a program written by hand; whether all that was compared is
/// as expected.
pub fn exec(args: &RunArgs) -> Result<bool> {
    if !is_assembly(Path::new(&args.model)) {
        return run::run(args);
    }
    refuse_network_options(args)?;
    let done = vta_app::run::exec(&args.options())?;
    if let Some(text) = &done.misfit {
        Bar::remarks().note(text);
    }
    if args.json {
        print_json(&done.json())?;
    } else {
        print(&done, args)?;
    }
    report::tell_written(&args.views, args.json)?;
    let same = done.design.is_none_or(|design| design.differing == 0);
    Ok(done.wrong.is_empty() && same && done.hazards.is_none_or(|found| found.is_empty()))
}

/// What has no meaning without a network.
fn refuse_network_options(args: &RunArgs) -> Result<()> {
    let p = &args.preprocess;
    let recipe = p.preprocess.is_some() || p.mean.is_some() || p.std.is_some() || p.scale.is_some();
    // The arguments are those of `vta run`, which a bundle takes all of. Here these would do nothing, and say
    // nothing.
    for (option, given) in [
        ("--input", !args.input.is_empty()),
        ("--preprocess, --mean, --std and --scale", recipe),
        ("--requant", args.requant.requant.is_some()),
        ("--tiles", args.tiles.cache.is_some()),
        ("--limit", args.limit.is_some()),
        ("--output", args.output.is_some()),
        ("--reference", args.reference.is_some()),
        ("--verify", args.verify),
        ("--calibration", !args.calibration.is_empty()),
        ("--keep-float", !args.keep.keep_float.is_empty()),
        ("--int4", !args.keep.int4.is_empty()),
        ("--batch", args.batch.is_some()),
        ("--placement", args.placement.is_some()),
        ("--allow-host", args.allow_host),
        ("--threads", args.threads.is_some()),
        ("--profile", args.profile),
        ("--dump-plan", args.dump.plan.is_some()),
    ] {
        ensure!(
            !given,
            "{option}: for networks; {} is a program written by hand",
            args.model
        );
    }
    Ok(())
}

fn print(done: &Done, args: &RunArgs) -> Result<()> {
    let mut text = String::new();
    if let Some(times) = &done.times {
        text.push_str(&schedule(done, times));
    }
    let all = done.elements().count();
    for (element, values) in done.elements().take(MAX_SHOWN) {
        text.push_str(&format!("out {element}:"));
        values.iter().for_each(|v| text.push_str(&format!(" {v}")));
        text.push('\n');
    }
    if all > MAX_SHOWN {
        text.push_str(&format!("({all} elements are stored; --json has all)\n"));
    }
    for w in done.wrong.iter().take(MAX_WRONG) {
        let found = w.found.map_or("nothing".to_owned(), |v| v.to_string());
        text.push_str(&format!(
            "out {}, value {}: {found} is stored, {} is expected\n",
            w.element, w.lane, w.expected
        ));
    }
    for hazard in done.hazards.iter().flatten().take(MAX_WRONG) {
        text.push_str(&format!("{hazard}\n"));
    }
    if let Some(design) = &done.design {
        text.push_str(&design.text());
    }
    text.push_str(&summary(done, args));
    print_text(&text)
}

fn summary(done: &Done, args: &RunArgs) -> String {
    let mut line = format!(
        "{}: {} instruction{} on {}",
        args.model,
        done.insns.len(),
        if done.insns.len() == 1 { "" } else { "s" },
        args.device.device
    );
    if let Some(timed) = &done.timed {
        let cycles = timed.total().cycles;
        line.push_str(&format!(", {cycles} cycles on {}", timed.board));
    }
    line.push_str(&match (done.expected, done.wrong.len()) {
        (0, _) => ", nothing to compare with (.out)".to_owned(),
        (n, 0) => format!(", all {n} values as expected"),
        (n, wrong) => format!(", {wrong} of {n} values WRONG"),
    });
    if let Some(hazards) = &done.hazards {
        line.push_str(&match hazards.len() {
            0 => ", no hazard".to_owned(),
            n => format!(", {n} hazard(s)"),
        });
    }
    let left: u32 = done.report.leftover_tokens.iter().sum();
    if left > 0 {
        line.push_str(&format!(", {left} leftover token(s)"));
    }
    line
}

/// When each instruction ran, in a table.
fn schedule(done: &Done, times: &[(u64, Option<u64>)]) -> String {
    let mut table = Table::new([
        Column::number("start"),
        Column::number("done"),
        Column::words("module"),
        Column::text("instruction"),
    ]);
    for ((start, end), insn) in times.iter().zip(&done.insns).take(MAX_TIMED) {
        table.row([
            start.to_string(),
            end.map_or(String::new(), |cycle| cycle.to_string()),
            insn.module().name().to_owned(),
            without_zeros(&insn.to_string()),
        ]);
    }
    let mut text = table.text();
    if times.len() > MAX_TIMED {
        let all = times.len();
        text.push_str(&format!("({all} instructions; --json has all)\n"));
    }
    text
}

/// An instruction without the fields that are 0, as the assembler takes it, too.
fn without_zeros(insn: &str) -> String {
    // An ALU instruction without an immediate would be another: it takes its operand from a tile.
    let words = insn
        .split(' ')
        .filter(|word| !word.ends_with("=0") || *word == "imm=0");
    words.collect::<Vec<_>>().join(" ")
}
