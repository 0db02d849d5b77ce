//! `vta quantize`.

use anyhow::Result;
use vta_app::options::names::Front;
use vta_app::quantize::{self, Report};
use vta_files::{output, printable};

use crate::args::QuantizeArgs;
use crate::bar::Bar;
use crate::table::{Column, Table};
use crate::terminal::{COLUMNS, print_json, print_text, say, say_written, wrapped};

/// Layers that are shown.
const SHOWN: usize = 12;

/// Quantises a float model and writes it.
pub fn quantize(args: &QuantizeArgs) -> Result<bool> {
    let bar = Bar::new("images", 20, false);
    let quantized = quantize::quantize(&args.options(), &bar)?;
    bar.clear();
    output::write(&args.output, &quantized.onnx)?;
    let mut line = format!(
        "{}: {} nodes, {} bytes, calibrated with {} images",
        args.output.display(),
        quantized.nodes,
        quantized.onnx.len(),
        quantized.images
    );
    if quantized.equalized > 0 {
        line.push_str(&format!(
            ", {} pairs of layers equalised",
            quantized.equalized
        ));
    }
    for warning in quantized.fidelity.warnings() {
        let text = format!("warning: {}", warning.to(Front::CommandLine));
        say(&wrapped(&printable(&text), COLUMNS));
    }
    let json = quantized.json();
    if let Some(path) = &args.report {
        let bar = Bar::new("layers", 20, false);
        let report = quantized.report(&bar)?;
        bar.clear();
        let mut told = report.json();
        told["fidelity"] = json["fidelity"].clone();
        told["warnings"] = json["warnings"].clone();
        let text = serde_json::to_string_pretty(&told)?;
        output::write(path, format!("{text}\n").as_bytes())?;
        if !args.json {
            print_text(table(&report).trim_end())?;
        }
    }
    if args.json && !output::is_stdout(&args.output) {
        print_json(&json)?;
        return Ok(true);
    }
    for more in quantized.fidelity.lines() {
        line.push('\n');
        line.push_str(&printable(&more));
    }
    say_written(&args.output, &line)?;
    Ok(true)
}

/// The layers that cost most, and what would help.
fn table(report: &Report) -> String {
    let decibel = |db: f64| {
        if db.is_finite() {
            format!("{db:.1}")
        } else {
            "exact".to_owned()
        }
    };
    let mut table = Table::new([
        Column::name("layer"),
        Column::words("kind"),
        Column::number("own dB"),
        Column::number("so far dB"),
        Column::number("outputs dB"),
    ]);
    let worst = report.worst();
    for layer in worst.iter().take(SHOWN) {
        let weights = if layer.int4 { ", int4 weights" } else { "" };
        table.row([
            printable(&layer.name).into_owned(),
            printable(&layer.kind).into_owned() + weights,
            decibel(layer.own_db),
            decibel(layer.so_far_db),
            decibel(layer.output_db),
        ]);
    }
    let mut text = table.text();
    let mut say = |line: &str| {
        text.push_str(&wrapped(line, COLUMNS));
        text.push('\n');
    };
    say(&format!(
        "signal to noise of {} against float, {} images: a layer alone, with all before it, and of the \
         outputs if it alone is quantised; the worst {} of {}",
        report.activations,
        report.images,
        worst.len().min(SHOWN),
        worst.len()
    ));
    for layer in worst.iter().take(SHOWN) {
        if let Some(advice) = &layer.advice {
            say(&printable(&format!("{}: {advice}", layer.name)));
        }
    }
    for remark in &report.remarks {
        say(remark);
    }
    say(&format!(
        "outputs with everything quantised: {} dB",
        decibel(report.errors.output_db)
    ));
    text
}
