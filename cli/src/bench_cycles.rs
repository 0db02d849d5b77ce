//! `vta bench --cycles`: what schedules take, beside what they can't beat.

use std::sync::Arc;

use anyhow::{Result, ensure};
use rayon::prelude::*;
use serde_json::{Value, json};
use vta_app::Watch;
use vta_app::device::Machine;
use vta_app::open::layer_or_network;
use vta_app::report;
use vta_app::sweep::pass;
use vta_compiler::lower::{self, LowerOptions};
use vta_compiler::qgraph::{QConv, QGraph, QOp};
use vta_compiler::{layer, tune};
use vta_driver::GemmSteps;
use vta_isa::Extension;
use vta_sim::views::LayerCycles;

use crate::args::BenchArgs;
use crate::bar::Bar;
use crate::bench::spread::median;
use crate::table::{Column, Table};
use crate::terminal::{print_json, print_line, print_text};

/// The networks of the second table, in each mode.
const NETWORKS: [&str; 5] = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"];
const MODES: [&str; 2] = ["multiply", "shift"];
/// The network whose distinct convolutions follow those of ResNet-18.
const LAYERS_OF: &str = "zoo:resnet50";

/// Figures of one layer, or of a network.
struct Row {
    name: String,
    /// The layer in the words of `vta layer`; a network's mode.
    what: String,
    cycles: u64,
    steps: GemmSteps,
    bound: u64,
    compute_bound: u64,
}

impl Row {
    fn of_bound(&self) -> f64 {
        self.cycles as f64 / self.bound.max(1) as f64
    }

    fn of_compute_bound(&self) -> f64 {
        self.cycles as f64 / self.compute_bound.max(1) as f64
    }

    fn of_gemm(&self) -> f64 {
        self.cycles as f64 / self.steps.dense.max(1) as f64
    }

    fn json(&self, what: &str) -> Value {
        json!({
            "name": self.name, what: self.what, "cycles": self.cycles,
            "gemm_uops": self.steps.dense, "product_uops": self.steps.products,
            "bound_cycles": self.bound, "ratio": self.of_bound(),
            "compute_bound_cycles": self.compute_bound,
            "compute_ratio": self.of_compute_bound(), "gemm_ratio": self.of_gemm(),
        })
    }

    fn cells(&self) -> Vec<String> {
        let numbers = [
            self.cycles,
            self.steps.dense,
            self.steps.products,
            self.bound,
        ];
        let mut cells = vec![self.name.clone(), self.what.clone()];
        cells.extend(numbers.map(|n| n.to_string()));
        cells.push(format!("{:.3}", self.of_bound()));
        cells.push(self.compute_bound.to_string());
        cells.push(format!("{:.3}", self.of_compute_bound()));
        cells.push(format!("{:.3}", self.of_gemm()));
        cells
    }
}

/// Measures every layer and network, and prints two tables.
///
/// # Errors
/// What can't be lowered or measured.
pub fn bench(args: &BenchArgs) -> Result<bool> {
    let machine = Machine::read(&args.timing.target(args.config.as_ref()))?;
    if let Some(text) = machine.misfit_of_config() {
        Bar::remarks().note(&text);
    }
    let layers = layers()?;
    let rows = layers
        .par_iter()
        .map(|(name, spec)| {
            let graph = layer::build(&layer::parse(spec)?, 1)?;
            let (row, _) = row(name, spec, &graph, &machine)?;
            Ok(row)
        })
        .collect::<Result<Vec<_>>>()?;
    // Without MUL there is no network of multiplications.
    let multiplies = machine.config.extensions().contains(Extension::Mul);
    let modes = || {
        MODES
            .into_iter()
            .filter(|mode| multiplies || *mode != MODES[0])
    };
    let networks = NETWORKS.iter().flat_map(|n| modes().map(|mode| (*n, mode)));
    let networks = networks
        .map(|(name, mode)| {
            let graph = layer_or_network(&format!("zoo:{name}:{mode}"))?;
            let (row, submissions) = row(name, mode, &graph, &machine)?;
            ensure!(submissions == 1, "{name} took {submissions} submissions");
            Ok(row)
        })
        .collect::<Result<Vec<_>>>()?;
    let [usual, worst] = spread(&rows, Row::of_bound);
    let [usual_compute, worst_compute] = spread(&rows, Row::of_compute_bound);
    if args.json {
        let object = json!({
            "timing": machine.name,
            "layers": rows.iter().map(|r| r.json("layer")).collect::<Vec<_>>(),
            "median": usual, "worst": worst,
            "compute_median": usual_compute, "compute_worst": worst_compute,
            "networks": networks.iter().map(|r| r.json("mode")).collect::<Vec<_>>(),
        });
        print_json(&object)?;
        return Ok(true);
    }
    print_line(&table("layer", &rows, args.markdown))?;
    print_text(&format!(
        "\n{} layers on {}, cycles / bound: median {usual:.3}, worst {worst:.3}; \
         cycles / compute bound: median {usual_compute:.3}, worst {worst_compute:.3}\n",
        rows.len(),
        machine.name,
    ))?;
    print_line(&table("mode", &networks, args.markdown))?;
    Ok(true)
}

/// ResNet-18's C2 to C11 and the distinct convolutions of ResNet-50, as `vta layer` takes them.
fn layers() -> Result<Vec<(String, String)>> {
    let named = layer::RESNET18.iter().skip(1);
    let mut layers: Vec<(String, String)> = named
        .map(|(name, [size, ci, co, k, s, p])| {
            (
                format!("resnet18.{name}"),
                format!("conv:1,{ci},{size},{size},{co},{k},{s},{p}"),
            )
        })
        .collect();
    let graph = layer_or_network(LAYERS_OF)?;
    for node in &graph.nodes {
        let QOp::Conv(QConv {
            input,
            window,
            dense: false,
            ..
        }) = &node.op
        else {
            continue;
        };
        let [ci, h, w] = graph.tensors[input.0].chw;
        let co = graph.tensors[node.output.0].chw[0];
        let (k, s, p) = (window.kernel[0], window.stride[0], window.pads.top);
        let spec = format!("conv:1,{ci},{h},{w},{co},{k},{s},{p}");
        if layers.iter().all(|(_, known)| *known != spec) {
            layers.push((format!("resnet50.{}", node.name), spec));
        }
    }
    Ok(layers)
}

/// Figures of a graph with the shipped tiles, and how many submissions it took.
fn row(name: &str, what: &str, graph: &QGraph, machine: &Machine) -> Result<(Row, usize)> {
    let options = LowerOptions::default();
    let (config, board) = (&machine.config, &machine.name);
    let tiles = tune::tiles(&tune::shipped()?, graph, config, &options, board)?;
    let program = Arc::new(lower::compile_with(graph, config, &options, &tiles)?);
    let runs = pass(&program, machine)?;
    let mut layers = report::merge(runs.iter().flat_map(|run| &run.layers));
    report::leave_out_additions(&mut layers, &program.layers);
    let mut steps = GemmSteps::default();
    program.layers.iter().for_each(|l| steps.add(&l.steps));
    let sum = |part: fn(&LayerCycles) -> u64| layers.iter().map(part).sum();
    let row = Row {
        name: name.to_owned(),
        what: what.to_owned(),
        cycles: sum(|l| l.cycles),
        steps,
        bound: sum(|l| l.bound.cycles()),
        compute_bound: sum(|l| l.bound.of_compute()),
    };
    Ok((row, runs.len()))
}

/// The median and the largest of a figure.
fn spread(rows: &[Row], figure: fn(&Row) -> f64) -> [f64; 2] {
    let all: Vec<f64> = rows.iter().map(figure).collect();
    let largest = all.iter().copied().fold(f64::NAN, f64::max);
    [median(all), largest]
}

fn table(what: &'static str, rows: &[Row], markdown: bool) -> String {
    let mut table = Table::new([
        Column::name(""),
        Column::words(what).optional(),
        Column::number("cycles"),
        Column::number("GEMM steps").optional(),
        Column::number("without padding").optional(),
        Column::number("bound"),
        Column::number("ratio"),
        Column::number("compute bound").optional(),
        Column::number("ratio"),
        Column::number("cycles / GEMM steps").optional(),
    ]);
    rows.iter().for_each(|row| table.row(row.cells()));
    let text = if markdown {
        table.markdown()
    } else {
        table.text()
    };
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cycles: u64, bound: u64) -> Row {
        Row {
            name: "l".to_owned(),
            what: "conv".to_owned(),
            cycles,
            steps: GemmSteps::default(),
            bound,
            compute_bound: 2 * bound,
        }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let rows = [row(400, 100), row(110, 100), row(120, 100), row(100, 100)];
        let [median, worst] = spread(&rows, Row::of_bound);
        assert!((median - 1.15).abs() < 1e-9 && worst == 4.0);
        assert_eq!(spread(&rows[..1], Row::of_compute_bound), [2.0, 2.0]);
        assert!(spread(&[], Row::of_bound)[0].is_nan());
    }

    #[test]
    fn tables_have_a_line_for_each_row() {
        let text = table("layer", &[row(3, 2)], true);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[2],
            "| l | conv | 3 | 0 | 0 | 2 | 1.500 | 4 | 0.750 | 3.000 |"
        );
    }

    #[test]
    fn tables_fit_a_terminal() {
        let mut long = row(21_779_521, 15_734_544);
        long.name = "resnet50.layer1.0.downsample".to_owned();
        long.what = "conv:1,1024,14,14,2048,1,2,0".to_owned();
        for line in table("layer", &[long], false).lines() {
            assert!(line.len() <= crate::terminal::COLUMNS, "{line}");
        }
    }
}
