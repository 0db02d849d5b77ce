//! Why a layer is slow, in words.

use serde::Serialize;

use super::{LayerCycles, Spend};
use crate::cycle::{Client, StallReason, Unit};

/// Cycles of the matrix unit that one cause takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// What the compute module does in these cycles.
    pub spend: Spend,
    /// How many cycles.
    pub cycles: u64,
    /// Their share of the layer's cycles, 0 to 1.
    pub share: f64,
    /// The cause, as a sentence without its full stop.
    pub words: String,
}

/// The resource that decides how long a layer takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The resource in a word or two, such as `matrix unit` or `weights`.
    pub resource: &'static str,
    /// What the compute module does while that resource decides; of several uses that make one
    /// resource, the longest.
    pub spend: Spend,
    /// Share of the layer's cycles that it accounts for, 0 to 1.
    pub share: f64,
    /// One or two sentences.
    pub words: String,
}

/// Everything that keeps the matrix unit from multiplying, the largest first. With the cycles of
/// [`Spend::Gemm`] they add up to the layer's. Works for a total of layers, too.
pub fn losses(layer: &LayerCycles) -> Vec<Loss> {
    let loss = |spend: Spend| Loss {
        spend,
        cycles: layer.spent(spend),
        share: share(layer.spent(spend), layer.cycles),
        words: cause(layer, spend).1,
    };
    let lost = Spend::ALL.into_iter().filter(|&s| s != Spend::Gemm);
    let mut losses: Vec<_> = lost.map(loss).filter(|l| l.cycles > 0).collect();
    // Equal ones stay in the order of `Spend::ALL`.
    losses.sort_by_key(|l| std::cmp::Reverse(l.cycles));
    losses
}

/// Cycles of the resource behind a use: the ALU's steps and its starts and drains are one's.
fn of_resource(layer: &LayerCycles, spend: Spend) -> u64 {
    match spend {
        Spend::Alu | Spend::AluPipeline => {
            layer.spent(Spend::Alu) + layer.spent(Spend::AluPipeline)
        }
        Spend::Gemm
        | Spend::Reset
        | Spend::GemmPipeline
        | Spend::LoadAcc
        | Spend::LoadUop
        | Spend::Sync
        | Spend::WaitLoad
        | Spend::WaitStore
        | Spend::WaitFetch => layer.spent(spend),
    }
}

impl Verdict {
    /// The verdict on a layer: the resource that takes most of the compute module's cycles, the
    /// matrix unit among equals.
    pub fn of(layer: &LayerCycles) -> Self {
        let busy = layer.spent(Spend::Gemm);
        let losses = losses(layer);
        let together = |loss: &Loss| of_resource(layer, loss.spend);
        // The first of equal ones, so that the longest of a resource's uses stands for it.
        let worst = losses.iter().rev().max_by_key(|loss| together(loss));
        // The share of a resource, where the losses below name a part of it.
        let part = |worst: &Loss| {
            let part = percent(share(together(worst), layer.cycles));
            let more = together(worst) > worst.cycles;
            if more {
                part + " for the ALU in all"
            } else {
                part
            }
        };
        match worst {
            Some(worst) if together(worst) > busy => {
                let share = share(together(worst), layer.cycles);
                Self {
                    resource: cause(layer, worst.spend).0,
                    spend: worst.spend,
                    share,
                    words: format!("{}: {}.", part(worst), worst.words),
                }
            }
            worst => {
                let mut words = format!(
                    "The matrix unit multiplies in {} of the cycles.",
                    percent(share(busy, layer.cycles))
                );
                if let Some(worst) = worst {
                    let part = part(worst);
                    words.push_str(&format!(" Largest loss, {part}: {}.", worst.words));
                }
                Self {
                    resource: "matrix unit",
                    spend: Spend::Gemm,
                    share: share(busy, layer.cycles),
                    words,
                }
            }
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Digits in threes, with narrow no-break spaces between.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The resource behind a use of the compute module, and the cause in words.
fn cause(layer: &LayerCycles, spend: Spend) -> (&'static str, String) {
    let text = |resource, words: &str| (resource, words.to_owned());
    match spend {
        Spend::Gemm => text("matrix unit", "the matrix unit multiplies"),
        Spend::Reset => text(
            "accumulator resets",
            "GEMM instructions clear accumulators, one tile a cycle, before they are summed into",
        ),
        Spend::GemmPipeline => text(
            "short GEMMs",
            "the matrix pipeline fills and drains once for each GEMM instruction, \
             and these have few steps",
        ),
        Spend::Alu => (
            "ALU",
            format!(
                "the ALU works on accumulators ({} steps; one a cycle, two-operand ones slower), \
                 and the matrix unit waits, since both belong to the compute module",
                grouped(layer.alu_uops)
            ),
        ),
        Spend::AluPipeline => text(
            "short ALU operations",
            "the ALU pipeline fills and drains once for each instruction, \
             and these have few steps",
        ),
        Spend::LoadAcc => (
            "accumulator loads",
            format!(
                "the compute module itself loads accumulators (bias, residual, operands of \
                 pooling and sums; {} beats), so nothing is computed meanwhile",
                grouped(layer.read_beats[Client::Acc as usize])
            ),
        ),
        Spend::LoadUop => text(
            "micro-op loads",
            "the compute module loads micro-ops before it can go on",
        ),
        Spend::Sync => text("synchronisation", "tokens are handed on, and the run ends"),
        Spend::WaitLoad => behind_load(layer),
        Spend::WaitStore => (
            "store",
            format!(
                "compute waits until the store module has written accumulators out \
                 ({} beats, which the store module takes {} cycles for)",
                grouped(layer.write_beats),
                grouped(layer.active(Unit::Store))
            ),
        ),
        Spend::WaitFetch => behind_fetch(layer),
    }
}

/// Why the load module is behind: what it does most.
fn behind_load(layer: &LayerCycles) -> (&'static str, String) {
    let stalled = |reason| layer.stalled(Unit::Load, reason);
    let mut streams = [
        ("weights", Client::Wgt),
        ("inputs", Client::Inp),
        ("accumulators", Client::Preload),
    ]
    .map(|(stream, client)| (layer.read_beats[client as usize], stream));
    // Of equal ones the first stays the first.
    streams.sort_by_key(|(beats, _)| std::cmp::Reverse(*beats));
    let [(most, stream), others @ ..] = streams;
    let mut what = format!("{} beats of {stream}", grouped(most));
    for (beats, stream) in others {
        if beats > 0 || stream != "accumulators" {
            what += &format!(", {} of {stream}", grouped(beats));
        }
    }
    let mut causes = vec![
        (
            layer.active(Unit::Load),
            stream,
            format!("the bus carries them at one beat a cycle ({what})"),
        ),
        (
            stalled(StallReason::MemoryLatency),
            "memory latency",
            "most of a LOAD is the wait for its first beat: the LOADs are short".to_owned(),
        ),
        (
            stalled(StallReason::RequestSlot),
            "short rows",
            "rows of one or few beats leave gaps between requests".to_owned(),
        ),
        (
            stalled(StallReason::Dram),
            "DRAM",
            "the DRAM opens rows or is refreshed".to_owned(),
        ),
        (
            stalled(StallReason::Padding),
            "padding",
            "the load module writes padding tiles, one a cycle".to_owned(),
        ),
        (
            stalled(StallReason::QueueEmpty),
            "fetch",
            "the load module has no instructions: fetch is behind".to_owned(),
        ),
    ];
    for client in Client::READERS {
        causes.push((
            stalled(StallReason::MemoryBusy(client)),
            "bus",
            format!("the bus carries beats of {} meanwhile", client.name()),
        ));
    }
    // The first of equal ones, so that the order above decides.
    let mut worst = &causes[0];
    for cause in &causes[1..] {
        if cause.0 > worst.0 {
            worst = cause;
        }
    }
    let words = format!("compute waits for inputs or weights; {}", worst.2);
    (worst.1, words)
}

fn behind_fetch(layer: &LayerCycles) -> (&'static str, String) {
    use vta_isa::Module;
    let full = |m| (layer.stalled(Unit::Fetch, StallReason::QueueFull(m)), m);
    let blocked = Module::ALL.map(full).into_iter().max_by_key(|b| b.0);
    match blocked {
        Some((cycles, module)) if cycles * 2 > layer.spent(Spend::WaitFetch) => (
            "fetch",
            format!(
                "compute has no instructions: fetch is held up behind one for the full queue of \
                 the {module} module"
            ),
        ),
        _ => (
            "fetch",
            format!(
                "compute has no instructions: fetch reads a chunk, waits for the memory, then \
                 hands out one a cycle ({} instructions in this layer)",
                grouped(layer.insns)
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
