//! `vta models`.

use anyhow::{Context, Result, bail};
use vta_app::model::{self, Form};
use vta_compiler::zoo::Outline;
use vta_compiler::{lower, passes, zoo};

use crate::table::{Column, Table};
use crate::terminal::print_text;

/// Lists the built-in networks.
pub fn models() -> Result<bool> {
    let mut table = Table::new([
        Column::words("name"),
        Column::words("input"),
        Column::number("layers"),
        Column::number("MACs"),
        Column::number("weights"),
        Column::text("what"),
    ]);
    let mut row = |name: String, outline: &Outline, what: &str| {
        let [c, h, w] = outline.input;
        table.row([
            name,
            format!("{c}x{h}x{w}"),
            outline.layers.to_string(),
            format!("{:.2} G", outline.macs as f64 / 1e9),
            format!("{:.2} M", outline.weights as f64 / 1e6),
            what.to_owned(),
        ]);
    };
    row("demo".to_owned(), &demo()?, "trained on CIFAR-10");
    for name in zoo::NAMES {
        let outline = zoo::outline(name)?;
        row(format!("zoo:{name}"), &outline, "seeded, 1000 classes");
    }
    print_text(table.text().trim_end())?;
    Ok(true)
}

/// What the demo's network amounts to.
fn demo() -> Result<Outline> {
    let Form::Graph(graph) = model::load("demo")? else {
        bail!("the demo is no graph");
    };
    let network = passes::quantized(&graph)?;
    let input = network.inputs.first().context("the demo has no input")?;
    Ok(Outline {
        input: network.tensors[input.0].chw,
        layers: lower::layers(&network),
        macs: graph.macs(),
        weights: graph.weights(),
    })
}
