//! The least bytes and cycles of what a layer needs, over all tilings.

use serde::Serialize;
use vta_isa::{Config, Extension, MemType};
use vta_sim::cycle::TimingConfig;

use super::needs::{Needs, Reuse};

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The compute module's steps and instructions.
    Compute,
    /// Beats that all modules read.
    Bus,
    /// LOADs of the load module, one after the other.
    Load,
    /// Bursts of the store module.
    Store,
}

/// What no tiling of a layer goes below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// Cycles.
    pub cycles: u64,
    /// Bytes of tensors and constants that are loaded and stored; instructions and micro-ops aren't counted.
    pub bytes: u64,
    /// What the cycles are of.
    pub limit: Limit,
    /// Cycles of the compute module for steps alone.
    pub steps: u64,
}

/// Cycles of a LOAD besides those of its beats and the memory's latency, where it doesn't ask for them ahead.
const LOAD: u64 = 6;
/// Cycles of a GEMM or ALU instruction besides those of its steps and its pipeline, where it isn't decoded ahead.
const ISSUE: u64 = 3;
/// Cycles of a burst of a STORE besides those of its beats and tiles.
const BURST: u64 = 4;

impl Certificate {
    /// The least of all tilings.
    pub fn of(needs: &Needs, config: &Config, timing: &TimingConfig) -> Self {
        let depth = |mem: MemType| config.depth(mem) as u64;
        let bytes = |mem: MemType, tiles: u64| tiles * config.elem_bytes(mem) as u64;
        let bus = u64::from(timing.bus_bytes);
        let [inputs, weights] = [needs.inputs, needs.weights];
        let weight = match needs.wgt4 {
            true => MemType::Wgt4,
            false => MemType::Wgt,
        };
        let reads =
            |[inputs, weights]: [u64; 2]| bytes(MemType::Inp, inputs) + bytes(weight, weights);
        let loaded = match &needs.reuse {
            None => reads([inputs, weights]),
            Some(reuse) => passes(reuse, [inputs, weights], config)
                .into_iter()
                .map(|[i, w]| reads([inputs * i, weights * w]))
                .min()
                .unwrap_or_else(|| reads([inputs, weights])),
        };
        let beats = (loaded + needs.others).div_ceil(bus);
        let latency = match timing.load_ahead {
            true => 0,
            false => LOAD + u64::from(timing.memory_latency_cycles),
        };
        let loads = [
            inputs.div_ceil(depth(MemType::Inp)),
            weights.div_ceil(depth(MemType::Wgt)),
        ];
        let load = loaded.div_ceil(bus) + loads.iter().sum::<u64>() * latency;
        let steps = needs.products + needs.start + needs.operands + needs.lanes;
        // An instruction finds at most what the scratchpads hold.
        let fills = |tiles: u64| tiles.div_ceil(depth(MemType::Acc));
        let gemms = match needs.products {
            0 => 0,
            _ => fills(needs.sums).max(loads[0]).max(loads[1]),
        };
        let issue = if timing.compute_ahead { 0 } else { ISSUE };
        let issue = |pipeline: u32, insns: u64| insns * (issue + u64::from(pipeline));
        let compute = steps
            + issue(timing.gemm_pipeline_cycles, gemms)
            + issue(
                timing.alu_pipeline_cycles,
                needs.kinds * fills(needs.stored),
            );
        let [compute, beats] = match config.extensions().contains(Extension::Preload) {
            true => started(compute, beats, needs, config, bus),
            false => [compute, beats],
        };
        let all = [
            (compute, Limit::Compute),
            (beats, Limit::Bus),
            (load, Limit::Load),
            (store(needs, config, timing), Limit::Store),
        ];
        // The first of equal ones.
        let (cycles, limit) = all
            .into_iter()
            .rev()
            .max_by_key(|(n, _)| *n)
            .unwrap_or(all[0]);
        Self {
            cycles,
            bytes: loaded + needs.others + bytes(MemType::Out, needs.stored),
            limit,
            steps,
        }
    }
}

/// Compute's cycles and the bus' beats where LOADs start as many sums as is best for both.
fn started(compute: u64, beats: u64, needs: &Needs, config: &Config, bus: u64) -> [u64; 2] {
    let tile = config.elem_bytes(MemType::Acc8) as u64;
    let more = needs.sums * tile.div_ceil(bus);
    let saved = needs.start;
    if saved == 0 || compute <= beats {
        return [compute, beats];
    }
    // Both are linear in the share of sums that LOADs start.
    let meet = u128::from(compute) * u128::from(more) + u128::from(beats) * u128::from(saved);
    let meet = (meet / u128::from((more + saved).max(1))) as u64;
    [meet.max(compute - saved), beats]
}

/// Time of the STOREs, in as few bursts as there can be.
fn store(needs: &Needs, config: &Config, timing: &TimingConfig) -> u64 {
    let (tile, bus) = (
        config.elem_bytes(MemType::Out) as u64,
        u64::from(timing.bus_bytes),
    );
    let bytes = needs.stored * tile;
    let bursts = bytes.div_ceil(u64::from(timing.burst_beats) * bus);
    let beats = bytes.div_ceil(bus);
    let residual = u64::from(needs.residual_stored);
    let reads = match tile > bus {
        true => {
            let gap = if timing.store_ahead {
                0
            } else {
                needs.stored - bursts.min(needs.stored)
            };
            gap + residual * needs.stored
        }
        false => residual * beats,
    };
    BURST * bursts + beats + reads
}

/// How often a convolution reads its inputs and its weights, in every way that a nest of loops may do so: one of both
/// once where tiles of it stay that have all products of their sums, or both by tiles of sums that stay.
fn passes(reuse: &Reuse, [inputs, weights]: [u64; 2], config: &Config) -> Vec<[u64; 2]> {
    let [inp, wgt, acc] = [MemType::Inp, MemType::Wgt, MemType::Acc].map(|mem| config.depth(mem));
    let groups = |most: usize| (most > 0).then(|| reuse.co.div_ceil(most) as u64);
    let mut found = Vec::new();
    if inputs <= inp as u64 || weights <= wgt as u64 {
        found.push([1, 1]);
    }
    let row = weights.div_ceil(reuse.co as u64).max(1) as usize;
    found.extend(groups(wgt / row).map(|groups| [groups, 1]));
    let axes = [0, 1].map(|axis| parts(reuse, axis));
    for &(rows, row_parts, height) in &axes[0] {
        for &(columns, column_parts, width) in &axes[1] {
            let tiles = (row_parts * column_parts) as u64;
            if reuse.ci * height * width <= inp {
                found.push([1, tiles]);
            }
            found.extend(groups(acc / (rows * columns)).map(|groups| [groups, tiles]));
        }
    }
    found
}

/// The parts of an axis of outputs: the size of the largest at least, their number, the input positions that so many
/// outputs have at least.
fn parts(reuse: &Reuse, axis: usize) -> Vec<(usize, usize, usize)> {
    let outputs = reuse.output[axis];
    let mut sizes: Vec<usize> = (1..=outputs).map(|n| outputs.div_ceil(n)).collect();
    sizes.dedup();
    let part = |n: usize| (n, outputs.div_ceil(n), fewest(reuse, axis, n));
    sizes.into_iter().map(part).collect()
}

/// The fewest input positions that `n` outputs of an axis in a row have. Windows that leave no gap have fewest at an end,
/// where padding takes some: what both ends lose is convex in the first output. Others have their first taps apart.
fn fewest(reuse: &Reuse, axis: usize, n: usize) -> usize {
    let window = &reuse.window;
    let (before, after) = (window.pads.before()[axis], window.pads.after()[axis]);
    let (kernel, stride) = (window.kernel[axis], window.stride[axis]);
    if stride > kernel || window.dilation[axis] > 1 {
        return n.saturating_sub(before + after);
    }
    let at = |first: usize| {
        let end = (first + n - 1) * stride + kernel;
        let end = end.saturating_sub(before).min(reuse.input[axis]);
        end.saturating_sub((first * stride).saturating_sub(before))
    };
    at(0).min(at(reuse.output[axis] - n))
}

#[cfg(test)]
mod tests;
