//! `vta tune`: tiles chosen by counting cycles.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use vta_app::device::Machine;
use vta_app::files;
use vta_app::open::layer_or_network;
use vta_app::options::did_you_mean;
use vta_app::sweep::{Tuner, certify, median_gap};
use vta_app::{Error, Watch};
use vta_compiler::lower::{self, ConvShape, ConvTile, LoopOrder, Tiles};
use vta_compiler::qgraph::NodeId;
use vta_compiler::tune::{self, Cache, Measured};
use vta_driver::Program;
use vta_files::output::{self, FileLock};

use crate::args::TuneArgs;
use crate::bar::Bar;
use crate::table::{Column, Table};
use crate::terminal::{print_line, print_text};

/// Tunes a network or a layer, or explains one layer's choice.
///
/// # Errors
/// What can't be read, lowered, measured or written.
pub fn tune(args: &TuneArgs) -> Result<bool> {
    let machine = Machine::read(&args.timing.target(args.config.as_ref()))?;
    if let Some(text) = machine.misfit_of_config() {
        Bar::remarks().note(&text);
    }
    let graph = layer_or_network(&args.model)?;
    let tuner = Tuner::new(graph, machine, args.candidates)?;
    if let Some(layer) = &args.explain {
        return explain(&tuner, layer, args.json);
    }
    let mut cache = match &args.output {
        Some(path) => read(path)?,
        None => Cache::new(),
    };
    if args.certificate {
        return certificate(&tuner, cache, args.json);
    }
    let bar = Bar::new("layers", 0, args.json);
    let mut tuned = || {
        let untuned_cycles = tuner.total(&Cache::new())?;
        let measured = tuner.tune(&mut cache, &bar)?;
        Ok::<_, Error>((measured, untuned_cycles, tuner.total(&cache)?))
    };
    let tuned = tuned();
    bar.clear();
    // What was measured before an error is worth keeping.
    if let Some(path) = &args.output {
        keep(path, &mut cache)?;
    }
    let (measured, untuned_cycles, cycles) = tuned?;
    let (known, timing) = (cache.len(), &tuner.machine().name);
    if args.json {
        let object = json!({
            "untuned_cycles": untuned_cycles, "cycles": cycles, "shapes_measured": measured,
            "shapes_known": known, "timing": timing,
        });
        print_line(&object.to_string())?;
    } else {
        print_text(&format!(
            "{measured} shapes measured, {known} known; {untuned_cycles} cycles untuned, {cycles} \
             tuned on {timing}"
        ))?;
    }
    Ok(true)
}

/// Adds a cache to that of a file, which others may have changed since it was read.
fn keep(path: &Path, cache: &mut Cache) -> Result<()> {
    let _turn = FileLock::wait(path)?;
    cache.merge(&read(path)?);
    Ok(output::write(path, cache.to_json()?)?)
}

fn read(path: &Path) -> Result<Cache> {
    if !path.exists() {
        return Ok(Cache::new());
    }
    let text = files::read_text(path)?;
    Cache::from_json(&text).with_context(|| path.display().to_string())
}

/// A table of a layer's candidates.
fn explain(tuner: &Tuner, layer: &str, as_json: bool) -> Result<bool> {
    let job = tuner.job();
    let all = lower::conv_tiles(job.graph, job.config, job.options, &Tiles::default())?;
    let graph = lower::for_machine(job.graph, job.config);
    let name = |node: NodeId| &graph.nodes[node.0].name;
    let found = all.iter().find(|(node, ..)| name(*node) == layer);
    let (node, shape, searched) = found.with_context(|| {
        let names: Vec<&str> = all.iter().map(|(node, ..)| name(*node).as_str()).collect();
        let meant = did_you_mean(layer, names.iter().copied());
        format!(
            "no convolution '{layer}'{meant} (there are {})",
            names.join(", ")
        )
    })?;
    let measured = tune::explain(&job, *node, shape, &|program: &Program| {
        tuner.cycles(program)
    })?;
    if as_json {
        let one = |m: &Measured| {
            let searched = m.tile == *searched;
            json!({"tile": m.tile, "estimate": m.estimate, "cycles": m.cycles, "default": searched})
        };
        let rows: Vec<_> = measured.iter().map(one).collect();
        print_line(&json!({"layer": layer, "candidates": rows}).to_string())?;
        return Ok(true);
    }
    print_text(&format!("{layer}: {}", outline(shape)))?;
    print_text(table(&measured, searched).text().trim_end())?;
    print_text(
        "(A tile is co output blocks of so many rows and columns. It is summed up in chunks of ci \
         input blocks and so many rows of the kernel. The outer loop is over channels or \
         positions; inputs and weights, and sums, have 1 part each or 2 that take turns.)",
    )?;
    Ok(true)
}

/// A table of the layers with what they take at least. The tiles are those of a cache and of the program.
fn certificate(tuner: &Tuner, mut cache: Cache, as_json: bool) -> Result<bool> {
    cache.merge(&tune::shipped()?);
    let (job, machine) = (tuner.job(), tuner.machine());
    let tiles = tune::tiles(&cache, job.graph, job.config, job.options, job.timing)?;
    let layers = certify(job.graph, machine, &tiles)?;
    let median = median_gap(&layers);
    if as_json {
        let object = json!({"layers": layers, "median_gap": median, "timing": machine.name});
        print_line(&object.to_string())?;
        return Ok(true);
    }
    let mut table = Table::new([
        Column::name("layer"),
        Column::number("cycles"),
        Column::number("at least"),
        Column::number("gap %"),
        Column::number("bytes").optional(),
        Column::number("at least").optional(),
        Column::words("most of the gap").optional(),
    ]);
    for layer in &layers {
        let least = &layer.least;
        table.row(vec![
            layer.name.clone(),
            layer.cycles.to_string(),
            least.cycles.to_string(),
            format!("{:.1}", layer.gap * 100.0),
            layer.bytes.to_string(),
            least.bytes.to_string(),
            layer.why.clone().unwrap_or_default(),
        ]);
    }
    print_text(table.text().trim_end())?;
    let (count, timing) = (layers.len(), &machine.name);
    let noun = if count == 1 { "layer" } else { "layers" };
    print_text(&format!(
        "{count} {noun}, each alone on {timing}: median gap {:.2} %",
        median * 100.0
    ))?;
    Ok(true)
}

/// A shape in words.
fn outline(shape: &ConvShape) -> String {
    let pair = |[a, b]: [usize; 2]| format!("{a}x{b}");
    format!(
        "{}x{} to {}x{} blocks, kernel {}, stride {}, dilation {}, pads {:?}",
        shape.ci,
        pair(shape.input),
        shape.co,
        pair(shape.output),
        pair(shape.window.kernel),
        pair(shape.window.stride),
        pair(shape.window.dilation),
        shape.window.pads.to_array(),
    )
}

/// A row for each candidate.
fn table(measured: &[Measured], searched: &ConvTile) -> Table {
    let numbers = ["cycles", "estimate", "co", "rows", "cols", "ci", "kernel"];
    let columns = numbers.map(Column::number).into_iter();
    let mut table = Table::new(columns.chain([
        Column::words("outer"),
        Column::number("parts"),
        Column::number("sums"),
        Column::words(""),
    ]));
    for m in measured {
        let tile = &m.tile;
        let [rows, columns] = tile.output;
        let numbers = [tile.co, rows, columns, tile.ci, tile.kernel_rows];
        let order = match tile.order {
            LoopOrder::ChannelsOutside => "channels",
            LoopOrder::PositionsOutside => "positions",
        };
        let mut cells = vec![m.cycles.to_string(), m.estimate.to_string()];
        cells.extend(numbers.map(|n| n.to_string()));
        cells.push(order.to_owned());
        cells.extend([tile.halves, tile.acc_halves].map(|n| n.to_string()));
        cells.push(if *tile == *searched { "default" } else { "" }.to_owned());
        table.row(cells);
    }
    table
}
