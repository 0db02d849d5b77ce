//! A layer as the report's parts show it.

use maud::{Markup, html};
use vta_driver::{BufferId, Command, Layer, Program, Symbol, TensorSpec};
use vta_isa::{Insn, MemType};
use vta_sim::views::{Energy, LayerCycles, Loss, Verdict};

use crate::report::format::percent;
use crate::report::timed::{Report, verdict};

/// A layer with what the program knows of it.
pub struct Row<'a> {
    pub index: usize,
    pub kind: &'a str,
    /// What it reads and writes.
    pub shape: String,
    /// Useful multiply-adds of a pass: of all BATCH images.
    pub macs: u64,
    pub layer: &'a LayerCycles,
    pub verdict: Verdict,
    pub energy: Energy,
}

impl Row<'_> {
    /// Cycles over what no schedule can beat.
    pub fn of_bound(&self) -> f64 {
        self.layer.cycles as f64 / self.layer.bound.cycles().max(1) as f64
    }
}

/// A row for each layer of the run.
pub fn rows<'a>(program: &'a Program, timed: &'a Report) -> Vec<Row<'a>> {
    let batch = program.config.batch() as u64;
    let row = |(index, layer): (usize, &'a LayerCycles)| {
        let known = program.layers.iter().find(|l| l.name == layer.name);
        let macs = known.map_or(0, |l| l.macs) * batch;
        Row {
            index: index + 1,
            kind: known.map_or("", |l| &l.kind),
            shape: known.map_or_else(String::new, |l| shape(program, l)),
            macs,
            layer,
            verdict: verdict(layer, macs),
            energy: layer.energy(&timed.costs),
        }
    };
    timed.layers.iter().enumerate().map(row).collect()
}

/// Channels, rows and columns of what a layer reads, where its instructions say it, and of what it
/// writes. Of several that it reads, a residual or a second operand has the shape of the result.
fn shape(program: &Program, layer: &Layer) -> String {
    let tensor = |id: BufferId| program.tensors.iter().find(|t| t.buffer == id);
    let reads = |command: &Command| match (&command.insn, command.symbol) {
        (Insn::Load(load), Symbol::Buffer(id)) if load.mem != MemType::Uop => tensor(id),
        _ => None,
    };
    let written = program.tensors.get(layer.output as usize);
    let read = || layer.commands.iter().filter_map(reads);
    let own = read().find(|tensor| written.is_none_or(|written| written.chw != tensor.chw));
    let chw = |tensor: &TensorSpec| tensor.chw.map(|d| d.to_string()).join("×");
    let ends = [own.or_else(|| read().next()), written];
    let ends: Vec<String> = ends.into_iter().flatten().map(chw).collect();
    ends.join(" → ")
}

/// The largest losses with their causes.
pub fn loss_list(losses: &[Loss]) -> Markup {
    html! {
        ul.losses {
            @for loss in losses.iter().take(3).filter(|l| l.share >= 0.005) {
                li {
                    i class={ "k" (loss.spend as usize) } {}
                    span { b { (percent(loss.share)) } " " (loss.words) "." }
                }
            }
        }
    }
}
