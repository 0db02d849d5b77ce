//! `vta check --coverage`.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;
use vta_app::compile::listing;
use vta_files::printable;
use vta_program::coverage::{Coverage, Fault};

use crate::args::CheckArgs;
use crate::bar::Bar;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_line, print_text};

/// Proves or refutes; whether it holds.
pub fn check(args: &CheckArgs) -> Result<bool> {
    let name = args.file.display().to_string();
    let coverage = listing::prove(&name, &args.target(), &Bar::remarks())?;
    if args.json {
        let object = json!({
            "file": args.file.display().to_string(), "holds": coverage.holds(),
            "layers": coverage.layers, "faults": coverage.faults,
        });
        print_json(&object)?;
    } else {
        print_line(table(&coverage).trim_end())?;
        for fault in &coverage.faults {
            print_text(&text(&coverage, fault))?;
        }
        print_text(&verdict(args, &coverage))?;
    }
    Ok(coverage.holds())
}

fn table(coverage: &Coverage) -> String {
    let mut table = Table::new([
        Column::name("layer"),
        Column::words("kind"),
        Column::words("by"),
        Column::number("instructions"),
        Column::number("bytes stored"),
        Column::number("products"),
        Column::number("copies"),
        Column::number("faults"),
    ]);
    for layer in &coverage.layers {
        table.row([
            printable(&layer.name).into_owned(),
            printable(&layer.kind).into_owned(),
            layer.proof.to_owned(),
            layer.insns.to_string(),
            layer.stored_bytes.to_string(),
            layer.products.to_string(),
            layer.copies.to_string(),
            layer.faults.to_string(),
        ]);
    }
    table.text()
}

/// A fault in words, with its layer and the number of the same kind.
fn text(coverage: &Coverage, fault: &Fault) -> String {
    let mut text = String::new();
    if let Some(layer) = coverage.layers.get(fault.layer) {
        let _ = write!(text, "layer {}: ", printable(&layer.name));
    }
    if let Some(insn) = fault.insn {
        let _ = write!(text, "instruction {insn}: ");
    }
    text.push_str(&fault.text);
    if fault.count > 1 {
        let _ = write!(text, "; {} such faults in the layer", fault.count);
    }
    text
}

fn verdict(args: &CheckArgs, coverage: &Coverage) -> String {
    let sum = |of: fn(&vta_program::coverage::LayerCoverage) -> u64| -> u64 {
        coverage.layers.iter().map(of).sum()
    };
    let file = args.file.display();
    if !coverage.holds() {
        return format!("{file}: {} fault(s)", sum(|layer| layer.faults));
    }
    format!(
        "{file}: proven of {} layers: {} bytes are stored once each, {} products and {} copies are \
         computed once each for every output, and nothing is read that wasn't written",
        coverage.layers.len(),
        sum(|layer| layer.stored_bytes),
        sum(|layer| layer.products),
        sum(|layer| layer.copies),
    )
}
