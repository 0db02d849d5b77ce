//! What a run prints for people: labels with bars, a table of layers.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use vta_app::outcome::Outcome;
use vta_app::timed::{Timed, utilization};
use vta_driver::output::{self, FileError};
use vta_sim::views::Verdict;

use crate::args::RunArgs;

/// Prints for people.
pub fn text(outcome: &Outcome, args: &RunArgs) -> Result<()> {
    let mut out = String::new();
    let images = outcome.logits.len();
    if images <= 12 && !outcome.timing_only {
        for image in 0..images {
            describe(outcome, image, &mut out);
        }
    }
    if args.profile {
        out.push_str(&profile(outcome));
    }
    summary(outcome, args, &mut out);
    print_line(out.trim_end())
}

/// An image with its best labels and bars of confidence.
fn describe(outcome: &Outcome, image: usize, out: &mut String) {
    let ranking = outcome.ranking(image);
    let few = if outcome.logits.len() > 1 {
        outcome.top.min(3)
    } else {
        outcome.top
    };
    let verdict = match outcome.truth[image] {
        Some(truth) if ranking.first().is_some_and(|r| r.0 == truth) => {
            format!("  {} {}", paint("32", "\u{2713}"), outcome.label(truth))
        }
        Some(truth) => format!(
            "  {} it is {}",
            paint("31", "\u{2717}"),
            outcome.label(truth)
        ),
        None => String::new(),
    };
    out.push_str(&format!("{}{verdict}\n", paint("1", &outcome.names[image])));
    let width = ranking
        .iter()
        .take(few)
        .map(|r| outcome.label(r.0).len())
        .max()
        .unwrap_or(0);
    for &(class, confidence) in ranking.iter().take(few) {
        let label = outcome.label(class);
        let bar = bar(confidence);
        let percent = confidence * 100.0;
        out.push_str(&format!(
            "  {label:width$} {percent:5.1} % {}\n",
            paint("36", &bar)
        ));
    }
}

/// Up to 24 blocks in eighths.
fn bar(share: f32) -> String {
    let eighths = (share * 24.0 * 8.0).round() as usize;
    let parts = [
        '\u{258f}', '\u{258e}', '\u{258d}', '\u{258c}', '\u{258b}', '\u{258a}', '\u{2589}',
    ];
    let mut bar = "\u{2588}".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(parts[eighths % 8 - 1]);
    }
    bar
}

fn paint(code: &str, text: &str) -> String {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colour && !text.is_empty() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

fn summary(outcome: &Outcome, args: &RunArgs, out: &mut String) {
    let (total, _) = outcome.totals();
    let images = outcome.logits.len();
    let seconds = outcome.wall.as_secs_f64();
    let rate = images as f64 / seconds.max(1e-9);
    out.push_str(&format!(
        "\n{images} image{} on {} in {:.0} ms ({rate:.1} a second), {} submission{}, {} instructions, {}\n",
        if images == 1 { "" } else { "s" },
        outcome.device,
        seconds * 1e3,
        total.submissions,
        if total.submissions == 1 { "" } else { "s" },
        total.traffic.insns,
        size(total.traffic.total_bytes()),
    ));
    for (name, c) in &outcome.devices {
        out.push_str(&format!(
            "{name}: {} launches, {} waits, {} of them in the way of the next work, {} copies, {} to \
             it and {} from it\n",
            c.launches,
            c.waits,
            c.stalls,
            c.copies,
            size(c.bytes_to_device),
            size(c.bytes_from_device),
        ));
    }
    if outcome.host_ops > 0 {
        out.push_str(&format!(
            "{} of {} layers on the host\n",
            outcome.host_ops,
            outcome.program.layers.len()
        ));
    }
    if let Some(timed) = &outcome.timed {
        out.push_str(&cycles_line(outcome, timed));
    }
    if let Some((right, of)) = outcome.correct() {
        out.push_str(&format!(
            "{right} of {of} right ({:.1} %)\n",
            100.0 * right as f64 / of as f64
        ));
    }
    if let Some((same, right)) = outcome.agreement() {
        let share = 100.0 * same as f64 / images as f64;
        out.push_str(&format!(
            "{same} of {images} labels as the reference's ({share:.1} %)"
        ));
        if let Some(right) = right {
            out.push_str(&format!("; the reference has {right} right"));
        }
        out.push('\n');
    }
    if let Some(hazards) = &outcome.hazards {
        match hazards.len() {
            0 => out.push_str("no hazard in the program\n"),
            n => out.push_str(&format!("{n} hazards:\n")),
        }
        for line in hazards.iter().take(10) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    if outcome.verified {
        match outcome.mismatches.len() {
            0 => out.push_str("every layer's output is the reference interpreter's, bit for bit\n"),
            n => {
                out.push_str(&format!("{n} layer outputs differ from the reference:\n"));
                for line in outcome.mismatches.iter().take(10) {
                    out.push_str(&format!("  {line}\n"));
                }
            }
        }
    }
    if args.model == "demo" && args.input.is_empty() && !args.profile {
        let vta = program_name();
        out.push_str(&format!(
            "\nTry next: {vta} run demo --input models/demo/cat.png\n          \
             {vta} run zoo:resnet18 --profile\n",
        ));
    }
}

/// How this program was called, so that what it proposes can be typed as it stands.
fn program_name() -> String {
    let called = std::env::args().next().unwrap_or_default();
    match called.contains('/') && !called.contains(char::is_whitespace) {
        true => called,
        false => "vta".to_owned(),
    }
}

/// One pass in cycles, against its bound and the matrix unit's peak.
fn cycles_line(outcome: &Outcome, timed: &Timed) -> String {
    let (total, bound) = (timed.total(), timed.bound_cycles());
    let macs: u64 = outcome.program.layers.iter().map(|l| l.macs).sum();
    let useful = macs * outcome.program.config.batch() as u64;
    let ms = total.cycles as f64 / (timed.timing.clock_mhz * 1e3);
    let mut line = format!(
        "{} cycles a pass on {} ({ms:.2} ms at {} MHz), {:.2} times the bound, \
         matrix unit {:.1} % of its peak\n",
        total.cycles,
        timed.board,
        timed.timing.clock_mhz,
        total.cycles as f64 / bound.max(1) as f64,
        utilization(&total, useful, 1) * 100.0,
    );
    for loss in vta_sim::views::losses(&total).iter().take(3) {
        let share = loss.share * 100.0;
        line.push_str(&format!("  lost {share:4.1} %: {}\n", loss.words));
    }
    line
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn profile(outcome: &Outcome) -> String {
    let (_, rows) = outcome.totals();
    let runs = outcome.passes().max(1);
    let whole: Duration = rows.iter().map(|r| r.wall).sum();
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["layer", "kind", "MACs", "insns", "bytes", "ms", "share"];
    header.extend(match outcome.timed {
        None => &["utilisation"][..],
        Some(_) => &["utilisation", "cycles", "of bound", "limited by"],
    });
    table.set_header(header);
    for row in &rows {
        let timed = outcome.timed.as_ref().and_then(|t| t.layer(&row.name));
        let macs = row.macs * outcome.program.config.batch() as u64;
        let used = match timed {
            Some(cycles) => Some(utilization(cycles, macs, 1)),
            None => row.utilization(&outcome.program, runs),
        };
        let share = 100.0 * row.wall.as_secs_f64() / whole.as_secs_f64().max(1e-12);
        let mut cells = vec![
            row.name.clone(),
            row.kind.clone(),
            row.macs.to_string(),
            (row.traffic.insns / runs).to_string(),
            (row.traffic.total_bytes() / runs).to_string(),
            format!("{:.3}", row.wall.as_secs_f64() * 1e3 / runs as f64),
            format!("{share:.1} %"),
            used.map_or_else(String::new, |u| format!("{:.1} %", u * 100.0)),
        ];
        if let Some(layer) = timed {
            let bound = layer.bound.cycles().max(1);
            cells.push(layer.cycles.to_string());
            cells.push(format!("{:.2}", layer.cycles as f64 / bound as f64));
            cells.push(Verdict::of(layer).resource.to_owned());
        }
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(2).take(8) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    lines(&table)
}

/// A table's lines, each with its end and without blanks before it.
pub fn lines(table: &Table) -> String {
    let text = table.to_string();
    text.lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Prints to standard output; a reader that went away is no error.
pub fn print_line(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.map_err(|e| FileError::write(Path::new("standard output"), &e))?),
    }
}

/// Prints what there is to say of a file that was written: to standard error when the file itself
/// went to standard output.
pub fn say_written(file: &Path, text: &str) -> Result<()> {
    if !output::is_stdout(file) {
        return print_line(text);
    }
    eprintln!("{text}");
    Ok(())
}
