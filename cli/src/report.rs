//! What a run prints for people: labels with bars, a table of layers.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use vta_app::compile::Plans;
use vta_app::report::{Report, bytes, percent, short, utilization, verdict};
use vta_app::run::Outcome;
use vta_files::printable;

use crate::args::{PlanDetail, RunArgs, ViewArgs};
use crate::table::{Column, Table};
use crate::terminal::{bar, is_plain, paint, print_line, print_text, say, say_written};

/// Prints for people.
pub fn text(outcome: &Outcome, args: &RunArgs) -> Result<()> {
    let mut out = String::new();
    let images = outcome.images.len();
    if outcome.is_classifier() {
        if images <= 12 && !outcome.timing_only {
            for image in 0..images {
                describe(outcome, image, &mut out);
            }
        }
    } else {
        for output in &outcome.outputs {
            let name = printable(&output.name);
            let shape: Vec<String> = output.shape.iter().map(usize::to_string).collect();
            let shape = shape.join("x");
            out.push_str(&format!("output {name}: {shape} an image\n"));
        }
    }
    if args.profile {
        out.push_str(&profile(outcome));
    }
    summary(outcome, args, &mut out);
    print_text(out.trim_end())
}

/// An image with its best labels and bars of confidence.
fn describe(outcome: &Outcome, image: usize, out: &mut String) {
    let most = if outcome.images.len() > 1 {
        3
    } else {
        usize::MAX
    };
    let image = &outcome.images[image];
    let ranking = &image.ranking[..image.ranking.len().min(most)];
    let [right, wrong] = if is_plain() {
        ["right:", "wrong:"]
    } else {
        ["\u{2713}", "\u{2717}"]
    };
    let verdict = match image.truth {
        Some(truth) if ranking.first().is_some_and(|r| r.0 == truth) => {
            format!("  {} {}", paint("32", right), outcome.label(truth))
        }
        Some(truth) => format!("  {} it is {}", paint("31", wrong), outcome.label(truth)),
        None => String::new(),
    };
    out.push_str(&format!(
        "{}{verdict}\n",
        paint("1", &printable(&image.name))
    ));
    let widths = ranking.iter().map(|r| outcome.label(r.0).len());
    let width = widths.max().unwrap_or(0);
    for &(class, confidence) in ranking {
        let label = outcome.label(class);
        let bar = bar(confidence);
        let percent = confidence * 100.0;
        out.push_str(&format!(
            "  {label:width$} {percent:5.1} % {}\n",
            paint("36", &bar)
        ));
    }
}

fn summary(outcome: &Outcome, args: &RunArgs, out: &mut String) {
    let total = &outcome.found.counters;
    let images = outcome.images.len();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let seconds = outcome.wall.as_secs_f64();
    let rate = images as f64 / seconds.max(1e-9);
    // Without results there is no work whose time would tell anything.
    let done = if outcome.timing_only {
        ", cycles only, nothing computed".to_owned()
    } else {
        format!(" in {:.0} ms ({rate:.1} a second)", seconds * 1e3)
    };
    out.push_str(&format!(
        "\n{images} image{} on {}{done}, {} submission{}, {} instructions, {} of data\n",
        plural(images),
        outcome.device,
        total.submissions,
        plural(total.submissions as usize),
        total.traffic.insns,
        bytes(total.traffic.total_bytes()),
    ));
    for (name, c) in &outcome.found.devices {
        let scopes = match c.scope_copies {
            0 => String::new(),
            n => format!("{n} between memory scopes, "),
        };
        out.push_str(&format!(
            "{name}: {} launches, {} waits, {} of them in the way of the next work, {} copies, \
             {scopes}{} to it and {} from it\n",
            c.launches,
            c.waits,
            c.stalls,
            c.copies,
            bytes(c.bytes_to_device),
            bytes(c.bytes_from_device),
        ));
    }
    if outcome.host.ops() > 0 {
        out.push_str(&host_line(outcome));
    }
    if let Some(timed) = &outcome.timed {
        out.push_str(&cycles_line(outcome, timed));
        if outcome.host.ops() > 0 {
            out.push_str(&host_estimate(outcome, timed));
        }
    } else if let (Some(cycles), None) = (outcome.device_cycles(), &outcome.design) {
        let each = cycles / images.max(1) as u64;
        out.push_str(&format!(
            "{cycles} cycles by its counter, {each} an image\n"
        ));
    }
    compared(outcome, out);
    if args.model == "demo" && args.input.is_empty() && !args.profile {
        let vta = program_name();
        // The photo is there in the repository, not where the program is installed.
        let first = if Path::new(PHOTO).is_file() {
            format!("run demo --input {PHOTO}")
        } else {
            "run demo --profile".to_owned()
        };
        out.push_str(&format!(
            "\nTry next: {vta} {first}\n          {vta} run zoo:resnet18 --profile\n",
        ));
    }
}

/// What was found right and wrong.
fn compared(outcome: &Outcome, out: &mut String) {
    let images = outcome.images.len();
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
    if let Some(design) = &outcome.design {
        out.push_str(&design.text());
    }
    let none = "no hazard in the program";
    let hazards = outcome.hazards.as_deref();
    let hazards = hazards.map(|all| findings(all, none, "hazards"));
    let none = "every layer's output is the reference interpreter's, bit for bit";
    let differ = "layer outputs differ from the reference";
    let verified = outcome.verified.then_some(&outcome.found.mismatches[..]);
    let verified = verified.map(|all| findings(all, none, differ));
    out.extend(hazards.into_iter().chain(verified));
}

/// The first few of what was found, or that there is none.
fn findings(all: &[String], none: &str, what: &str) -> String {
    if all.is_empty() {
        return format!("{none}\n");
    }
    let lines = all.iter().take(10).map(|line| format!("  {line}\n"));
    format!("{} {what}:\n{}", all.len(), lines.collect::<String>())
}

/// A photo to try, from the repository's root.
const PHOTO: &str = "models/demo/cat.png";

/// How this program was called, so that what it proposes can be typed as it stands.
fn program_name() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@".contains(c);
    if called.is_empty() {
        "vta".to_owned()
    } else if called.chars().all(plain) {
        called
    } else {
        format!("'{}'", called.replace('\'', r"'\''"))
    }
}

/// One pass in cycles, against its bound and the matrix unit's peak.
fn cycles_line(outcome: &Outcome, timed: &Report) -> String {
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
    let images = match outcome.program.config.batch() {
        1 => "an image".to_owned(),
        batch => format!("{batch} images"),
    };
    let beat = match timed.timing.bus_bytes {
        bytes if line.contains("beats") => format!("; a beat: {bytes} bytes in a cycle of the bus"),
        _ => String::new(),
    };
    line.push_str(&format!(
        "  (a pass: the network once, for {images}; the bound: the fewest cycles for its products and \
         bytes, whatever their order{beat})\n"
    ));
    line
}

/// The table of layers: figures of one pass.
fn profile(outcome: &Outcome) -> String {
    let mut text = layers_table(outcome).text();
    let batch = outcome.program.config.batch() as u64;
    let used = |name: &str, macs: u64| {
        let layer = outcome.timed.as_ref().and_then(|timed| timed.layer(name));
        layer.map_or(0.0, |layer| utilization(layer, macs * batch, 1))
    };
    let layers = outcome.layers();
    if layers.iter().any(|row| used(&row.name, row.macs) > 1.0) {
        text.push_str("over 100 %: taps on padding count, and the matrix unit leaves them out\n");
    }
    if outcome.host.ops() > 0 {
        text.push('\n');
        text.push_str(&host_table(outcome).text());
    }
    text
}

/// What the host takes: how long each of its layers did, or by estimate would.
fn host_table(outcome: &Outcome) -> Table {
    let rows = outcome.layers();
    let runs = outcome.passes().max(1) as f64;
    let whole = match &outcome.timed {
        Some(timed) => timed.pass_ms(),
        None => rows.iter().map(|r| r.wall).sum::<Duration>().as_secs_f64() * 1e3 / runs,
    };
    let mut table = Table::new([
        Column::name("on the host"),
        Column::number("nodes"),
        Column::text("operators"),
        Column::number("MACs").optional(),
        Column::number("values").optional(),
        Column::number("moved"),
        Column::number(match outcome.timed {
            Some(_) => "ms, about",
            None => "ms",
        }),
        Column::number("share"),
    ]);
    for layer in &outcome.host.layers {
        let row = || rows.iter().find(|row| row.name == layer.name);
        let ms = match &outcome.timed {
            Some(timed) => Some(layer.time(&timed.speed).total_ms()),
            None => row().map(|row| row.wall.as_secs_f64() * 1e3 / runs),
        };
        table.row([
            layer.name.clone(),
            layer.ops.to_string(),
            few(&layer.kinds),
            short(layer.work.macs),
            short(layer.work.values),
            short(layer.traffic.read + layer.traffic.written),
            ms.map_or_else(String::new, |ms| format!("{ms:.3}")),
            ms.map_or_else(String::new, |ms| percent(ms / whole.max(1e-9))),
        ]);
    }
    table
}

/// The first few of a list, and how many there are more.
fn few(list: &str) -> String {
    const FEW: usize = 4;
    let all: Vec<&str> = list.split(", ").collect();
    match all.len() {
        0..=FEW => list.to_owned(),
        n => format!("{} and {} more", all[..FEW].join(", "), n - FEW),
    }
}

/// How much the host computes, and how long it took.
fn host_line(outcome: &Outcome) -> String {
    let (host, traffic) = (&outcome.host, outcome.host.traffic());
    let mut line = format!(
        "{} operators on the host, in {} of {} layers: {} read for each pass, {} written",
        host.ops(),
        host.layers.len(),
        outcome.program.layers.len().max(host.layers.len()),
        bytes(traffic.read),
        bytes(traffic.written),
    );
    if outcome.timed.is_none() {
        let rows = outcome.layers();
        let all: Duration = rows.iter().map(|row| row.wall).sum();
        let own = rows.iter().filter(|row| host.layer(&row.name).is_some());
        let own: Duration = own.map(|row| row.wall).sum();
        let runs = outcome.passes().max(1) as f64;
        let share = own.as_secs_f64() / all.as_secs_f64().max(1e-12);
        let ms = own.as_secs_f64() * 1e3 / runs;
        line.push_str(&format!(
            ", in {ms:.1} ms, {} of the layers' time",
            percent(share)
        ));
    }
    line.push('\n');
    line
}

/// What a pass takes with the host.
fn host_estimate(outcome: &Outcome, timed: &Report) -> String {
    let (time, speed) = (timed.host.time(&timed.speed), &timed.speed);
    let images = outcome.program.config.batch() as f64;
    let measured = |[took, estimate]: [f64; 2]| {
        format!(
            "  on this machine the host's layers took {took:.1} ms, where the estimate has {estimate:.1}\n"
        )
    };
    let measured = outcome.host_measured(speed).map(measured);
    let measured = measured.unwrap_or_default();
    format!(
        "with the host about {:.1} ms a pass, {:.1} images a second: {:.1} ms for what it computes and \
         {:.1} ms to move tensors, assuming {} GMAC/s, {} G values/s, {} GB/s and {} us a layer \
         (--host-speed)\n",
        timed.pass_ms(),
        images * 1e3 / timed.pass_ms().max(1e-9),
        time.compute_ms,
        time.transfer_ms,
        speed.gmacs,
        speed.gvalues,
        speed.gbytes,
        speed.layer_us,
    ) + &measured
}

/// Where the time goes on a device that computes, or the cycles.
fn layers_table(outcome: &Outcome) -> Table {
    let rows = outcome.layers();
    let (runs, timed) = (outcome.passes().max(1), outcome.timed.as_ref());
    let macs = Column::number("MACs");
    let (macs, figures) = match timed {
        None => (macs, &["ms", "share", "matrix unit"][..]),
        Some(_) => {
            let figures = &["cycles", "share", "of bound", "matrix unit"][..];
            (macs.optional(), figures)
        }
    };
    let common = [
        Column::name("layer"),
        Column::words("kind").optional(),
        macs,
        Column::number("insns").optional(),
        Column::number("bytes").optional(),
    ];
    let figures = figures.iter().copied().map(Column::number);
    let last = timed.map(|_| Column::words("limited by"));
    let mut table = Table::new(common.into_iter().chain(figures).chain(last));
    let whole: Duration = rows.iter().map(|r| r.wall).sum();
    for row in &rows {
        let mut cells = vec![
            row.name.clone(),
            row.kind.clone(),
            short(row.macs),
            (row.traffic.insns / runs).to_string(),
            short(row.traffic.total_bytes() / runs),
        ];
        match timed.map(|timed| (timed, timed.layer(&row.name))) {
            None => {
                let share = row.wall.as_secs_f64() / whole.as_secs_f64().max(1e-12);
                let used = row.utilization(&outcome.program, runs);
                cells.push(format!("{:.3}", row.wall.as_secs_f64() * 1e3 / runs as f64));
                cells.push(percent(share));
                cells.push(used.map_or_else(String::new, percent));
            }
            Some((timed, Some(layer))) => {
                let macs = row.macs * outcome.program.config.batch() as u64;
                let (all, bound) = (timed.total().cycles.max(1), layer.bound.cycles().max(1));
                cells.push(layer.cycles.to_string());
                cells.push(percent(layer.cycles as f64 / all as f64));
                cells.push(format!("{:.2}", layer.cycles as f64 / bound as f64));
                let used = utilization(layer, macs, 1);
                cells.push(if macs > 0 {
                    percent(used)
                } else {
                    String::new()
                });
                cells.push(verdict(layer, macs).resource.to_owned());
            }
            // The host's.
            Some((_, None)) => cells.truncate(2),
        }
        table.row(cells);
    }
    table
}

/// Prints plans as text, or with no detail chosen as one JSON object, which has all.
pub fn print_plans(plans: &Plans, detail: Option<PlanDetail>) -> Result<()> {
    let text = match detail {
        None => serde_json::to_string_pretty(&plans.json())?,
        Some(PlanDetail::Short) => plans.summary(),
        Some(PlanDetail::Full) => plans.to_string(),
    };
    print_line(text.trim_end())
}

/// Says which of the views are written: behind the summary, or on standard error where standard
/// output is one JSON object.
pub fn tell_written(views: &ViewArgs, json: bool) -> Result<()> {
    let files = [
        (&views.trace, "trace", "open it at ui.perfetto.dev"),
        (&views.report, "report", "open it in a browser"),
    ];
    for (path, what, how) in files {
        let Some(path) = path else { continue };
        let line = format!("{}: {what} written, {how}", path.display());
        if json {
            say(&line);
        } else {
            say_written(path, &line)?;
        }
    }
    Ok(())
}
