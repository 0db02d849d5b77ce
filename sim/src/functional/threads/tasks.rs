//! Clusters of units as tasks, each of which waits for earlier ones only.

use vta_driver::Span;

use super::cells::Cells;
use super::clusters::Clusters;
use super::flow::Flow;
use super::unit::Unit;
use crate::kernels::shared::Footprint;

/// Rounds of joining clusters that would wait for each other.
const MOST_ROUNDS: usize = 8;

/// A task with what it touches.
pub(crate) struct Outline {
    cluster: usize,
    /// The first unit that no earlier group has; tasks are in its order.
    pub first: u32,
    /// The first and the last of all units.
    ends: [u32; 2],
    pub units: Vec<u32>,
    pub before: Cells,
    pub after: Cells,
    pub footprint: Footprint,
}

/// All tasks with an effect, in order, each waiting for earlier ones only; `None` if joining
/// them until that is so doesn't come to an end.
pub(crate) fn outline(flow: &Flow, threads: usize) -> Option<Vec<Outline>> {
    let mut clusters = Clusters::new(flow, threads);
    for _ in 0..MOST_ROUNDS {
        let outlines = outlines(flow, &clusters);
        let backward = backward(flow, &outlines);
        if backward.is_empty() {
            return Some(outlines);
        }
        for (a, b) in backward {
            clusters.join(a, b);
        }
    }
    None
}

fn outlines(flow: &Flow, clusters: &Clusters<'_>) -> Vec<Outline> {
    let mut outlines: Vec<Outline> = Vec::with_capacity(clusters.list.len());
    for (number, cluster) in clusters.list.iter().enumerate() {
        let Some(cluster) = cluster else { continue };
        let mut units: Vec<u32> = cluster.units.iter().copied().collect();
        units.sort_unstable();
        let cells = |unit: &u32| flow.before[*unit as usize].runs().iter().cloned();
        let before = Cells::new(units.iter().flat_map(cells).collect());
        let left = cluster.sinks.iter().filter_map(|sink| flow.after.get(sink));
        let after = Cells::new(left.flat_map(|c| c.runs().iter().cloned()).collect());
        let spans = |of: fn(&Unit) -> &Vec<Span>| -> Vec<Span> {
            let units = units.iter().map(|&unit| &flow.units[unit as usize]);
            units.flat_map(|unit| of(unit).iter().copied()).collect()
        };
        outlines.push(Outline {
            cluster: number,
            first: cluster.first,
            ends: [units[0], units[units.len() - 1]],
            footprint: Footprint::new(spans(|u| &u.dram_reads), spans(|u| &u.dram_writes)),
            units,
            before,
            after,
        });
    }
    outlines.sort_by_key(|d| d.first);
    outlines
}

/// Clusters of which the one in front has a unit that must come after a unit of the other.
fn backward(flow: &Flow, outlines: &[Outline]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // The last unit of all tasks so far.
    let mut reach: Vec<u32> = Vec::with_capacity(outlines.len());
    for (index, outline) in outlines.iter().enumerate() {
        for (before, other) in outlines[..index].iter().enumerate().rev() {
            if reach[before] < outline.ends[0] {
                break;
            }
            if other.ends[1] > outline.ends[0]
                && other.footprint.conflicts(&outline.footprint)
                && reversed(flow, other, outline)
            {
                found.push((other.cluster, outline.cluster));
            }
        }
        let before = reach.last().copied().unwrap_or(0);
        reach.push(before.max(outline.ends[1]));
    }
    found
}

/// Whether a unit of `first` that comes after one of `second` conflicts with it.
fn reversed(flow: &Flow, first: &Outline, second: &Outline) -> bool {
    let footprint = |unit: u32| &flow.footprints[unit as usize];
    second.units.iter().any(|&b| {
        let later = first.units.partition_point(|&a| a <= b);
        let mut later = first.units[later..].iter();
        later.any(|&a| footprint(a).conflicts(footprint(b)))
    })
}
