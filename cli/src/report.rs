//! What a run prints: labels with bars, a table of layers, or one JSON object.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, Value, json};
use vta_driver::{Counters, DeviceCounters, DramPlan, FlushReason, Program, RunReport, Traffic};
use vta_isa::MemType;
use vta_sim::views::Verdict;

use crate::args::RunArgs;
use crate::cycle::{Timed, cycles_json, utilization};

/// A finished run of some images.
pub struct Outcome {
    pub device: String,
    pub program: Arc<Program>,
    pub names: Vec<String>,
    pub truth: Vec<Option<usize>>,
    pub labels: Vec<String>,
    /// Real outputs of each image.
    pub logits: Vec<Vec<f32>>,
    pub reference: Option<Vec<Vec<f32>>>,
    pub reports: Vec<RunReport>,
    /// One for each device that ran side by side.
    pub counters: Vec<Counters>,
    /// By the names of the devices that launch kernels.
    pub devices: BTreeMap<String, DeviceCounters>,
    pub verified: bool,
    /// The device computed nothing, so that outputs mean nothing.
    pub timing_only: bool,
    /// Cycles of one pass over the program, from a device that counts them.
    pub timed: Option<Timed>,
    pub mismatches: Vec<String>,
    /// Layers of each pass that the host computes.
    pub host_ops: usize,
    /// What the hazard checker found, if it was asked.
    pub hazards: Option<Vec<String>>,
    pub top: usize,
    pub prepared: Duration,
    pub wall: Duration,
}

/// One layer over all runs.
struct LayerRow {
    name: String,
    kind: String,
    macs: u64,
    traffic: Traffic,
    wall: Duration,
}

impl LayerRow {
    /// Multiply-adds that count, of those that the matrix unit did; `None` without GEMM steps.
    fn utilization(&self, program: &Program, runs: u64) -> Option<f64> {
        let done = self.traffic.gemm_steps * program.config.macs_per_step();
        let useful = self.macs * program.config.batch() as u64 * runs;
        (done > 0).then(|| useful as f64 / done as f64)
    }
}

impl Outcome {
    fn label(&self, class: usize) -> String {
        self.labels
            .get(class)
            .cloned()
            .unwrap_or_else(|| format!("class {class}"))
    }

    /// Classes with softmax confidence (that of the network, if it ends so), best first; the lower class first among equals.
    fn ranking(&self, image: usize) -> Vec<(usize, f32)> {
        let logits = &self.logits[image];
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = logits.iter().map(|l| (l - largest).exp()).sum();
        let known = self.ends_in_softmax();
        let confidence = |l: f32| if known { l } else { (l - largest).exp() / sum };
        let all = logits.iter().enumerate();
        let mut ranking: Vec<_> = all.map(|(c, &l)| (c, confidence(l))).collect();
        ranking.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranking
    }

    /// Whether the outputs are confidences already.
    fn ends_in_softmax(&self) -> bool {
        let output = self.program.outputs.first();
        let mut layers = self.program.layers.iter();
        layers.any(|l| Some(&l.output) == output && l.kind == "host Softmax")
    }

    /// Passes over the program: each takes BATCH images.
    fn passes(&self) -> u64 {
        self.logits.len().div_ceil(self.program.config.batch()) as u64
    }

    fn correct(&self) -> Option<(usize, usize)> {
        if self.timing_only {
            return None;
        }
        let known: Vec<_> = self
            .truth
            .iter()
            .enumerate()
            .filter_map(|(i, t)| Some((i, (*t)?)))
            .collect();
        let right = known
            .iter()
            .filter(|(i, t)| argmax(&self.logits[*i]) == *t)
            .count();
        (!known.is_empty()).then_some((right, known.len()))
    }

    fn totals(&self) -> (Counters, Vec<LayerRow>) {
        let mut total = Counters::default();
        for c in &self.counters {
            total.add(c);
        }
        let row = |l: &vta_driver::Layer| LayerRow {
            name: l.name.clone(),
            kind: l.kind.clone(),
            macs: l.macs,
            traffic: Traffic::default(),
            wall: Duration::ZERO,
        };
        let mut rows: Vec<LayerRow> = self.program.layers.iter().map(row).collect();
        for mark in self.reports.iter().flat_map(|r| &r.marks) {
            if let Some(row) = rows.iter_mut().find(|r| r.name == mark.name) {
                row.traffic.add(&mark.traffic);
                row.wall += mark.wall;
            }
        }
        (total, rows)
    }

    /// Images whose label is the reference's, and the reference's right answers.
    fn agreement(&self) -> Option<(usize, Option<usize>)> {
        let reference = self.reference.as_ref()?;
        let pairs = || self.logits.iter().zip(reference);
        let same = pairs().filter(|(a, b)| argmax(a) == argmax(b)).count();
        let known = self.truth.iter().all(Option::is_some);
        let right = self
            .truth
            .iter()
            .zip(reference)
            .filter(|(t, r)| Some(argmax(r)) == **t)
            .count();
        Some((same, known.then_some(right)))
    }
}

fn argmax(values: &[f32]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

fn bytes_json(traffic: &Traffic) -> Value {
    let entry = |m: MemType| (m.name().to_owned(), json!(traffic.bytes[m.code() as usize]));
    Value::Object(MemType::ALL.into_iter().map(entry).collect::<Map<_, _>>())
}

/// Device memory that a session takes, but for instructions and micro-ops.
fn memory_json(plan: &DramPlan) -> Value {
    json!({
        "peak_bytes": plan.total_bytes(),
        "scratch_bytes": plan.scratch_bytes,
        "unshared_scratch_bytes": plan.unshared_bytes,
        "constant_bytes": plan.constant_bytes,
        "io_bytes": plan.io_bytes,
    })
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Prints one JSON object.
pub fn json(outcome: &Outcome) -> Result<()> {
    let (total, rows) = outcome.totals();
    let runs = outcome.passes().max(1);
    let (images, passes) = (outcome.logits.len() as u64, outcome.passes());
    let layer = |r: &LayerRow| {
        let mut object = json!({
            "name": r.name,
            "kind": r.kind,
            "macs": r.macs,
            "insns": r.traffic.insns,
            "bytes": bytes_json(&r.traffic),
            "wall_ms": ms(r.wall),
            "utilization": r.utilization(&outcome.program, runs),
        });
        if let Some(timed) = &outcome.timed
            && let Some(cycles) = timed.layer(&r.name)
        {
            let steps = timed.steps_of(&r.name);
            let keys = cycles_json(cycles, &steps, r.macs * images, passes, &timed.energy);
            merge(&mut object, keys);
        }
        object
    };
    let image = |i: usize| {
        let ranking = outcome.ranking(i);
        let top = ranking.iter().take(outcome.top).map(|&(class, confidence)| {
            json!({"class": class, "label": outcome.label(class), "confidence": confidence})
        });
        let top: Vec<_> = top.collect();
        json!({"image": outcome.names[i], "true_class": outcome.truth[i], "top": top})
    };
    let flush = |r: FlushReason| (r.name().to_owned(), json!(total.flushed(r)));
    let macs = outcome.program.layers.iter().map(|l| l.macs).sum::<u64>();
    let shown = if outcome.timing_only {
        0
    } else {
        outcome.logits.len()
    };
    let mut object = json!({
        "device": outcome.device,
        "images": outcome.logits.len(),
        "macs": macs,
        "insns": total.traffic.insns,
        "submissions": total.submissions,
        "flush_reasons": FlushReason::ALL.into_iter().map(flush).collect::<Map<_, _>>(),
        "encoded_batches": total.encoded_batches,
        "replayed_batches": total.replayed_batches,
        "host_ops": outcome.host_ops,
        "bytes": bytes_json(&total.traffic),
        "memory": memory_json(&DramPlan::of(&outcome.program)),
        "compile_ms": ms(outcome.prepared),
        "wall_ms": ms(outcome.wall),
        "outputs": (0..shown).map(image).collect::<Vec<_>>(),
        "layers": rows.iter().map(layer).collect::<Vec<_>>(),
    });
    if !outcome.devices.is_empty() {
        let counted = |(name, c): (&String, &DeviceCounters)| (name.clone(), counters_json(c));
        let all: Map<_, _> = outcome.devices.iter().map(counted).collect();
        object["device_counters"] = Value::Object(all);
    }
    if let Some(timed) = &outcome.timed {
        object["timing_only"] = json!(outcome.timing_only);
        merge(&mut object, timed.json(macs * images, passes));
    }
    add_accuracy(outcome, &mut object);
    if outcome.verified {
        object["mismatches"] = json!(outcome.mismatches);
    }
    if let Some(hazards) = &outcome.hazards {
        object["hazards"] = json!(hazards);
    }
    print_line(&serde_json::to_string_pretty(&object)?)
}

/// A device's counters by name.
pub fn counters_json(counted: &DeviceCounters) -> Value {
    let mut object = json!({
        "batches": counted.batches,
        "launches": counted.launches,
        "waits": counted.waits,
        "stalls": counted.stalls,
        "copies": counted.copies,
        "bytes_to_device": counted.bytes_to_device,
        "bytes_from_device": counted.bytes_from_device,
    });
    if let Some(ns) = counted.kernel_ns {
        object["kernel_ns"] = json!(ns);
    }
    object
}

/// Shares of right labels and of those that agree with the reference.
fn add_accuracy(outcome: &Outcome, object: &mut Value) {
    let images = outcome.logits.len() as f64;
    if let Some((right, of)) = outcome.correct() {
        object["top1"] = json!(right as f64 / of as f64);
    }
    if let Some((same, right)) = outcome.agreement() {
        object["agreement"] = json!(same as f64 / images);
        object["reference_top1"] = json!(right.map(|r| r as f64 / images));
    }
}

/// Adds keys to an object, in place of those of the same name.
fn merge(object: &mut Value, keys: Map<String, Value>) {
    if let Value::Object(object) = object {
        object.extend(keys);
    }
}

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
        other => other.context("standard output"),
    }
}
