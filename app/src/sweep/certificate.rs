//! Certificates: what each layer of a network takes at least on a machine, whatever its tiles, beside what it takes.
//!
//! The page "Schedules" of the documentation says how they are proven.

mod least;
mod needs;
mod subject;

use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;
use vta_compiler::lower::{self, LowerOptions, Tiles};
use vta_compiler::qgraph::{NodeId, QGraph, QNode};
use vta_driver::Program;
use vta_sim::cycle::Client;
use vta_sim::views::{LayerCycles, Spend};

pub use least::{Certificate, Limit};

use crate::device::Machine;
use crate::error::Result;
use crate::sweep::tune::pass;
use subject::Subject;

/// A gap beyond which a layer says why.
const WIDE: f64 = 0.02;

/// A layer alone on a machine, beside the least that it could take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Certified {
    /// The node's name.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// What it takes.
    pub cycles: u64,
    /// Bytes of tensors and constants that it loads and stores.
    pub bytes: u64,
    /// What it takes at least.
    pub least: Certificate,
    /// Cycles beyond the certificate's, as a share of them.
    pub gap: f64,
    /// Where most of the gap goes, if that is more than 2 %.
    pub why: Option<String>,
}

/// The certificate of each layer that has one, in the order of the network. Layers that move channels have none, since
/// their instructions depend on where tensors lie.
///
/// # Errors
/// What can't be lowered or measured; a network with nodes of the host.
pub fn certify(graph: &QGraph, machine: &Machine, tiles: &Tiles) -> Result<Vec<Certified>> {
    let (config, options) = (&machine.config, LowerOptions::default());
    let shapes = lower::conv_tiles(graph, config, &options, tiles)?;
    let known = lower::for_machine(graph, config);
    let ids: Vec<NodeId> = known.ids().map(|(id, _)| id).collect();
    let compile =
        |id: &NodeId| lower::compile_nodes(graph, config, &options, tiles, id.0..id.0 + 1);
    let programs = ids.par_iter().map(compile).collect::<Result<Vec<_>, _>>()?;
    // The node behind a convolution is the pool that joined it.
    let joins = |at: usize| {
        programs[at]
            .layers
            .iter()
            .any(|layer| layer.nodes.len() > 1)
    };
    let alone = |at: &usize| *at == 0 || !joins(at - 1);
    let one = |at: usize| {
        let node = &known.nodes[at];
        let subject = Subject {
            graph: &known,
            node,
            shape: shapes
                .iter()
                .find(|(id, ..)| id.0 == at)
                .map(|(_, shape, _)| shape),
            pool: if joins(at) {
                known.nodes.get(at + 1)
            } else {
                None
            },
            config,
            timing: &machine.timing,
        };
        let needs = subject.needs()?;
        let least = Certificate::of(&needs, config, &machine.timing);
        Some(measure(&programs[at], machine, node, least))
    };
    let places: Vec<usize> = (0..ids.len()).filter(alone).collect();
    places.into_par_iter().filter_map(one).collect()
}

/// The median of the layers' gaps; 0 without layers.
pub fn median_gap(layers: &[Certified]) -> f64 {
    let mut gaps: Vec<f64> = layers.iter().map(|layer| layer.gap).collect();
    gaps.sort_by(f64::total_cmp);
    match gaps.len() {
        0 => 0.0,
        n => (gaps[(n - 1) / 2] + gaps[n / 2]) / 2.0,
    }
}

/// Counts what a layer's program takes.
fn measure(
    program: &Program,
    machine: &Machine,
    node: &QNode,
    least: Certificate,
) -> Result<Certified> {
    let runs = pass(&Arc::new(program.clone()), machine)?;
    let mut total = LayerCycles::default();
    for layer in runs.iter().flat_map(|run| &run.layers) {
        total.bus_bytes = layer.bus_bytes;
        total.add(layer);
    }
    let cycles: u64 = runs.iter().map(|run| run.report.cycles).sum();
    let constant = [Client::Fetch, Client::Uop].map(|client| total.read_beats[client as usize]);
    let bytes = total.dram_bytes() - constant.iter().sum::<u64>() * total.bus_bytes;
    let gap = cycles as f64 / least.cycles.max(1) as f64 - 1.0;
    Ok(Certified {
        name: node.name.clone(),
        kind: node.op.kind(),
        cycles,
        bytes,
        least,
        gap,
        why: (gap > WIDE).then(|| why(&total, bytes, cycles, &least)),
    })
}

/// Where most of a gap goes: what the compute module does beyond the certificate's steps, or what the bus carries beyond
/// its bytes, in words.
fn why(total: &LayerCycles, bytes: u64, cycles: u64, least: &Certificate) -> String {
    let spent = |uses: &[Spend]| uses.iter().map(|of| total.spent(*of)).sum::<u64>();
    let steps = spent(&[Spend::Gemm, Spend::Reset, Spend::Alu, Spend::LoadAcc]);
    let more_bytes = bytes.saturating_sub(least.bytes);
    let mut causes = vec![
        (
            steps.saturating_sub(least.steps),
            "more steps and beats of the compute module",
        ),
        (
            spent(&[Spend::GemmPipeline, Spend::AluPipeline]),
            "instructions that start and drain",
        ),
    ];
    let others = [
        Spend::LoadUop,
        Spend::WaitLoad,
        Spend::WaitStore,
        Spend::WaitFetch,
        Spend::Sync,
    ];
    causes.extend(others.map(|of| (total.spent(of), of.words())));
    if least.limit != Limit::Compute {
        causes = vec![
            (
                more_bytes / total.bus_bytes.max(1),
                "bytes that are read again",
            ),
            (
                cycles.saturating_sub(least.cycles + more_bytes / total.bus_bytes.max(1)),
                "waits of the modules for each other and for the memory",
            ),
        ];
    }
    // The first of equal ones.
    let most = causes.iter().rev().max_by_key(|(n, _)| *n);
    let (lost, words) = most.copied().unwrap_or((0, ""));
    format!(
        "{words} ({:.1} %)",
        lost as f64 / cycles.max(1) as f64 * 100.0
    )
}
